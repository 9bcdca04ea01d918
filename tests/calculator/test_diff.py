"""Two runs side by side: what differs is told, and adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from strategies import requests
from training_memory import Run, estimate
from training_memory.cli import main
from training_memory.diff import Difference, Parting, diff
from training_memory.events import expand
from training_memory.render.difference_text import difference_text
from training_memory.render.terminal import Terminal


def of(left: dict[str, Any], changed: dict[str, Any]) -> Difference:
    return diff(estimate(Run.from_json(left)), estimate(Run.from_json({**left, **changed})))


def named(found: Difference, words: str) -> Parting:
    (one,) = [one for one in found.partings if words in one.label]
    return one


def test_twice_the_sequence_is_twice_the_rows_and_four_times_the_scores():
    """Korthikanti et al. 2022, §4.1: 2·s·b·h of queries, 2·a·s²·b of the softmax's output."""
    found = of({"model": "llama-7b", "sequence": 2048}, {"sequence": 4096})
    assert [one.to_json() for one in found.settings] == [
        {"field": "sequence", "left": 2048, "right": 4096}
    ]
    for words, formula, left in (
        ("keeps queries", "2·s·b·h", 2 * 2048 * 4096),
        ("keeps softmax output", "2·a·s²·b", 2 * 32 * 2048**2),
    ):
        one = named(found, words)
        assert one.left is not None
        assert one.right is not None
        assert (one.left.formula, one.right.formula) == (formula, formula)
        factor = 4 if "s²" in formula else 2
        assert (one.left.bytes, one.right.bytes) == (left, factor * left)
        assert (one.left.times, one.right.times) == (32, 32)
        assert one.reason == "s 2,048 → 4,096"


def test_more_layers_make_the_same_tensors_more_often():
    found = of({"model": "llama-7b"}, {"shape": {"layers": 40}})
    one = named(found, "keeps softmax output")
    assert one.reason == "32 → 40 times a step"
    assert one.change_bytes == 8 * 2 * 32 * 4096**2


def test_a_loss_in_chunks_makes_no_fp32_logits_of_all_tokens():
    hugging_face = {
        "model": "llama-3-8b",
        "sequence": 8192,
        "implementation": "huggingface",
        "recipe": "bf16-adam",
        "recompute": "full",
    }
    found = of(hugging_face, {"loss": "chunked"})
    label = "the loss: logits in fp32 (loss)"
    one = next(one for one in found.partings if one.label == label)
    assert one.right is None
    assert one.left is not None
    assert (one.left.bytes, one.left.formula) == (4 * 8192 * 128256, "4·s·b·V")
    assert one.reason == "only the first run makes it"
    layers = [one for one in found.partings if "forward pass of each layer" in one.label]
    assert not layers


def test_what_only_one_run_keeps_is_told_as_such():
    run = {"model": "llama-3-8b", "implementation": "huggingface", "recipe": "bf16-adam"}
    found = of(run, {"recompute": "full"})
    gate = named(found, "forward pass of each layer: gate (mlp)")
    assert gate.left is not None
    assert gate.right is not None
    assert (gate.left.kept, gate.right.kept) == (True, False)
    assert gate.reason == "kept for the backward pass in the first run only"
    assert gate.weight == 32 * 2 * 4096 * 14336


def test_recomputation_drops_what_layers_keep_and_makes_it_again():
    found = of({"model": "llama-7b"}, {"recompute": "full"})
    assert named(found, "keeps softmax output").right is None
    assert named(found, "makes softmax output again").left is None
    assert found.change_bytes == 110_690_025_216 - 199_539_351_552  # CHANGELOG's first values


def test_the_textbook_and_a_library_have_no_tensors_in_common():
    found = of({"model": "llama-7b"}, {"implementation": "huggingface"})
    assert not found.comparable
    assert not found.partings
    # What only a library has a switch for goes with the implementation.
    assert [one.field for one in found.settings] == ["implementation"]
    assert "Choose the same implementation" in difference_text(found, Terminal(width=160)).replace(
        "\n  ", " "
    )


def test_a_model_of_another_shape_is_told_field_by_field():
    found = of({"model": "llama-2-7b"}, {"model": "llama-2-13b"})
    assert {one.field for one in found.settings} == {
        "model",
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "ffn",
    }


