"""No result is typed into the prose; and the detector that says so sees what it should."""

import tomllib

import pytest

from places import DOCS, ROOT, page_sources
from typed_results import typed_results

PAGES = page_sources()


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.relative_to(DOCS).as_posix())
def test_no_page_has_a_typed_result(source):
    found = [
        f"{source.relative_to(ROOT)}:{typed.line}: {typed.text}"
        for typed in typed_results(source.read_text(encoding="utf-8"))
    ]
    assert not found, (
        "\n".join(found)
        + "\nWrite what follows from a formula as an expression, what a paper says "
        "as {{ fact(…) }} with an entry in docs/data/facts.toml, and tables as snippets."
    )


def test_the_pages_are_there():
    assert {"index.md", "chapter.md", "calculator.md", "results.md"} <= {
        page.name for page in PAGES
    }


@pytest.mark.parametrize("name", ["papers.toml", "concepts.toml"])
def test_no_data_file_but_the_cited_facts_has_one(name):
    (entries,) = tomllib.loads((DOCS / "data" / name).read_text(encoding="utf-8")).values()
    texts = [value for entry in entries for value in entry.values() if isinstance(value, str)]
    assert texts
    assert [typed.text for text in texts for typed in typed_results(text)] == []


@pytest.mark.parametrize(
    ("prose", "found"),
    [
        ("It needs 199.5 GB.", "199.5 GB"),
        ("It needs 199.5\u00a0GB.", "199.5 GB"),
        ("It needs 199.5&nbsp;GB.", "199.5&nbsp;GB"),
        ("about 185.8 GiB or so", "185.8 GiB"),
        ("16 bytes per parameter", "16 bytes"),
        ("sixteen bytes per parameter", "sixteen bytes"),
        ("a 16-byte state", "16-byte"),
        ("6,738,415,616 parameters", "6,738,415,616 parameters"),
        ("6.7 billion parameters", "6.7 billion parameters"),
        ("a 7-billion-parameter model", "7-billion-parameter"),
        ("7 billion of them", "7 billion"),
        ("70 % less", "70 %"),
        ("70% less", "70%"),
        ("seventy percent", "seventy percent"),
        ("30–40 % more time", "40 %"),
        ("2.5 times an 80-GB GPU", "2.5 times"),
        ("2.5× as much", "2.5×"),
        ("fivefold less", "fivefold"),
        ("a 5-fold saving", "5-fold"),
        ("| 13.5 GB | in a table |", "13.5 GB"),
        ("<td>13.5 GB</td>", "13.5 GB"),
        ("**13.5 GB**", "13.5 GB"),
        ("`13.5 GB`", "13.5 GB"),
        ("[13.5 GB](results.md)", "13.5 GB"),
        ("# All 107.8 GB of it", "107.8 GB"),
        ("description: All 107.8 GB of it", "107.8 GB"),
        ('{{ "13.5 GB" }}', "13.5 GB"),
        ("{% set size = '13.5 GB' %}", "13.5 GB"),
        ("two of\nsixteen\nbytes", "sixteen bytes"),
    ],
)
def test_it_sees_what_is_typed(prose, found):
    texts = [typed.text for typed in typed_results(prose)]
    assert texts[:1] == [found]


@pytest.mark.parametrize(
    "prose",
    [
        "{{ llama.peak | GB }} in all",
        "{{ llama.peak | GB(0) }}, or {{ ratio(llama.peak, gpu('80gb').memory_bytes) }} times it",
        '{{ fact("zero-gpt2-weights") }} of weights',
        '{{ math("16N") }} bytes',
        '{{ math("2 \\times 8 \\text{ bytes}") }}',
        '{{ gpu("80gb").name }}',
        "LLaMA 7B, GPT-2 1.5B and a 16-bit weight",
        "A sequence of 4,096 tokens in 32 layers takes fifteen minutes to read.",
        "arXiv:1910.02054, §3.1, Table 2",
        '--8<-- "results.md"',
        "<!-- 13.5 GB, once -->",
        "{# 13.5 GB #}",
        '<a href="x.html#13.5 GB" title="y">z</a>',
        "[the card](papers.md#zero-24 GB)",
        "training-memory estimate --sequence 4096 --micro-batch 1",
        "many times, at times, sometimes; one byte at a time; the bytes",
        "version 0.1.0 by 2 people; 3 GPUs",
    ],
)
def test_it_lets_pass_what_is_not(prose):
    assert typed_results(prose) == []


def test_it_says_on_which_line():
    (typed,) = typed_results("---\ntitle: x\n---\n\n{{ a\n+ b }}\n\nIt is 3 GB.\n")
    assert (typed.line, typed.text) == (8, "3 GB")
