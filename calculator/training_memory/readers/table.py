"""One format as a table: what each of its keys decides, and what becomes of the rest.

A key is read into *settings*, words that all formats share (:mod:`.settings`), so that a model's
file, a trainer's and an engine's add up to one run; :mod:`.resolve` makes the run's fields of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import InputError
from ..reading import a_flag
from ..records import dataclass
from ..units import parse_count
from .report import Standing, shown

_MOST = 2**40
#: What formats write where they leave something off.
OFF = (None, False, 0, 0.0, "", "none", "no", "false", "off", "null", "0", "0.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a key says: settings; and what of it is lost, or said about it."""

    settings: Mapping[str, object]
    lost: str = ""
    said: str = ""


#: Reads a key's value; raises :class:`InputError` under the key's name for one that cannot be.
Take = Callable[[str, object], Taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A key that bears on memory, under all its spellings.

    ``settings`` are those that it may decide; with none, ``lost`` says why the answer is without
    it. ``usual`` is the value that its program takes where the key is missing.
    """

    keys: tuple[str, ...]
    take: Take
    settings: tuple[str, ...] = ()
    lost: str = ""
    usual: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A kind of file.

    ``marks`` are keys by which one knows it, ``beside`` patterns of keys that do not bear on
    memory, ``silent`` what a file of this kind never says, ``implementation`` whose way of running
    a step its program follows. ``plain`` gives a key's path its usual spelling; ``finish`` puts
    settings right that no key decides alone, given the file's values.
    """

    id: str
    name: str
    written: str
    source: str
    implementation: str
    marks: tuple[str, ...]
    rows: tuple[Row, ...]
    beside: tuple[str, ...]
    silent: tuple[str, ...] = ()
    plain: Callable[[str], str] = str
    finish: Callable[[Mapping[str, object], dict[str, object]], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A finding before all files are known: ``settings`` are those that its key decides."""

    key: str
    value: str
    standing: Standing
    settings: tuple[str, ...] = ()
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one file says: its settings, and those that hold if no file says otherwise."""

    file: str
    format: Format
    settings: Mapping[str, object]
    assumed: Mapping[str, object]
    notes: Sequence[Note]


# --- rows ------------------------------------------------------------------------------------


def count(key: str, setting: str, *spellings: str, usual: int | None = None, least: int = 1) -> Row:
    """A whole number."""

    def take(name: str, value: object) -> Taken:
        return Taken(settings={setting: parse_count(name, _only(value), least=least, most=_MOST)})

    return Row(keys=(key, *spellings), take=take, settings=(setting,), usual=usual)


def flag(key: str, setting: str, *spellings: str, usual: bool | None = None) -> Row:
    """Yes or no."""

    def take(name: str, value: object) -> Taken:
        return Taken(settings={setting: is_on(name, value)})

    return Row(keys=(key, *spellings), take=take, settings=(setting,), usual=usual)


def text(key: str, setting: str, *spellings: str) -> Row:
    """A name."""

    def take(name: str, value: object) -> Taken:
        if not isinstance(value, str) or not value.strip():
            raise InputError(name, value, "a name is needed, written as text")
        return Taken(settings={setting: value.strip()})

    return Row(keys=(key, *spellings), take=take, settings=(setting,))


def choice(
    key: str,
    meanings: Mapping[str, Mapping[str, object] | str],
    *spellings: str,
    usual: object = None,
    unknown: str = "",
) -> Row:
    """One of some names: each means settings, or is lost for a reason.

    With ``unknown``, any other name is lost for that reason; without, it is an error.
    """
    settings = dict.fromkeys(
        setting
        for meaning in meanings.values()
        if not isinstance(meaning, str)
        for setting in meaning
    )

    def take(name: str, value: object) -> Taken:
        word = word_of(value)
        meaning = meanings.get(word, unknown or None)
        if meaning is None:
            raise InputError.unknown_name(name, word, tuple(meanings))
        if isinstance(meaning, str):
            return Taken(settings={}, lost=meaning)
        return Taken(settings=meaning)

    return Row(keys=(key, *spellings), take=take, settings=tuple(settings), usual=usual)


def lost(key: str, why: str, *spellings: str, off: Sequence[object] = OFF) -> Row:
    """A key that bears on memory and that a run cannot say; ``off`` values mean nothing."""

    def take(name: str, value: object) -> Taken:
        word = value.strip().lower() if isinstance(value, str) else value
        idle = (isinstance(word, list | dict) and not word) or any(
            type(word) is type(item) and word == item for item in off
        )
        return Taken(settings={}, lost="" if idle else why)

    return Row(keys=(key, *spellings), take=take, lost=why)


def taken(
    key: str, settings: tuple[str, ...], *spellings: str, usual: object = None
) -> Callable[[Take], Row]:
    """A key that is read by a function of its own."""
    return lambda take: Row(keys=(key, *spellings), take=take, settings=settings, usual=usual)


def words(text: str, *, under: str = "") -> tuple[str, ...]:
    """The words of a text as patterns of keys, each under a path."""
    return tuple(f"{under}{word}" for word in text.split())


def is_on(name: str, value: object) -> bool:
    """A flag as configurations and command lines write it."""
    if value in (0, 1) and not isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.strip() in ("0", "1"):
        return value.strip() == "1"
    return a_flag(name, _only(value))


def word_of(value: object) -> str:
    """A choice as one word in small letters."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip().lower() if isinstance(value, str | int) else shown(value)


def _only(value: object) -> object:
    """A value of a script's, without what follows it there: the program's own name."""
    return value[0] if isinstance(value, list) and value else value
