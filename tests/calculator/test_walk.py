"""The walk: what it composes equals what playing every event gives."""

from hypothesis import given, settings

from strategies import trees
from training_memory.categories import Category
from training_memory.events import Counter, Event, Group, Node, Phase, Repeat, count, expand
from training_memory.timeline import timeline
from training_memory.walk import Shared, climb, left, walk, walk_expanded


@given(trees)
@settings(max_examples=500)
def test_composed_equals_expanded(tree):
    assert walk(tree) == walk_expanded(tree)


@given(trees)
@settings(max_examples=500)
def test_the_quick_walks_find_the_same(tree):
    segment = walk(tree)
    assert climb(tree) == (sum(segment.remains), segment.peak)
    assert left(tree) == segment.remains


@given(trees)
@settings(max_examples=200)
def test_a_part_that_stands_in_several_places_is_summed_up_like_any_other(tree):
    shared = Shared("", (tree,))
    again = Repeat(count=3, child=shared, counters=(Counter("turn"),))
    whole = Group(label="", children=(shared, again, shared))
    assert walk(whole) == walk_expanded(whole)
    segment = walk(whole)
    assert climb(whole) == (sum(segment.remains), segment.peak)
    assert left(whole) == segment.remains


@given(trees)
def test_the_peak_is_its_parts(tree):
    segment = walk(tree)
    assert sum(segment.parts) == segment.peak
    assert all(most >= part for most, part in zip(segment.largest, segment.parts, strict=True))


@given(trees)
def test_count_is_the_number_of_events(tree):
    assert count(tree) == len(list(expand(tree)))


@given(trees)
def test_a_timeline_ends_where_the_walk_does_and_stays_under_its_peak(tree):
    segment = walk(tree)
    full = timeline(tree, most=10**6)
    assert len(full) == count(tree)
    assert max([0, *(point.total for point in full)]) == segment.peak
    by_place = {point.at: point for point in full}
    for sampled in timeline(tree, most=2):
        # A sample leaves points out; it invents none.
        assert sampled.parts == by_place[sampled.at].parts


def _event(size: int, category: Category = Category.ACTIVATIONS) -> Event:
    return Event(
        phase=Phase.FORWARD, category=category, bytes=size, label="", why="", moment="{layer}"
    )


def test_a_repeat_that_grows_is_highest_in_its_last_run():
    tree = Repeat(
        count=1000,
        child=Group(label="", children=(_event(5), _event(-3))),
        counters=(Counter("layer", 1000, -1),),
    )
    segment = walk(tree)
    assert (segment.peak, sum(segment.remains)) == (2 * 999 + 5, 2000)
    assert segment.counters == {"layer": 1}


def test_a_repeat_that_shrinks_or_stays_is_highest_in_its_first_run():
    for shrinks in (-3, -5):
        tree = Repeat(
            count=1000,
            child=Group(label="", children=(_event(3), _event(shrinks))),
            counters=(Counter("layer"),),
        )
        segment = walk(tree)
        assert segment.peak == 3
        assert segment.counters == {"layer": 1}


def test_the_walk_does_not_expand():
    """10**18 events could not be played."""
    tree: Node = _event(1)
    for _ in range(6):
        tree = Repeat(count=1000, child=tree, counters=(Counter("layer"),))
    assert walk(tree).peak == 10**18
