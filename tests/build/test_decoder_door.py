"""The Decoder's door in a page: a whole run piece by piece, its verdicts, and its package."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from html import unescape

import pytest

import decoder_door
import decoder_package
import decoder_run
import decoder_tables
from decoder import Decoder, operations
from places import CALCULATOR

TENSORS = len(Decoder().parameters)


def ask(**request):
    return json.loads(decoder_door.answer(json.dumps(request)))


@pytest.fixture
def told():
    """What a page says that had the same run."""
    return {
        "counted": 2320,
        "textbook": 2496,
        "seed": 0,
        "losses": [decoder_tables.loss_text(loss) for loss in decoder_run.trained().losses],
    }


def run(told, *, steps="2", seed="0"):
    """Every piece of a run, the first being its beginning."""
    pieces = [ask(do="begin", steps=steps, seed=seed, page=told)]
    while not pieces[-1]["done"]:
        pieces.append(ask(do="next", run=pieces[-1]["run"]))
    return pieces


def parts(pieces):
    """What the page shows when all pieces have been put in their places."""
    shown: dict[str, str] = {}
    for piece in pieces:
        shown |= piece["html"]
    return shown | {"verdict": unescape(shown["verdict"])}


@pytest.fixture
def quick(monkeypatch):
    """Have the gradients checked already, where they are not what is tested."""
    monkeypatch.setattr(
        decoder_door, "gradient_checks", lambda **_: iter(decoder_run.trained().gradients)
    )


@pytest.mark.thorough
def test_a_run_shows_the_builds_own_tables(told):
    pieces = run(told)
    shown = parts(pieces)
    count, comparison = decoder_run.counted()
    assert shown["kept"] == decoder_tables.kept(count, comparison).html()
    assert shown["tape"] == decoder_tables.tape(count).html()
    assert shown["rows"] == decoder_tables.rows(comparison).html()
    assert shown["causes"] == decoder_tables.causes(comparison).html()
    assert shown["gradients"].count("<tr>") == 1 + TENSORS
    assert shown["gradients"].count("below 10⁻⁹") == 2 * TENSORS
    assert shown["verdict"].count("tm-fits") == 3
    assert "2,320 values kept, 2,496 by the formula." in shown["verdict"]
    assert "this page's table has the same" in shown["verdict"]
    assert "Steps 1 to 2 are those of this page's run" in shown["verdict"]


def test_a_run_comes_in_small_pieces(told, quick):
    pieces = run(told, steps="3")
    # The beginning, each step, the count, each tensor.
    assert len(pieces) == 1 + 3 + 1 + TENSORS
    shares = [piece["share"] for piece in pieces]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    assert [piece["progress"][:11] for piece in pieces[1:4]] == [
        "Step 1 of 3",
        "Step 2 of 3",
        "Step 3 of 3",
    ]
    # The line that is read aloud changes with what is done, not with every piece of it.
    assert len({piece["said"] for piece in pieces}) == 5
    assert all(piece["html"]["curve"].count("<svg") == 2 for piece in pieces[1:4])
    # The count is shown before the gradients are checked.
    assert "2,320" in pieces[4]["html"]["kept"]


def test_a_run_begins_with_nothing_of_the_last_one(told, quick):
    begun = ask(do="begin", steps=1, seed=0, page=told)["html"]
    assert set(begun) == set(parts(run(told, steps="1")))
    assert set(begun.values()) == {""}


def test_another_count_on_the_page_is_told(told, quick):
    verdict = parts(run(told | {"counted": 2321}))["verdict"]
    assert "But this page's table has 2,321 and 2,496." in verdict
    assert verdict.count("tm-too-much") == 1


def test_another_loss_on_the_page_is_told(told, quick):
    told["losses"][1] = "1.000"
    verdict = parts(run(told))["verdict"]
    assert "Step 2 is the first that differs" in verdict


def test_another_seed_has_losses_of_its_own_and_the_same_count(told, quick):
    pieces = run(told, seed="7")
    verdict = parts(pieces)["verdict"]
    assert "this run's own" in verdict
    assert "2,320 values kept" in verdict
    assert verdict.count("tm-fits") == 2
    assert "broad and pale" not in pieces[1]["html"]["curve"]
    assert pieces[1]["progress"] != run(told)[1]["progress"]


@pytest.mark.thorough
def test_a_wrong_gradient_is_told(told, monkeypatch):
    monkeypatch.setattr(operations, "_normal_density", lambda x: 0.0)
    verdict = parts(run(told, steps="1"))["verdict"]
    assert "A gradient is wrong." in verdict
    assert "errors below 10⁰" in verdict or "errors below 10³" in verdict


def test_everything_that_cannot_be_is_refused_at_once(told):
    refused = ask(do="begin", steps="many", seed="-1", page=told)
    assert refused["ok"] is False
    assert [error["field"] for error in refused["errors"]] == ["steps", "seed"]
    assert refused["errors"][0]["reason"].startswith(
        "many cannot be used: a whole number, 1 to 500"
    )
    assert refused["errors"][1]["reason"].startswith("-1 cannot be used: a whole number, 0 to")


def test_a_run_ends_when_it_is_stopped_or_another_begins(told):
    first = ask(do="begin", steps=5, seed=0, page=told)["run"]
    second = ask(do="begin", steps=5, seed=0, page=told)["run"]
    assert ask(do="next", run=first) == {"ok": False, "errors": []}
    assert ask(do="next", run=second)["progress"].startswith("Step 1 of 5")
    stopped = ask(do="stop", run=second)
    assert stopped["done"]
    assert stopped["html"] == {}
    assert ask(do="next", run=second) == {"ok": False, "errors": []}


def test_the_package_holds_what_a_page_can_use():
    names = zipfile.ZipFile(io.BytesIO(decoder_package.packed())).namelist()
    assert {"decoder/__init__.py", "decoder/tape.py", "decoder_door.py", "table.py"} <= set(names)
    assert not [name for name in names if "torch" in name or "__main__" in name]
    assert all(name.endswith(".py") for name in names)


def test_the_package_is_the_same_bytes_from_the_same_sources():
    assert decoder_package.packed() == decoder_package.packed()


def test_the_package_stands_on_the_calculator_alone(told, tmp_path):
    """Nothing but the zip, the calculator and the standard library is in reach."""
    archive = tmp_path / "decoder.zip"
    archive.write_bytes(decoder_package.packed())
    program = """
import json, sys
sys.path[:0] = sys.argv[1:3]
import decoder_door
ask = lambda **request: json.loads(decoder_door.answer(json.dumps(request)))
begun = ask(do="begin", steps=1, seed=0, page=json.loads(sys.argv[3]))
ask(do="next", run=begun["run"])
print(ask(do="next", run=begun["run"])["html"]["kept"])
"""
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            program,
            str(archive),
            str(CALCULATOR),
            json.dumps(told),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("2,320") == 1, done.stderr
