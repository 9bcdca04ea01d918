"""The prose's figures show the calculator's rows, and add up to what they claim."""

from __future__ import annotations

import re
from html import escape

import pytest

import figures
from training_memory import recipe
from training_memory.blocks.paper import LAYER
from training_memory.estimate import estimate
from training_memory.run import Run
from training_memory.units import show_bytes

_WIDTH = re.compile(r'<rect class="segment category-(\w+)" x="([\d.]+)%" width="([\d.]+)%"')


def test_the_coefficients_are_the_papers() -> None:
    # Korthikanti et al. 2022, equation 1: sbh(34 + 5as/h).
    assert figures.coefficient("linear") == "34"
    assert figures.coefficient("scores") == "5"


def test_an_unknown_coefficient_or_figure_is_refused() -> None:
    with pytest.raises(ValueError, match="no term 'cubic'; it has linear, scores"):
        figures.coefficient("cubic")
    with pytest.raises(ValueError, match="no figure 'pie'; there are states, layer, bar"):
        figures.figure("pie")


def test_the_states_bar_gives_each_number_its_share_without_gaps() -> None:
    segments = _WIDTH.findall(figures.figure("states"))
    states = recipe.MIXED_ADAM.states
    assert [category for category, _, _ in segments] == [state.category for state in states]
    end = 0.0
    for (_, start, width), state in zip(segments, states, strict=True):
        assert float(start) == pytest.approx(end)
        assert float(width) == pytest.approx(
            100 * state.item_bytes / recipe.MIXED_ADAM.bytes_per_parameter
        )
        end += float(width)
    assert end == pytest.approx(100)


def test_the_layer_figure_lists_every_row_and_adds_up_to_the_runs_layer() -> None:
    drawn = figures.figure("layer")
    for row in LAYER.rows:
        assert f'<th scope="row"><span class="name">{escape(row.name)}</span> ' in drawn
    assert drawn.count("<rect ") == len(LAYER.rows)
    found = estimate(Run.from_json({}))
    layer = found.worst.totals["activations"] // found.run.model.layers  # type: ignore[index]
    assert f"<td>{show_bytes(layer)}</td>" in drawn


def test_the_bar_is_the_calculators_first_answer() -> None:
    found = estimate(Run.from_json({})).worst
    drawn = figures.figure("bar")
    assert f"Peak {show_bytes(found.peak_bytes)}" in drawn
    assert drawn.count('class="tm-segment"') == len(found.totals)
    for category in found.totals:
        assert f"<title>{category.heading}: " in drawn


def test_the_longest_bars_are_the_scores() -> None:
    # The caption says so.
    widths = [float(width) for width in re.findall(r'width="([\d.]+)%"', figures.figure("layer"))]
    by_length = sorted(zip(widths, LAYER.rows, strict=True), key=lambda pair: -pair[0])
    assert all("a" in row.shape for _, row in by_length[:3])
    assert by_length[0][0] == 100
    assert not any("a" in row.shape for _, row in by_length[3:])


@pytest.mark.parametrize("name", ["states", "layer", "bar"])
def test_a_figure_keeps_to_the_policy_and_to_one_html_block(name: str) -> None:
    drawn = figures.figure(name)
    assert "style=" not in drawn
    assert "\n\n" not in drawn
    ids = re.findall(r'id="([^"]+)"', drawn)
    assert len(ids) == len(set(ids))
