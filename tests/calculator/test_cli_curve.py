"""``training-memory curve``: its text, table and picture, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree

import pytest

from training_memory.cli import main
from training_memory.estimate import peak_bytes
from training_memory.run import Run

SHARED = ("--model", "llama-3-8b", "--data", "8", "--zero", "3", "--gpu", "h100-80gb")
REQUEST = {"model": "llama-3-8b", "data": 8, "zero": 3, "gpu": "h100-80gb"}
SVG = "{http://www.w3.org/2000/svg}"


def curve(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["curve", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_the_crossing_point_is_named_and_is_the_last_that_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = curve(capsys, *SHARED)
    assert (status, err) == (0, "")
    (line,) = [one for one in out.splitlines() if "last that fits" in one]
    last = int(line.split()[0].replace(",", ""))
    assert f"Fits up to {last:,} tokens." in out
    assert peak_bytes(Run.from_json({**REQUEST, "sequence": last})) <= 80_000_000_000
    assert peak_bytes(Run.from_json({**REQUEST, "sequence": last + 1})) > 80_000_000_000
    (now,) = [one for one in out.splitlines() if one.endswith("now")]
    assert now.split()[0] == "4,096"
    # The mark of the capacity stands in the same column of every line.
    columns = {one.index("\N{BOX DRAWINGS HEAVY VERTICAL}") for one in out.splitlines()[5:]}
    assert len(columns) == 1


@pytest.mark.parametrize("over", ["sequence", "micro-batch", "gpus"])
def test_the_table_has_every_point(capsys: pytest.CaptureFixture[str], over: str) -> None:
    field = {"sequence": "sequence", "micro-batch": "micro_batch", "gpus": "gpus"}[over]
    _, plain, _ = curve(capsys, *SHARED, "--over", over, "--json")
    _, table, _ = curve(capsys, *SHARED, "--over", over, "--format", "csv")
    found = json.loads(plain)
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [(int(row[field]), int(row["peak_bytes"])) for row in rows] == [
        (point["value"], point["peak_bytes"]) for point in found["points"]
    ]
    assert found["along"] == field
    for row in rows:
        assert row["capacity_bytes"] == "80000000000"
        assert row["fits"] == ("yes" if int(row["peak_bytes"]) <= 80_000_000_000 else "no")
        if field != "gpus":
            one = Run.from_json({**REQUEST, field: int(row[field])})
            assert peak_bytes(one) == int(row["peak_bytes"])


@pytest.mark.parametrize("over", ["sequence", "gpus"])
def test_the_picture_stands_alone(capsys: pytest.CaptureFixture[str], over: str) -> None:
    asked = (*SHARED[:-1], "a100-80gb", "--sequence", "1k", "--over", over)
    _, drawn, _ = curve(capsys, *asked, "--format", "svg")
    root = ElementTree.fromstring(drawn)
    assert root.tag == f"{SVG}svg"
    assert not [one for one in root.iter() if "class" in one.attrib or "style" in one.attrib]
    words = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    assert "NVIDIA A100 80 GB" in words
    last = json.loads(curve(capsys, *asked, "--json")[1])["last"]
    assert f"fits {'from' if over == 'gpus' else 'up to'} {last:,}" in words
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    for one in root.iter(f"{SVG}text"):
        assert 0 <= int(one.attrib["x"]) <= width
        assert 0 < int(one.attrib["y"]) <= height


def test_without_a_gpu_there_is_no_line_to_cross(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = curve(capsys, "--model", "gpt2", "--sequence", "512", "--gpu", "none")
    assert "No GPU chosen, so there is no line to cross." in out
    _, table, _ = curve(
        capsys, "--model", "gpt2", "--gpu", "none", "--sequence", "64", "--format", "csv"
    )
    assert table.splitlines()[1].endswith(",,")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--over layers", "--over: 'layers' cannot be used"),
        ("--format png", "--format: 'png' cannot be used"),
        ("--format csv --json", "--json: --format csv says otherwise"),
        ("--model nosuch", "nosuch"),
    ],
)
def test_a_mistake_is_named(capsys: pytest.CaptureFixture[str], arguments: str, said: str) -> None:
    status, out, err = curve(capsys, *arguments.split())
    assert (status, out) == (2, "")
    assert said in err
