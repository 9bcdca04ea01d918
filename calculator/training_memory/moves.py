"""What may be changed about a run, and each change in plain words.

:data:`MOVES` is the one table: a field that is added to a run and that saves or costs memory is one
entry here (and its spelling in :mod:`.spelling`). Splitting over GPUs is in :mod:`.splits`, since
its degrees depend on one another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType

from .blocks.ledger import Recompute
from .cost import MACHINE
from .implementations import Implementation
from .records import dataclass
from .run import Run
from .sharding import Host, Way, left_out
from .splits import in_fsdp, in_fsdp2
from .switches import Attention, Compile, Fusion, Loss, Offload, Optimizer, OptimizerKernel
from .tuning import Adapter

Fields = Mapping[str, object]


class Allow(StrEnum):
    """What a plan may change if it is told so: what is trained and how, or a step not all timed."""

    OPTIMIZER = "optimizer"
    ADAPTERS = "adapters"
    CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One field that may be changed by itself; with no ``field``, several that go together.

    ``options`` gives the fields to set for each other value; what a run cannot have is refused
    later. ``words`` says a value in a few words and ``price`` what it is paid with beyond what
    :mod:`.cost` counts. ``single`` says whether it is tried by itself, ``planned`` whether it may
    be part of a plan, which trains the same, and ``allowed`` what a plan must be allowed for it.
    """

    field: str
    options: Callable[[Run], Iterable[Fields]]
    words: Mapping[str, str] = MappingProxyType({})
    price: Mapping[str, str] = MappingProxyType({})
    single: bool = True
    planned: bool = True
    allowed: Allow | None = None


def _best(field: str, value: StrEnum, *like: StrEnum) -> Callable[[Run], Iterator[Fields]]:
    """The one value that costs no more than others and never needs more; some are like it."""

    def options(run: Run) -> Iterator[Fields]:
        has_switches = run.implementation is not Implementation.PAPER
        if has_switches and getattr(run.switches, field) not in (value, *like):
            yield {field: str(value)}

    return options


def _recompute(run: Run) -> Iterator[Fields]:
    for value in Recompute:
        if value is not run.recompute:
            yield {"recompute": str(value)}


def _loss(run: Run) -> Iterator[Fields]:
    if run.implementation is not Implementation.PAPER:
        for value in Loss:
            if value is not run.switches.loss:
                # Only the full loss makes logits to hold.
                held = run.switches.hold_logits and value is Loss.FULL
                yield {"loss": str(value), "hold_logits": held}


def _waits(run: Run) -> Iterator[Fields]:
    """How layers are recomputed, and what of them waits on the CPU: one goes with the other."""
    as_it_is = (run.recompute, run.switches.offload)
    for offload in Offload if run.implementation in OFFLOADS else (Offload.NONE,):
        of = {} if run.implementation not in OFFLOADS else {"offload": str(offload)}
        for value in Recompute:
            # Only full recomputation begins its layers with checkpoints.
            begins = value is Recompute.FULL or offload is not Offload.CHECKPOINTS
            if begins and (value, offload) != as_it_is:
                yield {"recompute": str(value), **of}


#: Who can do what one GPU's training is squeezed with: offloading, 8-bit optimizers, adapters.
OFFLOADS = (Implementation.HUGGINGFACE, Implementation.TORCHTITAN)


def _in_8_bits(run: Run) -> Iterator[Fields]:
    """Paged optimizers are in no plan: how long a step waits for their pages is not worked out."""
    if run.implementation in OFFLOADS and run.switches.optimizer is Optimizer.ADAMW:
        yield {"optimizer": str(Optimizer.ADAMW_8BIT), "optimizer_kernel": None}


def _optimizer(run: Run) -> Iterator[Fields]:
    if run.implementation is not Implementation.PAPER:
        for value in Optimizer:
            if value is not run.switches.optimizer:
                # The kernels are AdamW's.
                yield {"optimizer": str(value), "optimizer_kernel": None}


