"""Whether labels in a drawing have room beside one another, at widths that the style sheet knows.

A drawing has no width when it is made: it takes the page's. So what is written depends on classes:
``tm-from-24`` is shown once the drawing is 24rem wide, ``tm-below-24`` until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from ..records import dataclass
from .svg import share, text

#: The widths of a drawing, in rem, at which the style sheet shows more.
BREAKS = (14, 17, 20, 24, 28, 32, 38, 46, 56)
#: No drawing is narrower than this, in rem: a slide's on the smallest phone has a little more.
NARROWEST = 12

# About how wide a letter and any other character are, and the room between labels, in 1/100 rem.
_LETTER, _OTHER, _BETWEEN = 30, 34, 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Words at a place on the width; ``anchor`` is the end of them that stands there."""

    words: str
    place: int
    anchor: str

    def drawn(self, whole: int, *, y: int, css: str) -> str:
        """The label in a drawing whose width is ``whole``."""
        return text(self.words, x=share(self.place, whole), y=y, css=css, anchor=self.anchor)

    @property
    def reach(self) -> tuple[int, int]:
        """How far it reaches to the left and to the right of its place, in 1/100 rem."""
        wide = _width(self.words)
        return {"start": (0, wide), "middle": (wide // 2, wide // 2)}.get(self.anchor, (wide, 0))

    def at(self, place: int) -> Label:
        """The same label at another place."""
        return Label(words=self.words, place=place, anchor=self.anchor)


@lru_cache(maxsize=256)  # the ticks and phases of a picture are those of the one before
def _width(words: str) -> int:
    """About how wide words are, in 1/100 rem."""
    letters = sum(map(str.islower, words))
    return _LETTER * letters + _OTHER * (len(words) - letters)


def room_from(labels: Sequence[Label], whole: int) -> int:
    """The least width in rem, of those told apart, at which no label touches the next or an end.

    ``labels`` stand from left to right, ``whole`` is the drawing's width in their places' unit.
    """
    needed = 0
    for label in labels:
        for reach, place in zip(label.reach, (label.place, whole - label.place), strict=True):
            needed = max(needed, -(-reach * whole // max(1, place)))
    for label, after in pairwise(labels):
        together = label.reach[1] + after.reach[0] + _BETWEEN
        needed = max(needed, -(-together * whole // max(1, after.place - label.place)))
    return next((rem for rem in (NARROWEST, *BREAKS) if 100 * rem >= needed), BREAKS[-1])


def spread(labels: Sequence[Label], whole: int) -> list[Label] | None:
    """The labels moved apart as little as the narrowest drawing asks; none if they have no room.

    What does not touch there touches nowhere: in a wider drawing only the room between grows.
    """
    wide = 100 * NARROWEST
    places = [label.place * wide // whole for label in labels]
    least = 0
    for index, label in enumerate(labels):
        left, right = label.reach
        places[index] = max(places[index], least + left)
        least = places[index] + right + _BETWEEN
    most = wide
    for index in reversed(range(len(labels))):
        left, right = labels[index].reach
        places[index] = min(places[index], most - right)
        most = places[index] - left - _BETWEEN
    if most + _BETWEEN < 0:
        return None
    return [label.at(place * whole // wide) for label, place in zip(labels, places, strict=True)]
