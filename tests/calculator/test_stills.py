"""The still pictures: the moments that tell the step, in order, with what changed between them."""

import pytest
from hypothesis import given, settings

from strategies import requests
from training_memory.categories import Category
from training_memory.estimate import estimate
from training_memory.events import Phase
from training_memory.frames import film
from training_memory.run import Run
from training_memory.stills import stills

_TITLES = [
    "Before the step",
    "Halfway through the forward pass",
    "The end of the forward pass",
    "The peak",
    "Halfway through the backward pass",
    "The end of the backward pass",
    "After the optimizer",
]


def _stills(**run):
    made = film(estimate(Run.from_json(run)))
    return made, stills(made)


def test_six_pictures_tell_the_default_step():
    made, found = _stills()
    # The peak is the event after the forward pass: one picture, not two.
    assert [still.title for still in found] == [t for t in _TITLES if "end of the forw" not in t]
    totals = [made.frames[still.frame].total for still in found]
    assert totals[0] == 94_337_818_624
    assert max(totals) == totals[2] == 199_539_351_552
    assert totals[4] == 107_814_649_856
    assert totals[-1] == totals[0]
    assert found[2].text.endswith("as the backward pass begins, with the logits still held.")


def test_with_recomputation_the_peak_is_a_picture_of_its_own():
    for recompute, place in (("full", 4), ("selective", 3)):
        _, found = _stills(recompute=recompute)
        assert len(found) == 7
        assert found[place].title == "The peak"
        assert Category.RECOMPUTED in dict(found[place].changes)


@given(requests())
@settings(max_examples=40)
def test_pictures_are_in_order_and_their_changes_add_up(request):
    made = film(estimate(Run.from_json(request)))
    found = stills(made)
    places = [still.frame for still in found]
    assert places == sorted(set(places))
    assert made.peak in places
    assert 4 <= len(found) <= 7
    total = 0
    for still in found:
        total += sum(size for _, size in still.changes)
        assert all(size for _, size in still.changes)
        assert total == made.frames[still.frame].total


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_halfway_is_the_end_of_a_layer_in_the_middle(recompute):
    made, found = _stills(recompute=recompute)
    for still, phase in ((found[1], Phase.FORWARD), (found[-3], Phase.BACKWARD)):
        if "Halfway" not in still.title:
            continue
        frame = made.frames[still.frame]
        assert frame.phase is phase
        row = made.outline.rows[frame.row]
        assert row.is_layer
        assert row.last == still.frame
        assert int(row.label.split()[-1]) in {15, 16, 17, 18}
