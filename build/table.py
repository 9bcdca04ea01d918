"""A table as the site has it: Markdown for a page, CSV for a program, from the same cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column's heading in Markdown, its name in the CSV (which carries the unit), its side."""

    heading: str
    name: str
    right: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and how the page shows it; a value shown as it is needs no second form."""

    value: int | str
    shown: str = ""

    @property
    def markdown(self) -> str:
        """The cell's text for the page."""
        return (self.shown or str(self.value)).replace("|", r"\|")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: its columns, and as many cells in every row."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} cells for {len(self.columns)} columns: {row}")

    def markdown(self) -> str:
        """The table for a page, each line a row."""
        lines = [
            _line(column.heading for column in self.columns),
            _line("--:" if column.right else ":--" for column in self.columns),
            *(_line(cell.markdown for cell in row) for row in self.rows),
        ]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """The table for a program."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(column.name for column in self.columns)
        writer.writerows([cell.value for cell in row] for row in self.rows)
        return text.getvalue()


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
