"""The chapter's words kept as data (concepts, papers, cited figures) and the HTML made from them.

Everything here returns text for a page's Markdown: HTML blocks for the lists and cards, Markdown
links for the badges, so that MkDocs checks their targets like any other link. ``macros.py``
makes the functions available to the prose; nothing here computes a byte.
"""

from __future__ import annotations

import posixpath
import tomllib
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date

DATA = Path(__file__).parent.parent / "docs" / "data"

# Pages that show the cards themselves: their badges need not leave the page.
PAGES_WITH_CARDS = frozenset({"chapter.md", "papers.md"})

DIFFICULTY_STEPS = 5


class ContentError(ValueError):
    """A name in the prose, or an entry in the data, that does not hold together."""


class Importance(StrEnum):
    """How much a paper matters to a reader of the chapter."""

    ESSENTIAL = "essential"
    IMPORTANT = "important"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concept:
    """One idea to understand first, with a reminder of one line."""

    name: str
    reminder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """One key paper; ``checked`` is the day on which the entry was held against it."""

    id: str
    short: str
    title: str
    authors: str
    year: int
    venue: str
    arxiv: str
    importance: Importance
    minutes: int
    why: str
    how: str
    checked: date

    @property
    def anchor(self) -> str:
        """The id of the paper's card on every page that shows it."""
        return f"paper-{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A figure that a paper states: its words on the page, the paper, the place, the full claim."""

    id: str
    text: str
    paper: str
    where: str
    says: str


_Entry = TypeVar("_Entry", Concept, Paper, Fact)
_Named = TypeVar("_Named", Paper, Fact)


def _entries(kind: type[_Entry], name: str, key: str) -> tuple[_Entry, ...]:
    """Read the rows of one data file; each must have every field, and none may be empty."""
    with (DATA / name).open("rb") as file:
        rows: list[dict[str, Any]] = tomllib.load(file)[key]
    wanted = {field.name for field in fields(kind)}
    for row in rows:
        if set(row) != wanted:
            wrong = ", ".join(sorted(set(row) ^ wanted))
            raise ContentError(f"{name}: {row} is missing, or has one too many of: {wrong}")
        if empty := [field for field, value in row.items() if value in ("", 0)]:
            raise ContentError(f"{name}: {row} leaves empty: {', '.join(empty)}")
    return tuple(kind(**row) for row in rows)


def _unique(rows: Iterable[_Named], name: str) -> dict[str, _Named]:
    by_id: dict[str, _Named] = {}
    for row in rows:
        if row.id in by_id:
            raise ContentError(f"{name}: two entries are called {row.id!r}")
        by_id[row.id] = row
    return by_id


@cache
def concepts() -> tuple[Concept, ...]:
    """Return the concepts, in the order of the course; the last is the chapter itself."""
    return _entries(Concept, "concepts.toml", "concept")


@cache
def papers() -> Mapping[str, Paper]:
    """Return the key papers by id, oldest first."""
    found = _unique(_entries(Paper, "papers.toml", "paper"), "papers.toml")
    for paper in found.values():
        # StrEnum's own error does not say which entry is meant.
        if paper.importance not in set(Importance):
            raise ContentError(f"papers.toml: {paper.id}: importance is {paper.importance!r}")
    return found


@cache
def facts() -> Mapping[str, Fact]:
    """Return the cited figures by id; :class:`ContentError` if one cites no known paper."""
    found = _unique(_entries(Fact, "facts.toml", "fact"), "facts.toml")
    for entry in found.values():
        _named("paper", entry.paper, papers())
    return found


def _named(kind: str, name: str, known: Mapping[str, _Named]) -> _Named:
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
        raise ContentError(f"there is no {kind} {name!r}{hint}")
    return known[name]


def evidence(paper: str, where: str = "", *, page: str = "chapter.md") -> str:
    """Mark a claim as established: a Markdown link to the card of the paper behind it.

    ``where`` is the place in the paper; ``page`` the source path of the page that shows the badge.
    """
    entry = _named("paper", paper, papers())
    target = f"#{entry.anchor}"
    if page not in PAGES_WITH_CARDS:
        target = posixpath.relpath("papers.md", posixpath.dirname(page) or ".") + target
    place = f", {where}" if where else ""
    return (
        f"[Established: {entry.short}{place}]({target}"
        f' "{entry.title} ({entry.year})"){{ .evidence }}'
    )


