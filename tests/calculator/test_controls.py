"""The controls' state: what it means, how it changes, and that an address brings it back."""

import pytest
from hypothesis import given

from strategies import requests
from training_memory import controls
from training_memory.errors import InputError, InputErrors
from training_memory.model import SHAPE_FIELDS
from training_memory.presets import FIRST, PRESETS
from training_memory.render.fields import FIELDS, Kind
from training_memory.run import DEFAULTS, Run


def read(address: str) -> Run:
    return controls.read(controls.parse(address))


def shown(state: controls.State) -> str:
    """The state as an address, once the run has been understood."""
    return controls.address(controls.normal(state, controls.read(state)))


@given(requests())
def test_an_address_brings_a_run_back(request_json):
    run = Run.from_json(request_json)
    address = shown(controls.of_request(request_json))
    assert read(address) == run
    assert read("#" + address) == run
    assert shown(controls.parse(address)) == address


def test_an_address_names_what_matters_even_where_it_is_as_usual():
    assert shown({}) == (
        "model=llama-7b&sequence=4096&micro_batch=1&recipe=mixed-adam&recompute=none&gpu=80gb"
    )


def test_an_address_carries_no_gpu():
    assert "gpu=none" in shown({"gpu": None})
    assert read("gpu=none").gpu is None


def test_a_field_that_follows_another_is_left_to_follow():
    state = controls.changed(controls.parse("model=llama-7b"), {"hidden": "8k"})
    assert controls.read(state).model.head_dim == 256
    address = shown(state)
    assert "hidden=8192" in address
    assert "head_dim" not in address
    back = controls.changed(controls.parse(address), {"hidden": "4096"})
    assert controls.read(back).model.head_dim == 128
    assert "hidden" not in shown(back), "the catalog's shape again, so nothing of it is said"


def test_a_preset_fills_everything():
    state = controls.parse("model=gpt2&sequence=64&micro_batch=7&layers=3&data=4&units=GiB")
    after = controls.changed(state, {"preset": "gpt3-megatron"})
    assert controls.read(after) == Run.from_json(PRESETS["gpt3-megatron"].run)
    assert controls.is_binary(after), "units are the reader's, not the run's"


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.id)
def test_every_preset_is_a_run_and_known_as_itself(preset):
    state = controls.of_preset(preset.id)
    run = controls.read(state)
    assert controls.is_preset(state, run)
    changed = controls.changed(state, {"micro_batch": run.micro_batch + 1})
    assert not controls.is_preset(changed, controls.read(changed))


def test_the_first_preset_is_what_an_empty_run_means():
    assert controls.read(controls.of_preset(FIRST)) == Run.from_json({})


def test_a_model_fills_the_shape_and_keeps_the_rest():
    state = controls.parse("model=llama-7b&layers=3&recompute=full&preset=llama-7b")
    after = controls.changed(state, {"model": "mistral-7b"})
    run = controls.read(after)
    assert (run.model.id, run.model.layers, run.shape) == ("mistral-7b", 32, {})
    assert str(run.recompute) == "full"
    assert controls.PRESET not in after


def test_a_model_shortens_the_sequence_to_its_learned_positions():
    after = controls.changed(controls.parse("sequence=4096"), {"model": "gpt2"})
    assert controls.read(after).sequence == 1024
    shorter = controls.changed(controls.parse("sequence=512"), {"model": "gpt2"})
    assert controls.read(shorter).sequence == 512


def test_a_custom_shape_begins_as_the_model_that_was_shown():
    before = controls.parse("model=llama-3-8b&layers=8")
    run = controls.read(controls.changed(before, {"model": "custom"}))
    assert run.model.id == "custom"
    assert run.model.parameters.total == controls.read(before).model.parameters.total


@pytest.mark.parametrize(
    ("field", "before", "times", "after"),
    [
        ("sequence", "4096", 1, 8192),
        ("sequence", "4k", 2, 16384),
        ("sequence", "4096", -1, 2048),
        ("sequence", "1", -1, 1),
        ("micro_batch", "3", -1, 1),
        ("experts", "0", 1, 1),
        ("positions", "1", -1, 0),
        ("layers", "1", -1, 1),
    ],
)
def test_numbers_step_by_doublings(field, before, times, after):
    assert controls.stepped({field: before}, field, times)[field] == after


def test_a_number_that_was_not_set_steps_from_what_it_is():
    assert controls.stepped({}, "sequence", 1)["sequence"] == 8192
    assert controls.stepped({}, "layers", 1)["layers"] == 64


def test_what_is_no_number_cannot_be_stepped():
    with pytest.raises(InputError, match="sequence"):
        controls.stepped({"sequence": "many"}, "sequence", 1)
    with pytest.raises(InputError, match="colour"):
        controls.stepped({}, "colour", 1)


def test_everything_that_cannot_be_is_said_at_once():
    with pytest.raises(InputErrors) as found:
        read("preset=lama&units=MB&sequence=many&recipe=adam")
    fields = [error.field for error in found.value.errors]
    assert fields == ["preset", "units", "sequence", "recipe"]


def test_there_is_a_control_for_every_field_of_a_run_and_a_shape():
    named = [field.name for field in FIELDS]
    assert len(named) == len(set(named))
    assert set(named) == {*DEFAULTS, *SHAPE_FIELDS} - {"shape"}


def refused(state: controls.State) -> list[InputError]:
    """What of a state cannot be."""
    try:
        controls.read(state)
    except InputErrors as errors:
        return list(errors.errors)
    return []


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_control_offers_only_what_a_run_takes(field):
    if field.kind is not Kind.CHOICE:
        assert field.choices is None
        return
    for options in field.choices().values():
        for value, label in options:
            assert label
            # A contradiction with the rest of a run is no fault of the choice; an unknown name is.
            unknown = [
                error for error in refused({field.name: value}) if "allowed: " in error.allowed
            ]
            assert field.name not in [error.field for error in unknown]


def test_an_adapter_brings_an_implementation_and_a_recipe_that_have_it():
    state = controls.changed({}, {"adapter": "qlora"})
    run = controls.read(state)
    assert str(run.tuning.adapter) == "qlora"
    assert str(run.implementation) == "huggingface"
    assert run.recipe.precision == "autocast"
    kept = controls.changed(controls.parse("recipe=bf16-adam"), {"adapter": "lora"})
    assert controls.read(kept).recipe.precision == "bf16"


def test_what_is_said_of_adapters_goes_with_them():
    state = controls.changed({}, {"adapter": "lora"})
    state = controls.changed(state, {"adapter_rank": 64, "adapter_dtype": ""})
    assert controls.read(state).tuning.adapter_rank == 64
    assert "adapter_rank" not in controls.changed(state, {"adapter": "none"})
    assert "adapter" not in controls.changed(state, {"implementation": "paper"})


def test_a_way_of_running_brings_its_own_recipe_unless_another_was_chosen():
    start = {"model": "llama-2-7b", "recipe": "mixed-adam"}
    titan = controls.changed(start, {"implementation": "torchtitan"})
    assert controls.read(titan).recipe.id == "autocast-adam"
    chosen = {**start, "recipe": "bf16-adam"}
    assert (
        controls.read(controls.changed(chosen, {"implementation": "torchtitan"})).recipe.id
        == "bf16-adam"
    )
    back = controls.changed(
        controls.normal(titan, controls.read(titan)), {"implementation": "paper"}
    )
    assert controls.read(back).recipe.id == "mixed-adam"
    shared = {**start, "implementation": "huggingface", "data": 8}
    assert controls.read(controls.changed(shared, {"zero": 3})).recipe.id == "autocast-adam"
