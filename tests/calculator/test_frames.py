"""Films: their frames are the step's events, and every text in them is there."""

import json

import pytest
from hypothesis import example, given, settings

from strategies import requests
from training_memory.axis import WIDE
from training_memory.estimate import estimate
from training_memory.events import count, expand, place
from training_memory.frames import MOST, film, said, to_json
from training_memory.outline import TOP
from training_memory.run import Run


def _film(request=None, most=MOST):
    return film(estimate(Run.from_json(request or {})), most)


@given(requests())
@settings(max_examples=40)
def test_frames_are_the_events_of_the_answer(request):
    made = _film(request)
    found = made.estimate
    assert made.frames[made.peak].total == found.worst.peak_bytes
    assert made.events == count(found.worst.tree)
    assert len(made.frames) <= MOST
    for frame in made.frames:
        assert frame.total == sum(frame.parts)
        assert frame.seconds > 0
        assert "{" not in frame.label + frame.why
    places = [frame.x for frame in made.frames]
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] < WIDE


@pytest.mark.parametrize("request_", [{}, {"recompute": "full"}, {"recompute": "selective"}])
def test_a_step_that_is_not_too_long_is_played_whole(request_):
    made = _film(request_)
    played = list(expand(made.estimate.worst.tree))
    assert len(made.frames) == len(played)
    total = 0
    for frame, (event, counters) in zip(made.frames, played, strict=True):
        total += event.bytes
        assert (frame.change, frame.total) == (event.bytes, total)
        assert frame.label.lower() == place(event.label, counters).lower()


def test_the_default_film_peaks_where_the_answer_says():
    made = _film()
    assert made.frames[made.peak].label == "The head's gradient is written"
    assert made.frames[made.peak].total == 199_539_351_552


@given(requests())
@settings(max_examples=40)
def test_rows_hold_their_frames(request):
    made = _film(request)
    rows = made.outline.rows
    for index, row in enumerate(rows):
        assert row.first <= row.last
        if row.parent != TOP:
            around = rows[row.parent]
            assert row.parent < index
            assert around.first <= row.first
            assert row.last <= around.last
        assert "{" not in row.label
    for index, of in enumerate(made.outline.row_of):
        assert of == TOP or rows[of].first <= index <= rows[of].last


#: Its rounds are all others, so that two turns of each repeat are still too many to play.
INTERLEAVED = {
    "model": "deepseek-v2",
    "pipeline": 5,
    "interleave": 2,
    "schedule": "interleaved",
    "micro_batches": 20,
    "recompute": "selective",
}


def test_of_a_step_that_is_thinned_out_every_pass_has_its_row():
    made = _film(INTERLEAVED)
    assert len(made.frames) <= MOST < made.events
    labels = [row.label for row in made.outline.rows]
    for way in ("forward", "backward"):
        for number in range(1, 21):
            # Each micro-batch goes through both parts of the model that the GPU has.
            assert labels.count(f"{way} of micro-batch {number}") == 2


@given(requests())
@example(INTERLEAVED)
@settings(max_examples=40)
def test_what_a_row_leaves_behind_is_what_its_frames_say(request):
    made = _film(request)
    for row in made.outline.rows:
        first = made.frames[row.first]
        before = first.total - first.change
        assert row.change_bytes == made.frames[row.last].total - before


def test_layers_collapse_to_one_row_that_opens():
    rows = _film().outline.rows
    (layers,) = [row for row in rows if row.label == "forward, layers 1 to 32"]
    index = rows.index(layers)
    inside = [row for row in rows if row.parent == index]
    assert [row.label for row in inside] == [f"forward, layer {n}" for n in range(1, 33)]
    assert (layers.turns, layers.shown, layers.change_bytes) == (32, 32, 104_152_956_928)
    assert all(row.is_layer and row.events == 15 for row in inside)
    backward = [row for row in rows if row.label == "backward, layers 32 to 1"]
    assert len(backward) == 1


