"""Two runs side by side: what differs is told, and adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from strategies import requests
from training_memory import Run, estimate
from training_memory.abreast import abreast
from training_memory.cli import main
from training_memory.diff import Difference, diff
from training_memory.events import Event, Group, Node, Repeat, expand
from training_memory.parting import Parting
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
    (sequence,) = found.settings
    assert (sequence.field, sequence.left, sequence.right) == ("sequence", 2048, 4096)
    assert sequence.alone_bytes == found.right.worst.peak_bytes
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


def test_fields_that_one_way_of_sharding_has_are_no_difference():
    found = of(
        {"model": "gpt2", "sequence": 1024, "implementation": "huggingface", "data": 4},
        {"sharding": "fsdp2"},
    )
    assert {setting.field for setting in found.settings} <= {"sharding", "zero", "recipe"}


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


@pytest.mark.thorough
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


# --- event by event ----------------------------------------------------------------------------

HUGGING_FACE = {
    "model": "llama-3-8b",
    "sequence": 8192,
    "implementation": "huggingface",
    "recipe": "bf16-adam",
}


def event(found: Difference, words: str) -> Parting:
    (one,) = [one for one in found.events if words in one.label]
    return one


def in_order(node: Node, times: int = 1) -> list[tuple[str, int, int]]:
    """Each event of a tree once: its label, its bytes and how often it comes."""
    if isinstance(node, Event):
        return [(node.label, node.bytes, times)]
    if isinstance(node, Repeat):
        return in_order(node.child, times * node.count) if node.count else []
    assert isinstance(node, Group)
    return [one for child in node.children for one in in_order(child, times)]


@given(requests(), requests())
@settings(max_examples=40)
def test_each_event_of_both_steps_is_in_one_pair(one, other):
    trees = [estimate(Run.from_json(request)).worst.tree for request in (one, other)]
    pairs = abreast(*trees)
    assert len({pair.key for pair in pairs}) == len(pairs)
    right = [pair.right for pair in pairs if pair.right]
    left = [pair.left for pair in pairs if pair.left]
    for spots, tree, order in ((right, trees[1], list), (left, trees[0], sorted)):
        told = [(spot.event.label, spot.event.bytes, spot.times) for spot in spots]
        # What comes at another point in the first step stands where it comes in the second.
        assert order(told) == order(in_order(tree))
    differing = sum(pair.change_bytes for pair in pairs if not pair.alike)
    ends = [sum(size * times for _, size, times in in_order(tree)) for tree in trees]
    assert differing == ends[1] - ends[0]


@given(requests())
@settings(max_examples=40)
def test_what_is_held_before_each_event_is_what_the_step_has_made_by_then(request_json):
    tree = estimate(Run.from_json(request_json)).worst.tree
    held = 0
    first: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
    for played, counters in expand(tree):
        first.setdefault((id(played), tuple(counters.items())), held)
        held += played.bytes
    for pair in abreast(tree, tree):
        spot = pair.left
        assert spot is not None
        # The same counters in the same order as the way down the tree gives them.
        assert first[id(spot.event), tuple(spot.turns[0].items())] == spot.before_bytes


def test_the_first_event_at_which_two_steps_part_is_named():
    """A longer sequence leaves what stays from step to step alone; another optimizer does not."""
    longer = of(HUGGING_FACE, {"sequence": 16384}).events[0]
    assert longer.label == "the inputs: token ids is made and kept"
    assert longer.reason == "s 8,192 → 16,384"
    assert of(HUGGING_FACE, {"optimizer": "adamw-8bit"}).events[0].label == "first moment"
    paper = of({"model": "llama-7b", "sequence": 2048}, {"sequence": 4096}).events[0]
    assert paper.label == "layers 1 to 32 keeps first layer norm's input"


def test_each_event_that_differs_names_the_field_that_makes_it():
    """2·a·s²·b of the softmax needs both; the logits 6·s·b·V know of no recomputation."""
    found = of({"model": "llama-7b", "sequence": 2048}, {"sequence": 4096, "recompute": "full"})
    assert {one.field for one in found.settings} == {"sequence", "recompute"}
    logits = event(found, "the logits are freed")
    assert logits.fields == ("sequence",)
    assert logits.left is not None
    assert logits.right is not None
    assert (logits.left.bytes, logits.right.bytes) == (
        -6 * 2048 * 32000,
        -6 * 4096 * 32000,
    )
    kept = event(found, "keeps softmax output")
    assert kept.fields == ("sequence", "recompute")
    assert kept.right is None
    again = event(found, "makes softmax output again")
    assert again.left is None
    assert again.fields == ("recompute",)
    alone = {one.field: one.alone_bytes for one in found.settings}
    for field, value in (("sequence", 4096), ("recompute", "full")):
        single = of({"model": "llama-7b", "sequence": 2048}, {field: value})
        assert alone[field] == single.right.worst.peak_bytes


def test_what_takes_two_fields_at_once_is_the_doing_of_both():
    """A layer of a further micro-batch that is made again is there with neither field alone."""
    found = of({"model": "llama-7b"}, {"recompute": "full", "micro_batches": 4})
    again = [one for one in found.events if "makes softmax output again" in one.label]
    assert [one.fields for one in again] == [
        ("recompute",),
        ("micro_batches", "recompute"),
        ("micro_batches", "recompute"),
    ]
    assert [one.right and one.right.times for one in again] == [32, 32, 2 * 32]
    assert again[2].label.endswith("of micro-batches 3 to 4")


def test_fields_that_cannot_be_changed_alone_are_changed_together():
    """40 heads do not divide a width of 4,096, nor 40 of keys and values go with 32."""
    found = of({"model": "llama-2-7b"}, {"model": "llama-2-13b"})
    alone = {one.field: one.alone_bytes for one in found.settings}
    assert alone["heads"] is alone["kv_heads"] is None
    assert alone["layers"] is not None
    assert named(found, "keeps softmax output").fields == ("layers", "heads", "kv_heads")
    assert named(found, "keeps GELU's input").fields == ("layers", "hidden")


def test_nobody_asks_why_and_nothing_is_estimated_for_it():
    left = Run.from_json({"model": "llama-7b", "sequence": 2048})
    right = Run.from_json({"model": "llama-7b", "sequence": 4096, "recompute": "full"})
    found = diff(estimate(left), estimate(right), why=False)
    assert not any(one.fields for one in found.events)
    assert all(one.alone_bytes is None for one in found.settings)
    whole = diff(estimate(left), estimate(right))
    assert [one.label for one in found.events] == [one.label for one in whole.events]


@given(requests())
@settings(max_examples=30)
def test_a_run_does_not_differ_from_itself(request_json):
    found = diff(*(estimate(Run.from_json(request_json)) for _ in range(2)))
    assert (found.settings, found.events, found.partings, found.change_bytes) == ((), (), (), 0)
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
    wanted = {"field": "recompute", "left": "none", "right": "full"}
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
        (one,) = found["settings"]
        assert one.items() >= wanted.items(), words


def _before(said: Any, words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = said(*words)
    return found


def test_a_changed_model_brings_its_own_shape(said):
    found = said("--model", "llama-7b", "--layers", "8", "--", "--model", "llama-3-8b")
    layers = [one for one in found["settings"] if one["field"] == "layers"]
    assert [(one["left"], one["right"]) for one in layers] == [(8, 32)]
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


def test_every_event_that_differs_is_listed_when_asked_for(capsys):
    words = ["diff", "--model", "llama-7b", "--", "--recompute", "full"]
    assert main([*words, "--json"]) == 0
    events = json.loads(capsys.readouterr().out)["events"]
    assert main([*words, "--events"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for one in events:
        assert one["label"] in text
    assert text.index("Event by event: forward") < text.index("Event by event: backward")


def test_the_text_says_what_is_set_what_it_comes_to_and_where_they_part(capsys):
    assert main(["diff", "--model", "llama-7b", "--", "--recompute", "full", "--units", "GiB"]) == 0
    text = capsys.readouterr().out
    for words in ("recompute  none  full", "at the peak, in GiB", "Where they part", "2·a·s²·b"):
        assert words in text
