"""Why two runs' events differ: each field by itself is changed, and what then differs is its doing.

A field is changed in the first run; where that cannot be, it is changed back in the second. Fields
that cannot be changed by themselves (heads that no longer divide the width) are changed together.
What takes several fields at once, such as recomputation in a further micro-batch, is the doing of
those that it would not be like this without: changed back in the second run, it differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from .abreast import Pair, abreast
from .catalog import CUSTOM
from .errors import InputErrors
from .estimate import Estimate, estimate
from .model import SHAPE_FIELDS
from .run import Run
from .slices import Work, finished

#: Fields that are changed at once, and the events that differ then.
_Doing = tuple[tuple[str, ...], frozenset[tuple[object, ...]]]


class Causes:
    """What each of the fields does in which two runs differ.

    ``alone_bytes`` has the first run's peak with a field alone as in the second, where that can be.
    """

    def __init__(self, left: Estimate, right: Estimate, fields: Sequence[str]) -> None:
        self.left = left
        self.right = right
        self.fields = tuple(fields)
        self.alone_bytes: dict[str, int] = {}
        if len(self.fields) == 1:
            self.alone_bytes[self.fields[0]] = right.worst.peak_bytes

    def of(self, pair: Pair) -> tuple[str, ...]:
        """The fields that make an event differ."""
        if len(self.fields) < 2:
            return self.fields
        return _named(pair, self._changed) or _named(pair, self._taken_back) or self.fields

    @cached_property
    def _changed(self) -> list[_Doing]:
        return finished(self._changes())

    def steps(self) -> Work[None]:
        """Find out, once and for all, what each field does; may be left off after each."""
        if len(self.fields) > 1:
            self.__dict__["_changed"] = yield from self._changes()

    def _changes(self) -> Work[list[_Doing]]:
        """Fields changed in the first run, or else back in the second."""
        found, bound = list[_Doing](), list[str]()
        for field in self.fields:
            changed = _changed(self.left.run, self.right.run, (field,))
            if changed is not None:
                self.alone_bytes[field] = changed.worst.peak_bytes
                found.append(((field,), _differ(self.left, changed)))
            elif events := self._back((field,)):
                found.append(((field,), events))
            else:
                bound.append(field)
            yield
        if 1 < len(bound) < len(self.fields):
            changed = _changed(self.left.run, self.right.run, bound)
            events = _differ(self.left, changed) if changed else self._back(bound)
            found.append((tuple(bound), events or frozenset()))
        return found

    @cached_property
    def _taken_back(self) -> list[_Doing]:
        return [((field,), self._back((field,)) or frozenset()) for field in self.fields]

    def _back(self, fields: Sequence[str]) -> frozenset[tuple[object, ...]] | None:
        """What differs once fields are back in the second run; None where that is no run."""
        without = _changed(self.right.run, self.left.run, fields)
        return _differ(without, self.right) if without else None


def _named(pair: Pair, found: Iterable[_Doing]) -> tuple[str, ...]:
    return tuple(name for fields, events in found if pair.key in events for name in fields)


def _differ(one: Estimate, other: Estimate) -> frozenset[tuple[object, ...]]:
    pairs = abreast(one.worst.plan, other.worst.plan)
    return frozenset(pair.key for pair in pairs if not pair.alike)


def _changed(run: Run, like: Run, fields: Iterable[str]) -> Estimate | None:
    """A run with some fields as in another, estimated; None where that is no run."""
    request = {**run.to_json(), "shape": {name: getattr(run.model, name) for name in SHAPE_FIELDS}}
    for field in fields:
        request |= dict(_values(field, like, request))
    try:
        return estimate(
            Run.from_json({name: one for name, one in request.items() if one is not None})
        )
    except InputErrors:
        return None


def _values(field: str, like: Run, request: dict[str, object]) -> Iterator[tuple[str, object]]:
    theirs = like.to_json()
    if field in SHAPE_FIELDS:
        shape = request["shape"]
        assert isinstance(shape, dict)
        yield "shape", {**shape, field: getattr(like.model, field)}
        return
    yield field, theirs[field]
    if field == "model":  # whose classes build it; its shape's fields are changed each by itself
        yield from ((name, theirs[name]) for name in CUSTOM)
    if field == "implementation":  # with what only one of the two has a field for
        yield from (
            (name, value) for name, value in theirs.items() if None in (value, request[name])
        )
