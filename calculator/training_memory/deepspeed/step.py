"""A training step of one GPU under DeepSpeed: what stays, the passes, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ..categories import CATEGORIES, Category
from ..events import Counter, Event, Group, Node, Phase, Repeat
from ..frozen import READ, frozen
from ..held import MASTER, TABLES, WEIGHTS, Held, before_step
from ..layouts import UNIT_BYTES, buffers_of, layout_of, rounded
from ..loom import Loom
from ..recorded import RecordedStep, Sized
from ..run import Run
from ..sharding import Host
from ..switches import Loss
from ..walk import climb, left
from . import flat, zeroth
from .asked import groups, item_bytes, limits, numels, offloads, shares
from .events import GOES, event
from .scores import Conditions, scores
from .updating import optimizer_events


def host_bytes(run: Run, optimizer: str) -> int:
    """What a GPU's process keeps in the CPU's memory."""
    if run.layout.zero == 3:
        of_disks = (run.sharding.offload_optimizer, run.sharding.offload_param)
        swaps, reads = (place is Host.NVME for place in of_disks)
        return shares(run).host_bytes(optimizer, swaps=swaps, reads=reads)
    if not offloads(run):
        return 0
    of, size = groups(run), item_bytes(run)
    states = [row[2] for row in _rows(of, size, optimizer) if row[1] is not Category.WEIGHTS]
    # Gradients in 32 bits, the weights in 16 on their way back, and room for one gradient.
    share = sum(group.share for group in of)
    largest = max(max(group.numels) for group in of)
    several = run.micro_batches > 1
    sums = sum(g.numels[place] for g in of for place, _ in g.of(0)) if several else 0
    return sum(states) + share * (4 + size) + (largest + sums) * size


def held_rows(run: Run, optimizer: str) -> tuple[Held, ...]:
    """What stays from step to step."""
    if not run.layout.zero:
        return zeroth.held_rows(run, groups(run), optimizer)
    tables = sum(rounded(size) for _, size in buffers_of(run.model, str(run.implementation)))
    if run.layout.zero == 3:
        rows = [*_frozen(run), *shares(run).rows(optimizer)]
    else:
        rows = [*_frozen(run), *_rows(groups(run), item_bytes(run), optimizer)]
        if offloads(run):
            largest = max(max(group.numels) for group in groups(run))
            size = rounded(largest * item_bytes(run))
            rows = [row for row in rows if row[1] is Category.WEIGHTS]
            rows.append(("buffer for one gradient", Category.GRADIENTS, size, ONE))
    if tables:
        rows.append(("tables of the model", Category.ACTIVATIONS, tables, TABLES))
    return tuple(
        Held(name=name, category=category, bytes=size, why=why)
        for name, category, size, why in rows
    )


def _frozen(run: Run) -> Iterator[tuple[str, Category, int, str]]:
    """What is not trained: whole, or of stage 3 a share of each weight, with scales whole."""
    if run.tuning.trains_all:
        return
    whole = layout_of(run.model, str(run.implementation))
    third = run.layout.zero == 3
    for name, size, why in frozen(whole, run.tuning):
        if not third or name.startswith("scales"):
            yield name, Category.WEIGHTS, size, why
    if third:
        trained = {key for group in groups(run) for key in group.keys}
        size = sum(
            rounded(-(-numel // run.layout.data) * item_bytes(run))
            for key, numel in numels(run).items()
            if key not in trained
        )
        yield "shares of frozen weights", Category.WEIGHTS, size, READ


@lru_cache(maxsize=64)
def _rows(
    of: tuple[flat.Group, ...], item_bytes: int, optimizer: str
) -> tuple[tuple[str, Category, int, str], ...]:
    shares = [one.share for one in of]
    weights = sum(rounded(one.share * one.gpus * item_bytes) for one in of)
    return (
        ("weights", Category.WEIGHTS, weights, WEIGHTS),
        ("own share in fp32", Category.MASTER, sum(rounded(4 * one) for one in shares), MASTER),
        *(
            (name, Category.OPTIMIZER, size, why)
            for name, size, why in flat.states_of(shares, optimizer)
        ),
        ("norm of all gradients", Category.OPTIMIZER, rounded(4), KEPT),
    )


ONE = "A gradient's sum passes through it on its way from the CPU's memory."
KEPT = "The last step's norm is kept to be asked for."


def step(run: Run, made: Sized, optimizer: str) -> Group:
    """The whole step of the GPU that needs most: the first one, or the last."""
    ranks = (0,) if run.layout.zero in (0, 3) else (0, run.layout.data - 1)
    steps = [step_on(run, made, optimizer, rank) for rank in ranks]
    return max(steps, key=lambda one: climb(one)[1]) if len(steps) > 1 else steps[0]


def step_on(run: Run, made: Sized, optimizer: str, rank: int) -> Group:
    """The whole step of one GPU."""
    passes = Group(label="forward and backward", children=tuple(_passes(run, made, rank)))
    remains = dict(zip(CATEGORIES, left(passes), strict=True))
    rows = held_rows(run, optimizer)
    leaving = Group(label="optimizer", children=tuple(_optimizer(run, optimizer, rank, remains)))
    return RecordedStep((before_step(rows), passes, leaving), made=made, rows=rows)


def conditions(run: Run, rank: int) -> Conditions:
    """What decides when one GPU's weights and gradients come and go."""
    return Conditions(
        model=run.model,
        implementation=str(run.implementation),
        tuning=run.tuning,
        gpus=run.layout.data,
        stage=run.layout.zero,
        rank=rank,
        micro_batches=run.micro_batches,
        item_bytes=item_bytes(run),
        overlaps=run.sharding.overlap_comm,
        offloads=offloads(run),
        away=run.sharding.offload_param is not Host.NONE,
        swaps=run.sharding.offload_optimizer is Host.NVME,
        limits=limits(run),
        outer=_outer(run),
    )


