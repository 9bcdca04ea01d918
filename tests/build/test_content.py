"""The prose's data hold together, and every badge leads to a card that is there."""

from __future__ import annotations

import datetime
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

import content
from places import DOCS

if TYPE_CHECKING:
    from pathlib import Path

# The course's list; the chapter promises all of it, in this order.
CONCEPTS = """
Derivatives and Gradients; Loss Functions; Gradient Descent; Probability and Distributions;
Expected Value and Variance; Stochastic Gradient Descent (SGD); The Chain Rule; Vectors;
Dot Product; The Turing Test; Symbolic AI; Logic and Rules; Expert Systems;
Knowledge Representation; The Knowledge-Acquisition Bottleneck; From Rules to Learning;
Supervised, Unsupervised and Self-Supervised Learning; Features, Labels and Tasks;
Linear Regression; Entropy; Softmax; Cross-Entropy Loss; Logistic Regression; The Perceptron;
Activation Functions; The Artificial Neuron; Matrix Multiplication; Multilayer Perceptron (MLP);
The Forward Pass; Computational Graphs and Autodiff; Backpropagation; Momentum and Adam;
The Pretraining Loop; Mixed-Precision Training (FP16 and BF16); Text as Data; One-Hot Encoding;
Tokenization; Conditional Probability and Bayes' Theorem; Probability of Sequences;
Language Modeling; Embeddings; Attention; Self-Attention; Causal Masking;
Autoregressive Next-Token Prediction; Pretraining at Scale;
Parameters, Tokens and Context Windows; Where Training Memory Goes
"""

# (arXiv id, title, authors, year, importance, minutes), as the course lists them.
PAPERS = [
    (
        "1604.06174",
        "Training Deep Nets with Sublinear Memory Cost",
        "Tianqi Chen, Bing Xu et al.",
        2016,
        "optional",
        25,
    ),
    (
        "1710.03740",
        "Mixed Precision Training",
        "Paulius Micikevicius, Sharan Narang et al.",
        2017,
        "important",
        20,
    ),
    (
        "1910.02054",
        "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        "Samyam Rajbhandari, Jeff Rasley et al.",
        2019,
        "essential",
        40,
    ),
    (
        "2205.05198",
        "Reducing Activation Recomputation in Large Transformer Models",
        "Vijay Korthikanti, Jared Casper et al.",
        2022,
        "optional",
        30,
    ),
]