def _fused(*fields: str) -> Callable[[Run], Iterator[Fields]]:
    """One kernel for a few operations that are several."""

    def options(run: Run) -> Iterator[Fields]:
        # Megatron's are fused as it is.
        separate = (Implementation.HUGGINGFACE, Implementation.TORCHTITAN)
        if run.implementation in separate and all(
            getattr(run.switches, field) is not Fusion.FUSED for field in fields
        ):
            yield dict.fromkeys(fields, str(Fusion.FUSED))

    return options


def _adapter(run: Run) -> Iterator[Fields]:
    """Adapters beside frozen weights; of what they train DeepSpeed alone keeps a second copy."""
    copies = run.recipe.precision.startswith("master")
    by_deepspeed = run.sharding.sharding is Way.DEEPSPEED
    recipe = "autocast-adam" if copies and not by_deepspeed else run.recipe.id
    for adapter in (Adapter.LORA, Adapter.QLORA):
        if run.implementation is Implementation.HUGGINGFACE and adapter is not run.tuning.adapter:
            yield {"adapter": str(adapter), "recipe": recipe}


def _optimizer_in_backward(run: Run) -> Iterator[Fields]:
    if run.implementation is not Implementation.PAPER and not run.switches.optimizer_in_backward:
        yield {"optimizer_in_backward": True}


def _offload(run: Run) -> Iterator[Fields]:
    if run.implementation is not Implementation.PAPER and run.switches.offload is Offload.NONE:
        yield {"offload": str(Offload.CHECKPOINTS)}
        yield {"offload": str(Offload.SAVED)}


def _optimizer_on_the_cpu(run: Run) -> Iterator[Fields]:
    of = run.sharding
    by_zero = of.sharding is Way.DEEPSPEED and run.layout.zero
    if by_zero and of.offload_optimizer is Host.NONE:
        yield {"offload_optimizer": str(Host.CPU)}


def _shards_on_the_cpu(run: Run) -> Iterator[Fields]:
    of = run.sharding
    shares = of.sharding in (Way.FSDP1, Way.FSDP2) and run.layout.data > 1
    if shares and of.offload_param is Host.NONE:
        yield {"offload_param": str(Host.CPU)}


def _on_the_cpu(run: Run) -> Iterator[Fields]:
    """The optimizer's work on the CPU, whoever shares in a plan: FSDP2 has its shards there too."""
    if run.implementation in OFFLOADS:
        yield {"offload_param": str(Host.CPU)}
    if run.implementation is Implementation.HUGGINGFACE:
        yield {"offload_optimizer": str(Host.CPU)}


