"""The animated step: a run's events as frames to play, with every text that is shown.

One frame an event (a fair sample of a long step), from the same tree as the answer. The page moves
a cursor over them and computes nothing: places, playing times and formatted sizes come from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .axis import WIDE, Axis
from .categories import CATEGORIES, Category
from .estimate import Estimate
from .events import Phase, count, place
from .outline import TOP, Outline, Row, outline
from .records import dataclass
from .render.sizes import Show, sizes
from .timeline import Point, timeline
from .units import show_bytes

#: Frames asked of a long step; more would be less than a pixel each.
MOST = 1000

# Seconds of playing at normal speed: enough to read an event, or the first of many layers; the
# other layers pass quickly, and a deep model's quicker still, so that no step takes minutes.
_READ, _PASS, _PASS_ALL = 1.6, 0.32, 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Memory just after one event, and where and when the film shows it.

    ``at`` is the event's place among all of the step's, from 0; ``x`` its place on the axis, of
    :data:`.axis.WIDE`, from which on memory is as it leaves it; ``seconds`` how long that plays at
    normal speed. ``row`` is the innermost row
    of the outline around it, or -1. ``parts`` are bytes in ``CATEGORIES``' order, ``total`` is
    their sum, and ``change`` what the event adds, or frees where it is negative.
    """

    at: int
    x: int
    seconds: float
    phase: Phase
    category: Category
    change: int
    label: str
    why: str
    parts: tuple[int, ...]
    total: int
    row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Film:
    """The step of one run, of the GPU that needs most: every event of it or a sample.

    ``events`` is how many the step has, ``peak`` the frame of its highest total; ``points`` are
    the curve's, one a frame.
    """

    estimate: Estimate
    events: int
    peak: int
    points: tuple[Point, ...]
    frames: tuple[Frame, ...]
    outline: Outline


def film(estimate: Estimate, most: int = MOST) -> Film:
    """The film of an estimate, sampled where the step has more than ``most`` events."""
    tree = estimate.worst.tree
    points = timeline(tree, most)
    rows = outline(tree, points)
    axis = Axis(tree)
    frames = tuple(
        _frame(point, axis, seconds, row)
        for point, seconds, row in zip(points, _paces(points, rows), rows.row_of, strict=True)
    )
    # A repeat is highest in its first or its last turn, and a sample keeps both: the walk's peak.
    peak = max(range(len(frames)), key=lambda index: frames[index].total)
    return Film(
        estimate=estimate,
        events=count(tree),
        peak=peak,
        points=points,
        frames=frames,
        outline=rows,
    )


def _frame(point: Point, axis: Axis, seconds: float, row: int) -> Frame:
    event = point.event
    return Frame(
        at=point.at,
        x=axis.before(point.at),
        seconds=seconds,
        phase=event.phase,
        category=event.category,
        change=event.bytes,
        label=_sentence_start(place(event.label, point.counters)),
        why=place(event.why, point.counters),
        parts=point.parts,
        total=point.total,
        row=row,
    )


def _paces(points: Sequence[Point], rows: Outline) -> Iterator[float]:
    """How long each frame plays: an event alone, or a layer's share of its layer's time.

    Time to read is given to what is played for the first time; what comes again passes quickly.
    """
    layers = sum(1 for row in rows.rows if row.is_layer)
    quick = min(_PASS, _PASS_ALL / max(1, layers))
    played: set[int] = set()
    for index, point in zip(rows.row_of, points, strict=True):
        seconds = quick if id(point.event) in played else _READ
        played.add(id(point.event))
        row = rows.rows[index] if index != TOP else None
        together = row.last - row.first + 1 if row is not None and row.is_layer else 1
        yield round(seconds / together, 4)


def said(film: Film, row: Row) -> str:
    """What happens in a layer, in a sentence or two, for playing too fast to read its events."""
    if not row.is_layer:
        return ""
    frames = film.frames[row.first : row.last + 1]
    if frames[0].phase is Phase.FORWARD:
        tensors = sum(1 for frame in frames if frame.change > 0)
        kept = "one tensor" if tensors == 1 else f"{tensors} tensors"
        return f"It keeps {kept} for its backward pass."
    touched = {frame.category for frame in frames if frame.change}
    again = Category.RECOMPUTED in touched
    freed = (
        "Its activations are made again, used and dropped, and what was kept of them is freed."
        if again
        else "Its activations are used and freed."
    )
    written = (
        "Its gradient is written."
        if Category.GRADIENTS in touched
        else "Its gradient is added to the one that is there."
    )
    return f"{freed} {written}"


def to_json(film: Film, *, binary: bool = False) -> dict[str, object]:
    """A film as plain values: sizes in bytes, with the text of each under ``shown``.

    ``parts`` has the text of what stands in a column, all in one unit.
    Reasons, phases and categories are numbered, since the same few recur in hundreds of frames.
    """
    whys = list(dict.fromkeys(frame.why for frame in film.frames))
    number_of = {why: number for number, why in enumerate(whys)}
    phases = tuple(Phase)
    capacity = film.estimate.capacity_bytes
    show = column(film, binary=binary)
    return {
        "wide": WIDE,
        "events": film.events,
        "peak": film.peak,
        "moment": film.estimate.worst.peak_moment,
        "capacity": capacity,
        "phases": [_sentence_start(phase) for phase in phases],
        "categories": [str(category) for category in CATEGORIES],
        "kinds": [kind_of(category) for category in CATEGORIES],
        "whys": whys,
        "frames": [
            {
                "at": frame.at,
                "x": frame.x,
                "seconds": frame.seconds,
                "phase": phases.index(frame.phase),
                "category": frame.category.place,
                "change": frame.change,
                "label": frame.label,
                "why": number_of[frame.why],
                "parts": list(frame.parts),
                "total": frame.total,
                "row": frame.row,
            }
            for frame in film.frames
        ],
        "rows": [_row_json(film, row) for row in film.outline.rows],
        "shown": {str(size): show_bytes(size, binary=binary) for size in _sizes(film)},
        "parts": {str(size): show(size) for size in _part_sizes(film)},
    }


def _row_json(film: Film, row: Row) -> dict[str, object]:
    return {
        "label": _sentence_start(row.label),
        "said": said(film, row),
        "parent": row.parent,
        "first": row.first,
        "last": row.last,
        "change": row.change_bytes,
        "events": row.events,
        "turns": row.turns,
        "shown": row.shown,
    }


def column(film: Film, *, binary: bool) -> Show:
    """How the sizes of a film's parts are written, which stand under one another."""
    return sizes(max(_part_sizes(film)), binary=binary)


def _part_sizes(film: Film) -> Sequence[int]:
    return sorted({size for frame in film.frames for size in frame.parts})


def _sizes(film: Film) -> Sequence[int]:
    """Every total and every change that the page may show, without its sign."""
    found = set()
    for frame in film.frames:
        found |= {frame.total, abs(frame.change)}
    found |= {abs(row.change_bytes) for row in film.outline.rows}
    return sorted(found)


def kind_of(category: Category) -> str:
    """A kind of memory as a sentence says it: "logits", "Adam state"."""
    heading = category.heading
    return heading if category is Category.OPTIMIZER else heading.lower()


def _sentence_start(words: str) -> str:
    return words[:1].upper() + words[1:]
