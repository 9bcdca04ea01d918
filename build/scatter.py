"""The accuracy page's picture: what each tool predicts against what is true, step by step.

Marks refer to their shapes by ``xlink:href``: the theme's script takes every ``href`` for a link's.
Both axes are logarithms of bytes. Places along the width are percentages, so that letters keep
their size on a phone; marks differ in shape as well as in colour.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log10

import accuracy_tables
import peer_tables
from measured import measured
from peers import PEERS
from training_memory.render.svg import escape, text
from training_memory.units import GB

# In CSS pixels: room for words, the plot, room for words; the plot begins at a share of the width.
_ABOVE, _PLOT, _BELOW = 22, 340, 40
_LEFT = 9.0
_MARKS = {
    "traced": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z",
    "published": "M0 -5L5 0L0 5L-5 0Z",
    "transformer-math": "M-3 -3L3 3M-3 3L3 -3",
    "llm-analysis": "M0 -4V4M-4 0H4",
    "megatron": "M0 -4L4 3H-4Z",
}
#: A mark's kind, true and predicted bytes.
Point = tuple[str, int, int]


def points() -> tuple[Point, ...]:
    """Every whole step: by the other tools first, so that they lie underneath."""
    return (*_by_others(), *_by_ours())


def _by_others() -> Iterator[Point]:
    for one in (*peer_tables.traced(), *peer_tables.published()):
        for peer in PEERS:
            yield peer.id, one.truth_bytes, one.by_tool[peer.name]


def _by_ours() -> Iterator[Point]:
    for step in accuracy_tables.compared():
        yield "traced", step.traced, step.predicted
    for one in measured():
        if one.is_scored and one.run and one.predicted_bytes is not None:
            yield "published", one.bytes, one.predicted_bytes


def scatter() -> str:
    """The picture with its legend."""
    found = points()
    sizes = [size for _, true, predicted in found for size in (true, predicted)]
    axis = _Axis(min(sizes), max(sizes))
    marks = "".join(
        f'<use xlink:href="#scatter-{kind}" class="scatter-{kind}" x="{axis.across(true)}" '
        f'y="{axis.down(predicted)}"/>'
        for kind, true, predicted in found
    )
    shapes = "".join(f'<path id="scatter-{kind}" d="{path}"/>' for kind, path in _MARKS.items())
    names = _names()
    legend = "".join(
        f'<li><svg class="scatter-key" width="14" height="14" viewBox="-7 -7 14 14" '
        f'aria-hidden="true"><use xlink:href="#scatter-{kind}" class="scatter-{kind}"/></svg> '
        f"{escape(name)}</li>"
        for kind, name in names.items()
    )
    return f"""<figure class="figure" id="figure-scatter">
<svg class="scatter" height="{_ABOVE + _PLOT + _BELOW}" role="img"
aria-labelledby="scatter-title scatter-desc">
<title id="scatter-title">Predicted peak against the true one</title>
<desc id="scatter-desc">{escape(_words())}</desc>
<defs>{shapes}</defs>
{axis.drawn()}
{marks}
</svg>
<ul class="legend">{legend}</ul>
</figure>"""


def _names() -> dict[str, str]:
    ours = {"traced": "This calculator, traced steps", "published": "This calculator, published"}
    return {**ours, **{peer.id: peer.name for peer in PEERS}}


def _words() -> str:
    """What there is to see, for those who cannot see it."""
    steps = accuracy_tables.compared()
    exact = sum(one.apart == 0 for one in steps)
    return (
        "A point for each step, both axes logarithmic in GB; on the diagonal they agree. "
        f"Of this calculator's {len(steps)} traced steps {exact} are on it to the byte. The other "
        "tools' points are spread on both sides. The tables on this page have every number."
    )


class _Axis:
    """The logarithmic scale of both axes, from a round size to a round size."""

    def __init__(self, least: int, most: int) -> None:
        self.ticks = tuple(_round_sizes(least, most))
        self.low, self.high = (log10(self.ticks[0]), log10(self.ticks[-1]))

    def _share(self, size: int) -> float:
        return (log10(size) - self.low) / (self.high - self.low)

    def across(self, size: int) -> str:
        """A place on the width."""
        return f"{_LEFT + (99 - _LEFT) * self._share(size):.2f}%"

    def down(self, size: int) -> str:
        """A place on the height."""
        return f"{_ABOVE + _PLOT * (1 - self._share(size)):.1f}"

    def drawn(self) -> str:
        """The grid, its words, and the line on which both agree."""
        left, right = self.across(self.ticks[0]), self.across(self.ticks[-1])
        top, bottom = self.down(self.ticks[-1]), self.down(self.ticks[0])
        return "".join(
            (
                *(self._tick(size, left, right, top, bottom) for size in self.ticks),
                f'<line class="scatter-same" x1="{left}" y1="{bottom}" x2="{right}" y2="{top}"/>',
                text("predicted, GB", x="0", y=12, css="scatter-words"),
                text(
                    "true, GB",
                    x=right,
                    y=_ABOVE + _PLOT + 34,
                    css="scatter-words",
                    anchor="end",
                ),
            )
        )

    def _tick(self, size: int, left: str, right: str, top: str, bottom: str) -> str:
        x, y = self.across(size), self.down(size)
        words = f"{size / GB:g}"
        return (
            f'<line class="scatter-grid" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>'
            f'<line class="scatter-grid" x1="{left}" y1="{y}" x2="{right}" y2="{y}"/>'
            + text(words, x=x, y=_ABOVE + _PLOT + 16, css="scatter-words", anchor="middle")
            + f'<text class="scatter-words" x="{_LEFT - 1}%" y="{y}" dy="4" '
            f'text-anchor="end">{words}</text>'
        )


def _round_sizes(least: int, most: int) -> Iterator[int]:
    """1, 2 and 5 times the powers of ten of a tenth of a GB, from one below to one above."""
    steps = [digit * GB // 10 * 10**power for power in range(6) for digit in (1, 2, 5)]
    inside = [size for size in steps if least < size < most]
    first, last = steps.index(inside[0]) - 1, steps.index(inside[-1]) + 1
    yield from steps[max(first, 0) : last + 1]
