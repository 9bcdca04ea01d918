"""What is heard in a recorded step, layer by layer, for tests."""

from __future__ import annotations

from collections.abc import Iterator

from training_memory.deepspeed.scores import Score
from training_memory.events import Event
from training_memory.recording import Section
from training_memory.weaving import Cuts, Rounds, Stretches

#: One part of a pass: as it is recorded, what happens between its moves, and its number.
Part = tuple[Section, Cuts, int]


def parts(stretches: Stretches, further: int = 0) -> Iterator[Part]:
    """Every part of a pass by itself, with its number."""
    for one in stretches:
        if isinstance(one, Rounds):
            for turn in range(one.count):
                yield from parts(one.stretches, further + turn * one.step)
            continue
        step = 1 if one.woven.section.phase == "forward" else -1
        for turn in range(one.count):
            yield one.woven.section, one.woven.cuts, one.first + further + turn * step


def everything(one: Score) -> list[Part | Event]:
    """Everything that happens in a micro-batch, its layers' numbers included."""
    return [*one.begin, *parts(one.forward or ()), *parts(one.backward or ()), *one.end]
