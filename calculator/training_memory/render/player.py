"""The animated step as HTML: the curves to play over, what is in memory, and the still storyboard.

What moves (the cursor, the shade over what is still to come) are empty elements above the drawings,
so that playing never draws a curve again. The page moves them; nothing here knows a script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..axis import WIDE
from ..categories import CATEGORIES, Category
from ..events import Phase
from ..frames import Film, column, kind_of
from ..records import dataclass
from ..units import show_bytes
from .answer import RECOMPUTED, an, label
from .area import TALL, areas, bands, is_near, stairs, top_of
from .scale import scale
from .sizes import Show
from .svg import escape, share, swatch
from .words import MEANING

#: Begins every id; the swatches' patterns, one set for the page, have no more than this.
PREFIX = "film"
#: Level lines nearer than this part of the height would write over each other.
_APART = 20
#: Stretches of phases above which they are told in one sentence, being too thin to name.
_BANDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """The HTML of one film or of two beside each other: the curves, and what they hold now."""

    stages: str
    nows: str


def panels(films: Sequence[Film], *, binary: bool = False) -> Panels:
    """Each film's curve, on one scale, and its caption, parts and list."""
    top = shared_top(films)
    largest = [
        max(frame.parts[category.place] for film in films for frame in film.frames)
        for category in CATEGORIES
    ]
    return Panels(
        stages="".join(
            _stage(film, top, binary=binary, prefix=f"{PREFIX}-{number}")
            for number, film in enumerate(films)
        ),
        nows="".join(
            _now(film, largest, binary=binary, prefix=f"{PREFIX}-{number}")
            for number, film in enumerate(films)
        ),
    )


def shared_top(films: Sequence[Film]) -> int:
    """The bytes at the upper end of the pictures of these films, with room for a label."""
    peak = max(film.estimate.worst.peak_bytes for film in films)
    top = top_of(peak, films[0].estimate.capacity_bytes)
    return top + top // 12


def _stage(film: Film, top: int, *, binary: bool, prefix: str) -> str:
    edges = stairs(film.points, [frame.x for frame in film.frames])
    drawn = "".join(areas(edges, top))
    return (
        f'<figure class="film-stage" aria-labelledby="{prefix}-title">'
        f'<figcaption class="film-head"><span id="{prefix}-title" class="film-title">'
        f"{escape(title(film))}</span> "
        '<button type="button" class="film-to-peak" data-do="peak" disabled>Go to the peak</button>'
        f"</figcaption>{_told(film, binary=binary)}"
        f'<div class="film-plot" data-top="{top}">'
        f'<svg class="film-areas" viewBox="0 0 {WIDE} {TALL}" preserveAspectRatio="none" '
        f'role="img" aria-labelledby="{prefix}-title {prefix}-curve">'
        f'<desc id="{prefix}-curve">{escape(_spoken(film, binary=binary))}</desc>{drawn}</svg>'
        '<div class="film-ahead"></div>'
        f'<svg class="film-marks" aria-hidden="true">{_marks(film, top, binary=binary)}</svg>'
        '<div class="film-cursor"><div class="film-height"></div></div></div>'
        f'<svg class="film-phases" aria-hidden="true">{_phases(film)}</svg></figure>'
    )


def _told(film: Film, *, binary: bool) -> str:
    """What happens at the current moment, which is the first to begin with."""
    first = film.frames[0]
    return (
        '<div class="film-told"><p class="film-total">'
        f'<b data-film="total">{show_bytes(first.total, binary=binary)}</b> <i>in memory</i>'
        f"{_fit(film)}</p>"
        '<div class="film-event"><p class="film-where"><span data-film="where">Before the step'
        f'</span> <span data-film="count">event 1 of {film.events:,}</span></p>'
        f'<p class="film-label"><b data-film="label">{escape(first.label)}</b> '
        f'<span class="film-change" data-film="change" data-kind="{first.category}">'
        f"{signed(first.change, binary=binary)} {kind_of(first.category)}</span></p>"
        f'<p class="film-why" data-film="why">{escape(first.why)}</p></div></div>'
    )


def title(film: Film) -> str:
    """What tells a film from the one beside it."""
    return f"{label(film.estimate.run)}, {RECOMPUTED[film.estimate.run.recompute]}"


def _marks(film: Film, top: int, *, binary: bool) -> str:
    return "".join(
        (
            *_grid(film, top, binary=binary),
            *capacity_line(film, top),
            *_peak(film, top, binary=binary),
        )
    )


def up(size: int, top: int) -> str:
    """A size's height in a picture, from above, as svg wants it."""
    return share(top - size, top)


def _grid(film: Film, top: int, *, binary: bool) -> Iterator[str]:
    """Level lines at round sizes, but for those that other lines stand in for."""
    others = (film.estimate.worst.peak_bytes, film.estimate.capacity_bytes or 0)
    for size, words in scale(top, binary=binary, most=4).ticks[1:]:
        if any(_APART * abs(size - other) < top for other in others):
            continue
        y = up(size, top)
        yield f'<line class="film-grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text class="film-tick" x="100%" y="{y}" dx="-4" dy="-4">{words}</text>'


