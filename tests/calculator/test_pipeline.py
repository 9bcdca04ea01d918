"""The order of a stage's passes, against the papers that describe each schedule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_memory.categories import Category
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.pipeline import Schedule, ahead, rounds
from training_memory.rank import rank_at, ranks
from training_memory.run import Run


def played(schedule: str, stages: int, stage: int, micro_batches: int, parts: int = 1) -> str:
    """A stage's passes in order: F2b is the second micro-batch's through the second part."""
    names = []
    for one in rounds(
        Schedule(schedule), stages=stages, stage=stage, micro_batches=micro_batches, parts=parts
    ):
        for turn in range(one.count):
            for single in one.passes:
                number = single.micro_batch + 1 + turn * one.step
                part = "abc"[single.part] if parts > 1 else ""
                names.append(f"{'F' if single.forward else 'B'}{number}{part}")
    return " ".join(names)


@pytest.mark.parametrize(
    ("schedule", "stages", "stage", "micro_batches", "parts", "expected"),
    [
        # Huang et al. 2018 (GPipe), figure 2c.
        ("gpipe", 4, 0, 4, 1, "F1 F2 F3 F4 B1 B2 B3 B4"),
        # Narayanan et al. 2021, figure 4, top: four devices, eight micro-batches.
        ("1f1b", 4, 0, 8, 1, "F1 F2 F3 F4 B1 F5 B2 F6 B3 F7 B4 F8 B5 B6 B7 B8"),
        ("1f1b", 4, 3, 8, 1, "F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 F8 B8"),
        # Figure 4, bottom: the last device runs both parts' first forward passes, then B of part 2.
        (
            "interleaved",
            4,
            3,
            4,
            2,
            "F1a F2a F3a F4a F1b B1b F2b B2b F3b B3b F4b B4b B1a B2a B3a B4a",
        ),
        # Qi et al. 2023, figure 3 (ZB-H1): every device has four micro-batches in flight.
        ("zero-bubble", 4, 3, 5, 1, "F1 F2 F3 F4 B1 F5 B2 B3 B4 B5"),
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


def test_zero_bubble_holds_on_every_stage_what_1f1b_holds_on_the_first():
    # Qi et al. 2023, arXiv:2401.10241, table 2: ZB-H1's peak is p·M_B, as 1F1B's.
    first = activations(pipeline=8)
    assert activations(pipeline=8, schedule="zero-bubble") == first
    assert activations(pipeline=8, schedule="gpipe") == 8 * first


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
