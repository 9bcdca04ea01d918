"""The step in a few still pictures: seen on paper, without scripts, where motion is unwanted."""

from __future__ import annotations

from collections.abc import Iterator

from ..axis import WIDE
from ..events import Phase
from ..frames import Film, kind_of
from ..stills import Still, stills
from ..units import show_bytes
from .area import TALL, areas, stairs, turning
from .player import PREFIX, capacity_line, shared_top, signed, up
from .svg import escape, share, swatch


def storyboard(film: Film, *, binary: bool = False) -> str:
    """The pictures in order, each with what happens there and what it changed.

    The list is numbered: the order is the meaning.
    """
    top = shared_top([film])
    bends = set(turning(film.points))
    drawn = [
        at
        for at, point in enumerate(film.points)
        if at in bends or point.event.phase is Phase.BEFORE
    ]
    points, places = [film.points[at] for at in drawn], [film.frames[at].x for at in drawn]
    curve = "".join(areas(stairs(points, places), top))
    items = "".join(_item(film, still, curve, top, binary=binary) for still in stills(film))
    return f'<ol class="storyboard">{items}</ol>'


def _item(film: Film, still: Still, curve: str, top: int, *, binary: bool) -> str:
    total = show_bytes(film.frames[still.frame].total, binary=binary)
    changes = "".join(
        f"<li>{swatch(category, PREFIX)} {signed(size, binary=binary)} {kind_of(category)}</li>"
        for category, size in still.changes
    )
    return (
        '<li class="still"><figure>'
        f"{_picture(film, still, curve, top)}"
        f'<figcaption><p class="still-title"><b>{escape(still.title)}</b> '
        f'<span class="still-total">{total}</span></p>'
        f'<p class="still-text">{escape(still.text)}</p>'
        f'<ul class="still-changes">{changes}</ul>'
        f'<button type="button" class="still-go" data-do="still" data-frame="{still.frame}" '
        f'disabled aria-label="{escape(still.title)}: show in the player">Show in the player'
        "</button></figcaption></figure></li>"
    )


def _picture(film: Film, still: Still, curve: str, top: int) -> str:
    """The whole curve, what is still to come shaded, and where the moment ends marked."""
    return (
        '<svg class="still-picture" aria-hidden="true">'
        f'<svg viewBox="0 0 {WIDE} {TALL}" preserveAspectRatio="none">{curve}</svg>'
        f"{''.join(_marks(film, still, top))}</svg>"
    )


def _marks(film: Film, still: Still, top: int) -> Iterator[str]:
    frame, after = film.frames[still.frame], film.frames[still.frame + 1 : still.frame + 2]
    end = after[0].x if after else WIDE
    x = share(end, WIDE)
    yield (
        f'<rect class="film-veil" x="{x}" y="0" width="{share(WIDE - end, WIDE)}" height="100%"/>'
    )
    yield f'<line class="film-line" x1="{x}" x2="{x}" y1="0" y2="100%"/>'
    yield from capacity_line(film, top, below=True)
    yield f'<circle class="film-top" cx="{x}" cy="{up(frame.total, top)}" r="5"/>'
