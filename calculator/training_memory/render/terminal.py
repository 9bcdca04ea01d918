"""What a terminal, or whatever stands in its place, can show: width, colours, characters."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..categories import Category
from ..records import dataclass
from .table import wrapped

# For type checkers alone: typing takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

#: A glyph for each category, all different from their neighbours without any colour.
GLYPHS: Mapping[Category, str] = {
    Category.WEIGHTS: "█",
    Category.GRADIENTS: "▓",
    Category.OPTIMIZER: "▒",
    Category.MASTER: "░",
    Category.ACTIVATIONS: "▚",
    Category.RECOMPUTED: "▌",
    Category.LOGITS: "▄",
    Category.TEMPORARY: "▞",
}
#: A letter for each, which stands over the bar and, where there are no glyphs, in it.
LETTERS: Mapping[Category, str] = {
    Category.WEIGHTS: "W",
    Category.GRADIENTS: "G",
    Category.OPTIMIZER: "S",
    Category.MASTER: "M",
    Category.ACTIVATIONS: "A",
    Category.RECOMPUTED: "R",
    Category.LOGITS: "L",
    Category.TEMPORARY: "T",
}
# Okabe and Ito's colours, told apart by the colour-blind, as near as 256 colours come to them.
_COLOURS: Mapping[Category, int] = {
    Category.WEIGHTS: 32,
    Category.GRADIENTS: 214,
    Category.OPTIMIZER: 36,
    Category.MASTER: 117,
    Category.ACTIVATIONS: 166,
    Category.RECOMPUTED: 175,
    Category.LOGITS: 227,
    Category.TEMPORARY: 248,
}
_DRAWN = "".join(GLYPHS.values()) + "┃┆└┘▲·×−²§"
_ASCII = str.maketrans(
    {
        **{glyph: LETTERS[category] for category, glyph in GLYPHS.items()},
        "┃": "|", "┆": ":", "└": "`", "┘": "'", "─": "-",
        "·": "*", "×": "x", "−": "-", "–": "-", "—": "-", "…": "...", "’": "'", "“": '"', "”": '"',
        "§": "section ", "\u00a0": " ", "\u202f": " ",
        **{power: f"^{digit}" for digit, power in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    }
)  # fmt: skip

_LEAST, _USUAL, _MOST = 48, 80, 160
#: Lines of prose longer than this are hard to follow on a wide screen.
_PROSE = 92


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How to write for one stream: ``width`` in columns, and whether it takes glyphs and colour."""

    width: int = _USUAL
    unicode: bool = True
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str]) -> Terminal:
        """The terminal that ``stream`` writes to.

        ``COLUMNS`` sets the width; else it is the terminal's, or 80 where there is none. Colour
        only on a terminal that is not "dumb", and not where ``NO_COLOR`` is set
        (https://no-color.org).
        """
        tty = stream.isatty()
        plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
        return cls(
            width=_width(stream, environment, tty=tty),
            unicode=_can_encode(stream.encoding),
            colour=tty and not plain,
        )

    def paint(self, text: str, category: Category) -> str:
        """``text`` in the category's colour, where there is colour."""
        if not self.colour or not text.strip():
            return text
        return f"\x1b[38;5;{_COLOURS[category]}m{text}\x1b[0m"

    def strong(self, text: str) -> str:
        """``text`` in bold, where there is colour."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    @property
    def prose_width(self) -> int:
        """Columns for paragraphs."""
        return min(self.width, _PROSE)

    def prose(self, text: str, *, first: str = "", then: str | None = None) -> list[str]:
        """A paragraph in lines that fit; ``first`` begins the first, ``then`` the others."""
        # What is written out in ASCII is longer, so that comes before the lines are made.
        return wrapped(self.shown(text), self.prose_width, first=first, then=then)

    def shown(self, text: str) -> str:
        """``text`` in the characters there are."""
        return text if self.unicode else text.translate(_ASCII)


def _width(stream: TextIO, environment: Mapping[str, str], *, tty: bool) -> int:
    given = environment.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and 0 < len(given) < 6:
        found = int(given)
    else:
        try:
            found = os.get_terminal_size(stream.fileno()).columns if tty else _USUAL
        except OSError:
            found = _USUAL
    return min(max(found or _USUAL, _LEAST), _MOST)


def _can_encode(encoding: str | None) -> bool:
    try:
        _DRAWN.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
