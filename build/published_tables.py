"""Tables that papers published, made anew from the calculator's ledgers to stand beside them."""

from __future__ import annotations

from table import Cell, Column, Table
from training_memory import catalog
from training_memory.blocks import paper
from training_memory.blocks.ledger import Recompute
from training_memory.categories import Category
from training_memory.derivation import TOKENS
from training_memory.estimate import estimate
from training_memory.recipe import MIXED_ADAM
from training_memory.run import Run
from training_memory.units import gb, percent

#: ZeRO, Table 1: model sizes and numbers of data-parallel GPUs.
_SIZES = (("7.5B", 7_500_000_000), ("128B", 128 * 10**9), ("1T", 10**12))
_WORKERS = (1, 4, 16, 64, 256, 1024)
_STAGES = (
    (0, "Baseline"),
    (1, "Stage 1: optimizer states"),
    (2, "Stage 2: and gradients"),
    (3, "Stage 3: and weights"),
)
#: ZeRO, Figure 1.
_FIGURE_WORKERS = 64

#: Korthikanti et al., Table 2, in its order: words, recomputation, tensor and sequence parallelism.
_TABLE_2 = (
    ("No parallelism", Recompute.NONE, False, False),
    ("Tensor parallel (baseline)", Recompute.NONE, True, False),
    ("Tensor and sequence parallel", Recompute.NONE, True, True),
    ("Tensor parallel, selective recomputation", Recompute.SELECTIVE, True, False),
    ("Tensor and sequence parallel, selective recomputation", Recompute.SELECTIVE, True, True),
    ("Full recomputation", Recompute.FULL, False, False),
)

#: Korthikanti et al., Table 3: model, tensor and pipeline degree, micro-batch.
_MODELS = (
    ("korthikanti-22b", 8, 1, 4),
    ("korthikanti-175b", 8, 8, 1),
    ("korthikanti-530b", 8, 35, 1),
    ("korthikanti-1t", 8, 64, 1),
)
_SEQUENCE = 2048


def _sized(size: int) -> Cell:
    """A size in GB with as many decimals as its first three digits need."""
    return Cell(size, gb(size, 2 if size < 10 * 10**9 else 1))


def _in_gb(size: int) -> Cell:
    return Cell(size, gb(size))


def _states(parameters: int, workers: int, stage: int) -> int:
    # Sharded states are padded to the same number of parameters on every GPU.
    padded = -(-parameters // workers) * workers
    return MIXED_ADAM.formula(stage).evaluate({"N": padded, "d": workers})


def zero_figure_1() -> Table:
    """States of a 7.5-billion-parameter model on each of 64 GPUs, by ZeRO stage."""
    return Table(
        columns=(
            Column(heading="ZeRO", name="stage", right=False),
            Column(heading="Bytes", name="formula", right=False),
            Column(heading="On each GPU", name="states_bytes"),
        ),
        rows=tuple(
            (
                Cell(stage, words),
                Cell(MIXED_ADAM.formula(stage).text()),
                _in_gb(_states(_SIZES[0][1], _FIGURE_WORKERS, stage)),
            )
            for stage, words in _STAGES
        ),
    )


def zero_table_1() -> Table:
    """States on each GPU, in GB, for three model sizes over 1 to 1,024 GPUs by ZeRO stage."""
    sharded = _STAGES[1:]
    return Table(
        columns=(
            Column(heading="GPUs", name="gpus"),
            *(
                Column(heading=f"{name}, stage {stage}", name=f"{name}_stage_{stage}_bytes")
                for name, _ in _SIZES
                for stage, _ in sharded
            ),
        ),
        rows=tuple(
            (
                Cell(workers, f"{workers:,}"),
                *(
                    _sized(_states(parameters, workers, stage))
                    for _, parameters in _SIZES
                    for stage, _ in sharded
                ),
            )
            for workers in _WORKERS
        ),
    )


def recomputation_table_2() -> Table:
    """What one layer keeps under each policy: the ledger's rows summed up, as a formula."""
    rows = []
    for words, recompute, tensor, sequence_parallel in _TABLE_2:
        kept = paper.LAYER.kept_bytes(recompute, tensor=tensor, sequence_parallel=sequence_parallel)
        rows.append((Cell(words), Cell(kept.text(factor=TOKENS))))
    return Table(
        columns=(
            Column(heading="Kept with", name="policy", right=False),
            Column(heading="Bytes per layer", name="formula", right=False),
        ),
        rows=tuple(rows),
    )


def _kept(
    model: str, tensor: int, pipeline: int, micro_batch: int, policy: dict[str, object]
) -> int:
    """Activations that the first stage holds, with its pipeline full."""
    run = Run.from_json(
        {
            "model": model,
            "sequence": _SEQUENCE,
            "micro_batch": micro_batch,
            "micro_batches": pipeline,
            "tensor": tensor,
            "pipeline": pipeline,
            **policy,
        }
    )
    return estimate(run).ranks[0].totals[Category.ACTIVATIONS]


def recomputation_models() -> Table:
    """Activations on a GPU of the first stage for the four models, and what selective saves."""
    policies: tuple[tuple[str, str, dict[str, object]], ...] = (
        ("Tensor parallel", "tensor", {}),
        ("+ sequence parallel", "sequence", {"sequence_parallel": True}),
        ("+ selective", "both", {"sequence_parallel": True, "recompute": "selective"}),
    )
    rows = []
    for model, tensor, pipeline, micro_batch in _MODELS:
        kept = [_kept(model, tensor, pipeline, micro_batch, policy) for *_, policy in policies]
        removed = percent(kept[1] - kept[2], kept[1])
        rows.append(
            (
                Cell(model, catalog.get(model).name),
                Cell(tensor),
                Cell(pipeline),
                Cell(micro_batch),
                *(Cell(size, gb(size)) for size in kept),
                Cell(removed, f"{removed} %"),
            )
        )
    return Table(
        columns=(
            Column(heading="Model", name="model", right=False),
            Column(heading="t", name="tensor"),
            Column(heading="p", name="pipeline"),
            Column(heading="b", name="micro_batch"),
            *(Column(heading=words, name=f"{name}_bytes") for words, name, _ in policies),
            Column(heading="Selective removes", name="selective_removes_percent"),
        ),
        rows=tuple(rows),
    )
