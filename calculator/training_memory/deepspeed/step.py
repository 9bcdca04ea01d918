"""A training step of one GPU under DeepSpeed: what stays, the passes, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ..categories import CATEGORIES, Category
from ..events import Counter, Event, Group, Node, Phase, Repeat
from ..held import MASTER, STATES, TABLES, WEIGHTS, Held, before_step
from ..layouts import UNIT_BYTES, Weight, buffers_of, rounded
from ..optimizers import get
from ..recorded import Sized
from ..run import Run
from ..sharding import Host
from ..walk import climb, left
from ..weaving import Loom
from . import flat
from .gathering import Limits
from .scores import Conditions, scores
from .third import PERSISTENT, SMALL, Shares

#: Norms of gradients are taken in 64 bits (deepspeed/runtime/zero/utils.py, get_norm_dtype).
NORM_BYTES = 8
NORM = "The norm of a gradient is taken in 64 bits, of one whole tensor at a time."
FLAT = "The optimizer reads one tensor, and the sums are several."
IN_FP32 = "The optimizer works in 32 bits."
PARTITION = (
    "The optimizer updates this GPU's share of the weights in 32 bits; the model's own are written "
    "from it."
)


def item_bytes(run: Run) -> int:
    """The bytes of a weight, and of its gradient."""
    return 4 if run.recipe.precision == "fp32" else 2


def bucket_numbers(run: Run) -> int:
    """How many numbers the bucket of gradients has."""
    size = run.sharding.reduce_bucket_size
    return run.model.hidden**2 if isinstance(size, str) else size


def offloads(run: Run) -> bool:
    """Whether the optimizer's states are in the CPU's memory, and it steps there."""
    return run.sharding.offload_optimizer is Host.CPU


def host_bytes(run: Run, optimizer: str) -> int:
    """What a GPU's process keeps in the CPU's memory: see :func:`offloads`."""
    of, size = groups(run), item_bytes(run)
    if run.layout.zero == 3:
        shares = _shares(run)
        numbers = sum(sum(some) for some in shares.sub_groups())
        weights = size if shares.away else 0
        return sum(row[2] for row in shares.states(optimizer)) + (4 + weights) * numbers
    states = [row[2] for row in _rows(of, size, optimizer) if row[1] is not Category.WEIGHTS]
    # Gradients in 32 bits, the weights in 16 on their way back, and room for one gradient.
    share = sum(group.share for group in of)
    largest = max(max(group.numels) for group in of)
    several = run.micro_batches > 1
    sums = sum(g.numels[place] for g in of for place, _ in g.of(0)) if several else 0
    return sum(states) + share * (4 + size) + (largest + sums) * size


def persistence_numbers(run: Run) -> int:
    """Weights of at most so many numbers stay whole."""
    size = run.sharding.param_persistence_threshold
    return 10 * run.model.hidden if isinstance(size, str) else size


def limits(run: Run) -> Limits:
    """How much stage 3 gathers; "auto" as transformers' integrations/deepspeed.py has it."""
    ahead = run.sharding.prefetch_bucket_size
    return Limits(
        bucket=bucket_numbers(run),
        prefetch=int(0.9 * run.model.hidden**2) if isinstance(ahead, str) else ahead,
        persistence=persistence_numbers(run),
        live=run.sharding.max_live_parameters,
        reuse=REUSE,
    )


#: DeepSpeed's stage3_max_reuse_distance where nothing else is said, in numbers.
REUSE = 1_000_000_000


def groups(run: Run) -> tuple[flat.Group, ...]:
    """The optimizer's groups of weights."""
    return flat.groups(run.model, str(run.implementation), run.layout.data)


def held_rows(run: Run, optimizer: str) -> tuple[Held, ...]:
    """What stays from step to step."""
    tables = sum(rounded(size) for _, size in buffers_of(run.model, str(run.implementation)))
    if run.layout.zero == 3:
        rows = list(_shares(run).rows(optimizer))
    else:
        rows = list(_rows(groups(run), item_bytes(run), optimizer))
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


def _shares(run: Run) -> Shares:
    return Shares(
        groups=groups(run),
        item_bytes=item_bytes(run),
        bucket=bucket_numbers(run),
        persistence=persistence_numbers(run),
        offloads=offloads(run),
        away=run.sharding.offload_param is Host.CPU,
    )