class Tags(HTMLParser):
    """Collects ids, attribute names and headings, and fails on a tag that does not match."""

    VOID = frozenset({"br", "img", "rect", "hr", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def html_blocks() -> dict[str, str]:
    return {
        "concepts": content.concept_list(),
        "papers": content.paper_cards(),
        "header": content.header_strip(
            {
                "kind": "Concept page",
                "course": "Nuts & <Bolts>",
                "course_chapter": 9,
                "importance": {"Chapter": "must know"},
                "minutes": {"Chapter": 15, "Calculator": 8},
                "difficulty": 3,
            }
        ),
    }


def test_the_concepts_are_the_courses_in_its_order() -> None:
    expected = [" ".join(name.split()) for name in CONCEPTS.split(";")]
    assert len(expected) == 48
    assert [concept.name for concept in content.concepts()] == expected


def test_the_last_concept_is_the_chapter() -> None:
    title = re.search(r"^title: (.*)$", (DOCS / "chapter.md").read_text("utf-8"), re.MULTILINE)
    assert title is not None
    assert content.concepts()[-1].name == title[1]
    assert content.concept_list().count('aria-current="page"') == 1


def test_each_concept_has_one_reminder_of_one_line() -> None:
    reminders = [concept.reminder for concept in content.concepts()]
    assert len(set(reminders)) == len(reminders)
    for reminder in reminders:
        assert "\n" not in reminder
        assert 30 <= len(reminder) <= 150
        assert reminder.endswith(".")


def test_the_concept_list_shows_every_concept_with_its_reminder() -> None:
    text = "".join(Tags(content.concept_list()).text)
    places = [text.index(f"{one.name} {one.reminder}") for one in content.concepts()]
    assert places == sorted(places)


def test_the_papers_are_the_courses() -> None:
    found = [
        (paper.arxiv, paper.title, paper.authors, paper.year, paper.importance, paper.minutes)
        for paper in content.papers().values()
    ]
    assert found == PAPERS


def test_every_paper_says_when_it_was_checked_and_shows_all_its_fields() -> None:
    cards = "".join(Tags(content.paper_cards()).text)
    for paper in content.papers().values():
        assert isinstance(paper.checked, datetime.date)
        for field in ("title", "authors", "year", "venue", "arxiv", "importance", "why", "how"):
            assert str(getattr(paper, field)) in cards, (paper.id, field)
        assert f"about {paper.minutes} minutes" in cards
        assert f"{paper.checked.day} {paper.checked:%B %Y}" in cards


@pytest.mark.parametrize("level", [2, 3])
def test_paper_cards_have_headings_of_the_level_asked_for(level: int) -> None:
    cards = content.paper_cards(level)
    assert len(re.findall(rf"<h{level} ", cards)) == len(content.papers())
    assert re.findall(r"<h([1-6])", cards) == [str(level)] * len(content.papers())


@pytest.mark.parametrize(
    ("page", "target"),
    [
        ("chapter.md", "#paper-zero"),
        ("papers.md", "#paper-zero"),
        ("results.md", "papers.md#paper-zero"),
        ("about/index.md", "../papers.md#paper-zero"),
    ],
)
def test_a_badge_links_to_the_papers_card(page: str, target: str) -> None:
    badge = content.evidence("zero", "§3.1", page=page)
    assert badge.startswith(f'[Established: ZeRO, §3.1]({target} "ZeRO: ')
    assert target.split("#")[1] in Tags(content.paper_cards()).ids


def test_every_paper_has_a_card_for_its_badges() -> None:
    ids = Tags(content.paper_cards()).ids
    for paper in content.papers():
        found = re.search(r"\(#(\S+) ", content.evidence(paper))
        assert found is not None
        assert found[1] in ids


def test_every_cited_figure_names_a_paper_and_a_place_in_it() -> None:
    for entry in content.facts().values():
        assert entry.paper in content.papers()
        assert re.fullmatch(r"§\d+(\.\d+)*|Figure \d+|Table \d+", entry.where), entry.id
        shown = content.fact(entry.id)
        assert shown == f"{entry.text} {content.evidence(entry.paper, entry.where)}"


@pytest.mark.parametrize("name", html_blocks())
def test_html_is_well_formed_and_without_what_the_policy_refuses(name: str) -> None:
    block = html_blocks()[name]
    tags = Tags(block)
    assert "style" not in tags.attributes
    assert not [name for name in tags.attributes if name.startswith("on")]
    assert len(set(tags.ids)) == len(tags.ids)
    # A blank line would end the HTML block and let Markdown have the rest.
    assert "\n\n" not in block


def test_the_header_strip_says_what_the_front_matter_says() -> None:
    strip = html_blocks()["header"]
    assert "Nuts &amp; &lt;Bolts&gt;" in strip
    text = "".join(Tags(strip).text)
    for words in ("Concept page", ", chapter 9", "Chapter: must know", "Calculator: 8 minutes"):
        assert words in text
    assert "3 of 5" in text
    assert strip.count('class="dot dot-on"') == 3
    assert strip.count('class="dot') == 5


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"difficulty": 3}, "needs kind"),
        ({"kind": "page"}, "needs difficulty"),
        ({"kind": "page", "difficulty": 0}, "runs from 1 to 5"),
        ({"kind": "page", "difficulty": 6}, "runs from 1 to 5"),
    ],
)
def test_a_header_strip_refuses_front_matter_it_cannot_show(
    meta: dict[str, object], message: str
) -> None:
    with pytest.raises(content.ContentError, match=message):
        content.header_strip(meta)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(content.ContentError, match=r"no fact 'zero-kk'; did you mean 'zero-k'\?"):
        content.fact("zero-kk")
    with pytest.raises(content.ContentError, match=r"no paper 'x'; known: sublinear, "):
        content.evidence("x")


PAPER = """
[[paper]]
id = "one"
short = "One"
title = "A Paper"
authors = "A. Author"
year = 2020
venue = "V"
arxiv = "2001.00001"
importance = "optional"
minutes = 5
why = "w"
how = "h"
checked = 2026-10-04
"""
FACT = """
[[fact]]
id = "f"
text = "3"
paper = "one"
where = "§1"
says = "s"
"""


@pytest.mark.parametrize(
    ("papers", "facts", "message"),
    [
        (PAPER.replace('venue = "V"\n', ""), FACT, "missing, or has one too many of: venue"),
        (PAPER.replace('why = "w"', 'why = ""'), FACT, "leaves empty: why"),
        (PAPER.replace('"optional"', '"nice"'), FACT, "importance is 'nice'"),
        (PAPER + PAPER, FACT, "two entries are called 'one'"),
        (PAPER, FACT.replace('"one"', '"two"'), "no paper 'two'"),
        (PAPER, FACT + FACT, "two entries are called 'f'"),
    ],
)
def test_data_that_does_not_hold_together_is_refused(
    papers: str, facts: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "papers.toml").write_text(papers, encoding="utf-8")
    (tmp_path / "facts.toml").write_text(facts, encoding="utf-8")
    monkeypatch.setattr(content, "DATA", tmp_path)
    # The real data are cached; these must be neither read from there nor left there.
    monkeypatch.setattr(content, "papers", content.papers.__wrapped__)
    with pytest.raises(content.ContentError, match=message):
        content.facts.__wrapped__()
