"""The order in which a pipeline stage runs its micro-batches forward and backward.

GPipe: all forward passes, then all backward passes (Huang et al. 2018, arXiv:1811.06965). 1F1B: a
stage runs ahead by as many forward passes as there are stages after it, then one forward, one
backward (Narayanan et al. 2021, arXiv:2104.04473, §2.2.1). Interleaved: each GPU holds several
parts of the model, far apart, which take turns (§2.2.2). Zero bubble: the schedule ZB-H1 (Qi et al.
2023, arXiv:2401.10241, §3), 1F1B with backward passes in two: first the gradients of the inputs,
then those of the weights, the later the further back the stage is, so that on every stage as many
micro-batches wait for either as on the first in 1F1B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import pairwise

from .events import Counter, Group, Node, Repeat
from .records import dataclass


class Schedule(StrEnum):
    """How a pipeline's stages take turns."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZERO_BUBBLE = "zero-bubble"


@dataclass(frozen=True, slots=True)
class Pass:
    """One micro-batch's forward or backward pass through a part of the model, from 0.

    ``rank`` is the pass's place among all that go in this direction, from 0. Of a backward pass in
    two ``weights`` is the second, which makes the weights' gradients.
    """

    forward: bool
    part: int
    micro_batch: int
    rank: int
    weights: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """Passes that are repeated, each time with micro-batches further on by ``step``."""

    count: int
    passes: tuple[Pass, ...]
    step: int


def ahead(schedule: Schedule, *, stages: int, stage: int, micro_batches: int, parts: int) -> int:
    """Forward passes (of a part each) before the one that a stage's first backward pass follows."""
    if schedule is Schedule.GPIPE:
        wanted = micro_batches * parts - 1
    elif parts > 1:
        # Megatron-Core 0.16, core/pipeline_parallel/schedules.py, get_pp_rank_microbatches.
        wanted = (stages - stage - 1) * 2 + (parts - 1) * stages
    else:
        wanted = stages - stage - 1
    return min(wanted, micro_batches * parts - 1)


def waiting(
    schedule: Schedule, *, stages: int, stage: int, micro_batches: int, parts: int = 1
) -> tuple[tuple[int, int], ...]:
    """When a stage can hold most: passes that wait for a backward pass, and for the weights' half.

    More than one pair where it depends on what is kept for each: the one that is largest is a
    step's largest.
    """
    first = ahead(schedule, stages=stages, stage=stage, micro_batches=micro_batches, parts=parts)
    if schedule is not Schedule.ZERO_BUBBLE:
        return ((first + 1, 0),)
    last = micro_batches - 1
    late = min(stage, last)
    return (first + 1, min(stage, last - first)), (min(first, last - late), late + 1)


def _halved(first: int, late: int, micro_batches: int) -> Iterator[Round]:
    """ZB-H1 after ``first`` forward passes: weights' gradients ``late`` turns after the inputs'."""

    def passes(turn: int) -> Iterator[Pass]:
        if 0 < turn < micro_batches - first:
            yield Pass(True, 0, first + turn, first + turn)
        if turn < micro_batches:
            yield Pass(False, 0, turn, turn)
        if turn >= late:
            yield Pass(False, 0, turn - late, turn - late, weights=True)

    # Within these turns every one is like the first; the first to write gradients is by itself.
    end = micro_batches + late
    begins = sorted({0, 1, late, late + 1, micro_batches - first, micro_batches, end})
    for begin, following in pairwise(one for one in begins if one <= end):
        if turn := tuple(passes(begin)):
            yield Round(following - begin, turn, 1)


def rounds(
    schedule: Schedule, *, stages: int, stage: int, micro_batches: int, parts: int = 1
) -> Iterator[Round]:
    """All passes of a stage in order."""
    first = ahead(schedule, stages=stages, stage=stage, micro_batches=micro_batches, parts=parts)
    several = stages * parts if parts > 1 else 1
    step = stages if parts > 1 else 1
    last = micro_batches * parts - 1

    def one(forward: bool, rank: int) -> Pass:
        if parts == 1:
            return Pass(forward, 0, rank, rank)
        part = rank % several // stages
        micro_batch = rank // several * stages + rank % stages
        return Pass(forward, part if forward else parts - 1 - part, micro_batch, rank)

    def run(make: Callable[[int], tuple[Pass, ...]], begin: int, end: int) -> Iterator[Round]:
        """From turn ``begin`` up to ``end``, whole periods of ``several`` turns as rounds."""
        whole, rest = divmod(end - begin, several)
        for first_turn, count in ((begin, 1), (begin + several, whole - 1)):
            # The first round of backward passes writes gradients that the others add to.
            if count > 0 and whole:
                turns = range(first_turn, first_turn + several)
                yield Round(count, _flat(make(turn) for turn in turns), step)
        for turn in range(end - rest, end):
            yield Round(1, make(turn), 0)

    yield from run(lambda turn: (one(True, turn),), 0, first + 1)
    if schedule is Schedule.ZERO_BUBBLE:
        yield from _halved(first, stage, micro_batches)
        return
    yield Round(1, (one(False, 0),), 0)
    yield from run(lambda turn: (one(True, first + turn), one(False, turn)), 1, last - first + 1)
    yield from run(lambda turn: (one(False, turn),), last - first + 1, last + 1)


def _flat(groups: Iterator[tuple[Pass, ...]]) -> tuple[Pass, ...]:
    return tuple(one for group in groups for one in group)


def tree(all_rounds: Iterator[Round], node_of: Callable[[Pass], Node]) -> list[Node]:
    """The passes as nodes; ``node_of`` makes one; its labels count by :func:`_direction`."""
    return [_round(one, node_of) for one in all_rounds]


def _round(one: Round, node_of: Callable[[Pass], Node]) -> Node:
    directions = [_direction(single) for single in one.passes]
    if len(set(directions)) == len(directions):
        children = tuple(node_of(single) for single in one.passes)
        counters = tuple(
            Counter(direction, single.micro_batch + 1, one.step)
            for direction, single in zip(directions, one.passes, strict=True)
        )
        together = ", ".join(_SPOKEN[direction] for direction in directions)
        child = children[0] if len(children) == 1 else Group(label=together, children=children)
        return Repeat(count=one.count, child=child, counters=counters)
    numbered = tuple(
        Repeat(
            count=1,
            child=node_of(single),
            counters=(Counter(direction, single.micro_batch + 1),),
        )
        for direction, single in zip(directions, one.passes, strict=True)
    )
    # Every round's numbers are those of the first, and so many more.
    more = tuple(Counter(f"{name}+", 0, one.step) for name in dict.fromkeys(directions))
    said = directions[0] if len(more) == 1 else TOGETHER
    group = Group(label=f"{said}, every part in turn", children=numbered)
    return Repeat(count=one.count, child=group, counters=more)


TOGETHER = "one forward, one backward"
_SPOKEN = {"forward": "one forward", "backward": "one backward", "weights": "weights' gradients"}


def _direction(single: Pass) -> str:
    if single.weights:
        return "weights"
    return "forward" if single.forward else "backward"
