"""The first steps of one stage's GPU played through PyTorch's allocator, request by request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..allocator import Allocator, Block
from ..categories import Category
from ..held import Held
from ..pipeline import Pass, ahead, rounds
from ..rank import Rank
from ..recorded import sizes_of
from ..recording import Recording
from ..run import Run
from ..slices import Work
from .held import FP32_BYTES, held_rows
from .recording import record
from .shape import part_structure, values

#: Layers that micro-batches in flight go through; more are not played, since GPipe has them all.
MOST_LAYERS = 2000


def is_short(run: Run) -> bool:
    """Whether so little is in flight that it is played while someone waits."""
    layout = run.layout
    waiting = ahead(
        layout.schedule,
        stages=layout.pipeline,
        stage=0,
        micro_batches=run.micro_batches,
        parts=layout.interleave,
    )
    layers = -(-run.model.layers // (layout.pipeline * layout.interleave))
    return (waiting + 1) * layers <= MOST_LAYERS


def played(run: Run, rank: Rank, allocator: Allocator, *, steps: int) -> Work[Allocator]:
    """The allocator after the first steps, two rounds of a schedule's steady passes in each.

    It may be left off after every part of a pass.

    What a schedule's variables hold of a micro-batch goes after the next one's backward pass, a
    little later than it does.
    """
    rows = held_rows(run, rank)
    states = [row.bytes for row in rows if row.category is Category.OPTIMIZER]
    kept = [allocator.allocate(row.bytes) for row in rows if row.category is not Category.OPTIMIZER]
    order = list(_passes(run, rank))
    parts = []
    for part in range(rank.parts):
        parts.append(_recorded(run, rank, part))
        yield
    for _ in range(steps):
        yield from _step(allocator, order, parts)
        casts = _casts(run, rows)
        block = allocator.allocate(casts) if casts else None
        # The first step makes them.
        kept += [allocator.allocate(size) for size in states]
        states = []
        if block:
            allocator.release(block)
    return allocator


def _passes(run: Run, rank: Rank) -> Iterator[Pass]:
    """Until the steady part of the schedule has gone round twice, and the end."""
    several = rank.stages if rank.parts > 1 else 1
    needed = rank.in_flight + 2 * several
    needed += -needed % several
    for one in rounds(
        run.layout.schedule,
        stages=rank.stages,
        stage=rank.stage,
        micro_batches=min(run.micro_batches, needed),
        parts=rank.parts,
    ):
        for turn in range(one.count):
            for single in one.passes:
                yield Pass(
                    single.forward, single.part, single.micro_batch + turn * one.step, single.rank
                )


_Part = tuple[Recording, Sequence[int]]


def _recorded(run: Run, rank: Rank, part: int) -> _Part:
    recording = record(*part_structure(run, rank, part))
    return recording, sizes_of(recording, values(run))


def _step(allocator: Allocator, order: Sequence[Pass], parts: Sequence[_Part]) -> Work[None]:
    waiting: dict[tuple[int, int], dict[int, Block]] = {}
    left: list[list[Block]] = [[] for _ in parts]
    for one in order:
        recording, sizes = parts[one.part]
        live = {} if one.forward else waiting.pop((one.part, one.micro_batch))
        for section in recording.sections:
            if section.phase != ("forward" if one.forward else "backward"):
                continue
            for place in section.running.ends():
                if place >= 0:
                    live[place] = allocator.allocate(sizes[place])
                elif ~place in live:
                    # What was there before is among the rows, and stays.
                    allocator.release(live.pop(~place))
            yield
        if one.forward:
            waiting[one.part, one.micro_batch] = live
            continue
        for block in left[one.part]:
            allocator.release(block)
        left[one.part] = list(live.values())
    for blocks in left:
        for block in blocks:
            allocator.release(block)


def _casts(run: Run, rows: Sequence[Held]) -> int:
    """Gradients of 16 bits are cast before the optimizer's step."""
    if run.recipe.by_category[Category.GRADIENTS] >= FP32_BYTES:
        return 0
    return sum(row.bytes for row in rows if row.category is Category.MASTER)
