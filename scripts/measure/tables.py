"""The recorded tables: what their columns are, how they are written and read. Needs no PyTorch."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "data" / "traces"

CASE_COLUMNS = (
    "implementation",
    "model",
    "shape",
    "micro_batch",
    "sequence",
    "precision",
    "attention",
    "recompute",
    "optimizer",
    "loss",
    "hold_logits",
    "micro_batches",
    "clip",
)
BLOCKS = "blocks.csv"
BLOCK_COLUMNS = (
    "block",
    "family",
    "size",
    "implementation",
    "model",
    "shape",
    "micro_batch",
    "sequence",
    "precision",
    "attention",
    "kept_bytes",
    "weight_copy_bytes",
    "shared_bytes",
)
"""A row for each layer taken apart; the bytes are the sums of its tensors' by kind, not rounded."""

TENSORS = "block-tensors.csv"
TENSOR_COLUMNS = ("block", "kind", "shape", "dtype", "bytes", "made_by", "needed_by")
"""A row for each storage that a layer keeps."""

STEPS = "steps.csv"
STEP_COLUMNS = (
    "step",
    *CASE_COLUMNS,
    "parameters",
    "persistent_bytes",
    "after_forward_bytes",
    "after_backward_bytes",
    "peak_bytes",
    "peak_phase",
)
"""A row for each training step."""

CATEGORIES = (
    "weights",
    "master",
    "gradients",
    "optimizer",
    "buffers",
    "inputs",
    "weight_copies",
    "activations",
    "logits",
    "recomputed",
    "backward",
    "step",
)
PEAKS = "step-peaks.csv"
PEAK_COLUMNS = (
    "step",
    "phase",
    "bytes",
    "moment",
    "layer",
    "operation",
    "module",
    "again",
    "with_workspace_bytes",
    *(f"{category}_bytes" for category in CATEGORIES),
)
"""A row for each phase of each step; the categories' bytes add up to ``bytes``.

``with_workspace_bytes`` is the phase's peak when what the flash kernel allocates inside itself
counts as well, as it does on a GPU."""

TUNED = "tuning-steps.csv"
TUNED_COLUMNS = (
    "step",
    *CASE_COLUMNS,
    "in_backward",
    "offload",
    "adapter",
    "adapter_rank",
    "adapter_targets",
    "adapter_dtype",
    "adapter_dropout",
    "frozen_dtype",
    "parameters",
    "trained",
    "persistent_bytes",
    "after_forward_bytes",
    "after_backward_bytes",
    *(f"{phase}_peak_bytes" for phase in ("forward", "backward", "clip", "step")),
)
"""A row for each step of fine-tuning; a weight in 4 bits counts as half a parameter."""
SHARDED = "sharded-steps.csv"
SHARDED_COLUMNS = (
    "step",
    *CASE_COLUMNS,
    "data",
    "replicas",
    "tensor",
    "sequence_parallel",
    "sharding",
    "reshard",
    "wrap",
    "prefetch",
    "reduce_dtype",
    "bucket_views",
    "synced",
    "turn",
    "parameters",
    "persistent_bytes",
    "after_forward_bytes",
    "after_backward_bytes",
    "peak_bytes",
    "peak_phase",
)
SHARDED_PEAKS = "sharded-peaks.csv"
"""The same two tables for steps of one of several GPUs."""

SHARDED_TUNED = "sharded-tuning.csv"
SHARDED_TUNED_COLUMNS = (
    *TUNED_COLUMNS[: TUNED_COLUMNS.index("parameters")],
    *SHARDED_COLUMNS[SHARDED_COLUMNS.index("data") : SHARDED_COLUMNS.index("parameters")],
    "quant_storage",
    "offload_params",
    *TUNED_COLUMNS[TUNED_COLUMNS.index("trained") :],
)
"""A row for each step of fine-tuning on one of several GPUs."""

CONTEXT = "context-steps.csv"
CONTEXT_COLUMNS = (
    *SHARDED_COLUMNS[: SHARDED_COLUMNS.index("tensor")],
    *("context", "rotate", "rank", "reshard", "wrap", "prefetch", "reduce_dtype", "synced"),
    *("parameters", "persistent_bytes", "after_forward_bytes", "after_backward_bytes"),
    *(f"{phase}_peak_bytes" for phase in ("forward", "backward", "clip", "step")),
)
"""A row for each step of one of the GPUs that share each sequence, ``rank`` of all."""

