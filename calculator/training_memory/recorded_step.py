"""One training step of one GPU as PyTorch runs it: what stays, the passes, the optimizer's step.

The textbook's step is in :mod:`.step`; this is the other implementations'. Every size is what the
allocator takes for the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

from .categories import CATEGORIES, Category
from .events import Counter, Event, Group, Node, Phase, Repeat
from .flat import flat_values
from .gathering import unit_values
from .held import TRAINED, Held, before_step, held
from .layouts import Weight, layout_of, rounded, trained
from .optimizers import get
from .recorded import RecordedStep, RecordedStrip, Sized, sizes_of
from .recording import recording_of
from .run import Run
from .sharding import Way
from .shares import share_of, splitting_of
from .stepping import step
from .structure import Structure, chunk_sizes, structure_of, values_of
from .switches import Optimizer
from .walk import left


def structure(run: Run, *, scratch: bool = False) -> Structure:
    """The order of a run's events, as far as sizes do not decide it; see :func:`structure_of`."""
    return structure_of(
        run.model,
        sequence=run.sequence,
        micro_batch=run.micro_batch,
        micro_batches=run.micro_batches,
        implementation=str(run.implementation),
        precision=run.recipe.precision,
        attention=str(run.switches.attention),
        recompute=str(run.recompute),
        loss=str(run.switches.loss),
        hold_logits=run.switches.hold_logits,
        in_backward=run.switches.optimizer_in_backward,
        offload=str(run.switches.offload),
        compiled=str(run.switches.compile),
        tuning=run.tuning,
        mlp=run.switches.mlp,
        norm=run.switches.norm_kernel,
        dropout=run.switches.dropout,
        split=splitting_of(run),
        scratch=scratch,
        tensor=run.layout.tensor,
    )


def values(run: Run) -> Mapping[str, int]:
    """The run's numbers under the symbols of its recording."""
    found = values_of(
        run.model,
        sequence=run.sequence,
        micro_batch=run.micro_batch,
        loss=str(run.switches.loss),
        tuning=run.tuning,
        tensor=run.layout.tensor,
        context=run.layout.context,
    )
    split = splitting_of(run)
    if split.way == "fsdp2":
        found |= unit_values(
            run.model, str(run.implementation), split.wrap, share_of(run), run.tuning
        )
    elif split.way == "fsdp1":
        found |= flat_values(run.model, str(run.implementation), share_of(run), run.tuning)
    return found


def sized(run: Run) -> Sized:
    """The recording of a run with its sizes."""
    tokens = run.sequence // run.layout.context * run.micro_batch
    repeats = {
        "layer": run.model.layers,
        "chunk": len(chunk_sizes(run.model, str(run.switches.loss), tokens)),
    }
    recording = recording_of(structure(run), repeats)
    return Sized(
        recording=recording,
        sizes=sizes_of(recording, values(run)),
        repeats=repeats,
        several=run.micro_batches > 1,
    )


def optimizer_id(run: Run) -> str:
    """The optimizer by the way it is run: AdamW has three."""
    if run.switches.optimizer is not Optimizer.ADAMW:
        return str(run.switches.optimizer)
    return f"{run.switches.optimizer}-{run.switches.optimizer_kernel}"


def by_deepspeed(run: Run) -> bool:
    """Whether DeepSpeed runs the step."""
    return run.layout.data > 1 and run.sharding.sharding is Way.DEEPSPEED


def held_rows(run: Run) -> tuple[Held, ...]:
    """What stays from step to step, tensor by tensor as the allocator holds it."""
    if by_deepspeed(run):
        from .deepspeed import step as zero

        return zero.held_rows(run, optimizer_id(run))
    share = share_of(run)
    rows = held(
        run.model,
        implementation=str(run.implementation),
        precision=run.recipe.precision,
        optimizer=optimizer_id(run),
        tuning=run.tuning,
        share=share,
        in_backward=run.switches.optimizer_in_backward,
    )
    if share.flat and run.switches.clip:
        return (*rows, _ZERO)
    return rows


#: fully_sharded_data_parallel.py, clip_grad_norm_: made once (_zero_scalar).
_ZERO = Held(
    name="zero for clipping",
    category=Category.TEMPORARY,
    bytes=rounded(4),
    why="FSDP1 has it at hand for a GPU without gradients.",
)


def trained_parameters(run: Run) -> int:
    """How many parameters are trained: the model's, or the adapters'."""
    if run.tuning.trains_all:
        return run.model.parameters.total
    return trained(layout_of(run.model, str(run.implementation)), run.tuning).parameters


def paged_bytes(run: Run) -> int:
    """The optimizer's states in memory that the driver moves between the CPU and the GPU."""
    if by_deepspeed(run):
        from .deepspeed.asked import stepped

        shares = (Weight(name="share", shape=(numel,)) for numel in stepped(run))
        paged = get(optimizer_id(run)).paged
        return sum(size for share in shares for _, size in paged(share, 4))
    layout = trained(layout_of(run.model, str(run.implementation)), run.tuning)
    paged = get(optimizer_id(run)).paged
    sizes = (
        times * size
        for where, times in (("first", 1), ("layer", layout.layers), ("last", 1))
        for weight in getattr(layout, where)
        for _, size in paged(weight, 4)
    )
    return sum(sizes)


