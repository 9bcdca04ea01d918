"""What must be free: bounds that hold the peak, played through the allocator or published."""

import csv
import tomllib
from pathlib import Path

import pytest

from traced import TRACES
from training_memory.allocator import OutOfMemoryError
from training_memory.estimate import estimate
from training_memory.gpus import Gpu
from training_memory.megatron.held import held_rows
from training_memory.need import (
    ALL_TO_ALL,
    COMMUNICATOR,
    CONTEXT,
    PUBLISHED,
    Fits,
    Need,
    nccl,
    need,
)
from training_memory.replay import WORKSPACES, replay, replay_growing
from training_memory.run import Run

MIB = 2**20
MEASURED = Path(TRACES).parent / "measured" / "rows.csv"
SMALL = {
    "model": "llama-3.2-1b",
    "shape": {"layers": 4},
    "implementation": "huggingface",
    "sequence": 1024,
}


def run(**changes):
    return Run.from_json({**SMALL, **changes})


def worst(one):
    """The kind of GPU that needs most."""
    return estimate(one).worst.rank


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": "bf16-adam"},
        {"recipe": "fp32-adam", "recompute": "full"},
        {"recipe": "autocast-adam", "micro_batch": 3, "recompute": "matmuls"},
        {"recipe": "mixed-adam", "optimizer_kernel": "foreach"},
        {"recipe": "mixed-adam-fp32-grad", "micro_batches": 4},
        {"recipe": "bf16-adam", "optimizer": "muon", "loss": "chunked"},
        {"recipe": "autocast-adam", "optimizer": "adafactor-hf", "loss": "fused-linear"},
        {"implementation": "torchtitan", "recipe": "bf16-adam", "optimizer": "adamw-8bit"},
        {"recipe": "bf16-adam", "adapter": "lora"},
        {"recipe": "bf16-adam", "adapter": "qlora", "recompute": "full"},
        {"implementation": "torchtitan", "recipe": "autocast-adam", "data": 8, "zero": 3},
        {"implementation": "huggingface", "recipe": "autocast-adam", "data": 2},
    ],
)
def test_what_is_played_is_what_is_counted(changes):
    # The allocator's own count is the walk's peak, the workspaces, and at most 1 MiB a large block.
    one = run(**changes)
    peak = estimate(one).worst.peak_bytes
    played = replay(one, worst(one))
    scratch = 300 * MIB  # attention's own, which the walk does not count
    assert peak <= played.most_allocated <= peak + sum(WORKSPACES) + scratch
    assert played.most_allocated <= played.most_reserved
    growing = replay_growing(one, worst(one))
    assert peak <= growing.most_allocated <= played.most_allocated
    assert growing.most_allocated <= growing.most_reserved


def test_further_steps_reserve_nothing_more(monkeypatch):
    split = {
        "implementation": "megatron",
        "recipe": "mixed-adam",
        "pipeline": 2,
        "micro_batches": 8,
    }
    for changes in ({"recipe": "bf16-adam", "micro_batch": 4}, {"recompute": "full"}, split):
        one = run(**changes)
        once = replay(one, worst(one)).most_reserved
        monkeypatch.setattr("training_memory.replay.STEPS", 5)
        assert replay(one, worst(one)).most_reserved == once
        monkeypatch.undo()


def test_bounds_hold_one_another():
    for changes in ({"recipe": "bf16-adam"}, {"implementation": "paper"}, {"gpu": None}):
        one = run(**changes)
        found = need(one, worst(one), estimate(one).worst.peak_bytes)
        assert found.allocated_bytes < found.least_bytes < found.most_bytes
        assert found.played == (one.implementation != "paper")


def test_the_smallest_context_is_what_llm_c_left_unexplained():
    # Its printed sum on an RTX 3060: 1,326 MiB of activations; weights and gradients of 2 bytes,
    # master copy and both moments of 4, for GPT-2 with its vocabulary padded to 50,304.
    model = run(model="gpt2", shape={"vocabulary": 50_304}, implementation="paper").model
    states = model.parameters.total * (2 + 2 + 4 + 4 + 4)
    (row,) = (one for one in measured_rows() if one["row_id"] == "M0195")
    unexplained = int(row["measured_value"]) - 1326 - states / MIB
    assert CONTEXT[0] == pytest.approx(unexplained * MIB, rel=0.01)


def test_the_published_share_is_the_largest_in_the_rows():
    shares = {}
    for row in measured_rows():
        reserved = row["also_measured"].partition("peak reserved ")[2]
        if reserved:
            allocated = float(row["measured_value"])
            shares[int(reserved.split()[0]) / allocated] = (int(reserved.split()[0]), allocated)
    most = shares[max(shares)]
    assert (most[0], round(most[1])) == PUBLISHED


def measured_rows():
    with MEASURED.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def card(size: int, usable: int | None = None) -> Gpu:
    return Gpu(id="x", name="X", memory_bytes=size, usable_bytes=usable, rates=None, source="")


