"""Optimizers against PyTorch's own, traced by scripts/measure; and their layouts and states."""

from __future__ import annotations

import pytest

from sweeps import sweep
from traced import Case, steps_of
from training_memory import catalog
from training_memory.categories import Category
from training_memory.errors import InputError
from training_memory.events import expand
from training_memory.held import held
from training_memory.implementations import family_of
from training_memory.layouts import Layout, Weight, layout_of, rounded
from training_memory.optimizers import OPTIMIZERS, get, is_hidden_matrix
from training_memory.stepping import step
from training_memory.walk import walk, walk_expanded

STEPS = steps_of("optimizer-steps.json")


def _id(row: dict[str, str]) -> str:
    return "-".join((row["implementation"], row["model"], row["precision"], row["optimizer"]))


def test_every_optimizer_is_there_in_every_precision():
    # Those with paged states are among the steps of fine-tuning, DeepSpeed's among its own.
    apart = ("paged-adamw", "paged-adamw-8bit", "adamw-deepspeed")
    whole = {name for name in OPTIMIZERS if name not in apart}
    assert {row["optimizer"] for row in STEPS} == whole
    assert len({(row["optimizer"], row["precision"]) for row in STEPS}) == 4 * len(whole)


@pytest.mark.parametrize("row", sweep(STEPS), ids=_id)
def test_what_is_held_and_what_a_step_takes_are_pytorchs(row):
    case = Case(row)
    batch = 2 * rounded(8 * case.sequence * case.micro_batch)
    assert case.held + batch == row["persistent"]
    found = case.highest()
    assert {phase: found[phase].bytes for phase in row["peaks"]} == row["peaks"]


@pytest.mark.parametrize("layers", [1, 2, 3, 4, pytest.param(9, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["bf16", "master"])
def test_a_loop_over_many_layers_is_the_loop_over_three(layers, optimizer, precision, monkeypatch):
    model = catalog.with_shape(catalog.get("llama-3-8b"), {"layers": layers, "vocabulary": 1024})
    options = {
        "implementation": "huggingface",
        "precision": precision,
        "optimizer": optimizer,
        "clip": True,
    }
    step.cache_clear()
    short = walk(step(model, **options))
    assert walk_expanded(step(model, **options)).peak == short.peak
    monkeypatch.setattr("training_memory.stepping.MOST", layers)
    monkeypatch.setattr("training_memory.recorded.MOST", layers)
    step.cache_clear()
    long = walk(step(model, **options))
    step.cache_clear()
    assert (short.peak, short.remains, short.parts) == (long.peak, long.remains, long.parts)
    assert sum(short.remains) == 0


def _models() -> list[tuple[str, str]]:
    found = []
    for model_id in catalog.models():
        for implementation in ("huggingface", "torchtitan"):
            try:
                family_of(catalog.get(model_id), implementation)
            except InputError:
                continue
            found.append((model_id, implementation))
    return found


@pytest.mark.parametrize(("model_id", "implementation"), _models())
def test_a_layout_has_every_parameter_of_the_model(model_id, implementation):
    model = catalog.get(model_id)
    assert layout_of(model, implementation).parameters == model.parameters.total


def test_most_models_are_followed():
    assert len({model_id for model_id, _ in _models()}) >= 50


@pytest.mark.parametrize(
    ("model_id", "implementation", "what"),
    [
        ("deepseek-v3", "huggingface", "families"),
        ("gpt2", "torchtitan", "norm layernorm; a plain-llama has rmsnorm"),
        ("phi-3-small", "huggingface", "norm layernorm; a phi3 has rmsnorm"),
        ("qwen2.5-7b", "torchtitan", "qkv_bias true; a plain-llama has false"),
        ("decoder", "huggingface", "qkv_bias false; a gpt2 has true"),
        ("llama-7b", "paper", "norm rmsnorm; a classic-gpt has layernorm"),
    ],
)
def test_what_an_implementation_has_not_is_said(model_id, implementation, what):
    with pytest.raises(InputError, match=what) as error:
        family_of(catalog.get(model_id), implementation)
    assert error.value.field == "implementation"


def test_an_unknown_optimizer_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="adamw-fused"):
        get("adamw-fusd")


def test_muon_takes_matrices_that_are_no_vocabulary():
    assert is_hidden_matrix(Weight(name="query", shape=(8, 8)))
    assert not is_hidden_matrix(Weight(name="norm", shape=(8,)))
    assert not is_hidden_matrix(Weight(name="experts", shape=(2, 8, 8)))
    assert not is_hidden_matrix(Weight(name="head", shape=(8, 8), vocabulary=True))


def test_8_bit_states_are_a_byte_a_number_and_a_scale_a_block():
    states = dict(get("adamw-8bit").states(Weight(name="query", shape=(100, 100)), 2))
    assert states["first moment"] == 10_000
    assert states["scales of the first moment"] == 4 * 40
    small = dict(get("adamw-8bit").states(Weight(name="norm", shape=(4095,)), 2))
    assert small == {"first moment": 4 * 4095, "second moment": 4 * 4095}


def test_adafactor_keeps_a_row_and_a_column():
    states = dict(get("adafactor").states(Weight(name="up", shape=(30, 20)), 4))
    assert states == {"second moment of rows": 4 * 30, "second moment of columns": 4 * 20}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_event_has_a_reason_and_a_place(optimizer):
    model = catalog.with_shape(catalog.get("gpt2"), {"layers": 4})
    made = step(
        model, implementation="huggingface", precision="master", optimizer=optimizer, clip=True
    )
    for event, _ in expand(made):
        assert event.category is Category.TEMPORARY
        assert event.why.endswith(".")
        assert "step" in event.moment or "clipping" in event.moment
    for one in held(model, implementation="huggingface", precision="master", optimizer=optimizer):
        assert one.bytes > 0
        assert one.why.endswith(".")


def test_a_layout_counts_its_tensors():
    layout = Layout(
        first=(Weight(name="embedding", shape=(10, 4), vocabulary=True),),
        layer=(Weight(name="up", shape=(8, 4)), Weight(name="down", shape=(4, 8))),
        last=(Weight(name="norm", shape=(4,)),),
        layers=3,
    )
    assert layout.tensors == 8
    assert layout.parameters == 40 + 3 * 64 + 4
