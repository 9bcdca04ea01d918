"""Moves: every value that a switch can have can be said, whatever implementation it is of."""

from __future__ import annotations

from enum import StrEnum

import pytest

from training_memory.blocks.ledger import Recompute
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.fit import changes
from training_memory.implementations import Implementation
from training_memory.moves import MOVES
from training_memory.run import Run
from training_memory.spelling import spellings
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
