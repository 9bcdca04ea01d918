"""Bounds: no step takes less, whoever runs it, and most runs take not much more."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from strategies import requests
from training_memory import catalog
from training_memory.bounds import least_bytes
from training_memory.errors import InputErrors
from training_memory.estimate import peak_bytes
from training_memory.run import Run
from training_memory.sharding import Host


@st.composite
def library_runs(draw: st.DrawFn) -> Run:
    """A run as a library has it: whatever is not refused."""
    way = draw(st.sampled_from(["huggingface", "torchtitan", "megatron", "nanotron"]))
    by_stage = way in ("megatron", "nanotron")
    one = [1, 1, 1, 2, 4]
    request: dict[str, object] = {
        "model": draw(st.sampled_from(sorted(catalog.models()))),
        "implementation": way,
        "sequence": draw(st.sampled_from([64, 200, 1024])),
        "micro_batch": draw(st.integers(1, 5)),
        "micro_batches": draw(st.sampled_from([1, 2, 4, 8])),
        "recompute": draw(st.sampled_from(["none", "none", "selective", "full", "matmuls"])),
        "recipe": draw(
            st.sampled_from(
                ["mixed-adam", "mixed-adam-fp32-grad", "autocast-adam", "bf16-adam", "fp32-adam"]
            )
        ),
        "tensor": draw(st.sampled_from(one)),
        "sequence_parallel": draw(st.booleans()),
        "data": draw(st.sampled_from(one)),
        "zero": draw(st.sampled_from([0, 1, 3])),
        "pipeline": draw(st.sampled_from(one)) if by_stage else 1,
        "interleave": draw(st.sampled_from([1, 1, 2])) if by_stage else 1,
        "context": draw(st.sampled_from([1, 1, 2])) if by_stage else 1,
        "loss": draw(st.sampled_from([None, "full", "fused", "chunked", "fused-linear"])),
        "attention": draw(st.sampled_from([None, None, "eager"])),
        "mlp": draw(st.sampled_from([None, "fused", "unfused"])),
        "norm_kernel": draw(st.sampled_from([None, "fused", "unfused"])),
        "offload": draw(st.sampled_from([None, None, "checkpoints", "saved"])),
        "optimizer_in_backward": draw(st.sampled_from([False, False, True])),
        "compile": draw(st.sampled_from([None, None, "layers", "layers-and-loss"])),
        "sharding": draw(st.sampled_from([None, None, "ddp", "deepspeed"])),
        "first_step": draw(st.booleans()),
        "offload_param": draw(st.sampled_from(["none", "cpu"])),
        "adapter": draw(st.sampled_from(["none", "none", "lora", "qlora"])),
    }
    # A field that is refused is left as it usually is, and the next looked at.
    while True:
        try:
            return Run.from_json(request)
        except InputErrors as errors:
            named = {error.field for error in errors.errors} & request.keys() - {"model"}
            assume(named)
            for name in named:
                del request[name]


@pytest.mark.thorough
@given(library_runs())
@settings(max_examples=150, deadline=None)
def test_no_step_of_a_library_takes_less(run: Run) -> None:
    least = least_bytes(run)
    assert least <= peak_bytes(run)
    # All that is held may be in the CPU's memory.
    assert least > 0 or run.sharding.offload_param is Host.CPU


@given(requests())
@settings(max_examples=200, deadline=None)
def test_no_step_of_the_textbook_takes_less(request_json: dict[str, object]) -> None:
    run = Run.from_json(request_json)
    assert 0 < least_bytes(run) <= peak_bytes(run)


@pytest.mark.parametrize("implementation", ["paper", "huggingface", "torchtitan", "megatron"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_bound_says_most_of_it(implementation: str, recompute: str) -> None:
    """A bound of nothing would hold as well, and rule nothing out."""
    recipe = {"paper": "mixed-adam", "megatron": "mixed-adam-fp32-grad"}
    run = Run.from_json(
        {
            "model": "llama-3-8b",
            "implementation": implementation,
            "recompute": recompute,
            "recipe": recipe.get(implementation, "autocast-adam"),
            "micro_batch": 4,
            "micro_batches": 4,
        }
    )
    assert least_bytes(run) > 0.5 * peak_bytes(run)


@pytest.mark.parametrize("interleave", [1, 2])
@pytest.mark.parametrize("pipeline", [1, 2, 4])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_larger_micro_batches_take_no_less_by_stages(
    recompute: str, pipeline: int, interleave: int
) -> None:
    """With as many sequences a step; a search passes them over by the smaller ones."""
    if interleave > pipeline:
        pytest.skip("parts take turns on a pipeline's stages")
    request = {
        "model": "llama-3.2-1b",
        "implementation": "megatron",
        "pipeline": pipeline,
        "interleave": interleave,
        "recompute": recompute,
    }
    found = []
    for micro_batch in (1, 2, 3, 4, 6, 8, 12, 24, 48):
        batches = 48 // micro_batch
        if interleave == 1 or batches % pipeline == 0:
            batch = {"micro_batch": micro_batch, "micro_batches": batches}
            found.append(least_bytes(Run.from_json({**request, **batch})))
    assert len(found) > 4
    assert found == sorted(found)