def _outer(run: Run) -> str | None:
    """The head's weight, where the loss reads it by itself."""
    if run.layout.zero != 3 or run.switches.loss is not Loss.FUSED_LINEAR:
        return None
    return "head" if ("head", 0) in numels(run) else "embedding"


#: Micro-batches in a row of which each is like the next: how many, and one's two passes.
Alike = tuple[int, list[Node]]


def passes(run: Run, made: Sized, rank: int) -> Iterator[Alike]:
    """Every micro-batch's forward and backward pass, in order."""
    loom = Loom(made)
    scales = 2 if run.layout.zero else 1
    for one in scores(made, conditions(run, rank)):
        again = min(one.turn, 1)
        forward: Node = made.phase("forward", again)
        if one.forward is not None:
            nodes = (*one.begin, *loom.woven(one.forward))
            forward = Group(label="forward", children=nodes)
        backward = made.phase("backward", again).children
        if one.backward is not None:
            backward = tuple(loom.woven(one.backward))
        yield one.count, [forward, _backward(backward, one.end, scales)]


def _backward(nodes: Sequence[Node], end: Sequence[Event], scales: int) -> Group:
    """A backward pass from a loss that is divided by the micro-batches, and scaled by one.

    Only ZeRO's optimizers scale it. The loss itself goes when ``end`` is through as well.
    """
    made, gone = _loss("scaled loss", scales * UNIT_BYTES, SCALED)
    held, dropped = _loss("loss", UNIT_BYTES, RETURNS)
    last = (held, *end, dropped) if end else ()
    return Group(label="backward", children=(made, *nodes, *last, gone))


def _loss(name: str, size: int, why: str) -> tuple[Event, Event]:
    taken, given = (
        Event(
            phase=Phase.BACKWARD,
            category=Category.TEMPORARY,
            bytes=sign * size,
            label=f"{name} is {'made' if sign > 0 else 'freed'}",
            why=why,
            moment=f"in the backward pass, at the {name} (DeepSpeed)",
        )
        for sign in (1, -1)
    )
    return taken, given


RETURNS = "Whoever called the backward pass has it until that returns."
SCALED = "The loss is divided and scaled before the backward pass, each time into a new number."


def _passes(run: Run, made: Sized, rank: int) -> Iterator[Node]:
    turn = 1
    for count, children in passes(run, made, rank):
        yield Repeat(
            count=count,
            child=Group(label="a micro-batch", children=tuple(children)),
            counters=(Counter("forward", turn), Counter("backward", turn)),
        )
        turn += count


def _optimizer(run: Run, optimizer: str, rank: int, remains: dict[Category, int]) -> Iterator[Node]:
    nodes = list(optimizer_nodes(run, optimizer, rank))
    yield from nodes
    gone = dict(zip(CATEGORIES, left(Group(label="", children=tuple(nodes))), strict=True))
    for category, size in remains.items():
        if more := size + gone[category]:
            yield event(f"what is left goes ({category})", -more, category, GOES)


def optimizer_nodes(run: Run, optimizer: str, rank: int) -> Iterator[Node]:
    """The optimizer's step; rank 0's and another's differ in stages 1 and 2."""
    if not run.layout.zero:
        yield from zeroth.optimizer_nodes(run, groups(run), optimizer)
    else:
        yield from optimizer_events(run, optimizer, rank)