@pytest.mark.parametrize(
    ("goes_through", "gpu", "fits"),
    [
        (True, card(10**12), Fits.YES),
        (True, card(12 * 10**9), Fits.TIGHT),
        (False, card(12 * 10**9), Fits.NO),
        (None, card(12 * 10**9), Fits.TIGHT),
        (True, card(9 * 10**9), Fits.NO),
        (True, card(12 * 10**9, 10 * 10**9), Fits.NO),  # the driver leaves too little
        (True, card(12 * 10**9, 13 * 10**9), Fits.YES),  # or more than the name says
    ],
)
def test_yes_tight_and_no(goes_through, gpu, fits):
    found = Need(
        allocated_bytes=10 * 10**9,
        reserved_bytes=11 * 10**9,
        growing_bytes=None,
        played=True,
        goes_through=goes_through,
    )
    assert found.fits(gpu) is fits


def test_a_gpu_in_between_is_tried():
    # Between the peak and what is reserved at leisure the allocator gives back what lies unused.
    one = run(recipe="bf16-adam", micro_batch=8, recompute="full", gpu="80gb")
    peak = estimate(one).worst.peak_bytes
    at_leisure = replay(one, worst(one)).most_reserved
    assert replay(one, worst(one), capacity=at_leisure).most_reserved <= at_leisure
    with pytest.raises(OutOfMemoryError):
        replay(one, worst(one), capacity=peak - 1)


def test_json_says_yes_tight_or_no():
    found = estimate(run(recipe="bf16-adam"))
    assert found.to_json()["fits"] == "yes"
    assert found.to_json()["need"] == found.need.to_json()
    assert estimate(run(gpu=None)).to_json()["fits"] is None
    assert estimate(run(micro_batch=512)).to_json()["fits"] == "no"
    assert "fits" not in estimate(run()).to_json(full=False)
    assert estimate(run(implementation="paper")).to_json(full=False)["fits"] == "yes"


NANOTRON = [row for row in measured_rows() if "peak reserved" in row["also_measured"]]


def test_what_nanotron_reserved_is_what_is_played():
    # Ten published steps on eight GPUs, the first stage's; MiB.
    off = []
    for row in NANOTRON:
        (entry,) = (runs()[row["row_id"]],)
        one = Run.from_json(entry["run"])
        reserved = int(row["also_measured"].partition("peak reserved ")[2].split()[0]) * MIB
        off.append(abs(need(one, worst(one), 0).reserved_bytes - reserved) / reserved)
    assert len(off) == 10
    assert sorted(off)[5] < 0.01
    assert max(off) < 0.05


def runs():
    path = MEASURED.with_name("runs.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "changes",
    [
        {"tensor": 2, "sequence_parallel": True, "data": 2, "zero": 1},
        {"pipeline": 2, "micro_batches": 8},
        {"pipeline": 2, "micro_batches": 8, "schedule": "interleaved", "interleave": 2},
        {"recompute": "full", "pipeline": 4, "micro_batches": 4},
        {"schedule": "gpipe", "pipeline": 2, "micro_batches": 6},
        {"model": "qwen1.5-moe-a2.7b", "shape": {"layers": 4}, "data": 4, "expert": 4},
        {
            "model": "deepseek-v2-lite",
            "shape": {"layers": 6},
            "data": 4,
            "expert": 4,
            "routing": "worst",
            "pipeline": 2,
            "micro_batches": 4,
        },
    ],
)
def test_a_stage_that_is_played_allocates_what_is_counted(changes):
    one = run(implementation="megatron", recipe="mixed-adam-fp32-grad", **changes)
    found = estimate(one)
    played = replay(one, found.worst.rank)
    # Beside the workspaces, what variables hold a pass longer here (two tensors of the stream), and
    # what the allocator leaves at the end of large blocks.
    spare = 8 * MIB
    longer = 2 * 2 * one.sequence * one.micro_batch * one.model.hidden * found.worst.rank.parts
    # And the places of a mixture's tokens, which a layer's dispatcher holds one pass longer.
    rows = held_rows(one, found.worst.rank)
    longer += sum(row.bytes for row in rows if row.name == "places of the last tokens")
    assert found.worst.peak_bytes <= played.most_allocated + MIB
    assert played.most_allocated <= found.worst.peak_bytes + sum(WORKSPACES) + longer + spare
    assert found.need.played


def test_what_is_all_in_flight_at_once_is_not_played():
    one = run(
        implementation="megatron",
        recipe="mixed-adam",
        shape={"layers": 16},
        pipeline=2,
        schedule="gpipe",
        micro_batches=512,
    )
    assert not estimate(one).need.played


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0),
        ({"data": 2}, COMMUNICATOR[0]),
        ({"data": 8}, COMMUNICATOR[1]),
        ({"implementation": "paper", "data": 8, "tensor": 2, "pipeline": 4}, None),
        (
            {"implementation": "megatron", "context": 4, "context_exchange": "ulysses"},
            COMMUNICATOR[1] + ALL_TO_ALL,
        ),
    ],
)
def test_nccl_takes_what_was_published_for_each_communicator(changes, expected):
    one = run(recipe="mixed-adam", **changes)
    if expected is None:
        expected = 2 * COMMUNICATOR[1] + COMMUNICATOR[0]
    assert nccl(one) == expected
    found = estimate(one).need
    assert found.most_bytes == found.reserved_bytes + CONTEXT[1] + expected
