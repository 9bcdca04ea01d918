"""The door of a job that died: an error explained by the run that is shown, a slice at a time."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest

import later
from training_memory import controls, oom_door, recording, slices, web
from training_memory.estimate import estimate
from training_memory.oom import explain
from training_memory.run import Run

ERROR = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 1.21 GiB is free. Of the allocated memory 74.00 GiB is "
    "allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
)
STATE = "model=llama-3-8b&sequence=8192&implementation=huggingface&recipe=bf16-adam"
TEXTBOOK = "model=llama-3-8b&sequence=8192&recipe=bf16-adam"


def ask(state: str = STATE, error: str = ERROR) -> dict[str, Any]:
    return later.answered(oom_door.answer, state=state, error=error)


def buttons(found: dict[str, Any]) -> list[str]:
    return [unescape(fields) for fields in re.findall(r'data-set="([^"]+)"', found["html"])]


def run_of(state: str) -> Run:
    return controls.read(controls.parse(state))


def test_an_error_is_explained_by_the_run_that_is_shown() -> None:
    found = ask()
    assert "4·s·b·V = 4 × 8,192 × 1 × 128,256" in found["html"]
    (button,) = buttons(found)
    request = {"state": STATE, "set": dict(parse_qsl(button))}
    changed = json.loads(web.answer(json.dumps(request)))
    assert changed["ok"]
    room = explain(ERROR, estimate(run_of(STATE))).room_bytes
    assert room is not None
    assert changed["estimate"]["peak"]["bytes"] <= room


def test_the_textbooks_run_is_searched_as_a_library_runs_it_and_so_is_the_change() -> None:
    assert explain(ERROR, estimate(run_of(TEXTBOOK))).other_step
    found = buttons(ask(state=TEXTBOOK))
    assert found
    assert all("implementation=huggingface" in fields for fields in found)


def test_nothing_is_said_of_nothing_and_a_text_without_an_error_is_named_so() -> None:
    assert ask(error="  ")["html"] == ""
    assert "looked for" in ask(error="hello <b>")["html"]
    assert ask(state="sequence=0") == {"ok": False}


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script> OutOfMemoryError: <b>", "MemoryError &lt;"]
)
def test_nothing_of_a_pasted_text_is_markup(text: str) -> None:
    found = ask(state="model=llama-7b", error=text)["html"]
    assert "<script" not in found
    assert "<b>" not in found


def test_slices_come_to_what_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left off at every step, with another run answered and another text read in between."""
    whole = ask()
    monkeypatch.setattr(slices, "SECONDS", 0.0)
    monkeypatch.setattr(recording, "_known", {})
    turns, told = 0, {"done": False}
    while not told["done"]:
        request = {"state": STATE, "error": ERROR, "prefix": "tm", "turn": turns}
        told = json.loads(oom_door.answer(json.dumps(request)))
        turns += 1
        if turns % 20 == 0:
            assert json.loads(web.answer(json.dumps({"state": "model=gpt2&sequence=512"})))["ok"]
            other = {**request, "error": "CUDA out of memory", "prefix": "other", "turn": 0}
            assert json.loads(oom_door.answer(json.dumps(other)))["ok"]
    assert told == whole
    # At least one for each tensor of the step, and one for each change that is tried.
    assert turns > 200
