"""Finds results that somebody typed into prose instead of having them computed.

A result is a quantity with a unit: ``199.5 GB``, ``16 bytes``, ``70 %``, ``2.5 times``. In prose it
must come from an expression, a cited fact or a generated table, or it will be wrong one day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORDS = (
    r"two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|"
    r"seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred"
)
_NUMBER = rf"(?:\d[\d.,\u202f\u00a0]*|\b(?i:{_WORDS}))"
_GAP = r"(?:[\s\u00a0\u202f-]|&nbsp;|&#160;)*"
_SCALE = rf"(?:{_GAP}(?:thousand|million|billion|trillion))"
# Units are told from names by their capitals: "80 GB" is a size, "80gb" the id of a GPU.
_SIZE = (
    r"(?:[kKMGTP]i?B|(?:[Kk]ilo|[Mm]ega|[Gg]iga|[Tt]era|[Gg]ibi|[Mm]ebi)?[Bb]ytes?|parameters?)\b"
)
_SHARE = r"(?:%|per\s?cent\b|times\b|×|-?fold\b)"
_QUANTITY = re.compile(rf"(?<![\w.]){_NUMBER}(?:{_SCALE}?{_GAP}(?:{_SIZE}|{_SHARE})|{_SCALE}\b)")

_NOT_PROSE = re.compile(
    r"<!--.*?-->"  # comments
    r"|\{#.*?#\}"
    r"|\]\([^)]*\)"  # where a link leads
    r"|\{:?\s[.#][^}\n]*\}"  # attributes
    r"|<[^>]+>"  # tags; what stands between them is prose
    r"|^\s*--8<--.*?$",
    re.DOTALL | re.MULTILINE,
)
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_LITERAL = re.compile(r'"([^"\n]*)"' + r"|'([^'\n]*)'")
#: Whose text an author chose with a source: a formula's letters, a figure's name, a cited place.
_SOURCED = re.compile(r"\b(?:math|math_block|fact|evidence|figure)\((?:[^()]|\([^()]*\))*\)")


@dataclass(frozen=True, slots=True)
class Typed:
    """A quantity found in prose, and its line (from 1)."""

    line: int
    text: str


def typed_results(markdown: str) -> list[Typed]:
    """Every quantity with a unit in a page's Markdown that is not computed, cited or included."""
    return sorted(_find(markdown), key=lambda typed: typed.line)


def _find(markdown: str) -> Iterator[Typed]:
    prose = _NOT_PROSE.sub(_blank, markdown)
    for expression in _EXPRESSION.finditer(prose):
        # A number in quotes would be typed all the same.
        code = _SOURCED.sub(_blank, expression[0])
        for literal in _LITERAL.finditer(code):
            yield from _in(literal[0], prose, expression.start() + literal.start())
    yield from _in(_EXPRESSION.sub(_mark, prose), prose, 0)


def _in(text: str, whole: str, offset: int) -> Iterator[Typed]:
    for found in _QUANTITY.finditer(text):
        line = whole.count("\n", 0, offset + found.start()) + 1
        yield Typed(line, re.sub(r"\s+", " ", found[0]))


def _blank(found: re.Match[str]) -> str:
    """Spaces in place of what was found, so that lines stay where they were."""
    return re.sub(r"[^\n]", " ", found[0])


def _mark(found: re.Match[str]) -> str:
    """A letter in place of an expression, so that no number beside it gets a unit beyond it."""
    return "x" + _blank(found)[1:]
