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
from ..walk import climb, left
from ..weaving import woven
from . import flat
from .buckets import Buckets

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


def groups(run: Run) -> tuple[flat.Group, ...]:
    """The optimizer's groups of weights."""
    return flat.groups(run.model, str(run.implementation), run.layout.data)


def held_rows(run: Run, optimizer: str) -> tuple[Held, ...]:
    """What stays from step to step."""
    return _held(
        groups(run),
        item_bytes(run),
        optimizer,
        sum(rounded(size) for _, size in buffers_of(run.model, str(run.implementation))),
    )


@lru_cache(maxsize=64)
def _held(
    of: tuple[flat.Group, ...], item_bytes: int, optimizer: str, tables: int
) -> tuple[Held, ...]:
    shares = [Weight(name="share", shape=(one.share,)) for one in of]
    weights = sum(rounded(one.share * one.gpus * item_bytes) for one in of)
    states: dict[str, int] = {}
    for share in shares:
        for name, size in get(optimizer).states(share, 4):
            states[name] = states.get(name, 0) + rounded(size)
    rows = [
        ("weights", Category.WEIGHTS, weights, WEIGHTS),
        ("own share in fp32", Category.MASTER, sum(rounded(4 * s.numel) for s in shares), MASTER),
        *((name, Category.OPTIMIZER, size, STATES[name]) for name, size in states.items()),
        ("norm of all gradients", Category.OPTIMIZER, rounded(4), KEPT),
    ]
    if tables:
        rows.append(("tables of the model", Category.ACTIVATIONS, tables, TABLES))
    return tuple(
        Held(name=name, category=category, bytes=size, why=why)
        for name, category, size, why in rows
    )


KEPT = "The last step's norm is kept to be asked for."


def step(run: Run, made: Sized, optimizer: str) -> Group:
    """The whole step of the GPU that needs most: the first one, or the last."""
    ranks = (0, run.layout.data - 1)
    steps = (step_on(run, made, optimizer, rank) for rank in ranks)
    return max(steps, key=lambda one: climb(one)[1])


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


def passes(run: Run, made: Sized, rank: int) -> list[list[Node]]:
    """Each micro-batch's forward and backward pass, in order."""
    buckets = Buckets(
        groups(run),
        rank=rank,
        stage=run.layout.zero,
        size=bucket_numbers(run),
        overlaps=run.sharding.overlap_comm,
        item_bytes=item_bytes(run),
        micro_batches=run.micro_batches,
    )
    # The loss is divided by the micro-batches, and multiplied by the loss scaler's one.
    losses = 2 * UNIT_BYTES
    found: list[list[Node]] = []
    for turn in range(run.micro_batches):
        forward = made.phase("forward", min(turn, 1))
        scaled = buckets.sized("scaled loss", losses, Category.TEMPORARY, SCALED)
        backward = [scaled, *woven(made, "backward", min(turn, 1), buckets.hear)]
        backward += buckets.end()
        backward.append(buckets.sized("scaled loss", -losses, Category.TEMPORARY, GOES))
        found.append([forward, Group(label="backward", children=tuple(backward))])
    return found


SCALED = "The loss is divided and scaled before the backward pass, each time into a new number."


def _passes(run: Run, made: Sized, rank: int) -> Iterator[Node]:
    for turn, children in enumerate(passes(run, made, rank), start=1):
        yield Repeat(
            count=1,
            child=Group(label="a micro-batch", children=tuple(children)),
            counters=(Counter("forward", turn), Counter("backward", turn)),
        )


def _optimizer(
    run: Run, optimizer: str, rank: int, remains: dict[Category, int]
) -> Iterator[Event]:
    yield from optimizer_events(run, optimizer, rank)
    for category, size in remains.items():
        if size:
            yield _event(f"what is left goes ({category})", -size, category, GOES)


def optimizer_events(run: Run, optimizer: str, rank: int) -> Iterator[Event]:
    """The optimizer's step, group by group (DeepSpeedZeroOptimizer.step)."""
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
        flat_bytes = group.share * size if parts + padded > 1 else 0
        in_fp32 = group.share * 4
        name = "tensor of own gradients"
        if flat_bytes:
            yield _event(name, rounded(flat_bytes), Category.TEMPORARY, FLAT)
        if size != 4:
            yield _event(
                "tensor of own gradients in fp32", rounded(in_fp32), Category.TEMPORARY, IN_FP32
            )
            if flat_bytes:
                yield _event(name, -rounded(flat_bytes), Category.TEMPORARY, GOES)
        held = rounded(in_fp32) if size != 4 else rounded(flat_bytes)
        scratch = _scratch(optimizer, group.share)
        yield from _for_a_moment("the optimizer's scratch memory", scratch, SCRATCH)
        if held:
            yield _event("buffer of own gradients", -held, Category.TEMPORARY, GOES)
    yield _event("norm of all gradients", -2 * UNIT_BYTES, Category.TEMPORARY, GOES)


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