@lru_cache(maxsize=64)
def _rows(
    of: tuple[flat.Group, ...], item_bytes: int, optimizer: str
) -> tuple[tuple[str, Category, int, str], ...]:
    shares = [Weight(name="share", shape=(one.share,)) for one in of]
    weights = sum(rounded(one.share * one.gpus * item_bytes) for one in of)
    states: dict[str, int] = {}
    for share in shares:
        for name, size in get(optimizer).states(share, 4):
            states[name] = states.get(name, 0) + rounded(size)
    return (
        ("weights", Category.WEIGHTS, weights, WEIGHTS),
        ("own share in fp32", Category.MASTER, sum(rounded(4 * s.numel) for s in shares), MASTER),
        *((name, Category.OPTIMIZER, size, STATES[name]) for name, size in states.items()),
        ("norm of all gradients", Category.OPTIMIZER, rounded(4), KEPT),
    )


ONE = "A gradient's sum passes through it on its way from the CPU's memory."
KEPT = "The last step's norm is kept to be asked for."


def step(run: Run, made: Sized, optimizer: str) -> Group:
    """The whole step of the GPU that needs most: the first one, or the last."""
    ranks = (0,) if run.layout.zero == 3 else (0, run.layout.data - 1)
    steps = [step_on(run, made, optimizer, rank) for rank in ranks]
    return max(steps, key=lambda one: climb(one)[1]) if len(steps) > 1 else steps[0]


def step_on(run: Run, made: Sized, optimizer: str, rank: int) -> Group:
    """The whole step of one GPU."""
    passes = Group(label="forward and backward", children=tuple(_passes(run, made, rank)))
    remains = dict(zip(CATEGORIES, left(passes), strict=True))
    return Group(
        label="one training step",
        children=(
            before_step(held_rows(run, optimizer)),
            passes,
            Group(
                label="optimizer", children=tuple(_optimizer(run, optimizer, rank, dict(remains)))
            ),
        ),
    )


def conditions(run: Run, rank: int) -> Conditions:
    """What decides when one GPU's weights and gradients come and go."""
    return Conditions(
        model=run.model,
        implementation=str(run.implementation),
        gpus=run.layout.data,
        stage=run.layout.zero,
        rank=rank,
        micro_batches=run.micro_batches,
        item_bytes=item_bytes(run),
        overlaps=run.sharding.overlap_comm,
        offloads=offloads(run),
        away=run.sharding.offload_param is Host.CPU,
        limits=limits(run),
    )


#: Micro-batches in a row of which each is like the next: how many, and one's two passes.
Alike = tuple[int, list[Node]]


def passes(run: Run, made: Sized, rank: int) -> Iterator[Alike]:
    """Every micro-batch's forward and backward pass, in order."""
    loom = Loom(made)
    for one in scores(made, conditions(run, rank)):
        forward: Node = made.phase("forward", min(one.turn, 1))
        if one.forward is not None:
            forward = Group(label="forward", children=tuple(loom.woven(one.forward)))
        yield one.count, [forward, _backward([*loom.woven(one.backward), *one.end])]


def _backward(nodes: list[Node]) -> Group:
    """A backward pass from a loss that is divided by the micro-batches, and scaled by one."""
    taken, given = (
        Event(
            phase=Phase.BACKWARD,
            category=Category.TEMPORARY,
            bytes=sign * 2 * UNIT_BYTES,
            label=f"scaled loss is {'made' if sign > 0 else 'freed'}",
            why=SCALED,
            moment="in the backward pass, at the scaled loss (DeepSpeed)",
        )
        for sign in (1, -1)
    )
    return Group(label="backward", children=(taken, *nodes, given))


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


def _optimizer(
    run: Run, optimizer: str, rank: int, remains: dict[Category, int]
) -> Iterator[Event]:
    yield from optimizer_events(run, optimizer, rank)
    for category, size in remains.items():
        if size:
            yield _event(f"what is left goes ({category})", -size, category, GOES)


