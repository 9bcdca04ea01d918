"""One file read by its format's table: what each of its keys says, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from ..errors import InputError, InputErrors, nearest
from .report import Standing, shown
from .table import Format, Note, Part, Row, word_of
from .twice import Twice, twice_in
from .variables import UNSAID, said_in

_MOST_KEYS = 5000
_DEEPEST = 12


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
