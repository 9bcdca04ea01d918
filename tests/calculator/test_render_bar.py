"""The stacked bar: in the right proportions, with every value written, at any size of run."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings

from strategies import requests
from training_memory.categories import CATEGORIES
from training_memory.estimate import Estimate, estimate
from training_memory.render.bar import bar
from training_memory.render.room import BREAKS
from training_memory.render.svg import patterned
from training_memory.run import Run

RECT = re.compile(r'<rect class="tm-(\w+)" x="([\d.]+)%" y="\d+" width="([\d.]+)%"')
LINE = re.compile(r'<line class="tm-(peak|capacity)" x1="([\d.]+)%"')


def of(**run: object) -> Estimate:
    return estimate(Run.from_json(run))


@given(requests())
@settings(max_examples=50)
def test_segments_stand_side_by_side_in_proportion(request_json):
    found = estimate(Run.from_json(request_json))
    segments = [(name, float(x), float(width)) for name, x, width in RECT.findall(bar(found))]
    assert [name for name, _, _ in segments] == list(CATEGORIES)
    totals = found.worst.totals
    whole = sum(totals.values())
    scale = sum(width for _, _, width in segments) / whole
    end = 0.0
    for name, x, width in segments:
        assert x == pytest.approx(end, abs=0.01)
        assert width == pytest.approx(totals[name] * scale, abs=0.01)
        end = x + width
    assert end <= 100


def test_the_peak_is_left_of_the_bars_end_and_right_of_the_capacity():
    html = bar(of())
    lines = {name: float(x) for name, x in LINE.findall(html)}
    _, x, width = RECT.findall(html)[-1]
    assert lines["capacity"] < lines["peak"] < float(x) + float(width)
    assert lines["peak"] / lines["capacity"] == pytest.approx(199_539_351_552 / 80e9, rel=1e-3)
    assert "add up to 212.8 GB" in html
    assert "the peak is 199.5 GB" in html


def test_every_kind_is_told_with_its_value_even_if_there_is_none():
    legend = bar(of()).split("tm-legend")[1]
    told = dict(re.findall(r'tm-term" [^>]*>([^<]+)<.*?tm-number">([^<]+)<', legend))
    assert list(told) == [category.heading for category in CATEGORIES]
    assert told["Weights"] == told["Gradients"] == "13.5 GB"
    assert told["Activations"] == "104.2 GB"
    assert told["Recomputed layer"] == "0"
    assert told["Logits"] == "0.8 GB"


def test_a_capacity_far_beyond_is_named_and_not_drawn_to_scale():
    html = bar(of(model="decoder", sequence=8, micro_batch=16))
    assert "80 GB GPU, far beyond" in html
    assert "capacity" not in dict(LINE.findall(html))


def test_without_a_gpu_there_is_no_capacity():
    html = bar(of(gpu=None))
    assert "GPU" not in html
    assert dict(LINE.findall(html)).keys() == {"peak"}


def test_a_label_waits_until_its_segment_is_wide_enough():
    html = bar(of())
    weights, activations = (
        re.findall(rf'<text class="tm-on tm-on-{name} [^"]*tm-from-(\d+)', html)
        for name in ("weights", "activations")
    )
    assert min(map(int, activations)) == BREAKS[0]
    assert min(map(int, weights)) > BREAKS[0]
    assert not re.search("tm-on tm-on-logits", html), "a sliver of the bar has room for no label"


def test_a_value_alone_gives_way_to_name_and_value():
    for alone, until in re.findall(r'tm-value tm-from-(\d+) tm-below-(\d+)"', bar(of())):
        assert int(alone) < int(until)


def test_neighbours_differ_by_pattern_too():
    drawn = [category for category in CATEGORIES if category != "recomputed"]
    for left, right in pairwise(drawn):
        assert patterned(left) or patterned(right)
