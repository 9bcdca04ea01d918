"""Reading a request field by field; what is wrong with it is collected, to be said at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import cache

from .errors import InputError
from .units import parse_count

# For type checkers alone: typing takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")
    E = TypeVar("E", bound=StrEnum)

#: Reads one value of the field that is named first; raises :class:`InputError`.
Parser = Callable[[str, object], "T"]


class Reading:
    """A request being read: its values, what stands for those left out, and the errors so far."""

    def __init__(self, request: Mapping[str, object], usual: Mapping[str, object]) -> None:
        self.request = request
        self.usual = usual
        self.errors: list[InputError] = []

    def value(self, name: str) -> object:
        """What is given for a field, or else its usual value."""
        return self.request.get(name, self.usual[name])

    def field(self, name: str, parse: Parser[T], otherwise: T) -> T:
        """One field, parsed; ``otherwise`` stands in for a bad one so that reading can go on."""
        try:
            return parse(name, self.value(name))
        except InputError as error:
            self.errors.append(error)
            return otherwise

    def switch(self, name: str, parse: Parser[T], own: T) -> T:
        """A field that may be left to the implementation (None), whose own way is ``own``."""
        return own if self.value(name) is None else self.field(name, parse, own)


#: What was read before, by what it was read from; searches ask for the same again and again.
_known: dict[object, object] = {}
_MOST_KNOWN = 4096


def remembered(
    read: Callable[..., T], names: Collection[str], reading: Reading, *more: object
) -> T:
    """``read(reading, *more)``, looked up where fields of these ``names`` had the same values.

    Only these fields may decide it. What has mistakes is read anew each time, to tell of them.
    """
    request, usual = reading.request, reading.usual
    values = [request.get(name, usual[name]) for name in names]
    # 1 and True are equal, and only one of them is a flag.
    key = (read, *more, *values, *map(type, values))
    try:
        return _known[key]  # type: ignore[return-value]  # put there below
    except KeyError:
        pass
    except TypeError:  # a list or an object, which has no hash
        return read(reading, *more)
    before = len(reading.errors)
    found = read(reading, *more)
    if len(reading.errors) == before:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = found
    return found


def a_count(*, most: int, least: int = 1) -> Parser[int]:
    """A whole number within bounds."""
    return lambda name, value: parse_count(name, value, least=least, most=most)


@cache  # as many as there are kinds
def a_choice(kind: type[E]) -> Parser[E]:
    """One of a few names."""
    members = {str(member): member for member in kind}

    def parse(name: str, value: object) -> E:
        if isinstance(value, str) and value in members:
            return members[value]
        raise InputError.unknown_name(name, value, tuple(members))

    return parse


_LONGEST_NAME = 200


def a_name(name: str, value: object) -> str:
    """A name that a person gave: some text on one line."""
    if isinstance(value, str) and value.strip() and value.strip().isprintable():
        if len(value.strip()) <= _LONGEST_NAME:
            return value.strip()
        raise InputError(name, f"{value.strip()[:40]}…", f"at most {_LONGEST_NAME} letters")
    raise InputError(name, value, "some text on one line")


def one_of(names: Sequence[str]) -> Parser[str]:
    """One of some names."""

    def parse(name: str, value: object) -> str:
        if isinstance(value, str) and value in names:
            return value
        raise InputError.unknown_name(name, value, names)

    return parse


_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def a_flag(name: str, value: object) -> bool:
    """Yes or no, as JSON, a form or a person writes it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    raise InputError(name, value, "allowed: true or false")
