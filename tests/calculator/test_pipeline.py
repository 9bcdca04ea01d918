"""The order of a stage's passes, against papers, PyTorch's schedules and Megatron-Core's."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_memory.blocks import paper
from training_memory.categories import Category
from training_memory.derivation import derive
from training_memory.errors import InputErrors
from training_memory.estimate import estimate, estimate_on
from training_memory.formula import product
from training_memory.pipeline import Schedule, ahead, rounds, waiting
from training_memory.rank import rank_at, ranks
from training_memory.run import Run

RECORDED = Path(__file__).parents[2] / "docs" / "data" / "traces" / "pipelines.csv"
#: The schedules of the record that are followed here, by their sources' names.
FOLLOWED = {
    ("torch", "GPipe"): "gpipe",
    ("torch", "1F1B"): "1f1b",
    ("torch", "Interleaved1F1B"): "interleaved",
    ("torch", "InterleavedZeroBubble"): "zero-bubble",
    ("megatron-core", "without_interleaving"): "1f1b",
    ("megatron-core", "interleaving"): "interleaved",
}


def passes(schedule: str, stages: int, stage: int, micro_batches: int, parts: int = 1):
    """Each of a stage's passes in order: the pass, and its micro-batch from 0."""
    for one in rounds(
        Schedule(schedule), stages=stages, stage=stage, micro_batches=micro_batches, parts=parts
    ):
        for turn in range(one.count):
            for single in one.passes:
                yield single, single.micro_batch + turn * one.step


def played(schedule: str, stages: int, stage: int, micro_batches: int, parts: int = 1) -> str:
    """A stage's passes as text: F1b is the second micro-batch's through the second part."""
    backward = "I" if schedule == "zero-bubble" else "B"
    return " ".join(
        f"{'F' if one.forward else 'W' if one.weights else backward}{micro_batch}"
        f"{'abc'[one.part] if parts > 1 else ''}"
        for one, micro_batch in passes(schedule, stages, stage, micro_batches, parts)
    )


def recorded():
    """The record's rows, numbers as numbers."""
    with RECORDED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield {k: int(v) if v.isdecimal() else v for k, v in row.items()}


def followed():
    """Those of schedules that are followed, in as many micro-batches as are allowed."""
    for row in recorded():
        schedule = FOLLOWED.get((row["source"], row["schedule"]))
        if schedule == "zero-bubble" and row["parts"] > 1:
            continue
        if schedule and (schedule != "interleaved" or row["micro_batches"] % row["stages"] == 0):
            yield schedule, row


def test_every_stage_does_what_pytorch_and_megatron_have_it_do():
    found = list(followed())
    assert len(found) > 250
    for schedule, row in found:
        sizes = [row[name] for name in ("stages", "stage", "micro_batches", "parts")]
        assert played(schedule, *sizes) == row["order"], row


def test_a_stage_holds_as_many_passes_as_in_pytorch_and_megatron():
    for schedule, row in followed():
        stages, stage, micro_batches, parts = (
            row[name] for name in ("stages", "stage", "micro_batches", "parts")
        )
        found = waiting(
            Schedule(schedule),
            stages=stages,
            stage=stage,
            micro_batches=micro_batches,
            parts=parts,
        )
        assert max(whole for whole, _ in found) == row["held"], row
        assert max(map(sum, found)) == row["held_until_weights"], row


def test_zbv_and_dualpipev_hold_on_every_stage_what_1f1b_holds_on_the_first():
    # Qi et al. 2023, §6: ZB-V's peak is p·M_B on every stage, each part having half of its layers;
    # DualPipeV holds one pass more. They are not offered here: the first stage has the head too.
    rows = list(recorded())
    for name, least in (("ZBVZeroBubble", 30), ("DualPipeV", 10)):
        found = [row for row in rows if row["schedule"] == name]
        assert len(found) > least
        for row in found:
            most = 2 * row["stages"] + (name == "DualPipeV")
            assert row["held_until_weights"] <= most, row


