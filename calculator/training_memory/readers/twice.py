"""Keys that a file has twice, of which its program takes the last and drops the others unseen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Twice(dict[str, object]):
    """The values of a file, or of a part of it, with the keys that stand in it more than once."""

    def __init__(self, values: Mapping[str, object], twice: Iterable[str]) -> None:
        super().__init__(values)
        self.twice = tuple(dict.fromkeys(twice))


def with_twice(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """The pairs as a mapping, the last of a key's values; a :class:`Twice` where a key returns."""
    values: dict[str, object] = {}
    again = list[str]()
    for key, value in pairs:
        if key in values:
            again.append(key)
        values[key] = value
    return Twice(values, again) if again else values


def twice_in(values: object) -> tuple[str, ...]:
    """The keys that stand more than once in this part of a file."""
    return values.twice if isinstance(values, Twice) else ()
