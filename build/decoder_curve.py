"""The Decoder's pictures: its loss, step by step, and its tape, as it fills and empties.

Drawn by the build and, while a reader's own run goes on, by the page's Python. Places along the
width are percentages, so that letters keep their size on every screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log

from decoder import Moment
from decoder.data import ALPHABET
from training_memory.render.svg import escape, share, text

# Each drawing's height in CSS pixels: room for words, the plot, room for words.
_ABOVE, _PLOT, _BELOW = 20, 190, 36
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
        _legend() if beside else "",
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
        yield text(str(nats // _NAT), x=f"{_LEFT - 1}%", y=y + 4, css="curve-words", anchor="end")
    yield text("loss, nats a character", x="0", y=10, css="curve-words")
    every = max(1, steps // 5)
    for step in range(every, steps + 1, every):
        anchor = "end" if step == steps else "middle"
        yield text(f"{step:,}", x=_x(step, steps), y=_BOTTOM + 15, css="curve-words", anchor=anchor)
    yield text("step", x="100%", y=_BOTTOM + 31, css="curve-words", anchor="end")


def _legend() -> str:
    words = "broad and pale: this page's own run"
    return text(words, x=f"{_LEFT}%", y=_BOTTOM + 31, css="curve-words")


def tape_curve(timeline: Sequence[Moment], *, prefix: str) -> str:
    """What the tape holds after each value that it keeps or frees, its fullest moment marked."""
    peak = max(timeline, key=lambda moment: moment.values)
    events = len(timeline)
    forward = sum(moment.action == "keep" for moment in timeline)
    turn = _x(forward, events)
    said = (
        f"The tape fills through the forward pass to {peak.values:,} values and empties through "
        f"the backward pass to {timeline[-1].values:,}."
    )
    return _drawing(
        prefix,
        "The tape over one step",
        said,
        _stretched(f'<path class="curve-tape" d="{_stairs(timeline, peak.values)}"/>'),
        f'<line class="curve-grid" x1="{_LEFT}%" x2="100%" y1="{_BOTTOM}" y2="{_BOTTOM}"/>',
        *_stretches(timeline),
        f'<line class="curve-turn" x1="{turn}" x2="{turn}" y1="{_ABOVE - 4}" y2="{_BOTTOM}"/>',
        _words(f"{peak.values:,} values", turn, 11, css="curve-mark"),
        _words("forward", _x(forward, 2 * events), _BOTTOM + 32),
        _words("backward", _x(forward + events, 2 * events), _BOTTOM + 32),
    )


def _stairs(timeline: Sequence[Moment], most: int) -> str:
    """The edge of what the tape holds: it stays at a height until the next event."""
    path = f"M0 {_TALL}"
    for index, moment in enumerate(timeline, start=1):
        path += f"V{_TALL - moment.values * _TALL // most}H{index * _WIDE // len(timeline)}"
    return f"{path}V{_TALL}Z"


def _stretches(timeline: Sequence[Moment]) -> Iterator[str]:
    """Which part of the model the values belong to, under each stretch of events."""
    events = len(timeline)
    start = 0
    for part, group in groupby(timeline, key=lambda moment: moment.name.partition("/")[0]):
        end = start + len(list(group))
        yield _words(part, _x(start + end, 2 * events), _BOTTOM + 16)
        if start:
            x, y = _x(start, events), _BOTTOM
            yield f'<line class="curve-between" x1="{x}" x2="{x}" y1="{y}" y2="{y + 8}"/>'
        start = end


def _words(words: str, x: str, y: int, *, css: str = "curve-words") -> str:
    return text(words, x=x, y=y, css=css, anchor="middle")


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