@given(requests(), requests())
@settings(max_examples=60)
def test_any_two_runs_can_be_told_apart(one, other):
    left, right = estimate(Run.from_json(one)), estimate(Run.from_json(other))
    found, back = diff(left, right), diff(right, left)
    assert found.change_bytes == right.worst.peak_bytes - left.worst.peak_bytes
    assert sum(total[3] for total in found.totals) == left.worst.peak_bytes
    assert sum(total[4] for total in found.totals) == right.worst.peak_bytes
    assert found.alike == back.alike
    assert sorted(one.change_bytes for one in found.partings) == sorted(
        -one.change_bytes for one in back.partings
    )
    assert json.dumps(found.to_json())
    assert difference_text(found, Terminal()).endswith("\n")
    if left.run.implementation == "paper" == right.run.implementation:
        taken = [
            sum(event.bytes for event, _ in expand(side.worst.tree) if event.bytes > 0)
            for side in (left, right)
        ]
        assert sum(one.change_bytes for one in found.partings) == pytest.approx(
            taken[1] - taken[0], abs=len(found.partings) * left.run.model.layers * 64
        )


@given(requests())
@settings(max_examples=30)
def test_a_run_does_not_differ_from_itself(request_json):
    found = diff(*(estimate(Run.from_json(request_json)) for _ in range(2)))
    assert (found.settings, found.partings, found.change_bytes) == ((), (), 0)
    assert found.alike > 0


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def said(capsys):
    def run(*arguments: str) -> dict[str, Any]:
        assert main(["diff", *arguments, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def test_two_runs_are_named_in_every_way(said, tmp_path, capsys):
    assert main(["estimate", "--model", "llama-7b", "--json"]) == 0
    first = tmp_path / "first.json"
    first.write_text(capsys.readouterr().out, encoding="utf-8")
    second = tmp_path / "second.json"
    second.write_text(json.dumps({"model": "llama-7b", "recompute": "full"}), encoding="utf-8")
    wanted = [{"field": "recompute", "left": "none", "right": "full"}]
    link = "https://example.org/calculator/#model=llama-7b&sequence=4096"
    for words in (
        [str(first), str(second)],
        [str(first), "#model=llama-7b&recompute=full"],
        [link, str(second)],
        [str(first), "--", "--recompute", "full"],
        ["--", "--recompute", "full"],
        ["--run", str(first), "--", "--recompute", "full"],
        ["--model", "llama-7b", "--", "--recompute=full"],
    ):
        found = said(*words) if "--" not in words else _before(said, words)
        assert found["settings"] == wanted, words


def _before(said: Any, words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = said(*words)
    return found


def test_a_changed_model_brings_its_own_shape(said):
    found = said("--model", "llama-7b", "--layers", "8", "--", "--model", "llama-3-8b")
    layers = [one for one in found["settings"] if one["field"] == "layers"]
    assert layers == [{"field": "layers", "left": 8, "right": 32}]
    found = said(
        "--implementation", "huggingface", "--loss", "chunked", "--", "--implementation", "paper"
    )
    assert [one["field"] for one in found["settings"]] == ["implementation"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a.json"], "a second run is needed"),
        ([], "a second run is needed"),
        (["--model", "llama-7b"], "a second run is needed"),
        (["a.json", "b.json", "--", "--recompute", "full"], "name two runs"),
        (["#model=llama-7b", "b.json", "--sequence", "4"], "name two runs"),
        (["#model=lama-7b", "--", "--recompute", "full"], "Did you mean llama-7b"),
        (["--", "--recompute", "fulll"], "Did you mean full"),
        (["--", "b.json"], "after -- come flags"),
        (["nosuch.json", "--", "--recompute", "full"], "there is no such file"),
        (["#model=llama-7b&colour=red", "--", "--recompute", "full"], "colour"),
        (["--model", "llama-7b", "--", "--micro-bach", "2"], "there is no such flag"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(words, complaint, capsys):
    assert main(["diff", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_the_text_says_what_is_set_what_it_comes_to_and_where_they_part(capsys):
    assert main(["diff", "--model", "llama-7b", "--", "--recompute", "full", "--units", "GiB"]) == 0
    text = capsys.readouterr().out
    for words in ("recompute  none  full", "at the peak, in GiB", "Where they part", "2·a·s²·b"):
        assert words in text
