"""Moves: every value that a switch can have can be said, whatever implementation it is of."""

from __future__ import annotations

from enum import StrEnum

import pytest

from training_memory.blocks.ledger import Recompute
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.fit import changes
from training_memory.implementations import Implementation
from training_memory.moves import MOVES, words
from training_memory.run import Run
from training_memory.spelling import spellings
from training_memory.splits import in_fsdp
from training_memory.switches import Attention, Compile, Loss, Offload, Optimizer, OptimizerKernel
from training_memory.tuning import Adapter

VALUES: dict[str, type[StrEnum]] = {
    "recompute": Recompute,
    "attention": Attention,
    "optimizer_kernel": OptimizerKernel,
    "loss": Loss,
    "optimizer": Optimizer,
    "adapter": Adapter,
    "compile": Compile,
    "offload": Offload,
}


@pytest.mark.parametrize("field", list(VALUES))
def test_every_value_has_words(field: str) -> None:
    (move,) = [move for move in MOVES if move.field == field]
    assert {str(value) for value in VALUES[field]} == set(map(str, move.words))


@pytest.mark.parametrize("implementation", list(Implementation))
@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_changes_of_every_implementation_can_be_said(
    implementation: Implementation, model: str
) -> None:
    megatron = implementation is Implementation.MEGATRON
    request = {
        "model": model,
        "sequence": 2048,
        "implementation": str(implementation),
        "micro_batch": 2,
        "recipe": "mixed-adam-fp32-grad" if megatron else "mixed-adam",
    }
    try:
        run = Run.from_json(request)
    except InputErrors:
        pytest.skip(f"{implementation} has no {model}")
    found = changes(estimate(run))
    assert found
    for change in found:
        assert change.title
        after = Run.from_json({**run.to_json(), **change.fields})
        assert all(one.lines or one.lacks for one in spellings(change.fields, after)), change.title


def test_deepspeeds_buffers_are_single_changes() -> None:
    """Its own advice where room is short (DeepSpeed, docs/_pages/config-json.md)."""
    run = {
        "model": "llama-3-8b",
        "implementation": "huggingface",
        "recipe": "mixed-adam",
        "recompute": "full",
        "data": 8,
        "zero": 3,
        "sharding": "deepspeed",
    }
    found = {change.title: change for change in changes(estimate(Run.from_json(run)))}
    bucket = found["DeepSpeed's bucket of 50,000,000 gradients"]
    # 450,000,000 numbers of 16 bits fewer are set aside; PyTorch allocates by 512 bytes.
    assert 0 <= 450_000_000 * 2 - bucket.saved_bytes < 512
    assert bucket.price == "more and smaller messages"
    assert found["At most 100,000,000 gathered weights"].saved_bytes > 0
    other = found["FSDP2 in place of DeepSpeed's ZeRO-3"]
    assert (str(other.run.sharding.sharding), other.same_training) == ("fsdp2", True)


def test_fsdp2s_shards_on_the_cpu_are_a_single_change() -> None:
    run = Run.from_json({"implementation": "torchtitan", "recipe": "autocast-adam", "data": 8})
    found = {change.title: change for change in changes(estimate(run))}
    away = found["Shards of the weights, and the optimizer, on the CPU"]
    assert away.fields == {"offload_param": "cpu"}
    assert away.same_training
    assert away.price == "the CPU's own step is not timed"
    # Weights and two moments of 32 bits, of which each GPU has an eighth.
    assert away.saved_bytes > 12 * run.model.parameters.total // 8


def test_the_words_of_a_change_of_numbers_say_which_way() -> None:
    """From FSDP2's 32-bit shards to DeepSpeed's 16-bit weights with a copy, and back."""
    shards = {"model": "llama-3-8b", "implementation": "huggingface", "data": 8, "zero": 3}
    before = Run.from_json({**shards, "recipe": "autocast-adam"})
    after = Run.from_json({**shards, "zero": 2, "recipe": "mixed-adam"})
    assert "16-bit weights with a 32-bit copy in place of 32-bit shards" in words(before, after)
    assert "32-bit shards in place of 16-bit weights with a 32-bit copy" in words(after, before)


def test_fsdps_first_version_is_left_for_the_second_or_deepspeed_whatever_it_was_told() -> None:
    run = {
        "model": "llama-3-8b",
        "implementation": "huggingface",
        "recompute": "full",
        "data": 8,
        "sharding": "fsdp1",
        "backward_prefetch": "pre",
        "forward_prefetch": True,
        "use_orig_params": False,
    }
    found = {change.title: change for change in changes(estimate(Run.from_json(run)))}
    second = found["FSDP2 in place of FSDP1"]
    assert (str(second.run.sharding.sharding), second.same_training) == ("fsdp2", True)
    # The head's gradient does not wait for the embedding's, and flat gradients are no second copy.
    assert second.saved_bytes > 0
    # Another split of the same run stays under it.
    assert in_fsdp(Run.from_json(run)) == {"sharding": "fsdp1"}
