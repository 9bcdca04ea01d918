"""DeepSpeed's passes over many layers: rounds that repeat are passed over, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from training_memory.deepspeed import step
from training_memory.deepspeed.scores import played, scores
from training_memory.errors import InputErrors
from training_memory.events import Group, Node, Repeat, place
from training_memory.outline import outline
from training_memory.recorded_step import optimizer_id, sized
from training_memory.recording import Section
from training_memory.run import Run
from training_memory.timeline import timeline
from training_memory.walk import Strip, walk, walk_expanded
from training_memory.weaving import Rounds
from woven import everything, parts

_BUCKETS = st.one_of(
    st.just("auto"), st.integers(1, 2_000_000), st.integers(10_000_000, 600_000_000)
)
_SHAPES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 200),
        "hidden": st.sampled_from([64, 120, 200, 512, 1000, 2048, 4096]),
        "heads": st.just(4),
        "kv_heads": st.sampled_from([1, 2, 4]),
        "ffn": st.integers(33, 12_000),
        "vocabulary": st.sampled_from([999, 32_000, 50_257]),
        "tied": st.booleans(),
    }
)
_THIRD = st.fixed_dictionaries(
    {"zero": st.just(3)},
    optional={
        "reduce_bucket_size": _BUCKETS,
        "prefetch_bucket_size": st.one_of(st.just(0), _BUCKETS),
        "param_persistence_threshold": st.one_of(st.just("auto"), st.integers(0, 10_000_000)),
        "max_live_parameters": st.one_of(
            st.integers(0, 3_000_000), st.integers(10_000_000, 3_000_000_000)
        ),
        "offload_optimizer": st.sampled_from(["cpu", "nvme"]),
    },
)
_WHOLE = st.fixed_dictionaries(
    {"zero": st.sampled_from([1, 2])},
    optional={
        "reduce_bucket_size": _BUCKETS,
        "overlap_comm": st.booleans(),
        "offload_optimizer": st.just("cpu"),
    },
)
_REST = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["llama-7b", "qwen2.5-0.5b"]),
        "data": st.integers(2, 9),
        "micro_batches": st.sampled_from([1, 2, 3]),
        "recompute": st.sampled_from(["none", "full"]),
        "loss": st.sampled_from(["full", "fused-linear", "chunked"]),
        "recipe": st.sampled_from(["mixed-adam", "fp32-adam"]),
    }
)


def _run(**changes: Any) -> Run:
    return Run.from_json(
        {"implementation": "huggingface", "sharding": "deepspeed", "sequence": 64, **changes}
    )


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(_SHAPES, st.one_of(_THIRD, _WHOLE), _REST)
def test_what_is_passed_over_is_what_every_layer_would_have_said(shape, sharding, rest):
    try:
        run = _run(shape=shape, **sharding, **rest)
    except InputErrors:
        assume(False)
    made = sized(run)
    for rank in {0, run.layout.data - 1}:
        conditions = step.conditions(run, rank)
        heard = played(made, conditions, conditions.turns(), jumps=False)
        for quick, plain in zip(scores(made, conditions), heard, strict=True):
            assert (quick.turn, quick.count) == (plain.turn, plain.count)
            assert everything(quick) == everything(plain)


#: What a run's backward pass over all layers comes down to: layers in a row, and rounds.
_PERIODIC: list[dict[str, Any]] = [
    {"model": "llama-7b"},
    {"model": "llama-3-70b"},
    {"model": "llama-7b", "max_live_parameters": 400_000_000},
    {"model": "llama-7b", "offload_optimizer": "nvme"},
    {"model": "llama-7b", "micro_batches": 3, "loss": "fused-linear"},
    {"model": "llama-7b", "zero": 2},
    {"model": "llama-7b", "zero": 2, "offload_optimizer": "cpu", "micro_batches": 2},
    {"model": "llama-7b", "zero": 1},
    {"model": "llama-7b", "zero": 1, "overlap_comm": True, "micro_batches": 3},
]


@pytest.mark.parametrize("changes", _PERIODIC, ids=str)
def test_passes_over_more_layers_are_no_larger_a_tree(changes):
    def nodes(layers: int) -> int:
        run = _run(**{"data": 8, "zero": 3, "shape": {"layers": layers}, **changes})
        made = sized(run)
        for one in scores(made, step.conditions(run, 0)):
            heard = [number for part, _, number in parts(one.backward or ()) if _layered(part)]
            assert heard == list(range(layers, 0, -1))
        passes = step.passes(run, made, 0)
        return sum(_size(node) for _, both in passes for node in both)

    # Some layers may be left over that are no whole round; in stages 1 and 2 at either end of what
    # each of eight GPUs owns.
    few, many = nodes(400 if "zero" in changes else 100), nodes(1000)
    assert many < 1.5 * few


def test_layers_that_differ_from_each_other_are_rounds_where_they_come_again():
    run = _run(data=8, zero=3, model="llama-7b", shape={"layers": 100})
    (one,) = scores(sized(run), step.conditions(run, 0))
    (rounds,) = [found for found in one.backward or () if isinstance(found, Rounds)]
    assert len(rounds.stretches) > 1
    assert rounds.count * -rounds.step > 50


def _layered(section: Section) -> bool:
    return section.part[0] == "layer"


def _size(node: Node) -> int:
    if isinstance(node, Repeat):
        return 1 + _size(node.child)
    # A strip is one, however many events it has.
    inner = node.children if isinstance(node, Group) and not isinstance(node, Strip) else ()
    return 1 + sum(map(_size, inner))


def test_the_walk_of_rounds_is_that_of_their_events():
    run = _run(model="llama-7b", data=8, zero=3, shape={"layers": 90})
    tree = step.step(run, sized(run), optimizer_id(run))
    quick, plain = walk(tree), walk_expanded(tree)
    assert (quick.peak, quick.parts, quick.largest) == (plain.peak, plain.parts, plain.largest)
    assert quick.at
    assert plain.at
    assert place(quick.at.label, quick.counters) == place(plain.at.label, plain.counters)


def test_layers_within_rounds_have_their_own_numbers_in_the_list_of_a_step():
    run = _run(model="llama-7b", data=8, zero=3, shape={"layers": 90})
    tree = step.step(run, sized(run), optimizer_id(run))
    listed = outline(tree, timeline(tree, 4000))
    rounds = next(at for at, row in enumerate(listed.rows) if "layers that repeat" in row.label)
    inner = [row.label for row in listed.rows if row.parent > rounds and "layer" in row.label]
    assert inner
    assert not any("{" in row.label for row in listed.rows)
    told = [row.label for row in listed.rows if row.label.startswith("the backward pass of layer ")]
    assert len(set(told)) == len(told)
