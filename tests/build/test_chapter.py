"""The pages' sources: the chapter's sections, and what the prose cites."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import content
from places import DOCS, PACKAGE, ROOT

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = [
    "In one sentence",
    "Problem, solution, consequence",
    "You should understand first",
    "The puzzle",
    "Model states",
    "Activations",
    "Trading compute for memory",
    "Try it: Will It Fit?",
    "Why should I care?",
    "Modern systems that depend on it",
    "Historical context",
    "What to remember",
    "Key papers",
    "Watch",
]


_EVIDENCE = re.compile(r"""\bevidence\(\s*"([^"]+)"(?:,\s*"([^"]*)")?""")


_FACT = re.compile(r"""\bfact\(\s*"([^"]+)"(,\s*badge=False)?""")


def sources() -> list[Path]:
    return sorted(file for file in DOCS.rglob("*.md") if "generated" not in file.parts)


def blocks() -> list[tuple[str, str]]:
    """Every paragraph, list and table of every page, with the page's name."""
    return [
        (file.relative_to(DOCS).as_posix(), block)
        for file in sources()
        for block in re.split(r"\n\s*\n", file.read_text(encoding="utf-8"))
    ]


def test_pages_that_keep_their_badges_at_home_do_show_the_cards() -> None:
    for page in content.PAGES_WITH_CARDS:
        assert "{{ paper_cards(" in (DOCS / page).read_text(encoding="utf-8")


def test_the_pages_cite_papers_and_figures_that_exist() -> None:
    cited = [name for _, block in blocks() for name, _ in _EVIDENCE.findall(block)]
    used = [name for _, block in blocks() for name, _ in _FACT.findall(block)]
    assert cited
    assert set(cited) <= set(content.papers())
    assert set(used) <= set(content.facts())
    # A figure that no page shows would be checked by nobody.
    assert set(content.facts()) - set(used) == set()


def test_a_figure_without_a_badge_stands_beside_the_badge_of_its_place() -> None:
    bare = 0
    for page, block in blocks():
        badges = {
            (paper, place.strip())
            for paper, where in _EVIDENCE.findall(block)
            for place in where.split(",")
        }
        for name, without in _FACT.findall(block):
            if without:
                bare += 1
                entry = content.facts()[name]
                assert (entry.paper, entry.where) in badges, (page, name)
    assert bare


def test_the_chapter_has_its_sections_in_order() -> None:
    source = (DOCS / "chapter.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", source, re.MULTILINE)
    assert len(headings) == len(SECTIONS)
    for heading, expected in zip(headings, SECTIONS, strict=True):
        assert heading.startswith(expected)


def test_the_chapter_calls_what_its_sections_promise() -> None:
    source = (DOCS / "chapter.md").read_text(encoding="utf-8")
    parts = dict(zip(SECTIONS, re.split(r"^## .*$", source, flags=re.MULTILINE)[1:], strict=True))
    for section, call in (
        ("You should understand first", "concept_list()"),
        ("Model states", '--8<-- "bytes-per-parameter.md"'),
        ("Activations", 'formula("layer"'),
        ("Try it: Will It Fit?", "calculator("),
        ("Key papers", "paper_cards()"),
    ):
        assert call in parts[section]
    cards = re.findall(r"^### (.*)$", parts["Problem, solution, consequence"], re.MULTILINE)
    assert cards == ["Problem", "Solution", "Consequence"]


def test_the_chapter_can_be_read_in_the_minutes_it_states() -> None:
    source = (DOCS / "chapter.md").read_text(encoding="utf-8")
    minutes = re.search(r"^minutes:\n  Chapter: (\d+)$", source, re.MULTILINE)
    assert minutes is not None
    prose = re.sub(r"\A---.*?^---$", "", source, flags=re.DOTALL | re.MULTILINE)
    # An expression shows about one word; statements show none.
    prose = re.sub(r"\{%.*?%\}", "", prose, flags=re.DOTALL)
    prose = re.sub(r"\{\{.*?\}\}", "word", prose, flags=re.DOTALL)
    words = len(re.findall(r"\w+(?:['’-]\w+)*", prose))
    assert 150 < words / int(minutes[1]) < 200  # words a minute, for a text with numbers in it


def test_the_architecture_names_what_is_there() -> None:
    page = (DOCS / "about" / "architecture.md").read_text(encoding="utf-8")
    rooms, floors = (
        re.findall(r"`([^`]+)`", part.split("\n\n|")[1].split("\n\n")[0])
        for part in page.split("## Rooms")[1].split("Inside the calculator")
    )
    assert rooms
    assert floors
    assert [name for name in rooms if not (ROOT / name).is_dir()] == []
    assert [name for name in floors if not (PACKAGE / name).exists()] == []
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert modules - set(floors) == set()
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    named = re.findall(r"`([^`]+)`", " ".join(rows))
    assert sorted(named) == sorted(set(named))
