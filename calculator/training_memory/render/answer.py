"""The answer in one sentence, as plain text: the page says it large, the terminal first."""

from __future__ import annotations

from collections.abc import Mapping

from ..blocks.ledger import Recompute
from ..estimate import Estimate
from ..implementations import Implementation
from ..layout import Routing
from ..run import Run
from ..sharding import Way
from ..switches import Optimizer
from ..tuning import Adapter
from ..units import ratio, show_bytes

#: What a run does about recomputation, in words that follow its model and batch.
RECOMPUTED = {
    Recompute.NONE: "nothing recomputed",
    Recompute.SELECTIVE: "the attention core recomputed",
    Recompute.FULL: "every layer recomputed",
    Recompute.MATMULS: "all but the products with weights recomputed",
}

#: What stands where a recipe's name says Adam.
INSTEAD_OF_ADAM = {
    Optimizer.SGD_MOMENTUM: "momentum SGD",
    Optimizer.ADAFACTOR: "Adafactor",
    Optimizer.ADAFACTOR_HF: "Adafactor (transformers)",
    Optimizer.MUON: "Muon",
    Optimizer.ADAMW_8BIT: "8-bit Adam",
    Optimizer.PAGED_ADAMW: "paged Adam",
    Optimizer.PAGED_ADAMW_8BIT: "paged 8-bit Adam",
}

#: What stands for adapters.
ADAPTED = {Adapter.LORA: "LoRA", Adapter.QLORA: "QLoRA"}

#: Whose step it is, where it is not the textbook's.
BY = {
    Implementation.PAPER: "",
    Implementation.HUGGINGFACE: ", as Hugging Face runs it",
    Implementation.TORCHTITAN: ", as torchtitan runs it",
    Implementation.MEGATRON: ", as Megatron runs it",
    Implementation.NANOTRON: ", as nanotron runs it",
}


#: What each way of sharing among replicas is called.
WAYS: Mapping[str, str] = {
    Way.DDP: "DDP",
    Way.FSDP2: "FSDP2",
    Way.FSDP1: "FSDP1",
    Way.DEEPSPEED: "DeepSpeed",
}


def label(run: Run) -> str:
    """The model's name, and whether its shape was changed: ``LLaMA 7B, changed``."""
    changed = run.shape and run.model.id != "custom"
    return f"{run.model.name}, changed" if changed else run.model.name


def layout_words(run: Run) -> str:
    """How a run is split: ``64 GPUs: 8 data-parallel with ZeRO-2, 8 tensor-parallel``."""
    layout = run.layout
    parts = []
    if layout.data > 1:
        way = _replicas_share(run)
        parts.append(f"{layout.data:,} data-parallel{' with ' + way if way else ''}")
    if layout.tensor > 1:
        sequence = " with sequence parallelism" if layout.sequence_parallel else ""
        parts.append(f"{layout.tensor:,} tensor-parallel{sequence}")
    if layout.context > 1:
        parts.append(f"{layout.context:,} context-parallel")
    if layout.pipeline > 1:
        turns = "" if layout.is_usual_schedule else f" ({layout.schedule})"
        each = f" of {layout.interleave:,} parts" if layout.interleave > 1 else ""
        parts.append(f"{layout.pipeline:,} pipeline stages{each}{turns}")
    if layout.expert > 1:
        parts.append(f"{layout.expert:,} expert-parallel")
    if layout.expert > 1 and layout.routing is Routing.WORST:
        parts.append("all tokens routed to this one")
    return f"{layout.gpus:,} GPUs: {', '.join(parts)}" if parts else "one GPU"


def _replicas_share(run: Run) -> str:
    """How replicas share the states: "ZeRO-2", "FSDP2"; nothing where they share none."""
    zero = f"ZeRO-{run.layout.zero}" if run.layout.zero else ""
    if run.implementation is Implementation.MEGATRON and zero:
        return "the distributed optimizer"
    if run.implementation in (Implementation.PAPER, Implementation.NANOTRON):
        return zero
    way = WAYS[run.sharding.sharding]
    if run.sharding.sharding is Way.DEEPSPEED and zero:
        return f"{way}'s {zero}"
    if run.sharding.replicate > 1:
        way += f" in {run.sharding.replicate:,} sharded copies"
    return way


def _sequences(run: Run) -> str:
    each = "one sequence" if run.micro_batch == 1 else f"{run.micro_batch:,} sequences"
    if run.micro_batches == 1:
        return each
    return f"{each} in each of {run.micro_batches:,} micro-batches"


def _adapters(run: Run) -> str:
    tuning = run.tuning
    if tuning.trains_all:
        return ""
    return f"{ADAPTED[tuning.adapter]} of rank {tuning.adapter_rank:,}, "


def trained_with(run: Run) -> str:
    """The recipe by name, with the optimizer that takes the place of its Adam."""
    return run.recipe.name.replace("Adam", INSTEAD_OF_ADAM.get(run.switches.optimizer, "Adam"))


def described(run: Run) -> str:
    """The run in a line: model, tokens, batch, recipe and recomputation."""
    changed = " with another shape" if label(run) != run.model.name else ""
    tokens = f"{run.sequence:,} token{'s' if run.sequence > 1 else ''}"
    return (
        f"{run.model.name}{changed} at {tokens}, {_sequences(run)}, "
        f"{_adapters(run)}{trained_with(run)}, {RECOMPUTED[run.recompute]}{BY[run.implementation]}"
    )


def answer(estimate: Estimate, *, binary: bool = False) -> str:
    """Two or three sentences: what the run needs, against which GPU, and when."""
    run, worst = estimate.run, estimate.worst
    need = show_bytes(worst.peak_bytes, binary=binary)
    if run.layout.gpus > 1:
        need += f" on each of {run.layout.gpus:,} GPUs"
        if run.layout.pipeline > 1:
            need = need.replace("each of", "the fullest of")
    said = f"{described(run)}, needs {need}"
    return f"{said}{_against(estimate, binary=binary)}. The peak comes {worst.peak_moment}."


def _against(estimate: Estimate, *, binary: bool) -> str:
    gpu, room = estimate.run.gpu, estimate.room_bytes
    if gpu is None or room is None:
        return ""
    if room < 0:
        times = ratio(estimate.worst.peak_bytes, gpu.memory_bytes)
        # "1.0 times" would read as if it fitted.
        if times == "1.0":
            return f": {show_bytes(-room, binary=binary)} more than {an(gpu.name)} holds"
        return f": {times} times {an(gpu.name)}"
    return f": it fits {an(gpu.name)}, with {show_bytes(room, binary=binary)} left"


def an(name: str) -> str:
    """The name with its article, by how it is spoken: an 80 GB GPU, an NVIDIA A100, a V100."""
    return f"{'an' if name[0] in '8AHLMNR' else 'a'} {name}"
