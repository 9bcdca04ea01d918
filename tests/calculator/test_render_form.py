"""The form: native, labelled, explained, and holding the run that is shown."""

import re
from html import unescape

import pytest

from training_memory import controls
from training_memory.estimate import estimate
from training_memory.render.fields import FIELDS, Kind
from training_memory.render.form import form, notes, summaries
from training_memory.render.split import split
from training_memory.run import Run


def drawn(**run: object) -> str:
    return form(Run.from_json(run), controls.of_request(run), prefix="it")


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_control_is_labelled_and_explained(field):
    html = unescape(drawn())
    assert f'<label for="it-{field.name}">{field.label}' in html
    assert f'id="it-{field.name}-help" popover>{field.meaning}<' in html
    assert f'aria-describedby="it-{field.name}-note"' in html


def test_the_controls_hold_the_run():
    html = drawn(model="llama-3-8b", sequence=8192, recompute="full", zero=3, data=8)
    assert 'name="sequence" type="text" inputmode="numeric"' in html
    for held in ('value="8,192"', '<option value="full" selected>', '<option value="3" selected>'):
        assert held in html
    assert '<option value="llama-3-8b" selected>Llama 3 8B</option>' in html


def test_a_flag_is_checked_as_the_run_is():
    def tied(model: str) -> bool:
        (box,) = re.findall(r'<input id="it-tied"[^>]*>', drawn(model=model, sequence=1024))
        return " checked" in box

    assert tied("gpt2")
    assert not tied("llama-7b")


def test_numbers_have_buttons_that_say_what_they_do():
    html = drawn()
    numbers = [field for field in FIELDS if field.kind is Kind.NUMBER]
    assert html.count('data-step="1"') == html.count('data-step="-1"') == len(numbers)
    assert 'aria-label="Double sequence length"' in html


@pytest.mark.parametrize(
    ("run", "shape", "splitting"),
    [
        ({}, "32 layers, 4,096 wide, 6.74 billion parameters", "one GPU"),
        (
            {"model": "mixtral-8x7b", "data": 8, "zero": 3},
            "32 layers, 4,096 wide, 8 experts, 46.7 billion parameters",
            "8 GPUs, ZeRO-3",
        ),
        (
            {"model": "gpt3-175b", "sequence": 2048, "tensor": 8, "pipeline": 8, "data": 2,
             "micro_batches": 16},
            "96 layers, 12,288 wide, 175 billion parameters",
            "128 GPUs, 2 replicas, tensor 8, 8 stages, 16 micro-batches",
        ),
        (
            {"model": "decoder", "sequence": 8},
            "2 layers, 16 wide, 5,376 parameters",
            "one GPU",
        ),
    ],
)  # fmt: skip
def test_folded_parts_say_what_they_hold(run, shape, splitting):
    said = summaries(Run.from_json(run))
    assert said["shape"] == shape
    assert said["split"] == splitting
    assert said["implementation"] == "Textbook"


def test_a_gpus_name_is_told_apart_from_what_it_offers():
    assert notes(Run.from_json({"gpu": "a100-80gb"}))["gpu"] == "by name; PyTorch sees 85.1 GB"
    assert "79.3 GiB" in notes(Run.from_json({"gpu": "a100-80gb"}), binary=True)["gpu"]
    assert "not published" in notes(Run.from_json({"gpu": "l4-24gb"}))["gpu"]
    assert notes(Run.from_json({"gpu": None}))["gpu"] == ""


def pictured(**run: object) -> str:
    return split(estimate(Run.from_json(run)))


def test_one_gpu_needs_no_picture():
    assert pictured() == ""


def test_copies_of_a_sharded_model_are_not_shares_of_it():
    run = {"implementation": "huggingface", "sharding": "fsdp1", "data": 8}
    assert "8 replicas: each holds 1/8 of the Adam state" in pictured(**run)
    assert "8 replicas: each holds 1/4 of the Adam state" in pictured(**run, replicate=2)
    # As many copies as GPUs: NO_SHARD.
    assert "8 replicas: each holds all of its weights" in pictured(**run, replicate=8)
    assert "tm-elsewhere" not in pictured(**run, replicate=8)


def test_the_picture_has_a_cell_for_every_gpu():
    html = pictured(model="gpt3-175b", sequence=2048, tensor=4, pipeline=2, data=3)
    assert html.count('class="tm-gpu"') == 4 * 2 * 3
    assert "layers 1–48" in html
    assert "layers 49–96" in html
    assert "24 GPUs: 3 data-parallel, 4 tensor-parallel, 2 pipeline stages" in html


def test_a_thousand_gpus_are_drawn_as_a_few():
    html = pictured(data=1024, zero=1)
    assert html.count('class="tm-gpu"') < 10
    assert "1,020 more" in html


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_each_zero_stage_shares_one_kind_more(zero):
    # The gradients' and the optimizer's columns turn pale where other replicas hold them.
    assert pictured(data=2, zero=zero).count("tm-elsewhere") == 2 * zero


def test_the_stages_of_a_pipeline_are_compared():
    html = pictured(pipeline=4, micro_batches=8)
    assert "First pipeline stage" in html
    assert "Stage 2, fullest of 2 to 3" in html
    assert html.count('class="tm-worst"') == 1


def test_each_tensor_parallel_gpu_is_drawn_with_its_own_slice():
    html = pictured(model="llama-7b", tensor=2)
    slices = re.findall(r'<rect class="tm-weights" x="(\d+)" width="(\d+)"', html)
    cells = re.findall(r'<rect class="tm-gpu" x="(\d+)"', html)
    inside = [int(x) - int(cell) for (x, _), cell in zip(slices, cells, strict=True)]
    assert inside[0] < inside[1]
    assert len({width for _, width in slices}) == 1
    assert html.count("tm-elsewhere tm-weights") == 2