def _smaller_buffers(run: Run) -> Iterator[Fields]:
    """Each of DeepSpeed's buffers at a tenth of what it is."""
    by_zero = run.sharding.sharding is Way.DEEPSPEED and run.layout.zero
    for name in _BUFFERS if by_zero else ():
        size = getattr(run.sharding, name)
        if isinstance(size, int) and size >= 10:
            yield {name: size // 10}


def _other_zero_3(run: Run) -> Iterator[Fields]:
    """Stage 3 as the other library has it: the same numbers are trained."""
    if run.implementation is Implementation.HUGGINGFACE and run.layout.zero == 3:
        if run.sharding.sharding is Way.DEEPSPEED:
            yield in_fsdp(run)
            return
        own = left_out(run.sharding)
        master = {"recipe": "mixed-adam"} if run.recipe.precision == "autocast" else {}
        yield {**own, "sharding": str(Way.DEEPSPEED), **master}
        if run.sharding.sharding is Way.FSDP1:
            yield in_fsdp2(run)


#: DeepSpeed's buffers that may be smaller: in words, and what that is paid with.
_BUFFERS = {
    "reduce_bucket_size": ("DeepSpeed's bucket of {} gradients", "more and smaller messages"),
    "max_live_parameters": ("At most {} gathered weights", "some are gathered more often"),
}


def _compile(run: Run) -> Iterator[Fields]:
    if run.implementation is Implementation.TORCHTITAN:
        yield from ({"compile": str(one)} for one in Compile if one is not run.switches.compile)


_PAGES = "the driver moves the states when room is short, and the step waits for it"


def _hold_logits(run: Run) -> Iterator[Fields]:
    if run.switches.hold_logits:
        yield {"hold_logits": False}


MOVES: tuple[Move, ...] = (
    Move(
        field="recompute",
        options=_recompute,
        words={
            Recompute.NONE: "Recompute nothing",
            Recompute.SELECTIVE: "Recompute the attention core",
            Recompute.FULL: "Recompute every layer",
            Recompute.MATMULS: "Recompute all but the products with weights",
        },
        planned=False,
    ),
    Move(field="", options=_waits, single=False),
    Move(
        field="attention",
        options=_best("attention", Attention.FLASH),
        words={Attention.FLASH: "A fused attention kernel", Attention.EAGER: "Eager attention"},
        price={Attention.EAGER: "slower than a fused kernel"},
    ),
    Move(
        field="optimizer_kernel",
        options=_best("optimizer_kernel", OptimizerKernel.FUSED, OptimizerKernel.DEEPSPEED),
        words={
            OptimizerKernel.FUSED: "AdamW's fused kernel",
            OptimizerKernel.FOREACH: "AdamW over all tensors at once",
            OptimizerKernel.FORLOOP: "AdamW tensor by tensor",
            OptimizerKernel.DEEPSPEED: "DeepSpeed's AdamW",
        },
        price={OptimizerKernel.FORLOOP: "a slow optimizer step: a kernel for each tensor"},
    ),
    Move(
        field="loss",
        options=_loss,
        words={
            Loss.FULL: "The loss of all tokens at once",
            Loss.CHUNKED: "The loss in chunks",
            Loss.FUSED_LINEAR: "The loss fused with the head",
            Loss.FUSED: "The loss in one kernel",
        },
        price={Loss.FUSED_LINEAR: "a kernel for it, such as Liger's"},
    ),
    Move(
        field="mlp",
        options=_fused("mlp"),
        words={Fusion.FUSED: "Activation and gate in one kernel"},
        price={Fusion.FUSED: "a kernel for it, such as Liger's"},
        planned=False,
    ),
    Move(
        field="norm_kernel",
        options=_fused("norm_kernel"),
        words={Fusion.FUSED: "RMSNorm in one kernel"},
        planned=False,
    ),
    # A plan has both or neither: each by itself would double the plans.
    Move(field="", options=_fused("mlp", "norm_kernel")),
    Move(
        field="hold_logits",
        options=_hold_logits,
        words={"False": "Let the logits go"},
        price={"False": "no outputs to look at"},
    ),
    Move(
        field="optimizer",
        options=_optimizer,
        words={
            Optimizer.ADAMW: "AdamW",
            Optimizer.SGD_MOMENTUM: "SGD with momentum for AdamW",
            Optimizer.ADAFACTOR: "Adafactor for AdamW",
            Optimizer.ADAFACTOR_HF: "Transformers' Adafactor for AdamW",
            Optimizer.MUON: "Muon for the layers' matrices",
            Optimizer.ADAMW_8BIT: "AdamW in 8 bits",
            Optimizer.PAGED_ADAMW: "Paged AdamW",
            Optimizer.PAGED_ADAMW_8BIT: "Paged AdamW in 8 bits",
        },
        price={
            Optimizer.PAGED_ADAMW: _PAGES,
            Optimizer.PAGED_ADAMW_8BIT: _PAGES,
        },
        planned=False,
    ),
    Move(
        field="optimizer_in_backward",
        options=_optimizer_in_backward,
        words={"True": "The optimizer in the backward pass"},
        price={"True": "gradients are neither clipped nor summed over micro-batches"},
    ),
    Move(
        field="offload",
        options=_offload,
        words={
            Offload.NONE: "Nothing waits on the CPU",
            Offload.CHECKPOINTS: "Layers' inputs wait on the CPU",
            Offload.SAVED: "All that is saved waits on the CPU",
        },
        price={
            Offload.CHECKPOINTS: "a copy to the CPU and back for every layer",
            Offload.SAVED: "everything is copied to the CPU and back, weights as well",
        },
        planned=False,
    ),
    Move(
        field="offload_optimizer",
        options=_optimizer_on_the_cpu,
        words={
            Host.NONE: "The optimizer on the GPU",
            Host.CPU: "The optimizer and its states on the CPU",
            Host.NVME: "The optimizer on the CPU, and its states on disks",
        },
        price={Host.CPU: "the CPU's own step is not timed"},
        planned=False,
    ),
    Move(
        field="offload_param",
        options=_shards_on_the_cpu,
        words={
            Host.NONE: "Shards of the weights on the GPU",
            Host.CPU: "Shards of the weights, and the optimizer, on the CPU",
        },
        price={Host.CPU: "the CPU's own step is not timed"},
        planned=False,
    ),
    Move(field="", options=_smaller_buffers, planned=False),
    Move(field="", options=_other_zero_3, planned=False),
    Move(
        field="compile",
        options=_compile,
        words={
            Compile.NONE: "Nothing compiled",
            Compile.LAYERS: "torch.compile for the layers",
            Compile.LAYERS_AND_LOSS: "torch.compile for layers and loss",
        },
        price={
            Compile.LAYERS: "compiling before the first step",
            Compile.LAYERS_AND_LOSS: "compiling before the first step",
        },
        planned=False,
    ),
    Move(
        field="adapter",
        options=_adapter,
        words={
            Adapter.NONE: "Train every weight",
            Adapter.LORA: "LoRA: adapters beside frozen weights",
            Adapter.QLORA: "QLoRA: adapters beside frozen weights in 4 bits",
        },
        price={
            Adapter.LORA: "the weights themselves are not trained",
            Adapter.QLORA: "the weights themselves are not trained, and are unpacked to be used",
        },
        planned=False,
    ),
    Move(field="", options=_in_8_bits, single=False, allowed=Allow.OPTIMIZER),
    Move(field="", options=_adapter, single=False, allowed=Allow.ADAPTERS),
    Move(field="", options=_on_the_cpu, single=False, allowed=Allow.CPU),
)

#: Degrees of splitting that are tried one at a time: the GPUs of one machine, by doublings.
DEGREES = tuple(2**power for power in range(1, MACHINE.bit_length()) if 2**power <= MACHINE)


def single(run: Run) -> Iterator[Fields]:
    """The fields of every single change, whatever it saves; the global batch stays if it can."""
    for move in MOVES:
        if move.single:
            yield from move.options(run)
    yield from _smaller(run)
    yield from _shorter(run)
    yield from _over_more_gpus(run)


def in_plans(run: Run, allow: Collection[Allow] = ()) -> Iterator[tuple[Fields, ...]]:
    """For each move that may be part of a plan: nothing changed, then every other value."""
    for move in MOVES:
        if move.planned and (move.allowed is None or move.allowed in allow):
            yield ({}, *move.options(run))


def _smaller(run: Run) -> Iterator[Fields]:
    """Half the micro-batch, twice as often: the sequences of a step stay the same."""
    half, odd = divmod(run.micro_batch, 2)
    if half and not odd:
        yield {"micro_batch": half, "micro_batches": run.micro_batches * 2}
    elif half:
        yield {"micro_batch": 1, "micro_batches": run.micro_batches * run.micro_batch}


def _shorter(run: Run) -> Iterator[Fields]:
    if run.sequence > 1:
        yield {"sequence": run.sequence // 2}


def _over_more_gpus(run: Run) -> Iterator[Fields]:
    layout = run.layout
    for zero in range(layout.zero + 1, 4):
        if layout.data > 1:
            yield {"zero": zero}
        for degree in DEGREES:
            if layout.data == 1:
                own = in_fsdp(run) if zero == 3 else {}
                yield {"data": degree, "zero": zero, **own, **_fewer(run, degree)}
    for degree in DEGREES:
        if degree > layout.tensor:
            yield {"tensor": degree}
            if not layout.sequence_parallel:
                yield {"tensor": degree, "sequence_parallel": True}
        if degree > layout.context:
            yield {"context": degree}
        if run.model.experts and degree > layout.expert and layout.gpus % degree == 0:
            yield {"expert": degree, "expert_tensor": 1}
        if degree > layout.pipeline:
            # With fewer micro-batches than stages most GPUs would wait most of the time, and the
            # first would hold less than it does in any pipeline that is worth having.
            yield {"pipeline": degree, "micro_batches": max(run.micro_batches, degree)}
    if layout.tensor > 1 and not layout.sequence_parallel:
        yield {"sequence_parallel": True}


def _fewer(run: Run, replicas: int) -> Fields:
    """What each of several replicas computes of a step's sequences, if they can be shared out."""
    each, rest = divmod(run.micro_batches, replicas)
    return {} if rest or not each else {"micro_batches": each}


# --- in words -------------------------------------------------------------------------------------


def _named() -> Iterator[Move]:
    return (move for move in MOVES if move.field)


def words(before: Run, after: Run) -> tuple[str, ...]:
    """What is different in ``after``, a phrase each, the most telling first."""
    return tuple(_words(before, after))


def price(before: Run, after: Run) -> str:
    """What changes are paid with beyond arithmetic and traffic; "" for nothing."""
    return "; ".join(dict.fromkeys(_price(before, after)))


def _words(before: Run, after: Run) -> Iterator[str]:
    for move in _named():
        implied = any(_differ(before, after, cause) for cause in _IMPLIED.get(move.field, ()))
        if _differ(before, after, move.field) and not implied:
            yield move.words[_value(after, move.field)]
    yield from _split_words(before, after)
    yield from _sharing_words(before, after)
    if after.micro_batch != before.micro_batch:
        yield f"Micro-batch {after.micro_batch:,} instead of {before.micro_batch:,}"
    if after.micro_batches != before.micro_batches:
        many = "micro-batch" if after.micro_batches == 1 else "micro-batches"
        yield f"{after.micro_batches:,} {many} a step"
    if after.sequence != before.sequence:
        yield f"Sequence length {after.sequence:,} instead of {before.sequence:,}"


#: Changes that need no saying beside another: another loss makes no logits to hold, and another
#: optimizer has none of AdamW's kernels; the optimizer goes where the weights are.
_IMPLIED = {
    "hold_logits": ("loss",),
    "optimizer_kernel": ("optimizer",),
    "offload_optimizer": ("offload_param",),
}


def _differ(before: Run, after: Run, field: str) -> bool:
    return _value(before, field) != _value(after, field)


def _split_words(before: Run, after: Run) -> Iterator[str]:
    old, new = before.layout, after.layout
    if (new.data, new.zero) != (old.data, old.zero):
        if new.data == 1:
            if old.data > 1:
                yield "One replica"
            elif new.context == old.context:
                # GPUs that share a sequence share the weights as replicas do.
                yield f"ZeRO-{new.zero} over a sequence's GPUs" if new.zero else "No ZeRO"
        elif new.zero:
            the = "the " if new.data == old.data else ""
            yield f"ZeRO-{new.zero} over {the}{new.data:,} replicas"
        else:
            yield f"{new.data:,} replicas, each with all states"
    kept = before.sharding.reshard_after_forward and not after.sharding.reshard_after_forward
    if kept and new.data > 1:
        yield "Weights stay gathered between forward and backward"
    together = new.sequence_parallel and not old.sequence_parallel
    if new.tensor != old.tensor:
        if new.tensor == 1:
            yield "No tensor parallelism"
        else:
            kinds = "Tensor and sequence" if together else "Tensor"
            yield f"{kinds} parallelism over {new.tensor:,} GPUs"
    elif together:
        yield f"Sequence parallelism over the {new.tensor:,} tensor-parallel GPUs"
    if old.sequence_parallel and not new.sequence_parallel and new.tensor > 1:
        yield "No sequence parallelism"
    if new.pipeline != old.pipeline:
        yield "No pipeline" if new.pipeline == 1 else f"{new.pipeline:,} pipeline stages"
    yield from _more_split_words(before, after)


_STAGE_3 = {Way.FSDP1: "FSDP1", Way.FSDP2: "FSDP2", Way.DEEPSPEED: "DeepSpeed's ZeRO-3"}


def _sharing_words(before: Run, after: Run) -> Iterator[str]:
    old, new = before.sharding, after.sharding
    deepspeeds = [one.sharding is Way.DEEPSPEED for one in (old, new)]
    changes = old.sharding is not new.sharding
    if changes and before.layout.zero == after.layout.zero == 3:
        yield f"{_STAGE_3[new.sharding]} in place of {_STAGE_3[old.sharding]}"
        return  # and of its numbers
    for name, (said, _) in _BUFFERS.items():
        size = getattr(new, name)
        if all(deepspeeds) and size != getattr(old, name):
            yield said.format(size if isinstance(size, str) else f"{size:,}")
    if after.recipe is not before.recipe and after.tuning == before.tuning:
        kinds = ("32-bit shards", "16-bit weights with a 32-bit copy")
        master = after.recipe.precision.startswith("master")
        yield f"{kinds[master]} in place of {kinds[not master]}"


def _more_split_words(before: Run, after: Run) -> Iterator[str]:
    old, new = before.layout, after.layout
    if new.interleave != old.interleave:
        parts = f"{new.interleave} parts of the model on a stage, taking turns"
        yield parts if new.interleave > 1 else "One part of the model on a stage"
    if new.context != old.context:
        shared = f"Context parallelism: {new.context:,} GPUs share a sequence"
        yield shared if new.context > 1 else "No context parallelism"
    if new.expert != old.expert:
        own = f"Expert parallelism over {new.expert:,} GPUs"
        yield own if new.expert > 1 else "No expert parallelism"


def _price(before: Run, after: Run) -> Iterator[str]:
    for move in _named():
        value = _value(after, move.field)
        if _differ(before, after, move.field) and value in move.price:
            yield move.price[value]
    for name, (_, paid) in _BUFFERS.items():
        both = before.sharding.sharding is after.sharding.sharding is Way.DEEPSPEED
        if both and getattr(before.sharding, name) != getattr(after.sharding, name):
            yield paid
    if after.sequence < before.sequence:
        yield "the model sees shorter texts"
    if after.switches.optimizer is not before.switches.optimizer:
        yield "another optimizer, with settings of its own to find"
    old = before.micro_batch * before.micro_batches * before.layout.data
    new = after.micro_batch * after.micro_batches * after.layout.data
    if old != new:
        yield f"{new:,} sequences a step instead of {old:,}"
    if after.layout.gpus > before.layout.gpus:
        yield f"{after.layout.gpus:,} GPUs instead of {before.layout.gpus:,}"


def _value(run: Run, field: str) -> str:
    if field == "recompute":
        return str(run.recompute)
    if field == "adapter":
        return str(run.tuning.adapter)
    if field in ("offload_optimizer", "offload_param"):
        return str(getattr(run.sharding, field))
    return str(getattr(run.switches, field))