def host_bytes(run: Run) -> int:
    """What a GPU's process keeps in the CPU's memory instead."""
    share = share_of(run)
    if share.away:
        from dataclasses import replace

        here = held(
            run.model,
            implementation=str(run.implementation),
            precision=run.recipe.precision,
            optimizer=optimizer_id(run),
            tuning=run.tuning,
            share=replace(share, away=False),
        )
        kept = (Category.WEIGHTS, Category.OPTIMIZER)
        stays = sum(row.bytes for row in held_rows(run) if row.category in kept)
        # A gradient is as large as its weight.
        return (
            sum((1 + (row.name in TRAINED)) * row.bytes for row in here if row.category in kept)
            - stays
        )
    if not by_deepspeed(run):
        return 0
    from .deepspeed import step as zero

    return zero.host_bytes(run, optimizer_id(run))


def recorded_step(run: Run) -> Group:
    """The whole step."""
    made = sized(run)
    if by_deepspeed(run):
        from .deepspeed import step as zero

        return zero.step(run, made, optimizer_id(run))
    passes = Group(label="forward and backward", children=tuple(_micro_batches(run, made)))
    remains = dict(zip(CATEGORIES, left(passes), strict=True))
    rows, made_late = held_rows(run), _made_late(run)
    return RecordedStep(
        (
            before_step(row for row in rows if row not in made_late),
            passes,
            Group(label="optimizer", children=tuple(_optimizer(run, remains))),
        ),
        made=made,
        rows=rows,
    )


def _micro_batches(run: Run, made: Sized) -> list[Node]:
    forward, backward = made.micro_batch(0)
    first = Group(label="the first micro-batch", children=(forward, backward))
    counters = (Counter("forward"), Counter("backward"))
    nodes: list[Node] = [Repeat(count=1, child=first, counters=counters)]
    kinds = splitting_of(run).waits
    if kinds:
        return nodes + _until_the_last(run, made, kinds)
    if run.micro_batches > 1:
        further = Group(label="a further micro-batch", children=made.micro_batch(1))
        counters = (Counter("forward", 2), Counter("backward", 2))
        nodes.append(Repeat(count=run.micro_batches - 1, child=further, counters=counters))
    return nodes


def _until_the_last(run: Run, made: Sized, kinds: int) -> list[Node]:
    """The micro-batches after the first, of which only the last reduces gradients."""
    nodes: list[Node] = []
    if kinds > 2:
        further = Group(label="a further micro-batch", children=made.micro_batch(1))
        counters = (Counter("forward", 2), Counter("backward", 2))
        nodes.append(Repeat(count=run.micro_batches - 2, child=further, counters=counters))
    last = Group(label="the last micro-batch", children=made.micro_batch(kinds - 1))
    counters = (Counter("forward", run.micro_batches), Counter("backward", run.micro_batches))
    return [*nodes, Repeat(count=1, child=last, counters=counters)]


def _made_late(run: Run) -> tuple[Held, ...]:
    """What the optimizer makes in the step itself: in the first one, all its states."""
    if not run.sharding.first_step:
        return ()
    return tuple(row for row in held_rows(run) if row.category is Category.OPTIMIZER)


def optimizer_step(run: Run) -> Group:
    """Clipping and the optimizer's step.

    In the first step all states are made before any weight is updated (torch/optim/adam.py,
    _init_group), once gradients are clipped. Nothing is left to do where every weight was updated
    as its gradient came.
    """
    if run.switches.optimizer_in_backward:
        return Group(label="the optimizer", children=())
    made = _step(run)
    late = [
        Event(
            phase=Phase.OPTIMIZER,
            category=row.category,
            bytes=row.bytes,
            label=f"the optimizer's {row.name}",
            why=row.why,
            moment=f"in the optimizer's step, where it makes its {row.name}",
        )
        for row in _made_late(run)
    ]
    if not late:
        return made
    nodes = made.children
    clips = [
        place
        for place, node in enumerate(nodes, start=1)
        if isinstance(node, RecordedStrip) and node.section.phase == "clip"
    ]
    at = max(clips, default=0)
    return Group(label=made.label, children=(*nodes[:at], *late, *nodes[at:]))


def _step(run: Run) -> Group:
    return step(
        run.model,
        implementation=str(run.implementation),
        precision=run.recipe.precision,
        optimizer=optimizer_id(run),
        clip=run.switches.clip,
        tuning=run.tuning,
        share=share_of(run),
    )


def _optimizer(run: Run, remains: Mapping[Category, int]) -> list[Node]:
    """The optimizer's step, and what goes with it."""
    leaving = [_goes(category, size) for category, size in remains.items() if size]
    return [optimizer_step(run), *leaving]


def _goes(category: Category, size: int) -> Event:
    gradients = category is Category.GRADIENTS
    return Event(
        phase=Phase.OPTIMIZER,
        category=category,
        bytes=-size,
        label="the gradients go" if gradients else f"what is left of the batch goes ({category})",
        why="The next step writes its own gradients."
        if gradients
        else "The next step brings its own tokens and labels.",
        moment="",
    )
