"""A step's edges against the same step played event by event."""

from itertools import accumulate

import pytest
from hypothesis import assume, given, settings

from strategies import requests, trees
from sweeps import sweep
from training_memory.axis import WIDE, Axis
from training_memory.categories import CATEGORIES
from training_memory.edges import Edges, edges
from training_memory.estimate import RankEstimate, estimate
from training_memory.events import Event, Node, Phase, count
from training_memory.run import Run
from training_memory.timeline import timeline

ALL = 10**6
RECORDED = [
    {"implementation": "huggingface", "recipe": "autocast-adam", "recompute": "full"},
    {"implementation": "huggingface", "adapter": "qlora", "recipe": "autocast-adam"},
    {"implementation": "torchtitan", "recipe": "autocast-adam", "data": 8, "micro_batches": 3},
    {"implementation": "huggingface", "loss": "chunked", "optimizer": "muon"},
]


def turns(values: list[int]) -> list[int]:
    """A curve without what a straight line through the rest would pass anyway."""
    found: list[int] = []
    for value in values:
        if found and found[-1] == value:
            continue
        if len(found) > 1 and (found[-1] - found[-2] > 0) == (value - found[-1] > 0):
            found.pop()
        found.append(value)
    return found


def played(tree: Node) -> list[list[int]]:
    """The bytes below each edge, before the first event and after each."""
    sums = [list(accumulate(point.parts)) for point in timeline(tree, ALL)]
    return [[0, *(point[edge] for point in sums)] for edge in range(len(CATEGORIES))]


def holds(made: Edges, tree: Node) -> None:
    """The edges go through every turn of the step, in order, from end to end."""
    assert len(made.edges) == len(CATEGORIES)
    for (places, values), below in zip(made.edges, played(tree), strict=True):
        assert turns(list(values)) == turns(below)
        assert list(places) == sorted(places)
        assert (places[0], places[-1]) in {(0, WIDE), (WIDE, WIDE)}
    top = made.edges[-1]
    assert made.peak == top[0][list(top[1]).index(max(top[1]))]


@given(trees)
@settings(max_examples=300)
def test_edges_are_those_of_the_step_played_event_by_event(tree):
    holds(edges(tree, ALL), tree)


@pytest.mark.thorough
@given(requests())
@settings(max_examples=25, deadline=None)
def test_edges_of_a_run_are_those_of_its_step_played(request_json):
    worst = estimate(Run.from_json(request_json)).worst
    assume(count(worst.tree) < 20_000)
    holds(edges(worst.plan, ALL), worst.tree)


def recorded(request: dict[str, object]) -> RankEstimate:
    return estimate(Run.from_json({"model": "llama-7b", "sequence": 512, **request})).worst


@pytest.mark.parametrize("request_json", RECORDED)
def test_edges_of_a_recorded_step_are_those_of_its_events(request_json):
    worst = recorded(request_json)
    holds(edges(worst.plan, ALL), worst.tree)


@pytest.mark.parametrize("request_json", sweep([{"micro_batches": 40}, *RECORDED], one_in=3))
def test_a_sample_goes_through_points_of_the_step_and_its_peak(request_json):
    worst = recorded(request_json)
    points = timeline(worst.tree, ALL)
    axis = Axis(worst.tree)
    slopes = {
        (axis.after(point.at), *accumulate(point.parts))
        for point in points
        if point.event.phase not in (Phase.LOSS, Phase.OPTIMIZER)
    }
    below = played(worst.tree)
    for most in (50, 300, 1000):
        made = edges(worst.plan, most)
        for edge, (places, values) in enumerate(made.edges):
            assert set(values) <= set(below[edge]), most
            near = {(place + by, sums[edge]) for place, *sums in slopes for by in (-1, 0, 1)}
            # Steps have corners of their own, halfway between two events.
            start = next(band.end for band in made.bands if band.phase is Phase.BEFORE)
            loss = next(band.start for band in made.bands if band.phase is Phase.LOSS)
            corners = zip(places, values, strict=True)
            assert {corner for corner in corners if start < corner[0] < loss} <= near, most
        assert max(made.edges[-1][1]) == worst.peak_bytes
        assert made.edges[-1][1][-1] == points[-1].total


@given(trees)
def test_bands_are_the_phases_in_order(tree):
    made = edges(tree, ALL)
    events = [(point.event.phase, point.total) for point in timeline(tree, ALL)]
    wanted: list[tuple[Phase, int]] = []
    for phase, total in events:
        if wanted and wanted[-1][0] is phase:
            wanted.pop()
        wanted.append((phase, total))
    assert [(band.phase, band.bytes) for band in made.bands] == wanted


def test_a_step_of_one_event_is_drawn():
    event = Event(phase=Phase.FORWARD, category=CATEGORIES[4], bytes=5, label="", why="", moment="")
    made = edges(event, 10)
    assert made.edges[3] == ([WIDE], [0])
    assert made.edges[4] == ([0, WIDE, WIDE], [0, 5, 5])
