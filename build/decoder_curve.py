"""The Decoder's pictures: its loss, step by step, and its tape, as it fills and empties.

Drawn by the build and, while a reader's own run goes on, by the page's Python. Places along the
width are percentages, so that letters keep their size on every screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

from decoder import Moment
from decoder.data import ALPHABET
from training_memory.render.svg import escape, share, text

# Each drawing's height in CSS pixels: room for words, the plot, room for words.
_ABOVE, _PLOT, _BELOW = 20, 170, 36
HEIGHT = _ABOVE + _PLOT + _BELOW
_BOTTOM = _ABOVE + _PLOT

# The plot begins where the vertical axis has had its digits, in hundredths of the width.
_LEFT = 5
# The grid that is stretched over the plot.
_WIDE, _TALL = 10_000, 1_000

# The loss's axis, in thousandths of a nat.
_TOP_LOSS = 4_800
_NAT = 1_000

GUESS = log(len(ALPHABET))
"""The loss, in nats, of a model to which all characters are alike."""


def loss_curve(
    losses: Sequence[float], *, steps: int, prefix: str, beside: Sequence[float] = ()
) -> str:
    """The loss of each step so far on an axis of ``steps``.

    ``beside`` are losses to compare with, drawn broad and pale underneath; ``prefix`` begins the
    ids.
    """
    return _drawing(
        prefix,
        "The loss over training",
        _loss_words(losses),
        _level(GUESS),
        _stretched(
            _line("curve-beside", beside[:steps], steps), _line("curve-loss", losses, steps)
        ),
        *_loss_axis(steps),
    )


def _loss_words(losses: Sequence[float]) -> str:
    if not losses:
        return "No step has run yet."
    last = losses[-10:]
    return (
        f"After {len(losses)} steps: the first loss is {losses[0]:.2f} nats a character, "
        f"the mean of the last {len(last)} is {sum(last) / len(last):.2f}. "
        f"A guess among {len(ALPHABET)} characters has {GUESS:.2f}."
    )


def _line(css: str, losses: Sequence[float], steps: int) -> str:
    if not losses:
        return ""
    points = [
        f"{step * _WIDE // steps} {_TALL - min(_TOP_LOSS, round(loss * _NAT)) * _TALL // _TOP_LOSS}"
        for step, loss in enumerate(losses, start=1)
    ]
    # A line of one point is not drawn; to the same point again it is a dot.
    points += points if len(points) == 1 else []
    return f'<polyline class="{css}" points="{" ".join(points)}"/>'


def _level(loss: float) -> str:
    y = _height(round(loss * _NAT), _TOP_LOSS)
    words = f"a guess among {len(ALPHABET)} characters: {loss:.2f}"
    return (
        f'<line class="curve-level" x1="{_LEFT}%" x2="100%" y1="{y}" y2="{y}"/>'
        f"{text(words, x='100%', y=y - 5, css='curve-words', anchor='end')}"
    )


def _loss_axis(steps: int) -> Iterator[str]:
    for nats in range(0, _TOP_LOSS, _NAT):
        y = _height(nats, _TOP_LOSS)
        yield f'<line class="curve-grid" x1="{_LEFT}%" x2="100%" y1="{y}" y2="{y}"/>'
        yield text(str(nats // _NAT), x="0", y=y + 4, css="curve-words")
    yield text("loss, nats a character", x="0", y=10, css="curve-words")
    every = max(1, steps // 5)
    for step in range(every, steps + 1, every):
        anchor = "end" if step == steps else "middle"
        yield text(f"{step:,}", x=_x(step, steps), y=_BOTTOM + 15, css="curve-words", anchor=anchor)
    yield text("step", x="100%", y=_BOTTOM + 31, css="curve-words", anchor="end")


def tape_curve(timeline: Sequence[Moment], *, prefix: str) -> str:
    """What the tape holds after each value that it keeps or frees, its fullest moment marked."""
    peak = max(timeline, key=lambda moment: moment.values)
    place = timeline.index(peak) + 1
    events = len(timeline)
    forward = sum(moment.action == "keep" for moment in timeline)
    corners = ["M0", str(_TALL)]
    for index, moment in enumerate(timeline, start=1):
        corners += [
            f"V{_TALL - moment.values * _TALL // peak.values}",
            f"H{index * _WIDE // events}",
        ]
    fullest = f"fullest: {peak.values:,} values"
    said = (
        f"The tape fills through the forward pass to {peak.values:,} values and empties through "
        f"the backward pass to {timeline[-1].values:,}."
    )
    middle = _x(forward, events)
    return _drawing(
        prefix,
        "The tape over one step",
        said,
        _stretched(f'<path class="curve-tape" d="{" ".join(corners)}V{_TALL}Z"/>'),
        f'<line class="curve-grid" x1="{_LEFT}%" x2="100%" y1="{_BOTTOM}" y2="{_BOTTOM}"/>',
        f'<line class="curve-turn" x1="{middle}" x2="{middle}" y1="{_ABOVE - 4}" y2="{_BOTTOM}"/>',
        text(fullest, x=_x(place, events), y=11, css="curve-mark", anchor="middle"),
        text(
            "forward",
            x=_x(forward // 2, events),
            y=_BOTTOM + 16,
            css="curve-words",
            anchor="middle",
        ),
        text(
            "backward",
            x=_x((forward + events) // 2, events),
            y=_BOTTOM + 16,
            css="curve-words",
            anchor="middle",
        ),
    )


def _drawing(prefix: str, title: str, said: str, *parts: str) -> str:
    return (
        f'<svg class="curve" width="100%" height="{HEIGHT}" role="img" '
        f'aria-labelledby="{prefix}-title {prefix}-said">'
        f'<title id="{prefix}-title">{escape(title)}</title>'
        f'<desc id="{prefix}-said">{escape(said)}</desc>{"".join(parts)}</svg>'
    )


def _stretched(*shapes: str) -> str:
    return (
        f'<svg x="{_LEFT}%" y="{_ABOVE}" width="{100 - _LEFT}%" height="{_PLOT}" '
        f'viewBox="0 0 {_WIDE} {_TALL}" preserveAspectRatio="none">{"".join(shapes)}</svg>'
    )


def _height(value: int, top: int) -> int:
    return _BOTTOM - value * _PLOT // top


def _x(part: int, whole: int) -> str:
    return share(_LEFT * whole + (100 - _LEFT) * part, 100 * whole)
