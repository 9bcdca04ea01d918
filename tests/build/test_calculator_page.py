"""The calculator's macro: whole in the page's Markdown, with Python's place and size told."""

import html
import json
import re
from pathlib import Path

import pytest

import calculator_page
from training_memory.errors import InputError

MANIFEST = {
    "pyodide": {
        "version": "1",
        "info": {"python": "3.13.2"},
        "base": "assets/runtime/pyodide-1/",
    },
    "library": "assets/runtime/library-1.zip",
    "package": {"version": "1", "path": "assets/runtime/package-1.zip"},
    "snapshot": {"path": "assets/runtime/memory-1.bin", "memory": 2, "whole": 3},
    "starts": {
        "quick": {"files": {"assets/runtime/memory-1.bin": 9_000_000}, "gzip_bytes": 5_400_000},
        "plain": {"files": {"assets/runtime/package-1.zip": 1_000_000}, "gzip_bytes": 6_000_000},
    },
    "apart": {"files": {"path": "assets/runtime/files-1.zip"}},
}


@pytest.fixture
def laid_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST), encoding="utf-8")
    monkeypatch.setattr(calculator_page, "RUNTIME", tmp_path)


@pytest.mark.usefixtures("laid_out")
def test_the_page_holds_the_answer_and_tells_what_a_change_costs():
    made = calculator_page.calculator()
    assert "needs <strong>199.5\u00a0GB</strong>" in made
    assert "a change loads Python, 5.4 MB, once" in made
    assert not re.search(r"\n\s*\n", made), "a blank line would end the block"


@pytest.mark.usefixtures("laid_out")
def test_the_script_is_told_where_python_is():
    (packed,) = re.findall(r'data-runtime="([^"]+)"', calculator_page.calculator())
    assert json.loads(html.unescape(packed)) == {
        "pyodide": "assets/runtime/pyodide-1/",
        "info": {"python": "3.13.2"},
        "library": "assets/runtime/library-1.zip",
        "package": "assets/runtime/package-1.zip",
        "files": "assets/runtime/files-1.zip",
        "snapshot": MANIFEST["snapshot"],
        "starts": {
            "quick": {"assets/runtime/memory-1.bin": 9_000_000},
            "plain": {"assets/runtime/package-1.zip": 1_000_000},
        },
        "size": 5_400_000,
    }


@pytest.mark.usefixtures("laid_out")
def test_several_on_a_page_have_ids_of_their_own():
    first, second = (calculator_page.calculator(name=name) for name in ("tm", "other"))
    ids = [set(re.findall(r' id="([^"]+)"', made)) for made in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]


@pytest.mark.usefixtures("laid_out")
def test_a_preset_that_there_is_not_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="llama-7b"):
        calculator_page.calculator("lama-7b")


def test_without_a_runtime_the_command_that_makes_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(calculator_page, "RUNTIME", tmp_path)
    with pytest.raises(FileNotFoundError, match="make site"):
        calculator_page.calculator()
