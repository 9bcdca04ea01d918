"""Recordings: a few layers stand for many, every byte is given back, and every event has words."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import sweep
from traced import Case, whole
from training_memory.autograd.memory import Facts
from training_memory.categories import CATEGORIES, Category
from training_memory.events import Repeat, expand
from training_memory.kept import Kind, kept_rows
from training_memory.layouts import layout_of, rounded
from training_memory.recorded import sizes_of
from training_memory.recording import MOST, Recording, record, recording_of
from training_memory.running import Running, signed
from training_memory.walk import walk, walk_expanded

#: A small shape for every family, so that vocabulary and layers both matter.
SMALL = "hidden=512 heads=8 kv_heads=2 head_dim=64 ffn=1376 vocabulary=2048"
CLASSIC = "hidden=512 heads=8 ffn=1376 vocabulary=2048"
EXPERTS = SMALL.replace("ffn", "expert_ffn") + " experts=4 experts_per_token=2"
FAMILIES = {
    "gpt2": ("huggingface", "gpt2", CLASSIC),
    "llama": ("huggingface", "llama-3-8b", SMALL),
    "qwen3": ("huggingface", "qwen3-0.6b", SMALL),
    "mixtral": ("huggingface", "mixtral-8x7b", EXPERTS),
    "gemma2": ("huggingface", "gemma-2-2b", SMALL),
    "gemma3": ("huggingface", "gemma-3-1b", SMALL),
    "phi3": ("huggingface", "phi-3-mini", SMALL),
    "olmo2": ("huggingface", "olmo-2-7b", SMALL),
    "plain-llama": ("torchtitan", "llama-3-8b", SMALL),
    "classic-gpt": ("paper", "gpt2", CLASSIC),
}
RECOMPUTES = ("none", "selective", "full", "matmuls")
PRECISIONS = ("fp32", "autocast", "bf16", "master-fp32-grad")


def case(family: str, layers: int = 3, **choices: object) -> Case:
    """A small step of a family."""
    implementation, model, shape = FAMILIES[family]
    return Case(
        {
            "implementation": implementation,
            "model": model,
            "shape": f"{shape} layers={layers}",
            "sequence": 256,
            "micro_batch": 2,
            "precision": "bf16",
            "attention": "flash",
            "recompute": "none",
            "optimizer": "adamw-fused",
            "clip": "no",
            **choices,
        }
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A small step of any kind."""
    loss = draw(st.sampled_from(["full", "chunked", "fused-linear"]))
    held = loss == "full" and draw(st.booleans())
    return case(
        draw(st.sampled_from(sorted(FAMILIES))),
        draw(st.integers(1, 9)),
        sequence=draw(st.integers(1, 40)) * 128,
        micro_batch=draw(st.integers(1, 3)),
        micro_batches=draw(st.integers(1, 4)),
        precision=draw(st.sampled_from(PRECISIONS)),
        attention=draw(st.sampled_from(["flash", "eager"])),
        recompute=draw(st.sampled_from(RECOMPUTES)),
        loss=loss,
        hold_logits="yes" if held else "no",
    )


def played(recording: Recording, sizes: list[int]) -> tuple[object, ...]:
    """A recording played: the peak, its parts, the most of each category, what remains."""
    now = [0] * len(CATEGORIES)
    largest = list(now)
    peak, parts = 0, tuple(now)
    for section in recording.sections:
        for place, code in zip(section.running.places, section.running.codes, strict=True):
            category = code // 2
            now[category] += sizes[place] if place >= 0 else -sizes[~place]
            largest[category] = max(largest[category], now[category])
            if sum(now) > peak:
                peak, parts = sum(now), tuple(now)
    return peak, parts, tuple(largest), tuple(now)


def composed_and_whole(one: Case) -> None:
    """What a few layers and chunks are composed to is what all of them come to."""
    found = walk(whole(one))
    repeats = one.repeats
    everything = record(one.structure, repeats["layer"], repeats["chunk"], one.micro_batches)
    assert (found.peak, found.parts, found.largest, found.remains) == played(
        everything, sizes_of(everything, one.values)
    )