def capacity_line(film: Film, top: int, *, below: bool = False) -> Iterator[str]:
    """The GPU's memory as a line with its name, where it is not far above the curve."""
    gpu = film.estimate.run.gpu
    if gpu is not None and is_near(film.estimate.worst.peak_bytes, gpu.memory_bytes):
        y = up(gpu.memory_bytes, top)
        dy = 13 if below else -5
        yield f'<line class="film-capacity" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text class="film-gpu" x="0" y="{y}" dx="6" dy="{dy}">{escape(gpu.name)}</text>'


def _peak(film: Film, top: int, *, binary: bool) -> Iterator[str]:
    """A line at the peak's height, a dot where it comes, and its size beside that."""
    frame = film.frames[film.peak]
    x, y = share(frame.x, WIDE), up(frame.total, top)
    left = 2 * frame.x > WIDE
    words = f"Peak {show_bytes(frame.total, binary=binary)}"
    yield f'<line class="film-peak" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
    yield f'<circle class="film-top" cx="{x}" cy="{y}" r="5"/>'
    yield (
        f'<text class="film-name" x="{x}" y="{y}" dx="{-8 if left else 8}" dy="-7" '
        f'text-anchor="{"end" if left else "start"}">{words}</text>'
    )


_PHASE_WORDS = {
    Phase.BEFORE: "before",
    Phase.FORWARD: "forward",
    Phase.LOSS: "loss",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
}


def _phases(film: Film) -> str:
    """Each phase's name under its stretch, with a line where the next begins."""
    ends = [*(frame.x for frame in film.frames[1:]), WIDE]
    found = bands(film.points, ends)
    if len(found) > _BANDS:
        words = "forward and backward passes in turn, then the optimizer"
        return f'<text class="film-phase" x="50%" y="15" text-anchor="middle">{words}</text>'
    drawn = []
    for phase, start, end in found:
        x = share(start, WIDE)
        drawn.append(f'<line class="film-between" x1="{x}" x2="{x}" y1="0" y2="6"/>')
        anchor, place = ("end", end) if end == WIDE else ("middle", (start + end) // 2)
        if not start:
            anchor, place = "start", 0
        css = f"film-phase film-phase-{phase.name.lower()}"
        drawn.append(
            f'<text class="{css}" x="{share(place, WIDE)}" y="15" text-anchor="{anchor}">'
            f"{_PHASE_WORDS[phase]}</text>"
        )
    return "".join(drawn)


def _spoken(film: Film, *, binary: bool) -> str:
    """The curve in words: where each phase leaves it, and its peak."""
    ends: dict[Phase, int] = {}
    for frame in film.frames:
        ends[frame.phase] = frame.total
    said = ", ".join(
        f"{show_bytes(size, binary=binary)} after {phase}"
        if phase is not Phase.BEFORE
        else f"{show_bytes(size, binary=binary)} {phase}"
        for phase, size in ends.items()
    )
    worst = film.estimate.worst
    peak = show_bytes(worst.peak_bytes, binary=binary)
    return f"Memory over one training step: {said}. The peak, {peak}, comes {worst.peak_moment}."


def _now(film: Film, largest: Sequence[int], *, binary: bool, prefix: str) -> str:
    """What is in memory at the current moment, kind by kind, and the step as a list.

    ``largest`` are the most that each kind comes to in any of the films: what stays at nothing is
    left out of all, so that rows beside each other are of one kind.
    """
    first, show = film.frames[0], column(film, binary=binary)
    own = {frame.category for frame in film.frames}
    rows = "".join(
        _part(category, first.parts[category.place], show, is_own=category in own)
        for category in CATEGORIES
        if largest[category.place]
    )
    return (
        f'<section class="film-now" aria-labelledby="{prefix}-title" data-largest="{max(largest)}">'
        f'<p class="film-title" aria-hidden="true">{escape(title(film))}</p>'
        '<table class="film-parts"><caption>In memory now</caption><thead><tr>'
        '<th scope="col">Kind</th><th scope="col">Size</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        '<details class="film-list" open><summary>The step as a list: '
        f"{film.events:,} events</summary><ol></ol></details></section>"
    )


def _fit(film: Film) -> str:
    """Whether the moment fits the GPU: two phrases, of which the page shows the right one."""
    gpu = film.estimate.run.gpu
    if gpu is None:
        return ""
    return (
        f'<span class="film-fits" data-film="fits">fits {an(gpu.name)}</span>'
        f'<span class="film-over" data-film="over" hidden>more than {an(gpu.name)} holds</span>'
    )


def _part(category: Category, size: int, show: Show, *, is_own: bool) -> str:
    """One kind of memory; where only the film beside has it, the page can leave it out."""
    css = "" if is_own else ' class="film-others"'
    return (
        f'<tr data-category="{category.place}"{css}>'
        f'<th scope="row" title="{escape(MEANING[category])}">'
        f"{swatch(category, PREFIX)} {category.heading}</th>"
        '<td><span class="film-bar" aria-hidden="true">'
        f'<span class="film-fill" data-kind="{category}"></span></span>'
        f'<span class="film-size">{show(size)}</span></td></tr>'
    )


def signed(size: int, *, binary: bool) -> str:
    """A change with its sign: ``"+13.5 GB"``, ``"−3.3 GB"``."""
    return f"{'−' if size < 0 else '+'}{show_bytes(abs(size), binary=binary)}"
