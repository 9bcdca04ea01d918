"""Other programs' files: which are read, what each of their keys decides, and what they cannot say.

All of it comes from the tables by which the calculator reads them.
"""

from __future__ import annotations

from collections.abc import Iterator

from table import Cell, Column, Table
from training_memory.readers.formats import FORMATS
from training_memory.readers.settings import SETTINGS, field_of
from training_memory.readers.table import Format, Row


def formats() -> Table:
    """Each format: how it is written, what it never says, whose code its keys follow."""
    return Table(
        columns=(
            Column(heading="Format", name="format", right=False),
            Column(heading="Written as", name="written", right=False),
            Column(heading="Keys that decide something", name="keys"),
            Column(heading="Its keys follow", name="source", right=False),
            Column(heading="What it cannot say", name="silent", right=False),
        ),
        rows=tuple(
            (
                Cell(form.name),
                Cell(form.written),
                Cell(sum(1 for row in form.rows if row.settings)),
                Cell(form.source),
                Cell("; ".join(form.silent)),
            )
            for form in FORMATS.values()
        ),
    )


def keys() -> Table:
    """Every key that decides a field of a run."""
    return Table(
        columns=(
            Column(heading="Format", name="format", right=False),
            Column(heading="Key", name="key", right=False),
            Column(heading="Decides", name="field", right=False),
            Column(heading="What it says", name="setting", right=False),
        ),
        rows=tuple(
            (Cell(form.name), _key(row), Cell(_fields(row)), Cell(_words(row)))
            for form, row in _rows()
            if row.settings
        ),
    )


def lost() -> Table:
    """Every key that bears on memory without being in an answer, and why."""
    return Table(
        columns=(
            Column(heading="Format", name="format", right=False),
            Column(heading="Key", name="key", right=False),
            Column(heading="Not in the answer", name="why", right=False),
        ),
        rows=tuple(
            (Cell(form.name), _key(row), Cell(row.lost)) for form, row in _rows() if row.lost
        ),
    )


def _rows() -> Iterator[tuple[Format, Row]]:
    for form in FORMATS.values():
        for row in form.rows:
            yield form, row


def _key(row: Row) -> Cell:
    names = row.keys
    return Cell(" ".join(names), ", ".join(f"`{name}`" for name in names))


def _fields(row: Row) -> str:
    return ", ".join(dict.fromkeys(field_of(setting) for setting in row.settings))


def _words(row: Row) -> str:
    said = (
        SETTINGS[setting][1] if setting in SETTINGS else "the model's shape"
        for setting in row.settings
    )
    return "; ".join(dict.fromkeys(said))