@pytest.mark.parametrize(
    ("schedule", "stages", "stage", "micro_batches", "parts", "expected"),
    [
        # Huang et al. 2018 (GPipe), figure 2c.
        ("gpipe", 4, 0, 4, 1, "F0 F1 F2 F3 B0 B1 B2 B3"),
        # Narayanan et al. 2021, figure 4, top: four devices, eight micro-batches.
        ("1f1b", 4, 0, 8, 1, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"),
        ("1f1b", 4, 3, 8, 1, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"),
        # Figure 4, bottom: the last device runs both parts' first forward passes, then B of part 2.
        (
            "interleaved",
            4,
            3,
            4,
            2,
            "F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b B0a B1a B2a B3a",
        ),
        # Qi et al. 2023, figure 3 (ZB-H1): 1F1B, and weights' gradients three turns later.
        ("zero-bubble", 4, 3, 5, 1, "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 W2 W3 W4"),
    ],
)
def test_the_passes_come_in_the_papers_order(
    schedule, stages, stage, micro_batches, parts, expected
):
    assert played(schedule, stages, stage, micro_batches, parts) == expected


@given(st.data())
def test_every_pass_comes_once_and_backward_after_its_forward(data):
    stages = data.draw(st.integers(1, 6))
    stage = data.draw(st.integers(0, stages - 1))
    parts = data.draw(st.integers(1, 3)) if stages > 1 else 1
    micro_batches = data.draw(st.integers(1, 4)) * (stages if parts > 1 else 1)
    schedule = "interleaved" if parts > 1 else data.draw(st.sampled_from(["1f1b", "gpipe"]))
    order = played(schedule, stages, stage, micro_batches, parts).split()
    assert len(order) == len(set(order)) == 2 * micro_batches * parts
    waiting = set()
    most = 0
    for name in order:
        if name[0] == "F":
            waiting.add(name[1:])
            most = max(most, len(waiting))
        else:
            waiting.remove(name[1:])
    assert not waiting
    assert most == 1 + ahead(
        Schedule(schedule), stages=stages, stage=stage, micro_batches=micro_batches, parts=parts
    )


def activations(**layout) -> int:
    request = {"model": "gpt3-175b", "sequence": 2048, "gpu": None, "micro_batches": 64, **layout}
    run = Run.from_json({"tensor": 8, "sequence_parallel": True, **request})
    return max(rank.totals[Category.ACTIVATIONS] for rank in estimate(run).ranks)


@pytest.mark.parametrize(("stages", "parts"), [(8, 3), (8, 2), (4, 2), (4, 6)])
def test_interleaving_holds_as_many_layers_more_as_korthikanti_says(stages, parts):
    # arXiv:2205.05198, §4.2.3: the first stage stores L(1 + (p - 1)/(p·m)) layers' activations.
    plain = activations(pipeline=1, micro_batches=1)
    layers = 96
    each = plain // layers
    expected = each * (layers + layers * (stages - 1) // (stages * parts))
    assert activations(pipeline=stages, interleave=parts) == expected


def test_a_halved_backward_pass_leaves_what_its_paper_says():
    # Qi et al. 2023, arXiv:2401.10241, table 1: 32·s·b·h wait for the weights' gradients.
    assert paper.WAITING.kept_bytes() == product(("s", "b", "h")) * 32


def test_zero_bubble_holds_most_on_the_first_stage_and_there_what_1f1b_holds():
    # Qi et al. 2023, arXiv:2401.10241, table 2: ZB-H1's peak is p·M_B, as 1F1B's.
    first = activations(pipeline=8)
    assert activations(pipeline=8, schedule="zero-bubble") == first
    assert activations(pipeline=8, schedule="gpipe") == 8 * first


def test_zero_bubble_on_the_last_stage_holds_one_whole_micro_batch_and_one_logits():
    request = {"model": "gpt3-175b", "sequence": 2048, "pipeline": 8, "micro_batches": 64}
    one, halved = (
        estimate(Run.from_json({**request, "schedule": schedule})).ranks[-1]
        for schedule in ("1f1b", "zero-bubble")
    )
    assert halved.totals[Category.LOGITS] == one.totals[Category.LOGITS]
    waits = 32 * 2048 * 12288 * 12
    more = halved.totals[Category.ACTIVATIONS] - one.totals[Category.ACTIVATIONS]
    assert more == 7 * waits


@given(st.data())
def test_a_stage_of_zero_bubble_never_holds_more_than_is_said(data):
    stages = data.draw(st.integers(1, 6))
    stage = data.draw(st.integers(0, stages - 1))
    micro_batches = data.draw(st.integers(1, 12))
    whole, half = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    order = passes("zero-bubble", stages, stage, micro_batches)
    held = most = 0
    for one, _ in order:
        held += whole if one.forward else -half if one.weights else half - whole
        most = max(most, held)
    said = waiting(Schedule.ZERO_BUBBLE, stages=stages, stage=stage, micro_batches=micro_batches)
    assert most == max(a * whole + b * half for a, b in said)
    assert held == 0


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("micro_batches", [1, 3, 8, 64])
def test_zero_bubble_is_derived_and_no_stage_between_holds_more(recompute, micro_batches):
    request = {"model": "gpt3-175b", "sequence": 2048, "pipeline": 8, "schedule": "zero-bubble"}
    run = Run.from_json({**request, "recompute": recompute, "micro_batches": micro_batches})
    answer = estimate(run)
    for on in answer.ranks:
        entry = next(one for one in derive(run, on) if one.category is Category.ACTIVATIONS)
        assert entry.formula.evaluate(entry.values) == entry.total_bytes
        assert entry.times * sum(line.bytes for line in entry.lines) == entry.total_bytes
    every = [estimate_on(run, stage).worst.peak_bytes for stage in range(8)]
    assert max(every) == answer.worst.peak_bytes


MIXTRAL = {"model": "mixtral-8x7b", "recipe": "mixed-adam-fp32-grad", "gpu": None}


def test_experts_are_shared_out_over_their_own_gpus():
    # Megatron-Core, distributed optimizer: 6 + 12/d bytes a parameter, d being data × context
    # for the dense part, and for an expert the GPUs that hold the same experts.
    whole = rank_at(Run.from_json(MIXTRAL), 0)
    experts = whole.expert_parameters
    assert experts == 32 * 8 * 3 * 4096 * 14336
    split = Run.from_json(
        {**MIXTRAL, "tensor": 2, "data": 8, "zero": 1, "expert": 4, "expert_tensor": 1}
    )
    on = estimate(split).worst
    assert on.rank.expert_parameters == experts // 4
    dense = on.rank.parameters - experts // 4
    assert on.states_bytes == dense * 6 + dense * 12 // 8 + experts // 4 * (6 + 12 // 4)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"expert": 3}, "expert"),
        ({"expert": 4, "data": 2}, "expert"),
        ({"model": "llama-7b", "expert": 2, "data": 2}, "expert"),
        ({"model": "llama-7b", "expert_tensor": 2}, "expert_tensor"),
        ({"pipeline": 2, "interleave": 3}, "interleave"),
        ({"pipeline": 1, "interleave": 2}, "interleave"),
        ({"pipeline": 2, "schedule": "interleaved"}, "interleave"),
        ({"pipeline": 2, "schedule": "gpipe", "interleave": 2}, "interleave"),
        ({"pipeline": 2, "interleave": 2, "micro_batches": 3}, "micro_batches"),
        ({"pipeline": 2, "layers_per_stage": "20,13"}, "layers_per_stage"),
        ({"pipeline": 3, "layers_per_stage": [16, 16]}, "layers_per_stage"),
        ({"context": 2, "sequence": 4098}, "sequence"),
    ],
)
def test_what_cannot_be_split_so_is_named(fields, named):
    with pytest.raises(InputErrors) as caught:
        Run.from_json({**MIXTRAL, **fields})
    assert named in {error.field for error in caught.value.errors}


def test_uneven_stages_hold_the_layers_they_are_given():
    run = Run.from_json(
        {"model": "llama-7b", "pipeline": 4, "layers_per_stage": "9,9,8,6", "micro_batches": 8}
    )
    assert [(rank.stage, rank.layers) for rank in ranks(run)] == [(0, 9), (1, 9), (2, 8), (3, 6)]
    assert Run.from_json(run.to_json()) == run


def test_context_parallelism_divides_what_a_sequence_takes_and_no_parameter():
    plain, shared = (
        estimate(Run.from_json({"model": "llama-7b", "sequence": 4096, "context": n})).worst
        for n in (1, 4)
    )
    for category in (Category.ACTIVATIONS, Category.LOGITS):
        assert shared.totals[category] * 4 == plain.totals[category]
    assert shared.states_bytes == plain.states_bytes