REAL = "real-steps.csv"
REAL_COLUMNS = (
    "step",
    *CASE_COLUMNS,
    "phase",
    "fake_bytes",
    "real_bytes",
    "allocator_bytes",
)
"""A row for each phase of each small step that also ran with real numbers on a CPU."""

MEGATRON = "megatron-steps.csv"
MEGATRON_COLUMNS = (
    "step",
    "model",
    "shape",
    "micro_batch",
    "micro_batches",
    "sequence",
    "recompute",
    "loss",
    "dropout",
    "mtp_layers",
    "tensor",
    "sequence_parallel",
    "pipeline",
    "interleave",
    "stage",
    "data",
    "context",
    "expert",
    "expert_tensor",
    "routing",
    "permutation",
    "distributed_optimizer",
    "parameters",
    "persistent_bytes",
    "forward_bytes",
    "forward_operation",
    "forward_module",
    "backward_bytes",
    "backward_operation",
    "backward_module",
)
"""A row for each stage of a step of Megatron's: what is held between steps, and the highest of all
forward and of all backward passes."""

ZERO = "zero-steps.csv"
ZERO_COLUMNS = (
    "step",
    *CASE_COLUMNS,
    "data",
    "stage",
    "rank",
    "reduce_bucket_size",
    "overlap_comm",
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "sub_group_size",
    "offload_optimizer",
    "offload_param",
    "grad_accum_dtype",
    "adapter",
    "adapter_rank",
    "adapter_targets",
    "adapter_dtype",
    "adapter_dropout",
    "frozen_dtype",
    "quant_storage",
    "parameters",
    "persistent_bytes",
    "after_forward_bytes",
    "after_backward_bytes",
    "forward_bytes",
    "forward_operation",
    "backward_bytes",
    "backward_operation",
    "step_bytes",
    "step_operation",
)
"""A row for each step under DeepSpeed: the highest of all forward and backward passes, and of the
optimizer's step."""

PIPELINES = "pipelines.csv"
PIPELINE_COLUMNS = (
    "source",
    "schedule",
    "stages",
    "stage",
    "parts",
    "micro_batches",
    "held",
    "held_by_part",
    "held_until_weights",
    "order",
)
"""A row for each stage of each pipeline schedule: the most passes at once that wait for a backward
pass, of all parts and of each, and for the weights' half of one; and all passes in order."""

FSDP1 = "fsdp1-steps.csv"
FSDP1_COLUMNS = (
    "step",
    *CASE_COLUMNS,
    "offload",
    *TUNED_COLUMNS[TUNED_COLUMNS.index("adapter") : TUNED_COLUMNS.index("parameters")],
    "quant_storage",
    "data",
    "replicas",
    "rank",
    "strategy",
    "backward_prefetch",
    "forward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "reduce_dtype",
    "offload_params",
    "synced",
    "parameters",
    "persistent_bytes",
    "after_forward_bytes",
    "after_backward_bytes",
    "forward_bytes",
    "forward_operation",
    "backward_bytes",
    "backward_operation",
    "clip_bytes",
    "clip_operation",
    "step_bytes",
    "step_operation",
)
"""A row for each step under PyTorch's first FSDP: the highest of all forward and backward passes,
of clipping and of the optimizer's step."""

COLUMNS: Mapping[str, Sequence[str]] = {
    BLOCKS: BLOCK_COLUMNS,
    TENSORS: TENSOR_COLUMNS,
    STEPS: STEP_COLUMNS,
    PEAKS: PEAK_COLUMNS,
    TUNED: TUNED_COLUMNS,
    SHARDED: SHARDED_COLUMNS,
    SHARDED_PEAKS: PEAK_COLUMNS,
    SHARDED_TUNED: SHARDED_TUNED_COLUMNS,
    CONTEXT: CONTEXT_COLUMNS,
    REAL: REAL_COLUMNS,
    MEGATRON: MEGATRON_COLUMNS,
    ZERO: ZERO_COLUMNS,
    PIPELINES: PIPELINE_COLUMNS,
    FSDP1: FSDP1_COLUMNS,
}


def read(name: str, folder: Path = FOLDER) -> list[dict[str, str]]:
    """A table's rows. Raises ValueError where its columns are not what they should be."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != tuple(COLUMNS[name]):
            raise ValueError(f"{name}: columns {reader.fieldnames}")
        return list(reader)


def write(name: str, rows: Iterable[Mapping[str, object]], folder: Path = FOLDER) -> None:
    """Write a table whole, or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{name}.part"
    with unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS[name], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    unfinished.replace(folder / name)