def fact(name: str, *, badge: bool = True, page: str = "chapter.md") -> str:
    """Give a cited figure in the words of ``facts.toml``, followed by its badge.

    ``badge=False`` is for a second figure in a sentence whose badge already names the same place.
    """
    entry = _named("fact", name, facts())
    if not badge:
        return entry.text
    return f"{entry.text} {evidence(entry.paper, entry.where, page=page)}"


def concept_list() -> str:
    """Lay the concepts out as a collapsible ordered list, whose last entry is the current page."""
    entries = concepts()
    items = "\n".join(
        ('<li aria-current="page">' if entry is entries[-1] else "<li>")
        + f'<span class="concept-name">{escape(entry.name)}</span> '
        + f'<span class="concept-reminder">{escape(entry.reminder)}</span></li>'
        for entry in entries
    )
    return (
        '<details class="concepts">\n'
        f"<summary>{len(entries)} concepts, in the order in which they build on each other"
        "</summary>\n"
        f"<ol>\n{items}\n</ol>\n</details>"
    )


def _paper_card(paper: Paper, level: int) -> str:
    title = f"{paper.anchor}-title"
    day = f"{paper.checked.day} {paper.checked:%B %Y}"
    # One string: a blank line would end the HTML block in the page's Markdown.
    return f"""<section class="paper-card" id="{paper.anchor}" aria-labelledby="{title}">
<h{level} id="{title}">{escape(paper.title)}</h{level}>
<p class="paper-byline">{escape(paper.authors)}, {paper.year}. {escape(paper.venue)}.
<a href="https://arxiv.org/abs/{paper.arxiv}">arXiv:{paper.arxiv}</a></p>
<ul class="paper-tags">
<li class="importance importance-{paper.importance}">{paper.importance}</li>
<li>about {paper.minutes} minutes</li>
</ul>
<p><strong>Why it matters.</strong> {escape(paper.why)}</p>
<p><strong>How to read it.</strong> {escape(paper.how)}</p>
<p class="paper-checked">Entry checked on
<time datetime="{paper.checked.isoformat()}">{day}</time>.</p>
</section>"""


def paper_cards(level: int = 3) -> str:
    """Lay out a card for each paper, oldest first; ``level`` is that of the headings (2 to 6)."""
    cards = "\n".join(_paper_card(paper, level) for paper in papers().values())
    return f'<div class="paper-cards">\n{cards}\n</div>'


def _difficulty(steps: int) -> str:
    """Draw a row of dots, with the same in words: nobody should have to count or see colours."""
    if not 1 <= steps <= DIFFICULTY_STEPS:
        raise ContentError(f"difficulty is {steps!r}; it runs from 1 to {DIFFICULTY_STEPS}")
    dots = "".join(
        f'<span class="dot{" dot-on" if step < steps else ""}"></span>'
        for step in range(DIFFICULTY_STEPS)
    )
    return (
        f'<span class="difficulty" aria-hidden="true">{dots}</span> '
        f"<span>{steps} of {DIFFICULTY_STEPS}</span>"
    )


def header_strip(meta: Mapping[str, Any]) -> str:
    """Say what a page is and asks of its reader, from the page's front matter.

    Reads ``kind`` and ``difficulty`` (1 to 5), and optionally ``course`` with ``course_chapter``,
    ``importance`` and ``minutes``; the last two map a part of the page ("chapter") to its value.
    Raises :class:`ContentError` where a required entry is missing.
    """
    if missing := [key for key in ("kind", "difficulty") if key not in meta]:
        raise ContentError(f"the header strip needs {', '.join(missing)} in the front matter")
    rows = [("Page", escape(str(meta["kind"])))]
    if "course" in meta:
        chapter = f", chapter {meta['course_chapter']}" if "course_chapter" in meta else ""
        rows.append(("Course", f"<cite>{escape(str(meta['course']))}</cite>{chapter}"))
    for label, key, form in (
        ("Importance", "importance", "{part}: {value}"),
        ("Time", "minutes", "{part}: {value} minutes"),
    ):
        if key in meta:
            parts = (form.format(part=part, value=value) for part, value in meta[key].items())
            rows.append((label, "<br>".join(escape(part) for part in parts)))
    rows.append(("Difficulty", _difficulty(int(meta["difficulty"]))))
    cells = "\n".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in rows)
    return f'<dl class="header-strip">\n{cells}\n</dl>'
