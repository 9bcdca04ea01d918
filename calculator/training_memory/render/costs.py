"""What a change or a plan costs, in a few words: the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Iterator

from ..cost import Cost
from ..fit import Change
from ..units import percent, ratio, show_bytes


def of_change(change: Change, *, binary: bool = False) -> str:
    """Everything a change is paid with, beginning with speed."""
    return ", ".join(_of_change(change, binary=binary))


def _of_change(change: Change, *, binary: bool) -> Iterator[str]:
    slower = round(change.slower_percent, 1)
    if slower >= 0.1:
        yield f"{slower:.1f} % slower a GPU"
    elif slower <= -0.1:
        yield f"{-slower:.1f} % quicker a GPU"
    else:
        yield "as quick"
    yield from _facts(change.cost, binary=binary)
    if change.price:
        yield change.price


def _facts(cost: Cost, *, binary: bool) -> Iterator[str]:
    if cost.again_flops:
        yield f"{percent(cost.again_flops, cost.flops, 1)} % more arithmetic"
    if cost.sent_bytes:
        yield f"sends {show_bytes(cost.sent_bytes, binary=binary)} a step"
    if cost.copied_bytes:
        yield f"copies {show_bytes(cost.copied_bytes, binary=binary)} to the CPU and back a step"
    if cost.waited:
        yield f"waits {percent(cost.waited, cost.turns, 1)} % of the time"


def of_plan(cost: Cost, *, binary: bool = False) -> str:
    """A plan's speed and what it is made of."""
    return ", ".join((speed(cost), *_facts(cost, binary=binary)))


def speed(cost: Cost) -> str:
    """The tokens a second that the cost model allows at most."""
    each = round(cost.tokens / cost.seconds / cost.gpus)
    took = f"{ratio(round(cost.seconds * 1000), 1000, 2)} s"
    return f"at best {took} a step, {each:,} tokens a second on each GPU"
