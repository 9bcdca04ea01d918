"""The table: every kind of memory with its formula in numbers, every tensor with its reason."""

import re
from html import unescape

import pytest
from hypothesis import given, settings

from strategies import requests
from training_memory.blocks.paper import LAYER
from training_memory.derivation import derive
from training_memory.estimate import Estimate, estimate
from training_memory.formula import Formula, product, symbol
from training_memory.render.html_table import table
from training_memory.render.mathml import mathml
from training_memory.render.scale import scale
from training_memory.render.sizes import sizes
from training_memory.run import Run


def of(**run: object) -> Estimate:
    return estimate(Run.from_json(run))


def test_every_tensor_of_the_ledger_is_told_with_why_and_where():
    html = unescape(table(of()))
    for row in LAYER.rows:
        assert row.name in html
        assert row.why in html
        assert row.where in html


@given(requests())
@settings(max_examples=30)
def test_each_kinds_formula_stands_in_the_runs_numbers(request_json):
    found = estimate(Run.from_json(request_json))
    html = unescape(table(found))
    for entry in derive(found.run, found.worst):
        if entry.lines:
            assert f"= {entry.numbers_text}" in html


def test_what_there_is_nothing_of_says_why():
    html = table(of(recipe="fp32-adam"))
    assert "FP32 Adam updates the weights themselves" in html
    assert "nothing is recomputed" in html


def test_the_sums_are_the_bars_and_the_peaks():
    foot = table(of()).split("<tfoot")[1]
    assert re.findall(r'tm-number">([^<]+)<', foot) == ["212.8 GB", "199.5 GB"]


def test_formulas_are_set_as_mathematics():
    quadratic = product(("s", "b", "h")) * 34 + product(("a", "s", "s", "b")) * 5
    html = mathml(quadratic, factor=product(("s", "b", "h")))
    assert html == (
        '<math alttext="s·b·h·(34 + 5·a·s/h)" displaystyle="true"><mi>s</mi><mo>·</mo><mi>b</mi>'
        "<mo>·</mo><mi>h</mi><mo>·</mo><mrow><mo>(</mo><mn>34</mn><mo>+</mo><mfrac><mrow>"
        "<mn>5</mn><mo>·</mo><mi>a</mi><mo>·</mo><mi>s</mi></mrow><mrow><mi>h</mi></mrow></mfrac>"
        "<mo>)</mo></mrow></math>"
    )


@pytest.mark.parametrize(
    ("formula", "inside"),
    [
        (Formula(), "<mn>0</mn>"),
        (product(("s", "s")), "<msup><mi>s</mi><mn>2</mn></msup>"),
        (symbol("s") - symbol("h"), "<mi>s</mi><mo>−</mo><mi>h</mi>"),
        (product((1024,)), "<mn>1,024</mn>"),
    ],
)
def test_the_pieces_of_formulas(formula, inside):
    assert f">{inside}</math>" in mathml(formula)


@pytest.mark.parametrize(
    ("size", "binary", "text"),
    [
        (0, False, "0"),
        (786_432_000, False, "0.8 GB"),
        (1, False, "< 0.1 GB"),
        (2_624_500_000_000, False, "2,624.5 GB"),
        (2**30, True, "1.0 GiB"),
    ],
)
def test_sizes_that_stand_together_share_a_unit(size, binary, text):
    assert sizes(3 * 10**12, binary=binary)(size) == text


def test_small_sizes_are_whole_bytes():
    assert sizes(999)(12) == "12 B"


@pytest.mark.parametrize(
    ("top", "binary", "labels"),
    [
        (212_800_000_000, False, ["0", "50 GB", "100 GB", "150 GB", "200 GB"]),
        (1_300_000_000_000, False, ["0", "0.5 TB", "1.0 TB"]),
        (294_912, False, ["0", "100 kB", "200 kB"]),
        (212_800_000_000, True, ["0", "50 GiB", "100 GiB", "150 GiB"]),
        (7, False, ["0", "2 B", "4 B", "6 B"]),
        (1, False, ["0", "1 B"]),
    ],
)
def test_scales_have_round_steps(top, binary, labels):
    assert [label for _, label in scale(top, binary=binary, most=4).ticks] == labels
