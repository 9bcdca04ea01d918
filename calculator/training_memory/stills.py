"""The moments of a step that tell its story in a few pictures, picked from its events."""

from __future__ import annotations

from .categories import CATEGORIES, Category
from .events import Phase
from .frames import Film
from .records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Still:
    """One picture: the film's ``frame`` it shows, what it is called and what happens there.

    ``changes`` are the bytes by which each kind of memory differs from the picture before, those
    that do.
    """

    frame: int
    title: str
    text: str
    changes: tuple[tuple[Category, int], ...]


def stills(film: Film) -> tuple[Still, ...]:
    """The step's pictures in order: its start, its turning points, its peak and its end."""
    moment = film.estimate.worst.peak_moment
    picked: dict[int, tuple[str, str]] = {}
    backward = [at for at, frame in enumerate(film.frames) if frame.phase is Phase.BACKWARD]
    before = [at for at, frame in enumerate(film.frames) if frame.phase is Phase.BEFORE]
    forward_end, backward_end = backward[0] - 1, backward[-1]
    picked[film.peak] = ("The peak", f"The most that the step ever holds, {moment}.")
    _add(picked, before[-1], *_BEFORE)
    _add(picked, _halfway(film, before[-1] + 1, forward_end), *_FORWARD)
    # Where the peak is the next event, two pictures would look the same.
    if film.peak - forward_end not in {0, 1}:
        _add(picked, forward_end, *_FORWARD_END)
    _add(picked, _halfway(film, _last_start(backward), backward_end), *_BACKWARD)
    _add(picked, backward_end, *_BACKWARD_END)
    _add(picked, len(film.frames) - 1, *_AFTER)
    return tuple(_still(film, at, last, *picked[at]) for last, at in _pairs(sorted(picked)))


_BEFORE = (
    "Before the step",
    "The weights and what the optimizer keeps are there before anything runs, and stay.",
)
_FORWARD = (
    "Halfway through the forward pass",
    "Layer by layer, the forward pass leaves behind what the backward pass will need.",
)
_FORWARD_END = (
    "The end of the forward pass",
    "Every layer has kept its part, and the loss can be computed.",
)
_BACKWARD = (
    "Halfway through the backward pass",
    "From the last layer to the first, activations go and gradients take their place.",
)
_BACKWARD_END = (
    "The end of the backward pass",
    "The activations are gone, and every parameter has its gradient.",
)
_AFTER = (
    "After the optimizer",
    "The weights are updated where they lie, the gradients go, and the next step can begin.",
)


def _add(picked: dict[int, tuple[str, str]], at: int, title: str, text: str) -> None:
    """Add a picture, unless that moment has one: the peak comes first."""
    picked.setdefault(at, (title, text))


def _halfway(film: Film, first: int, last: int) -> int:
    """The frame nearest the middle of a stretch at which a layer is done."""
    middle = (film.frames[first].x + film.frames[last].x) / 2
    ends = [row.last for row in film.outline.rows if row.is_layer and first <= row.last <= last]
    return min(ends or range(first, last + 1), key=lambda at: abs(film.frames[at].x - middle))


def _last_start(backward: list[int]) -> int:
    """Where the last unbroken stretch of these frames begins."""
    start = backward[-1]
    there = set(backward)
    while start - 1 in there:
        start -= 1
    return start


def _pairs(places: list[int]) -> list[tuple[int | None, int]]:
    return list(zip((None, *places), places, strict=False))


def _still(film: Film, at: int, before: int | None, title: str, text: str) -> Still:
    parts = film.frames[at].parts
    earlier = film.frames[before].parts if before is not None else (0,) * len(parts)
    changes = zip(
        CATEGORIES, (now - then for now, then in zip(parts, earlier, strict=True)), strict=True
    )
    return Still(
        frame=at,
        title=title,
        text=text,
        changes=tuple((category, size) for category, size in changes if size),
    )
