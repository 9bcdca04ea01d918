"""Labels beside one another: the width from which they have room, and apart where they have not."""

from __future__ import annotations

import re

import pytest

from training_memory.estimate import estimate
from training_memory.render.bar import bar
from training_memory.render.room import BREAKS, NARROWEST, Label, room_from, spread
from training_memory.run import Run


def row(*labels: tuple[str, int, str]) -> list[Label]:
    return [Label(words=words, place=place, anchor=anchor) for words, place, anchor in labels]


def test_a_label_reaches_from_the_end_that_stands_at_its_place():
    start, middle, end = row(("20 GB", 0, "start"), ("20 GB", 50, "middle"), ("20 GB", 99, "end"))
    wide = start.reach[1]
    assert start.reach == (0, wide)
    assert middle.reach == (wide // 2, wide // 2)
    assert end.reach == (wide, 0)


def test_labels_need_more_width_the_nearer_they_stand():
    found = [
        room_from(row(("50 GB", 0, "start"), ("100 GB", place, "middle")), 100)
        for place in (50, 30, 20, 10, 5)
    ]
    assert found == sorted(found)
    assert found[0] == NARROWEST
    assert found[-1] in BREAKS[1:]


def test_a_label_too_wide_for_the_drawing_waits_for_a_wider_one():
    words = "forward and backward passes in turn, then the optimizer"
    assert room_from(row((words, 50, "middle")), 100) > NARROWEST
    assert spread(row((words, 50, "middle")), 100) is None


def test_labels_that_touch_are_spread_as_little_as_needed():
    whole = 100 * NARROWEST
    labels = row(
        ("states", 0, "start"),
        ("forward", 318, "middle"),
        ("backward", 852, "middle"),
        ("optimizer", whole, "end"),
    )
    assert room_from(labels, whole) > NARROWEST
    found = spread(labels, whole)
    assert found is not None
    assert room_from(found, whole) == NARROWEST
    assert [one.words for one in found] == [one.words for one in labels]
    assert found[0].place == 0
    assert found[-1].place == whole
    # What had its room stays.
    assert found[1] == labels[1]
    assert spread(found, whole) == found


@pytest.mark.parametrize(("model", "sequence"), [("llama-7b", 4096), ("gpt2", 128)])
def test_of_a_scale_every_other_label_waits_for_a_wide_drawing(model: str, sequence: int):
    html = bar(estimate(Run.from_json({"model": model, "sequence": sequence})))
    labels = re.findall(r'class="tm-tick-label([^"]*)"', html)
    assert len(labels) == 5
    assert [bool(waits) for waits in labels] == [False, True, False, True, False]
