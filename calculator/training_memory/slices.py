"""Long work in slices: the page's Python answers one request after another, and none may wait long.

Work that takes long is a generator that yields wherever it may be left off, and returns what it was
for. :func:`finished` does all of it at once; :class:`Slices` a slice for each request, so that
whatever else the page asks in between is answered at once, and work is given up by asking no more.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from time import perf_counter

# For type checkers alone: typing takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

#: Work that yields nothing but the chance to leave off, and returns a result.
Work = Generator[None, None, "T"]

#: What work tells a door that asks: nothing yet, or, once, its answer.
Told = Mapping[str, object] | None

#: A slice goes on for so long, and ends with the step that it is in.
SECONDS = 0.02


def finished(work: Work[T]) -> T:
    """All of the work at once, and what it returns."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result


class Slices:
    """Pieces of work that are under way, one for each asker."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, Iterator[object]]] = {}

    def go_on(
        self, asker: str, question: str, turn: int, begin: Callable[[], Iterator[T]]
    ) -> tuple[list[T], bool]:
        """Go on with the asker's work on a question: what a slice brought, and whether it is done.

        Turn 0 begins anew, and so does another question.
        """
        known, work = self._open.pop(asker, ("", iter(())))
        if turn == 0 or known != question:
            work = begin()
        found: list[T] = []
        end = perf_counter() + SECONDS
        for told in work:
            found.append(told)  # type: ignore[arg-type]  # the question's own work
            if perf_counter() > end:
                self._open[asker] = question, work
                return found, False
        return found, True

    def told(
        self, request: Mapping[str, Any], begin: Callable[[], Iterator[Told]]
    ) -> dict[str, object]:
        """What a slice for a door's request came to: whether it is ``done``, and its answer.

        ``prefix`` in it is who asks, ``turn`` which slice it is, and all else the question.
        """
        # Later, since the command line starts sooner without it and asks no slices.
        import json

        question = json.dumps({**request, "turn": None})
        found, _ = self.go_on(request["prefix"], question, request["turn"], begin)
        answer = found[-1] if found else None
        return {"ok": True, "done": answer is not None, **(answer or {})}
