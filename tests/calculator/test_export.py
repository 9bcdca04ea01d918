"""Answers to take away: the same numbers in every format, and a link that is the same run."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given, settings

import later
from strategies import requests
from training_memory import Run, __version__, controls, estimate, export_door, slices
from training_memory.categories import CATEGORIES
from training_memory.cli import main
from training_memory.render import export, picture
from training_memory.render.export import EXPORTS

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
RUNS: dict[str, dict[str, Any]] = {
    "usual": {},
    "split": {"data": 8, "zero": 1, "tensor": 2, "pipeline": 4, "micro_batches": 8},
    "library": {"model": "qwen3-0.6b", "implementation": "huggingface", "recipe": "bf16-adam"},
    "own": {
        "model": "custom",
        "name": "Mine {&} 100%_#|<b>",
        "shape": {"layers": 2, "hidden": 64, "heads": 2, "vocabulary": 100},
        "gpu": None,
    },
}


@pytest.fixture(params=RUNS.values(), ids=list(RUNS))
def made(request):
    return estimate(Run.from_json(request.param))


def text(made, form, *, binary=False, page="http://example.org/calculator/"):
    return EXPORTS[form].made(made, binary, page)


def test_json_is_the_estimate(made):
    assert json.loads(text(made, "json")) == made.to_json()


def test_csv_has_every_kind_on_every_gpu_in_bytes(made):
    rows = list(csv.DictReader(io.StringIO(text(made, "csv"), newline="")))
    assert len(rows) == len(made.ranks) * (len(CATEGORIES) + 1)
    for on in made.ranks:
        own = {row["kind"]: row for row in rows if row["gpu"] == on.rank.label}
        for category, size in on.totals.items():
            row = own[str(category)]
            assert int(row["largest_bytes"]) == size
            assert int(row["at_peak_bytes"]) == on.peak_parts[category]
        assert int(own["peak"]["at_peak_bytes"]) == on.peak_bytes


@pytest.mark.parametrize("binary", [False, True])
def test_the_picture_stands_alone_and_its_segments_are_to_scale(made, binary):
    root = ElementTree.fromstring(text(made, "svg", binary=binary))
    assert root.tag == f"{SVG}svg"
    assert not [one for one in root.iter() if "class" in one.attrib or "style" in one.attrib]
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    held = [category for category, size in made.worst.totals.items() if size]
    bars = [
        one
        for one in root.iter(f"{SVG}rect")
        if one.attrib.get("height") == "56" and one.attrib["fill"].startswith("#")
    ]
    assert [one.attrib["fill"] for one in bars] == [picture.COLOURS[one][0] for one in held]
    drawn = sum(float(one.attrib["width"]) for one in bars)
    for category, one in zip(held, bars, strict=True):
        share = made.worst.totals[category] / sum(made.worst.totals.values())
        assert float(one.attrib["width"]) / drawn == pytest.approx(share, abs=0.001)
    for one in root.iter(f"{SVG}text"):
        assert 0 <= float(one.attrib["x"]) <= width
        assert 0 < float(one.attrib["y"]) <= height
    words = " ".join("".join(one.itertext()) for one in root.iter(f"{SVG}text"))
    assert "Peak " in words
    assert all(category.heading in words for category in held)
    # What patterns are referred to is defined.
    named = set(re.findall(r"url\(#([^)]+)\)", text(made, "svg")))
    assert named <= {one.attrib["id"] for one in root.iter(f"{SVG}pattern")}


def test_the_pictures_colours_are_the_pages():
    sheet = (ROOT / "calculator" / "web" / "memory.css").read_text(encoding="utf-8")
    light = sheet.partition("{")[2].partition("}")[0]
    found = re.findall(r"--([\w-]+): (#[0-9a-f]+);", light)
    page = {name: re.sub(r"^#(\w)(\w)(\w)$", r"#\1\1\2\2\3\3", value) for name, value in found}
    for category, (fill, ink) in picture.COLOURS.items():
        assert fill == page[f"category-{category}"]
        assert ink == page[f"on-category-{category}"]


def test_markdown_is_one_table_with_the_answer(made):
    lines = text(made, "markdown").splitlines()
    table = [line for line in lines if line.startswith("|")]
    held = [size for size in made.worst.totals.values() if size]
    assert len(table) == 2 + len(held) + 1
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in table)
    assert lines[0].startswith("**")
    assert f"{made.worst.peak_bytes:,} bytes" in lines[-1]
    assert "<b>" not in text(made, "markdown").replace("\\<b\\>", "")


def test_bibtex_cites_as_the_citation_file_says(made):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["title"] == export.TITLE
    assert citation["authors"] == [{"name": export.AUTHORS}]
    assert str(citation["date-released"])[:4] == export.YEAR
    entry = text(made, "bibtex")
    assert entry.startswith("@software{training-memory-")
    assert entry.count("{") == entry.count("}")
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", entry, re.MULTILINE))
    assert fields["version"] == __version__
    assert fields["url"].startswith("http://example.org/calculator/#")
    assert not re.search(r"(?<!\\)[&%$#_]", fields["note"] + fields["title"])


@settings(max_examples=60, deadline=None)
@given(request=requests())
def test_a_link_is_the_same_run(request):
    run = Run.from_json(request)
    made = estimate(run)
    address = export.link(made, True, "http://example.org/calculator/").strip()
    state = controls.parse(address.partition("#")[2])
    assert controls.read(state).to_json() == run.to_json()
    assert controls.is_binary(state)


def test_a_model_of_ones_own_keeps_its_name_in_a_link():
    made = estimate(Run.from_json(RUNS["own"]))
    state = controls.parse(text(made, "link").strip().partition("#")[2])
    assert controls.read(state).model.name == RUNS["own"]["name"]


@pytest.mark.parametrize("form", EXPORTS)
def test_the_command_line_writes_each(form, capsys):
    asked = ["estimate", "--model", "gpt2", "--sequence", "512", "--format", form]
    assert main([*asked, "--page", "http://example.org/calculator/"]) == 0
    out, err = capsys.readouterr()
    run = Run.from_json({"model": "gpt2", "sequence": 512})
    assert err == ""
    assert out.replace("\r\n", "\n") == text(estimate(run), form).replace("\r\n", "\n")


def test_the_command_line_names_the_formats_there_are(capsys):
    assert main(["estimate", "--format", "pdf"]) == 2
    said = capsys.readouterr().err
    assert "--format: 'pdf' cannot be used; allowed: json, csv, svg, markdown, bibtex, link" in said


def test_the_command_line_says_who_saves_a_picture_in_dots(capsys):
    assert main(["estimate", "--format", "png"]) == 2
    assert "a picture in dots is saved by the page; here svg is drawn" in capsys.readouterr().err


@pytest.mark.parametrize("form", EXPORTS)
def test_the_pages_door_gives_the_file_with_its_name(form):
    asked = {"state": "model=gpt2&sequence=512&units=GiB", "format": form, "page": "http://x/"}
    told = later.answered(export_door.answer, **asked)
    run = Run.from_json({"model": "gpt2", "sequence": 512})
    assert told["text"] == text(estimate(run), form, binary=True, page="http://x/")
    assert told["name"] == f"training-memory-gpt-2.{EXPORTS[form].ending}"
    refused = later.answered(export_door.answer, **{**asked, "state": "model=gpt9"})
    assert not refused["ok"]


def test_a_file_is_written_a_slice_at_a_time(monkeypatch):
    """What must be free is played through an allocator, and takes longer than all else together."""
    asked = {
        "state": "model=gpt2&sequence=512&implementation=huggingface&recipe=bf16-adam",
        "format": "json",
        "page": "",
        "prefix": "tm",
    }
    whole = later.answered(export_door.answer, **asked)
    monkeypatch.setattr(slices, "SECONDS", 0.0)
    told: dict[str, Any] = {"done": False}
    turns = 0
    while not told["done"]:
        told = json.loads(export_door.answer(json.dumps({**asked, "turn": turns})))
        turns += 1
    assert told == whole
    assert json.loads(told["text"])["need"]["reserved_by"] == "replay"
    assert turns > 100