def test_layers_whose_gradients_differ_by_an_element_are_still_one_row():
    """Their gradients do not divide evenly, so the tree has two repeats."""
    for model in ("gpt2-xl", "llama-2-13b", "qwen2.5-7b", "gpt2"):
        made = _film({"model": model, "sequence": 512, "data": 7, "zero": 2})
        layers = made.estimate.run.model.layers
        rows = [row for row in made.outline.rows if row.turns and "backward" in row.label]
        assert [row.label for row in rows] == [f"backward, layers {layers} to 1"]
        assert rows[0].turns == layers


def test_a_long_step_is_sampled_fairly():
    made = _film({"model": "llama-3.1-405b", "recompute": "full", "micro_batches": 50})
    assert made.events > 10 * MOST
    assert len(made.frames) <= MOST
    ends = {"forward, layer 1 of micro-batch 1", "forward, layer 126 of micro-batch 50"}
    assert ends <= {row.label for row in made.outline.rows}
    (first, *_) = [row for row in made.outline.rows if row.turns == 126]
    assert 2 <= first.shown < 126


@pytest.mark.parametrize(
    ("request_", "longest"),
    [
        ({}, 45),
        ({"micro_batches": 64}, 90),
        ({"model": "llama-3.1-405b", "recompute": "full", "micro_batches": 1000}, 90),
        ({"pipeline": 8, "micro_batches": 32}, 90),
    ],
)
def test_no_film_takes_minutes(request_, longest):
    made = _film(request_)
    assert 10 < sum(frame.seconds for frame in made.frames) < longest


def test_what_comes_first_is_slow_enough_to_read_and_what_repeats_it_quicker():
    made = _film()
    rows = {row.label: row for row in made.outline.rows}

    def seconds(label):
        row = rows[label]
        return sum(frame.seconds for frame in made.frames[row.first : row.last + 1])

    assert seconds("forward, layer 1") > 3 * seconds("forward, layer 2")
    assert seconds("forward, layer 2") == pytest.approx(seconds("forward, layer 31"))
    assert made.frames[made.peak].seconds > 1


def test_a_layer_is_told_in_a_sentence():
    told = {}
    for recompute in ("none", "full"):
        made = _film({"recompute": recompute, "micro_batches": 2})
        for row in made.outline.rows:
            if row.is_layer:
                told[recompute, row.label.split(",")[0], row.label[-1]] = said(made, row)
            else:
                assert said(made, row) == ""
    assert told["none", "forward", "1"] == "It keeps 15 tensors for its backward pass."
    assert told["full", "forward", "1"] == "It keeps one tensor for its backward pass."
    assert "freed. Its gradient is written." in told["none", "backward", "1"]
    assert "Its gradient is added" in told["none", "backward", "2"]
    assert "made again" in told["full", "backward", "1"]


@given(requests())
@settings(max_examples=25)
def test_every_size_has_its_text(request):
    made = _film(request, 300)
    for binary in (False, True):
        plain = json.loads(json.dumps(to_json(made, binary=binary)))
        for frame in plain["frames"]:
            assert plain["shown"][str(frame["total"])]
            assert plain["shown"][str(abs(frame["change"]))]
            assert all(plain["parts"][str(part)] for part in frame["parts"])
            assert plain["whys"][frame["why"]]
        for row in plain["rows"]:
            assert plain["shown"][str(abs(row["change"]))]


def test_the_texts_are_in_the_units_asked_for():
    made = _film()
    peak = str(made.frames[made.peak].total)
    for binary, text in ((False, "199.5 GB"), (True, "185.8 GiB")):
        plain = json.loads(json.dumps(to_json(made, binary=binary)))
        assert plain["shown"][peak] == text
    assert to_json(made)["capacity"] == 80 * 10**9
    assert to_json(_film({"gpu": None}))["capacity"] is None
