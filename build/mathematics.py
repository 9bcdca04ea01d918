"""Mathematics in the pages: MathML made at build, so that no page needs a script or font for it.

``math`` sets what the prose writes in LaTeX. ``formula`` writes no formula down at all: it sums the
calculator's ledger rows and sets what they come to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from xml.etree import ElementTree

from latex2mathml.converter import convert

from training_memory import recipe
from training_memory.blocks import paper
from training_memory.blocks.ledger import Recompute
from training_memory.formula import Formula, Monomial, product, split_term, symbol

_ENTITY = re.compile(r"&#x([0-9A-Fa-f]+);")
_DOT = r" \cdot "
_LAYER_FACTOR = product(("s", "b", "h"))


def math(latex: str) -> str:
    """Inline MathML of a LaTeX formula.

    Raises ``ValueError`` where the LaTeX is beyond what can be set (an alignment, an unknown
    command): a page should not show half a formula.
    """
    # In a span: Markdown takes <math> at the beginning of a line for a block of its own.
    return f'<span class="math">{_mathml(latex, "inline")}</span>'


def math_block(latex: str) -> str:
    """The same as :func:`math` on a line of its own, which scrolls on a narrow screen."""
    # Focusable, since what scrolls must be reachable by keyboard; one line, since a blank line
    # would end the block in the page's Markdown.
    return (
        '<div class="math-block" role="group" tabindex="0" aria-label="Formula">'
        f"{_mathml(latex, 'block')}</div>"
    )


def formula(
    name: str,
    *,
    block: bool = False,
    recompute: str = Recompute.NONE,
    tensor: bool = False,
    sequence_parallel: bool = False,
    recipe_id: str = "mixed-adam",
    zero: int = 0,
) -> str:
    """MathML of a closed form, summed from the calculator's own rows.

    ``name`` is one of

    - ``layer``: bytes one layer keeps, under ``recompute`` and the tensor-parallel options;
    - ``logits``: bytes of the loss's logits;
    - ``states``: bytes of N parameters' states under ``recipe_id``, at a ``zero`` stage;
    - ``whole``: M, the three together for all L layers.

    Raises ``ValueError`` for another name, the calculator's ``InputError`` for an unknown recipe.
    """
    layer = paper.LAYER.kept_bytes(
        Recompute(recompute), tensor=tensor, sequence_parallel=sequence_parallel
    )
    logits = paper.LOGITS.rank_bytes(tensor=tensor, sequence_parallel=sequence_parallel)
    states = recipe.get(recipe_id).formula(zero)
    forms = {
        "layer": lambda: latex_of(layer, _LAYER_FACTOR, block=block),
        "logits": lambda: latex_of(logits, block=block),
        "states": lambda: latex_of(states, block=block),
        "whole": lambda: " + ".join(
            [
                f"M = {latex_of(states, block=block)}",
                latex_of(symbol("L") * layer, symbol("L") * _LAYER_FACTOR, block=block),
                latex_of(logits, block=block),
            ]
        ),
    }
    if name not in forms:
        raise ValueError(f"there is no formula {name!r}; there are {', '.join(forms)}")
    return math_block(forms[name]()) if block else math(forms[name]())


def latex_of(value: Formula, factor: Formula | None = None, *, block: bool = False) -> str:
    """LaTeX of an exact formula, with ``factor`` taken out of a sum of several terms.

    ``block`` sets quotients as fractions with a bar instead of in line.
    """
    if factor is None or len(value.terms) == 1:
        return _sum(value, _DOT, block=block)
    ((outside, _),) = factor.terms.items()
    brackets = (r"\left(", r"\right)") if block else ("(", ")")
    inside = _sum(value / factor, " ", block=block)
    letters = _symbols(outside, _DOT)
    return f"{letters}{_DOT}{brackets[0]}{inside}{brackets[1]}"


def _sum(value: Formula, times: str, *, block: bool) -> str:
    written = ""
    for monomial, coefficient in value.terms.items():
        above, below = split_term(monomial)
        top = _product(abs(coefficient.numerator), above, times)
        bottom = _product(coefficient.denominator, below, times)
        term = top
        if bottom != "1":
            group = f"({bottom})" if len(below) + (coefficient.denominator > 1) > 1 else bottom
            term = rf"\frac{{{top}}}{{{bottom}}}" if block else f"{top}/{group}"
        sign = "-" if coefficient < 0 else "+" if written else ""
        written += f" {sign} {term}" if written else f"{sign}{term}"
    return written or "0"


def _product(coefficient: int, symbols: Monomial, times: str) -> str:
    if not symbols:
        return str(coefficient)
    letters = _symbols(symbols, times)
    return letters if coefficient == 1 else f"{coefficient}{times}{letters}"


def _symbols(symbols: Iterable[tuple[str, int]], times: str) -> str:
    return times.join(name if power == 1 else f"{name}^{{{power}}}" for name, power in symbols)


def _mathml(latex: str, display: str) -> str:
    made = convert(latex, display=display)
    try:
        tree = ElementTree.fromstring(made)
    except ElementTree.ParseError as error:
        raise ValueError(f"{latex!r} cannot be set as MathML: {error}") from error
    # The converter passes what it does not know through as text.
    stray = [leaf.text for leaf in tree.iter() if leaf.text and "\\" in leaf.text]
    if stray:
        raise ValueError(f"{latex!r} cannot be set as MathML: unknown {', '.join(stray)}")
    # Plain characters are half the size of numeric references and searchable.
    plain = _ENTITY.sub(lambda found: escape(chr(int(found[1], 16)), quote=False), made)
    # Programs that read no MathML, and readers of the page's source, get the LaTeX.
    return plain.replace("<math ", f'<math alttext="{escape(latex)}" ', 1)
