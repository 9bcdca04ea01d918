"""The planner's door: slices of one search, its answer, and what it refuses."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from training_memory import plan_door
from training_memory.fit import Found, finding
from training_memory.render.plan import found
from training_memory.run import Run

STATE = "model=llama-7b&sequence=2048&gpu=80gb"


def ask(turn: int = 0, /, **request: object) -> dict[str, Any]:
    asked = {"state": STATE, "gpus": "8", "batch": "", "turn": turn, **request}
    told: dict[str, Any] = json.loads(plan_door.answer(json.dumps(asked)))
    return told


def to_the_end(**request: object) -> tuple[list[str], str]:
    said = []
    told = ask(**request)
    while not told["done"]:
        said.append(told["said"])
        told = ask(len(said), **request)
    return said, told["html"]


def test_slices_come_to_what_the_whole_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_door, "SLICE_SECONDS", 0.0)
    said, html = to_the_end()
    assert len(said) > 5
    begun = said.index("Looking for the fewest GPUs …")
    assert all("plans tried" in words for words in said[:begun] + said[begun + 1 :])
    run = Run.from_json({"model": "llama-7b", "sequence": 2048})
    *_, whole = finding(run, gpus=8, batch=8)
    assert isinstance(whole, Found)
    assert html == found(whole)
    monkeypatch.setattr(plan_door, "SLICE_SECONDS", 60.0)
    # The plan is shown as soon as there is one, and what takes longer when it is there.
    first, last = ask(), ask(1)
    assert (first["done"], last["done"]) == (False, True)
    assert last["html"] == html
    assert first["html"] == html.replace(f"<dd>{whole.fewest}</dd>", "<dd>…</dd>", 1)


def test_another_question_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_door, "SLICE_SECONDS", 0.0)
    ask()
    ask(1)
    assert ask(2, gpus="4")["said"] == ask(gpus="4")["said"]


def test_what_is_allowed_is_asked_for() -> None:
    state = "model=llama-3-8b&implementation=huggingface&recipe=autocast-adam&sequence=2048"
    asked = {"state": f"{state}&gpu=rtx-4090-24gb", "gpus": "1"}
    _, html = to_the_end(**asked)
    assert "No plan fits on 1 GPU" in html
    _, html = to_the_end(**asked, allow=["adapters"])
    assert "QLoRA: adapters beside frozen weights in 4 bits" in html
    assert "Paid with: the weights themselves are not trained" in html


def test_sizes_are_in_the_readers_unit() -> None:
    _, html = to_the_end(state=f"{STATE}&units=GiB")
    assert " GiB" in html
    # A data sheet's rates are decimal.
    assert " GB" not in re.sub('<details class="tm-cost-model">.*?</details>', "", html)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"gpus": "none"}, "GPUs: none cannot be used"),
        ({"batch": "0"}, "Sequences a step: 0 cannot be used"),
        ({"state": "model=llama-7b&gpu=none"}, "GPU: choose one"),
        ({"state": "model=lama"}, "model: lama cannot be used"),
    ],
)
def test_what_cannot_be_is_said(request_: dict[str, str], said: str) -> None:
    told = ask(**request_)
    assert told["ok"] is False
    assert said in told["said"]