def optimizer_events(run: Run, optimizer: str, rank: int) -> Iterator[Event]:
    """The optimizer's step, group by group (DeepSpeedZeroOptimizer.step)."""
    if offloads(run) and run.layout.zero == 3:
        return  # what it does is done on the CPU
    if offloads(run):
        yield from _for_a_moment("norm of all gradients", UNIT_BYTES, NORM)
        return
    if run.layout.zero == 3:
        yield from _third_step(run, optimizer)
        return
    of, size = groups(run), item_bytes(run)
    for group in of:
        largest = max((numel for _, numel in group.of(rank)), default=0)
        if largest:
            size_bytes = rounded(NORM_BYTES * largest) + UNIT_BYTES
            yield from _for_a_moment("a gradient in fp64 and its norm", size_bytes, NORM)
    yield _event("norm of all gradients", 2 * UNIT_BYTES, Category.TEMPORARY, NORM)
    for group in of:
        parts = len(group.of(rank))
        padded = sum(numel for _, numel in group.of(rank)) < group.share
        yield from _update(group.share, size, optimizer, copies=parts + padded > 1)
    yield _event("norm of all gradients", -2 * UNIT_BYTES, Category.TEMPORARY, GOES)


def _third_step(run: Run, optimizer: str) -> Iterator[Event]:
    """The same of stage 3 (DeepSpeedZeroOptimizer_Stage3.step)."""
    shares, size = _shares(run), item_bytes(run)
    small = sum(one for name, _, one, _ in shares.rows(optimizer) if name == SMALL)
    if small:
        yield _event(SMALL, -small, Category.WEIGHTS, GOES)
    groups = shares.sub_groups()
    norms = 0
    for some in groups:
        yield from _for_a_moment(
            "a gradient in fp64 and its norm", rounded(NORM_BYTES * max(some)) + UNIT_BYTES, NORM
        )
        norms = max(norms, len(some) * UNIT_BYTES)
    yield from _for_a_moment("norm of each gradient", norms, NORM)
    total = 4 * UNIT_BYTES
    yield _event("norm of all gradients", total, Category.TEMPORARY, NORM)
    for some in groups:
        yield from _update(sum(some), size, optimizer, copies=len(some) > 1)
    yield _event("norm of all gradients", -total, Category.TEMPORARY, GOES)
    if small:
        yield _event(SMALL, small, Category.WEIGHTS, PERSISTENT)


def _update(numel: int, size: int, optimizer: str, *, copies: bool) -> Iterator[Event]:
    """The optimizer's step on so many numbers of one tensor."""
    name, in_fp32 = "tensor of own gradients", "tensor of own gradients in fp32"
    flat_bytes = rounded(numel * size) if copies else 0
    if flat_bytes:
        yield _event(name, flat_bytes, Category.TEMPORARY, FLAT)
    held = flat_bytes
    if size != 4:
        held = rounded(numel * 4)
        yield _event(in_fp32, held, Category.TEMPORARY, IN_FP32)
        if flat_bytes:
            yield _event(name, -flat_bytes, Category.TEMPORARY, GOES)
    scratch = _scratch(optimizer, numel)
    yield from _for_a_moment("the optimizer's scratch memory", scratch, SCRATCH)
    if held:
        yield _event(in_fp32 if size != 4 else name, -held, Category.TEMPORARY, GOES)


def _scratch(optimizer: str, numel: int) -> int:
    """What AdamW's loops make of one tensor for a moment: roots of the second moments."""
    times = {"adamw-foreach": 1, "adamw-forloop": 2}.get(optimizer, 0)
    return times * 4 * numel


SCRATCH = "The update is divided by the root of the second moment."
GOES = "Nothing reads it any more."


def _for_a_moment(name: str, size: int, why: str) -> Iterator[Event]:
    if size:
        yield _event(name, rounded(size), Category.TEMPORARY, why)
        yield _event(name, -rounded(size), Category.TEMPORARY, GOES)


def _event(name: str, size: int, category: Category, why: str) -> Event:
    return Event(
        phase=Phase.OPTIMIZER,
        category=category,
        bytes=size,
        label=f"{name} {'is made' if size > 0 else 'is freed'}",
        why=why,
        moment=f"in the optimizer's step, at {name} (DeepSpeed)",
    )
