"""A step's events: nothing leaks, stages hold what 1F1B says, cost stays flat over repeats."""

import pytest
from hypothesis import given, settings

from strategies import requests
from training_memory.categories import STATES, Category
from training_memory.derivation import derive
from training_memory.estimate import Estimate, estimate, peak_bytes
from training_memory.events import count, expand
from training_memory.rank import ranks
from training_memory.run import Run
from training_memory.step import layer_rows
from training_memory.walk import by_category, walk_expanded


def ask(**request: object) -> Estimate:
    return estimate(Run.from_json(request))


@given(requests())
@settings(max_examples=150, deadline=None)
def test_for_any_run(request_json):
    """The composed peak is the expanded one; every byte is freed or persistent; parts sum up."""
    answer = estimate(Run.from_json(request_json))
    assert peak_bytes(answer.run) == answer.worst.peak_bytes
    for rank in answer.ranks:
        if count(rank.tree) <= 60_000:
            assert walk_expanded(rank.tree) == rank.segment
        left = by_category(rank.segment.remains)
        kept = {category for category in STATES if category is not Category.GRADIENTS}
        for category, size in left.items():
            assert size == (rank.totals[category] if category in kept else 0), category
        assert sum(rank.peak_parts.values()) == rank.peak_bytes
        assert all(part <= rank.totals[name] for name, part in rank.peak_parts.items())
        assert rank.peak_bytes <= sum(rank.totals.values())
        assert "{" not in rank.peak_moment


@given(requests())
@settings(max_examples=100, deadline=None)
def test_every_derivation_comes_to_the_bytes_of_the_walk(request_json):
    run = Run.from_json(request_json)
    for rank in estimate(run).ranks:
        for entry in derive(run, rank):
            assert entry.formula.evaluate(entry.values) == entry.total_bytes, entry.category
            assert entry.times * sum(line.bytes for line in entry.lines) == entry.total_bytes


@given(requests())
@settings(max_examples=100, deadline=None)
def test_a_run_reads_back_as_itself(request_json):
    run = Run.from_json(request_json)
    assert Run.from_json(run.to_json()) == run


@given(requests())
@settings(max_examples=60, deadline=None)
def test_no_middle_stage_needs_more_than_the_one_shown(request_json):
    """Every stage asked by itself, against the classes that stand for them."""
    from training_memory import rank as rank_module
    from training_memory.step import step
    from training_memory.walk import walk

    run = Run.from_json(request_json)
    worst = estimate(run).worst.peak_bytes
    for stage in range(run.layout.pipeline):
        tree = step(run, rank_module.rank_at(run, stage))
        assert walk(tree).peak <= worst


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_the_tree_does_not_grow_with_layers_or_micro_batches(recompute):
    def nodes(**changes: object) -> int:
        def size(node) -> int:
            children = getattr(node, "children", None) or [getattr(node, "child", None)]
            return 1 + sum(size(child) for child in children if child is not None)

        return size(ask(recompute=recompute, **changes).worst.tree)

    # Neither 7 nor 700 layers share the embedding's gradient evenly, so both have a longer layer.
    assert nodes(shape={"layers": 7}) == nodes(shape={"layers": 700})
    assert nodes(micro_batches=3) == nodes(micro_batches=4096)


def test_one_forward_one_backward_holds_as_many_as_stages_follow():
    """Narayanan et al. 2021, §2.2: stage r of p holds at most p − r micro-batches."""
    answer = ask(pipeline=4, micro_batches=16)
    one = sum(row.bytes for row in layer_rows(answer.run)) * 8
    held = [rank.totals[Category.ACTIVATIONS] // one for rank in answer.ranks]
    assert held == [4, 3, 1]
    assert [rank.rank.label for rank in answer.ranks] == [
        "first pipeline stage",
        "stage 2, fullest of 2 to 3",
        "last pipeline stage",
    ]


def test_fewer_micro_batches_than_stages_are_all_that_is_held():
    assert [rank.in_flight for rank in ranks(ask(pipeline=4, micro_batches=2).run)] == [2, 2, 1]


def test_every_micro_batch_goes_forward_and_backward_once_on_every_stage():
    answer = ask(pipeline=4, micro_batches=7, shape={"layers": 4})
    for rank in answer.ranks:
        events = list(expand(rank.tree))
        first_row = f"keeps {layer_rows(answer.run)[0].row.name}"
        forward = [at["forward"] for event, at in events if first_row in event.label]
        backward = [at["backward"] for event, at in events if "frees its act" in event.label]
        assert forward == backward == list(range(1, 8))


def test_a_second_micro_batch_meets_all_gradients():
    one, two = ask(), ask(micro_batches=2)
    grown = two.worst.peak_bytes - one.worst.peak_bytes
    head = one.run.model.head_parameters * 2
    assert grown == one.worst.totals[Category.GRADIENTS] - head


def test_stages_hold_the_model_once_but_for_a_tied_embedding():
    untied = ask(model="llama-7b", pipeline=2)
    assert sum(rank.rank.parameters for rank in untied.ranks) == untied.parameters
    tied = ask(model="gpt2", sequence=1024, pipeline=2)
    embedding = tied.run.model.head_parameters
    assert sum(rank.rank.parameters for rank in tied.ranks) == tied.parameters + embedding


def test_tensor_parallel_ranks_hold_an_even_share_and_copies_of_the_norms():
    run = ask(model="llama-7b", tensor=8).run
    whole = run.model.parameters
    norms = whole.by_component["norms"]
    assert ranks(run)[0].parameters == (whole.total - norms) // 8 + norms
