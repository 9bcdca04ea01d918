"""The step as an area: highest where the walk says, named, and never outside its drawing."""

import re

import pytest
from hypothesis import given, settings

from strategies import requests
from training_memory.axis import WIDE
from training_memory.estimate import Estimate, estimate
from training_memory.render.area import TALL, top_of
from training_memory.render.step import step
from training_memory.run import Run

PATH = re.compile(r'<path class="tm-(\w+)" d="M0 1000((?:L\d+ \d+)+)V1000Z"/>')


def of(**run: object) -> Estimate:
    return estimate(Run.from_json(run))


def outline(html: str) -> list[tuple[int, int]]:
    """The uppermost edge of the drawing, as places and heights from above."""
    _, path = PATH.findall(html)[0]
    return [(int(x), int(y)) for x, y in re.findall(r"L(\d+) (\d+)", path)]


@given(requests())
@settings(max_examples=40)
def test_the_area_rises_to_the_peak_and_stays_in_its_drawing(request_json):
    found = estimate(Run.from_json(request_json))
    edge = outline(step(found))
    places = [x for x, _ in edge]
    assert places == sorted(places)
    assert places[0] >= 0
    assert places[-1] == WIDE
    assert all(0 <= y <= TALL for _, y in edge)
    top = top_of(found.worst.peak_bytes, found.capacity_bytes)
    assert min(y for _, y in edge) == TALL - found.worst.peak_bytes * TALL // top


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_the_peak_and_its_moment_are_named(recompute):
    found = of(recompute=recompute)
    html = step(found)
    assert f"Peak {round(found.worst.peak_bytes / 1e9, 1)} GB" in html
    assert found.worst.peak_moment.replace("'", "&#x27;") in html


def test_the_parts_of_a_step_are_named_under_it():
    html = step(of())
    for width in ("from", "below"):
        named = re.findall(rf'tm-phase[^"]*tm-{width}-17"[^>]*>([^<]+)<', html)
        assert named == ["states", "forward", "loss", "backward", "optimizer"]


def test_passes_too_many_to_name_are_told_in_a_sentence():
    html = step(of(micro_batches=64, pipeline=4))
    assert "forward and backward passes in turn" in html


def test_the_gpus_line_is_drawn_where_it_is_near():
    assert 'class="tm-capacity"' in step(of())
    assert 'class="tm-capacity"' not in step(of(model="decoder", sequence=8))
    assert 'class="tm-capacity"' not in step(of(gpu=None))


def test_a_deep_model_of_many_micro_batches_is_drawn_with_few_points():
    html = step(of(shape={"layers": 800}, micro_batches=4096, recompute="full"))
    assert len(outline(html)) < 1500
    assert len(html) < 200_000
