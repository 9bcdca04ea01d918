"""Steps of fine-tuning against PyTorch, PEFT and bitsandbytes, traced on fake tensors."""

from __future__ import annotations

import pytest

from sweeps import sweep
from traced import Case, asked, rows_of
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.recorded_step import trained_parameters
from training_memory.run import Run

STEPS = rows_of("tuning-steps.csv")
ADAPTERS = (
    "adapter",
    "adapter_rank",
    "adapter_targets",
    "adapter_dtype",
    "adapter_dropout",
    "frozen_dtype",
)
PHASES = ("forward", "backward", "clip", "step")


def tuned(row: dict[str, str]) -> dict[str, object]:
    """The run that a row traced."""
    return {
        **asked(row),
        "optimizer_in_backward": row["in_backward"],
        "offload": row["offload"],
        **({} if row["adapter"] == "none" else {name: row[name] for name in ADAPTERS}),
    }


def test_the_rows_are_many_and_of_many_kinds():
    assert len(STEPS) >= 100
    assert {row["adapter"] for row in STEPS} == {"none", "lora", "qlora"}
    assert {row["offload"] for row in STEPS} == {"none", "checkpoints", "saved"}
    assert sum(row["in_backward"] == "yes" for row in STEPS) >= 10
    assert len({row["model"] for row in STEPS}) >= 9
    assert {row["recompute"] for row in STEPS} == {"none", "full", "selective", "matmuls"}


@pytest.mark.parametrize("row", sweep(STEPS), ids=lambda row: row["step"])
def test_every_phase_is_as_high_as_in_pytorch(row):
    case = Case(row)
    batch = 2 * 8 * case.sequence * case.micro_batch
    assert case.held + batch == int(row["persistent_bytes"])
    found = case.highest()
    for phase in PHASES:
        if row[f"{phase}_peak_bytes"]:
            assert found[phase].bytes == int(row[f"{phase}_peak_bytes"]), phase


@pytest.mark.parametrize("row", sweep(STEPS), ids=lambda row: row["step"])
def test_a_run_peaks_where_pytorch_does_and_trains_as_much(row):
    run = Run.from_json(tuned(row))
    assert trained_parameters(run) == int(row["trained"])
    highest = max(int(row[f"{phase}_peak_bytes"] or 0) for phase in PHASES)
    assert estimate(run).worst.peak_bytes == highest
    assert Run.from_json(run.to_json()) == run


QLORA = {"implementation": "huggingface", "recipe": "autocast-adam", "adapter": "qlora"}


@pytest.mark.parametrize(
    ("request_json", "field"),
    [
        ({"adapter": "lora"}, "adapter"),
        ({"adapter_rank": 4}, "adapter_rank"),
        ({"frozen_dtype": "bf16"}, "frozen_dtype"),
        ({"adapter_dropout": True}, "adapter_dropout"),
        ({**QLORA, "adapter_rank": 0}, "adapter_rank"),
        ({**QLORA, "adapter_targets": "query"}, "adapter_targets"),
        ({**QLORA, "implementation": "torchtitan"}, "adapter"),
        ({**QLORA, "recipe": "mixed-adam"}, "recipe"),
        ({**QLORA, "model": "gpt2", "sequence": 1024}, "adapter"),
        ({**QLORA, "model": "mixtral-8x7b"}, "adapter"),
    ],
)
def test_what_adapters_do_not_go_with_is_named(request_json, field):
    with pytest.raises(InputErrors) as found:
        Run.from_json(request_json)
    assert field in {error.field for error in found.value.errors}


def test_what_is_not_said_is_as_peft_has_it():
    run = Run.from_json(QLORA)
    assert (str(run.tuning.adapter_dtype), str(run.tuning.frozen_dtype)) == ("fp32", "bf16")
    run = Run.from_json({**QLORA, "recipe": "bf16-adam"})
    assert str(run.tuning.adapter_dtype) == "bf16"


def test_adapters_keep_gradients_and_states_of_their_own_alone():
    run = Run.from_json(QLORA)
    found = estimate(run).worst.totals
    by_name = {str(category): size for category, size in found.items()}
    numbers = trained_parameters(run)
    # LLaMA 7B: 16 · (4·(h + h) + 3·(h + f)) in each of 32 layers.
    assert numbers == 32 * 16 * (4 * 2 * 4096 + 3 * (4096 + 11008))
    assert by_name["gradients"] == pytest.approx(4 * numbers, rel=0.001)
    assert by_name["optimizer"] == pytest.approx(8 * numbers, rel=0.001)
