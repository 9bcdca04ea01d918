"""The animated step as the build writes it: films and drawings of one and the same run."""

import json
import re
from html import unescape

import pytest

import calculator_page
from player_page import step_player
from training_memory.errors import InputError
from training_memory.estimate import estimate
from training_memory.frames import film, to_json
from training_memory.run import Run

_PYTHON = {
    "pyodide": "assets/runtime/",
    "package": "assets/runtime/a.zip",
    "files": {},
    "size": 4_200_000,
}


@pytest.fixture
def html(monkeypatch):
    monkeypatch.setattr(calculator_page, "runtime_data", lambda: _PYTHON)
    return step_player()


def films_in(html):
    (data,) = re.findall(r"<template data-films data-search-exclude>(.*?)</template>", html)
    return json.loads(unescape(data))


def test_the_films_in_the_page_are_the_calculators(html):
    expected = [
        to_json(film(estimate(Run.from_json({"recompute": recompute}))))
        for recompute in ("none", "full")
    ]
    assert films_in(html) == json.loads(json.dumps(expected))


def test_both_films_are_drawn_and_one_is_shown(html):
    assert html.count('class="film-stage"') == html.count('class="film-now"') == 2
    assert 'data-count="1" ' in html
    assert 'data-second="full"' in html


def test_the_pictures_are_those_of_the_first_film(html):
    frames = films_in(html)[0]["frames"]
    shown = [int(frame) for frame in re.findall(r'data-do="still" data-frame="(\d+)"', html)]
    assert len(shown) == 6
    assert max(frames[at]["total"] for at in shown) == max(frame["total"] for frame in frames)


def test_nothing_can_be_pressed_before_a_script_takes_over(html):
    controls = re.findall(r"<(?:button|input|select|fieldset)\b[^>]*>", html)
    outside = [one for one in controls if not re.search("tm-help|disabled| hidden", one)]
    # What is inside the fieldset is disabled with it, and a question mark needs no script.
    assert all('id="film-' in one or "data-step" in one for one in outside)
    assert "<fieldset disabled>" in html


def test_markdown_leaves_it_whole(html):
    assert not re.search(r"\n\s*\n", html)


def test_another_second_run_and_another_preset(monkeypatch):
    monkeypatch.setattr(calculator_page, "runtime_data", lambda: _PYTHON)
    html = step_player("decoder", beside="selective")
    assert 'data-second="selective"' in html
    assert "Decoder, the attention core recomputed" in html
    with pytest.raises(InputError, match="preset"):
        step_player("llama-9b")
