"""The optimizer's step under ZeRO, from one share of the weights to the next."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ..autograd.memory import Facts
from ..categories import Category
from ..events import Event
from ..layouts import UNIT_BYTES, Weight, rounded
from ..optimizers import get
from ..run import Run
from ..scratch import Room
from .asked import groups, item_bytes, offloads, shares
from .events import GOES, event, for_a_moment
from .third import PERSISTENT, SMALL

#: Norms of gradients are taken in 64 bits (deepspeed/runtime/zero/utils.py, get_norm_dtype).
NORM_BYTES = 8
NORM = "The norm of a gradient is taken in 64 bits, of one whole tensor at a time."
FLAT = "The optimizer reads one tensor, and the sums are several."
IN_FP32 = "The optimizer works in 32 bits."


def optimizer_events(run: Run, optimizer: str, rank: int) -> Iterator[Event]:
    """The optimizer's step, group by group (DeepSpeedZeroOptimizer.step)."""
    if offloads(run) and run.layout.zero == 3:
        return  # what it does is done on the CPU
    if offloads(run):
        yield from for_a_moment("norm of all gradients", UNIT_BYTES, NORM)
        return
    if run.layout.zero == 3:
        yield from _third_step(run, optimizer)
        return
    of, size = groups(run), item_bytes(run)
    owned = [[numel for _, numel in group.of(rank)] for group in of]
    for own in owned:
        if largest := max(own, default=0):
            size_bytes = rounded(NORM_BYTES * largest) + UNIT_BYTES
            yield from for_a_moment("a gradient in fp64 and its norm", size_bytes, NORM)
    yield event("norm of all gradients", 2 * UNIT_BYTES, Category.TEMPORARY, NORM)
    for group, own in zip(of, owned, strict=True):
        padded = sum(own) < group.share
        yield from _update(group.share, size, optimizer, copies=len(own) + padded > 1)
    yield event("norm of all gradients", -2 * UNIT_BYTES, Category.TEMPORARY, GOES)


def _third_step(run: Run, optimizer: str) -> Iterator[Event]:
    """The same of stage 3 (DeepSpeedZeroOptimizer_Stage3.step)."""
    own, size = shares(run), item_bytes(run)
    small = own.small_bytes()
    if small:
        yield event(SMALL, -small, Category.WEIGHTS, GOES)
    groups = own.sub_groups()

    # Of a deep model many are of the same size.
    @cache
    def norm(largest: int) -> tuple[Event, ...]:
        size_bytes = rounded(NORM_BYTES * largest) + UNIT_BYTES
        return tuple(for_a_moment("a gradient in fp64 and its norm", size_bytes, NORM))

    @cache
    def update(numel: int, copies: bool) -> tuple[Event, ...]:
        return tuple(_update(numel, size, optimizer, copies=copies))

    for one in groups:
        yield from norm(one.largest)
    norms = max((one.end - one.begin for one in groups), default=0) * UNIT_BYTES
    yield from for_a_moment("norm of each gradient", norms, NORM)
    total = 4 * UNIT_BYTES
    yield event("norm of all gradients", total, Category.TEMPORARY, NORM)
    for one in groups:
        yield from update(one.numel, one.end - one.begin > 1)
    yield event("norm of all gradients", -total, Category.TEMPORARY, GOES)
    if small:
        yield event(SMALL, small, Category.WEIGHTS, PERSISTENT)


def _update(numel: int, size: int, optimizer: str, *, copies: bool) -> Iterator[Event]:
    """The optimizer's step on so many numbers of one tensor."""
    name, in_fp32 = "tensor of own gradients", "tensor of own gradients in fp32"
    flat_bytes = rounded(numel * size) if copies else 0
    if flat_bytes:
        yield event(name, flat_bytes, Category.TEMPORARY, FLAT)
    held = flat_bytes
    if size != 4:
        held = rounded(numel * 4)
        yield event(in_fp32, held, Category.TEMPORARY, IN_FP32)
        if flat_bytes:
            yield event(name, -flat_bytes, Category.TEMPORARY, GOES)
    scratch = _scratch(optimizer, numel)
    yield from for_a_moment("the optimizer's scratch memory", scratch, SCRATCH)
    if held:
        yield event(in_fp32 if size != 4 else name, -held, Category.TEMPORARY, GOES)


def _scratch(optimizer: str, numel: int) -> int:
    """The most that the optimizer makes for a moment to update so many numbers of one tensor."""
    room = _Highest()
    get(optimizer).update(room, [Weight(name="share", shape=(numel,))], 4)
    return room.most


class _Highest(Room):
    """Scratch memory, of which the most is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.most = 0

    def taken(self, facts: Facts) -> int:
        number = super().taken(facts)
        self.sizes[number] = rounded(facts.bytes.evaluate({}))
        self.most = max(self.most, sum(self.sizes.values()))
        return number

    def release(self, number: int) -> None:
        del self.sizes[number]


SCRATCH = "It is what the optimizer's update is worked out in."
