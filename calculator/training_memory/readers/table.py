"""One format as a table: what each of its keys decides, and what becomes of the rest.

A key is read into *settings*, words that all formats share (:mod:`.settings`), so that a model's
file, a trainer's and an engine's add up to one run; :mod:`.resolve` makes the run's fields of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from ..errors import InputError, InputErrors, nearest
from ..reading import a_flag
from ..records import dataclass
from ..units import parse_count
from .report import Standing, shown
from .twice import Twice, twice_in
from .variables import UNSAID, said_in

_MOST_KEYS = 5000
_DEEPEST = 12
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


# --- reading one file by its table -----------------------------------------------------------


def read_values(form: Format, file: str, values: Mapping[str, object]) -> Part:
    """What the values of one file say by a format's table.

    Raises :class:`InputErrors` with every value that cannot be, each under ``KEY in FILE``.
    """
    walk = _Walk(form, values)
    walk.visit("", values)
    if form.finish and not walk.errors:
        form.finish(values, walk.settings)
    walk.assume()
    if walk.errors:
        raise InputErrors(
            [
                InputError(
                    f"{one.field} in {file}", one.value, one.allowed, suggestion=one.suggestion
                )
                for one in walk.errors
            ]
        )
    return Part(
        file=file,
        format=form,
        settings=walk.settings,
        assumed=walk.assumed,
        notes=walk.notes,
    )


class _Walk:
    """Goes through a file's keys with a table in hand."""

    def __init__(self, form: Format, values: Mapping[str, object]) -> None:
        self.form = form
        self.values = values
        self.rows = {key: row for row in form.rows for key in row.keys}
        self.inner = {key[:at] for key in self.rows for at, sign in enumerate(key) if sign == "."}
        #: Rows by where they are in memory: the key that was met, and what it said.
        self.met: dict[int, tuple[str, Mapping[str, object]]] = {}
        self.count = 0
        self.settings: dict[str, object] = {}
        self.assumed: dict[str, object] = {}
        self.notes: list[Note] = []
        self.errors: list[InputError] = []

    def visit(self, above: str, values: Mapping[str, object]) -> None:
        """Every key of ``values``, which stand under the path ``above``."""
        again = twice_in(values)
        for name, value in values.items():
            self.count += 1
            if self.count > _MOST_KEYS:
                allowed = f"it has more than {_MOST_KEYS:,} keys; a configuration has fewer"
                raise InputError("file", None, allowed)
            path = self.form.plain(f"{above}{name}")
            if name in again:
                self._again(path, value)
            if row := self.rows.get(path):
                self._row(row, path, value)
            elif isinstance(value, Mapping) and path in self.inner:
                self.visit(f"{path}.", _inside(value))
            elif any(fnmatchcase(path, pattern) for pattern in self.form.beside):
                self._note(path, value, Standing.BESIDE)
            elif isinstance(value, Mapping) and value and path.count(".") < _DEEPEST:
                self.visit(f"{path}.", _inside(value))
            else:
                near = nearest(path, self.rows)
                said = f"{self.form.name} has no such key here"
                said = f"{said}; did you mean {near}?" if near else said
                self._note(path, value, Standing.UNKNOWN, said=said)

    def _again(self, path: str, value: object) -> None:
        """A key that the file has more than once: its program drops all but the last."""
        row = self.rows.get(path)
        said = "it stands more than once in the file; the last was taken, as its program does"
        self._note(path, value, Standing.ASKED, row.settings if row else (), said)

    def _row(self, row: Row, path: str, value: object) -> None:
        value, remark, unsaid = said_in(value, self.values)
        if value is None:
            return  # as if it were not there
        other, before = self.met.setdefault(id(row), (path, {}))
        if _size(value) > _MOST_KEYS:
            self.errors.append(
                InputError(path, shown(value), "it is larger than any that is meant")
            )
            return
        if unsaid is not UNSAID:
            said = f"{unsaid} is known only where it runs"
            self._note(path, value, Standing.ASKED, row.settings, said)
            return
        if word_of(value) == "auto" and not _knows_auto(row):
            self._note(path, value, Standing.ASKED, row.settings, "auto")
            return
        try:
            found = row.take(path, value)
        except InputError as error:
            self.errors.append(error)
            return
        except InputErrors as errors:
            self.errors += errors.errors
            return
        self.settings |= found.settings
        self.met[id(row)] = (path, found.settings)
        if other != path and any(
            before.get(name, one) != one for name, one in found.settings.items()
        ):
            said = f"{other} stands in the file as well and says otherwise; this was taken"
            self._note(path, value, Standing.ASKED, tuple(found.settings), said)
        if found.lost:
            self._note(path, value, Standing.LOST, (), found.lost)
        if found.settings:
            said = "; ".join(part for part in (remark, found.said) if part)
            standing = Standing.ASSUMED if remark else Standing.UNDERSTOOD
            self._note(path, value, standing, tuple(found.settings), said)
        elif not found.lost:
            self._note(path, value, Standing.BESIDE, said=found.said)

    def assume(self) -> None:
        """What the program does where keys are missing."""
        for row in self.form.rows:
            if id(row) in self.met or row.usual is None:
                continue
            found = row.take(row.keys[0], row.usual)
            new = {
                name: value for name, value in found.settings.items() if name not in self.settings
            }
            self.assumed |= new
            self._note(row.keys[0], row.usual, Standing.ASSUMED, tuple(new), found.lost)

    def _note(
        self,
        key: str,
        value: object,
        standing: Standing,
        settings: tuple[str, ...] = (),
        said: str = "",
    ) -> None:
        note = Note(key=key, value=shown(value), standing=standing, settings=settings, said=said)
        self.notes.append(note)


def _inside(value: Mapping[object, object]) -> dict[str, object]:
    return Twice({str(key): inner for key, inner in value.items()}, twice_in(value))


def _size(value: object) -> int:
    """How many values there are in one; one that repeats itself in YAML has no end."""
    size, inside = 0, [value]
    while inside and size <= _MOST_KEYS:
        size += 1
        item = inside.pop()
        if isinstance(item, Mapping):
            inside += item.values()
        elif isinstance(item, list):
            inside += item
    return size


def _knows_auto(row: Row) -> bool:
    try:
        row.take(row.keys[0], "auto")
    except (InputError, InputErrors):
        return False
    return True
