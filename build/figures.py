"""Small figures for the prose, drawn from the calculator's rows: nothing in them is typed.

They are HTML with little SVG bars whose widths are percentages, so that a phone shows the same
letters at the same size as a wide screen; a figure drawn to one width would shrink them.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from training_memory import recipe
from training_memory.blocks.ledger import Part, Recompute, Row
from training_memory.blocks.paper import LAYER
from training_memory.categories import Category
from training_memory.estimate import estimate
from training_memory.formula import product
from training_memory.render.bar import bar
from training_memory.render.svg import patterns
from training_memory.run import Run
from training_memory.step import values
from training_memory.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from training_memory.recipe import State

_TOKENS = product(("s", "b", "h"))

#: The chapter's example: every default of a run.
_EXAMPLE = Run.from_json({})


def coefficient(term: str) -> str:
    """Give a number of the layer's formula as its rows add it up, for prose that mentions it.

    ``linear`` is what multiplies s·b·h (34), ``scores`` what multiplies a·s²·b (5).
    """
    linear = LAYER.kept_bytes(Recompute.SELECTIVE) / _TOKENS
    scores = (LAYER.kept_bytes() - LAYER.kept_bytes(Recompute.SELECTIVE)) / product(
        ("a", "s", "s", "b")
    )
    terms = {"linear": linear, "scores": scores}
    if term not in terms:
        raise ValueError(f"the layer's formula has no term {term!r}; it has {', '.join(terms)}")
    # Evaluating without values fails unless all symbols have cancelled, as they must.
    return str(terms[term].evaluate({}))


def figure(name: str) -> str:
    """Draw one figure as an HTML block; raises ``ValueError`` for a name there is none of."""
    if name not in _FIGURES:
        raise ValueError(f"there is no figure {name!r}; there are {', '.join(_FIGURES)}")
    return _FIGURES[name]()


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3f}%"


def _states_figure() -> str:
    """Draw what one parameter costs, a segment for each number kept."""
    states = recipe.MIXED_ADAM.states
    whole = recipe.MIXED_ADAM.bytes_per_parameter
    spoken = "; ".join(f"{state.name}, {state.item_bytes}" for state in states)
    segments = "\n".join(_segments(states, whole))
    legend = "\n".join(
        f'<li><svg class="swatch" aria-hidden="true"><rect class="category-{state.category}" '
        f'width="100%" height="100%"/></svg> {escape(state.name)}, {state.dtype}</li>'
        for state in states
    )
    return f"""<figure class="figure" id="figure-states">
<svg class="stack" role="img" aria-labelledby="figure-states-title figure-states-desc">
<title id="figure-states-title">The {whole} bytes of one parameter</title>
<desc id="figure-states-desc">A bar of {whole} bytes in segments: {escape(spoken)}.</desc>
{segments}
</svg>
<ul class="legend">
{legend}
</ul>
<figcaption>One parameter under {recipe.MIXED_ADAM.name}, in bytes. Forward and backward use
the first two numbers; the rest are there for the update.</figcaption>
</figure>"""


def _segments(states: tuple[State, ...], whole: int) -> Iterator[str]:
    before = 0
    for state in states:
        middle = _percent(2 * before + state.item_bytes, 2 * whole)
        yield (
            f'<rect class="segment category-{state.category}" x="{_percent(before, whole)}" '
            f'width="{_percent(state.item_bytes, whole)}" height="100%"/>'
        )
        yield (f'<text class="on-{state.category}" x="{middle}" y="50%">{state.item_bytes}</text>')
        before += state.item_bytes


def _layer_figure() -> str:
    """List what one layer keeps, a bar for each tensor, in the order of the forward pass."""
    numbers = values(_EXAMPLE)
    sizes = {row.name: row.bytes.evaluate(numbers) for row in LAYER.rows}
    longest = max(sizes.values())
    body = "\n".join(_layer_row(row, sizes[row.name], longest) for row in LAYER.rows)
    model = _EXAMPLE.model
    return f"""<figure class="figure" id="figure-layer">
<table class="bars">
<caption>What one GPT layer keeps for its backward pass, in the order of its forward pass, with
the sizes of {escape(model.name)} at {_EXAMPLE.sequence:,} tokens. The longest three bars are the
attention scores.</caption>
<thead><tr><th scope="col">Tensor, and its bytes</th>
<th scope="col">{escape(model.name)}</th></tr></thead>
<tbody>
{body}
</tbody>
<tfoot><tr><th scope="row"><span class="name">One layer</span>
<span class="formula">{LAYER.kept_bytes().text(factor=_TOKENS)}</span></th>
<td>{show_bytes(sum(sizes.values()))}</td></tr></tfoot>
</table>
</figure>"""


def _layer_row(row: Row, size: int, longest: int) -> str:
    core = " bar-core" if row.part is Part.CORE else ""
    return (
        f'<tr><th scope="row"><span class="name">{escape(row.name)}</span> '
        f'<span class="formula">{row.bytes.text()}</span></th>'
        f'<td>{show_bytes(size)}<svg class="bar{core}" aria-hidden="true">'
        f'<rect class="category-{Category.ACTIVATIONS}" width="{_percent(size, longest)}" '
        'height="100%"/></svg></td></tr>'
    )


def _bar_figure() -> str:
    """Draw the example's answer as the calculator draws it."""
    found = estimate(_EXAMPLE)
    name = "figure-bar"
    return f"""<figure class="figure tm" id="{name}">
{patterns(name)}
{bar(found, prefix=name)}
</figure>"""


_FIGURES: dict[str, Callable[[], str]] = {
    "states": _states_figure,
    "layer": _layer_figure,
    "bar": _bar_figure,
}
