"""The axis of a step: every event in its place, every layer the same width."""

from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import requests, trees
from training_memory.axis import WIDE, Axis
from training_memory.estimate import estimate
from training_memory.events import count
from training_memory.frames import film
from training_memory.run import Run
from training_memory.timeline import timeline


@given(trees)
def test_events_stand_in_their_order_from_end_to_end(tree):
    axis = Axis(tree)
    places = [axis.after(at) for at in range(count(tree))]
    assert places == sorted(places)
    if places:
        assert places[-1] == WIDE
        assert axis.before(0) == 0


@given(requests())
@settings(max_examples=25)
def test_an_event_begins_where_the_one_before_it_ends(request):
    tree = estimate(Run.from_json(request)).worst.tree
    axis = Axis(tree)
    for at in range(1, min(count(tree), 200)):
        assert axis.before(at) == axis.after(at - 1)


@given(requests(), st.integers(min_value=1, max_value=300))
@settings(max_examples=25)
def test_points_in_order_stand_where_each_of_them_would(request, most):
    tree = estimate(Run.from_json(request)).worst.tree
    points = timeline(tree, most)
    axis = Axis(tree)
    assert axis.places(points) == [axis.after(point.at) for point in points]


def _starts(recompute: str) -> dict[str, int]:
    """Where each layer of LLaMA 7B's step begins."""
    made = film(estimate(Run.from_json({"recompute": recompute})))
    return {row.label: made.frames[row.first].x for row in made.outline.rows if row.is_layer}


def test_layers_are_alike_and_line_up_whatever_is_recomputed():
    kept = _starts("none")
    assert len(kept) == 64
    widths = {
        kept[f"forward, layer {layer + 1}"] - kept[f"forward, layer {layer}"]
        for layer in range(1, 32)
    }
    assert max(widths) - min(widths) <= 1
    for recompute in ("selective", "full"):
        other = _starts(recompute)
        assert other.keys() == kept.keys()
        assert all(abs(other[label] - place) <= 1 for label, place in kept.items())


def test_a_long_step_is_placed_without_being_expanded():
    request = {"micro_batches": 10**6, "model": "llama-3.1-405b"}
    tree = estimate(Run.from_json(request)).worst.tree
    assert count(tree) > 10**9
    assert Axis(tree).after(count(tree) - 1) == WIDE
