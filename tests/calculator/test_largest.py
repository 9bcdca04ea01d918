"""The longest sequence and the largest micro-batch, held against trying every one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import requests
from sweeps import sweep
from training_memory.errors import InputErrors
from training_memory.estimate import peak_bytes
from training_memory.largest import fits, largest_micro_batch, longest_sequence
from training_memory.run import Run

RUNS: tuple[dict[str, object], ...] = (
    {"model": "gpt2", "micro_batch": 32, "gpu": "t4-16gb"},
    {"model": "gpt2", "micro_batch": 8, "gpu": "t4-16gb"},  # its learned positions end it
    {"model": "gpt2-xl", "gpu": "t4-16gb"},  # nothing fits
    {"model": "gpt2-xl", "gpu": "rtx-5090-32gb", "micro_batch": 2},
    {
        "model": "gpt2",
        "implementation": "huggingface",
        "micro_batch": 48,
        "gpu": "t4-16gb",
        "loss": "fused-linear",
    },
    {
        "model": "gpt2-medium",
        "implementation": "huggingface",
        "micro_batch": 8,
        "attention": "eager",
        "gpu": "t4-16gb",
    },
    {
        "model": "gpt2-xl",
        "tensor": 5,
        "sequence_parallel": True,
        "sequence": 5,
        "micro_batch": 16,
        "gpu": "t4-16gb",
    },
)


def _brute(request: dict[str, object], field: str, most: int) -> int | None:
    found = None
    for value in range(1, most + 1):
        try:
            run = Run.from_json({**request, field: value})
        except InputErrors:
            continue
        if fits(run):
            found = value
    return found


@pytest.mark.parametrize("request_json", sweep(RUNS, one_in=3))
def test_the_longest_sequence_is_the_last_that_fits(request_json: dict[str, object]) -> None:
    run = Run.from_json({"sequence": 512, **request_json})
    assert longest_sequence(run) == _brute(run.to_json(), "sequence", 1024)


@pytest.mark.parametrize("request_json", sweep(RUNS, one_in=3))
def test_the_largest_micro_batch_is_the_last_that_fits(request_json: dict[str, object]) -> None:
    run = Run.from_json({"sequence": 512, **request_json})
    largest = largest_micro_batch(run)
    assert largest == _brute(run.to_json(), "micro_batch", 2 * (largest or 1) + 20)


@given(requests(), st.integers(1, 200))
@settings(max_examples=80, deadline=None)
def test_more_never_needs_less(request_json: dict[str, object], more: int) -> None:
    run = Run.from_json(request_json)
    request = run.to_json()
    wider = Run.from_json({**request, "micro_batch": run.micro_batch + more})
    assert peak_bytes(wider) >= peak_bytes(run)
    unit = run.layout.token_multiple
    if not run.model.positions:
        longer = Run.from_json({**request, "sequence": run.sequence + more * unit})
        assert peak_bytes(longer) >= peak_bytes(run)
