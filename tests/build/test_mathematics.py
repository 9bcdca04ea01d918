"""Formulas are sums of the ledger's rows, and are set whole or not at all."""

import re
from xml.etree import ElementTree

import pytest

from mathematics import formula, latex_of, math, math_block
from training_memory.errors import InputError
from training_memory.formula import Formula, product, symbol


def latex(mathml):
    """The LaTeX a formula was set from, without the thin spacing of its products."""
    (found,) = re.findall(r'alttext="([^"]*)"', mathml)
    return found.replace(r" \cdot ", "·").replace(" ", "")


@pytest.mark.parametrize(
    ("options", "published"),
    [
        # Korthikanti et al. 2022, Table 2, row by row.
        ({}, "s·b·h·(34+5as/h)"),
        ({"tensor": True}, "s·b·h·(10+24/t+5as/(ht))"),
        ({"tensor": True, "sequence_parallel": True}, "s·b·h·(34/t+5as/(ht))"),
        ({"tensor": True, "recompute": "selective"}, "s·b·h·(10+24/t)"),
        ({"tensor": True, "sequence_parallel": True, "recompute": "selective"}, "34·s·b·h/t"),
        ({"recompute": "full"}, "2·s·b·h"),
        ({"recompute": "selective"}, "34·s·b·h"),
    ],
)
def test_a_layer_keeps_what_table_2_says(options, published):
    assert latex(formula("layer", **options)) == published


def test_states_are_zeros():
    # ZeRO, Figure 1, K = 12, with N for the paper's psi and d for its N_d.
    assert latex(formula("states")) == "16·N"
    assert latex(formula("states", zero=1)) == "4·N+12·N/d"
    assert latex(formula("states", zero=2)) == "2·N+14·N/d"
    assert latex(formula("states", zero=3)) == "16·N/d"


def test_the_whole_is_the_sum_of_the_parts():
    parts = [latex(formula(name)) for name in ("states", "layer", "logits")]
    assert latex(formula("whole")) == f"M={parts[0]}+L·{parts[1]}+{parts[2]}"
    assert parts[2] == "6·s·b·V"


def test_a_block_stands_alone_and_can_be_reached():
    block = formula("layer", block=True)
    assert block.startswith('<div class="math-block" role="group" tabindex="0"')
    assert block.endswith("</math></div>")
    assert "<mfrac>" in block
    assert "\n" not in block


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Formula(), "0"),
        (product((3,)), "3"),
        (symbol("h") - symbol("b"), "h-b"),
        (product((5, "a", "s", "s")), "5·a·s^{2}"),
        (symbol("h") / 8, "h/8"),
        (symbol("h") / (symbol("t") * 8), "h/(8·t)"),
    ],
)
def test_any_formula_can_be_written(value, written):
    assert latex_of(value).replace(r" \cdot ", "·").replace(" ", "") == written


def test_mathml_is_plain_and_whole():
    made = math(r"s \cdot b \cdot h\,(34 + 5as/h) < \sqrt{n}")
    root = ElementTree.fromstring(made)
    assert root.tag == "span"
    assert root[0].tag == "{http://www.w3.org/1998/Math/MathML}math"
    assert "·" in made
    assert "&#x" not in made
    assert "&lt;" in made
    assert "style=" not in made


@pytest.mark.parametrize("latex", [r"\begin{aligned}a&=b\end{aligned}", r"\unheardof{x}"])
def test_what_cannot_be_set_stops_the_build(latex):
    with pytest.raises(ValueError, match="cannot be set"):
        math(latex)
    with pytest.raises(ValueError, match="cannot be set"):
        math_block(latex)


def test_unknown_names_stop_the_build():
    with pytest.raises(ValueError, match="layer, logits, states, whole"):
        formula("layers")
    with pytest.raises(InputError, match="mixed-adam"):
        formula("states", recipe_id="mixed-adm")
    with pytest.raises(ValueError, match="partly"):
        formula("layer", recompute="partly")
