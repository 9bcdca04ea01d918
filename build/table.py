"""A table as the site has it: Markdown or HTML for a page, CSV for a program, of the same cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

_STRONG = re.compile(r"\*\*(.+?)\*\*")


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

    @property
    def html(self) -> str:
        """The same as Markdown would make it; of Markdown's marks a cell may use ``**strong**``."""
        text = escape(self.shown or str(self.value), quote=False)
        return _STRONG.sub(r"<strong>\1</strong>", text)


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

    def html(self) -> str:
        """The table for a page that no Markdown makes, tag for tag as Markdown would make it."""
        sides = ["right" if column.right else "left" for column in self.columns]
        head = _cells("th", sides, (column.heading for column in self.columns))
        body = "".join(
            f"<tr>{_cells('td', sides, (cell.html for cell in row))}</tr>" for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def csv(self) -> str:
        """The table for a program."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(column.name for column in self.columns)
        writer.writerows([cell.value for cell in row] for row in self.rows)
        return text.getvalue()


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(tag: str, sides: Iterable[str], texts: Iterable[str]) -> str:
    return "".join(
        f'<{tag} align="{side}">{text}</{tag}>' for side, text in zip(sides, texts, strict=True)
    )