@pytest.mark.parametrize("layers", [1, 2, 3, 4, pytest.param(9, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("family", sweep(FAMILIES, one_in=3))
def test_three_layers_stand_for_any_number(family, layers):
    for recompute, precision, attention in (
        ("none", "bf16", "flash"),
        ("selective", "fp32", "flash"),
        ("full", "autocast", "eager"),
        ("matmuls", "autocast", "flash"),
    ):
        composed_and_whole(
            case(family, layers, recompute=recompute, precision=precision, attention=attention)
        )


@pytest.mark.thorough
@given(cases())
@settings(max_examples=20)
def test_a_recording_composes_to_any_run(one):
    composed_and_whole(one)


@given(cases())
@settings(max_examples=8)
def test_the_walk_is_every_event_played(one):
    tree = whole(one)
    found, expanded = walk(tree), walk_expanded(tree)
    assert (found.peak, found.parts, found.largest, found.remains) == (
        expanded.peak,
        expanded.parts,
        expanded.largest,
        expanded.remains,
    )


@given(cases())
@settings(max_examples=20)
def test_only_gradients_the_batch_and_held_logits_are_left(one):
    remains = dict(zip(CATEGORIES, walk(whole(one)).remains, strict=True))
    structure, values = one.structure, one.values
    layout = layout_of(one.model, structure.implementation)
    item_bytes = {"fp32": 4, "bf16": 2}[structure.weights]
    everything = (*layout.first, *layout.layer * layout.layers, *layout.last)
    gradients = sum(rounded(weight.numel * item_bytes) for weight in everything)
    batch = 2 * rounded(8 * values["s"] * values["b"])
    logits = values["s"] * values["b"] * values["V"]
    # transformers' wrapper of an autocast model returns fp32; the plain ones give bf16.
    wrapped = structure.autocast and structure.implementation == "huggingface"
    wide = wrapped or (structure.weights == "fp32" and not structure.autocast)
    held = rounded(logits * (4 if wide else 2)) if structure.held_logits else 0
    assert {category: size for category, size in remains.items() if size} == {
        category: size
        for category, size in (
            (Category.GRADIENTS, 0 if structure.drops_gradients else gradients),
            (Category.ACTIVATIONS, batch),
            (Category.LOGITS, held),
        )
        if size
    }


@pytest.mark.parametrize(("family", "recompute"), list(product(FAMILIES, RECOMPUTES)))
def test_what_a_layer_keeps_is_what_its_forward_pass_leaves(family, recompute):
    one = case(family, 5, recompute=recompute)
    sized = one.sized
    forward, _ = sized.micro_batch(0)
    (middle,) = (
        walk(node.child)
        for node in forward.children
        if isinstance(node, Repeat) and node.count == 5 - MOST + 1
    )
    rows = kept_rows(one.recording, one.values)
    kept = sum(rounded(row.bytes) for row in rows if row.kind is Kind.KEPT)
    assert sum(middle.remains) == kept


def test_full_recomputation_keeps_a_layers_input():
    (row,) = kept_rows(case("llama", recompute="full").recording, case("llama").values)
    assert row.bytes == 2 * 256 * 2 * 512
    assert "again" in " ".join(row.why)


def test_a_recording_is_made_once_for_all_sizes():
    small, large = case("llama", 5), case("llama", 80, sequence=4096)
    assert small.recording is large.recording
    assert len(small.recording.facts) == len(record(small.structure, MOST).facts)


def test_a_recording_is_no_longer_for_more_layers_chunks_or_micro_batches():
    few = case("llama", 3, loss="chunked", sequence=2048, micro_batches=2)
    many = case("llama", 99, loss="chunked", sequence=131072, micro_batches=64)
    assert few.structure == many.structure
    repeats = {"layer": 3, "chunk": 3}
    assert many.recording is recording_of(few.structure, repeats)


@given(cases())
@settings(max_examples=5)
def test_every_event_says_what_where_and_why(one):
    for event, counters in expand(whole(one)):
        assert event.label
        assert event.why.endswith(".")
        assert event.moment.startswith("in ")
        for name in ("layer", "chunk", "forward", "backward"):
            if f"{{{name}}}" in event.moment:
                assert name in counters


@given(
    st.lists(st.integers(1, 100), min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=30),
)
def test_running_totals_are_the_moves_played(sizes, moves):
    running = Running(
        [storage if comes else ~storage for storage, _, comes in moves],
        tuple(2 * category + comes for _, category, comes in moves),
    )
    found = running.sum(signed(sizes))
    now = [0] * len(CATEGORIES)
    largest = list(now)
    peak, parts, at = 0, tuple(now), -1
    for index, (storage, category, comes) in enumerate(moves):
        now[category] += sizes[storage] if comes else -sizes[storage]
        largest = [max(most, here) for most, here in zip(largest, now, strict=True)]
        if sum(now) > peak:
            peak, parts, at = sum(now), tuple(now), index
    assert (found.peak, found.parts, found.at) == (peak, parts, at)
    assert (found.remains, found.largest) == (tuple(now), tuple(largest))


def test_a_structure_tells_kernels_apart():
    def kernel(model: str, precision: str, attention: str = "flash") -> str:
        one = case(model, precision=precision, attention=attention)
        return one.structure.kernel

    assert kernel("llama", "bf16") == "flash"
    assert kernel("llama", "fp32") == "math"
    assert kernel("plain-llama", "fp32") == "efficient"
    assert kernel("gpt2", "fp32") == "efficient"
    assert kernel("llama", "bf16", "eager") == "eager"
    assert kernel("gemma2", "bf16") == "eager"


def test_a_fact_has_its_size_in_symbols():
    facts = next(one for one in case("llama").recording.facts if one.name == "logits")
    assert isinstance(facts, Facts)
    assert facts.bytes.text() == "2·s·b·V"
