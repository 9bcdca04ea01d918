"""Steps under DeepSpeed against DeepSpeed itself, traced on fake tensors under a fake group."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps import sweep
from traced import asked as traced_run
from traced import rows_of
from training_memory.categories import Category
from training_memory.deepspeed import flat, step
from training_memory.deepspeed.scores import played, scores
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.events import Event, Group
from training_memory.model import Model
from training_memory.recorded_step import held_rows, host_bytes, optimizer_id, sized
from training_memory.run import Run
from training_memory.walk import climb, left, walk, walk_expanded
from woven import everything

ROWS = rows_of("zero-steps.csv")
ADAPTED = (
    *("adapter", "adapter_rank", "adapter_targets", "adapter_dtype", "adapter_dropout"),
    *("frozen_dtype", "quant_storage"),
)
NUMBERS = ("reduce_bucket_size", "prefetch_bucket_size", "param_persistence_threshold")


def asked(row: dict[str, str]) -> dict[str, Any]:
    """The run that a row traced."""
    told: dict[str, Any] = {name: row[name] for name in NUMBERS if row[name]}
    if row["overlap_comm"]:
        told["overlap_comm"] = row["overlap_comm"] == "True"
    told |= {name: row[name] for name in ("offload_optimizer", "offload_param")}
    if row["adapter"] != "none":
        told |= {name: row[name] for name in ADAPTED}
    return {
        **traced_run(row),
        "data": row["data"],
        "zero": row["stage"],
        "sharding": "deepspeed",
        **told,
    }


def highest(row: dict[str, str]) -> dict[str, int]:
    """The highest point of each phase on the traced GPU."""
    run, rank = Run.from_json(asked(row)), int(row["rank"])
    now = sum(one.bytes for one in held_rows(run))
    found = {"forward": 0, "backward": 0, "step": 0}
    for count, micro_batch in step.passes(run, sized(run), rank):
        for phase, node in count * list(zip(("forward", "backward"), micro_batch, strict=True)):
            remains, peak = climb(node)
            found[phase] = max(found[phase], now + peak)
            now += remains
    events = Group(label="", children=tuple(step.optimizer_nodes(run, optimizer_id(run), rank)))
    found["step"] = now + climb(events)[1]
    return found


def test_there_are_rows_of_every_kind():
    assert len(ROWS) >= 22
    assert {row["stage"] for row in ROWS} == {"0", "1", "2", "3"}
    assert {row["data"] for row in ROWS} >= {"8", "64"}
    assert {row["adapter"] for row in ROWS} == {"none", "lora", "qlora"}
    names = ("overlap_comm", "reduce_bucket_size", "recompute", "rank", "precision")
    for name in (*names, "offload_optimizer", "offload_param"):
        assert len({row[name] for row in ROWS}) > 1, name


@pytest.mark.parametrize("row", sweep(ROWS), ids=lambda row: row["step"])
def test_every_phase_is_as_high_as_under_deepspeed(row):
    for phase, ours in highest(row).items():
        assert ours == int(row[f"{phase}_bytes"]), phase


@pytest.mark.parametrize("row", ROWS[::5], ids=lambda row: row["step"])
def test_the_walk_of_a_woven_step_is_that_of_its_events(row):
    run = Run.from_json(asked(row))
    tree = step.step(run, sized(run), optimizer_id(run))
    assert walk(tree).peak == walk_expanded(tree).peak
    assert sum(walk(tree).remains) == sum(one.bytes for one in held_rows(run))


@pytest.mark.parametrize(
    ("stage", "offload"), [(0, "none"), *((one, to) for one in (1, 2, 3) for to in ("none", "cpu"))]
)
def test_micro_batches_in_a_row_are_alike(stage, offload):
    """Each of five is played by itself, with buckets so small that several are summed."""
    small: dict[str, Any] = {"model": "qwen2.5-0.5b", "micro_batches": 5}
    if stage:
        small["reduce_bucket_size"] = 60_000_000
    run = Run.from_json(_run(zero=stage, sharding="deepspeed", offload_optimizer=offload, **small))
    made = sized(run)
    given = step.conditions(run, 0)
    alone = [everything(one) for one in played(made, given, dict.fromkeys(range(5), 1))]
    kinds = [(one.count, everything(one)) for one in scores(made, given)]
    assert [events for count, events in kinds for _ in range(count)] == alone
    assert len(kinds) <= 3


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_every_chunk_of_a_loss_is_there(zero):
    """Of 32 chunks of 1,024 tokens three are recorded; the rest is what anybody's step has."""
    told = {"model": "llama-3-8b", "sequence": 32_768, "recompute": "full", "loss": "chunked"}
    run = Run.from_json(_run(zero=zero, sharding="deepspeed", **told))
    made = sized(run)
    assert made.repeats["chunk"] == 32
    ((_, (forward, backward)),) = step.passes(run, made, 0)
    for own, node in ((forward, made.phase("forward")), (backward, made.phase("backward"))):
        for category in (Category.ACTIVATIONS, Category.LOGITS):
            assert left(own)[category.place] == left(node)[category.place]


def test_a_thousand_micro_batches_are_no_larger_a_tree_than_three():
    def nodes(micro_batches: int) -> int:
        run = Run.from_json(_run(zero=3, sharding="deepspeed", micro_batches=micro_batches))
        return len(list(step.passes(run, sized(run), 0)))

    assert nodes(1000) == nodes(3)


@pytest.mark.parametrize("gpus", [2, 3, 8, 64, 1024])
def test_every_number_of_a_group_has_one_owner(gpus):
    run = Run.from_json({"model": "qwen2.5-0.5b", "implementation": "huggingface"})
    for group in flat.groups(run.model, "huggingface", gpus, run.tuning):
        owned = [0] * gpus
        for place in range(len(group.numels)):
            owners = group.owners(place, place + 1)
            assert sum(numel for _, numel in owners) == group.numels[place]
            for owner, numel in owners:
                owned[owner] += numel
        assert owned == [sum(numel for _, numel in group.of(rank)) for rank in range(gpus)]
        assert max(owned) <= group.share
        assert group.share * gpus - sum(group.numels) < flat.ALIGNMENT * gpus


def _run(**more: Any) -> dict[str, Any]:
    base = {"implementation": "huggingface", "recipe": "mixed-adam", "data": 8, "zero": 2}
    return {**base, **more}


# Rajbhandari et al. 2019, arXiv:1910.02054, section 5: 2 + 2 + 12 bytes a parameter, of which
# ZeRO-1 shares the last twelve, and ZeRO-2 the gradients too.
@pytest.mark.parametrize("gpus", [8, 64])
def test_what_stays_is_the_papers_share(gpus):
    model: Model = Run.from_json({}).model
    rows = held_rows(Run.from_json(_run(data=gpus, model="llama-7b")))
    stays = sum(one.bytes for one in rows)
    wanted = (2 + 12 / gpus) * model.parameters.total
    assert stays == pytest.approx(wanted, rel=1e-5)


# estimate_zero2_model_states_mem_needs of deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): of GPU
# memory 2 bytes a parameter and 18 divided by the GPUs, gradients in 16 and in 32 bits among them.
def test_the_step_has_what_deepspeeds_own_estimate_counts():
    run = Run.from_json(_run(model="llama-7b"))
    stays = sum(one.bytes for one in held_rows(run))
    own = sum(2 * group.share for group in flat.groups(run.model, "huggingface", 8, run.tuning))
    in_fp32 = sum(
        event.bytes
        for event in step.optimizer_nodes(run, optimizer_id(run), 0)
        if isinstance(event, Event) and event.label == "tensor of own gradients in fp32 is made"
    )
    parameters = run.model.parameters.total
    wanted = 2 * parameters + 18 * parameters // 8
    assert stays + own + in_fp32 == pytest.approx(wanted, rel=1e-5)


def test_a_small_model_is_never_given_back_and_a_large_one_is():
    def gathered(layers: int) -> int:
        # Over so many GPUs that hardly anything is each one's own.
        split = {"zero": 3, "sharding": "deepspeed", "data": 1024}
        request = _run(**split, model="llama-7b", shape={"layers": layers}, sequence=64)
        return estimate(Run.from_json(request)).worst.totals[Category.TEMPORARY]

    # Weights are kept that are used again within 1e9 numbers (stage3_max_reuse_distance).
    assert gathered(32) < 1.2 * gathered(16)
    matrices = 4 * 4096 * 4096 + 3 * 4096 * 11008
    assert gathered(4) - gathered(2) == pytest.approx(2 * 2 * matrices, rel=1e-3)


# reduce_bucket_size is 500,000,000 numbers of two bytes whatever is trained (zero/config.py), of
# LoRA's weights and states on Llama 2 7B all in all less than half as many bytes.
def test_adapters_have_a_bucket_as_large_as_all_weights_have():
    run = Run.from_json(_run(adapter="lora", model="llama-2-7b", recompute="full", sequence=128))
    small = Run.from_json({**run.to_json(), "reduce_bucket_size": 5_000_000})
    peaks = [estimate(one).worst.peak_bytes for one in (run, small)]
    assert peaks[0] - peaks[1] == pytest.approx(2 * 495_000_000, rel=0.1)


# estimate_zero3_model_states_mem_needs of deepspeed/runtime/zero/stage3.py (0.19.8): with the
# optimizer there, 16 bytes a parameter in the CPU's memory; ours has 16-bit copies beside them.
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_what_is_offloaded_is_in_the_cpus_memory(zero):
    request = _run(model="llama-7b", zero=zero, sharding="deepspeed")
    here = Run.from_json(request)
    away = Run.from_json({**request, "offload_optimizer": "cpu"})
    parameters = here.model.parameters.total
    saved = sum(one.bytes for one in held_rows(here)) - sum(one.bytes for one in held_rows(away))
    assert saved > 11.5 * parameters / 8
    assert host_bytes(here) == 0
    assert 16 * parameters / 8 < host_bytes(away) < 18.6 * parameters / 8
    assert any("in the CPU's memory" in sentence for sentence in estimate(away).omitted)


def test_what_is_on_disks_takes_more_of_the_gpu_and_less_of_the_cpu():
    third = {"zero": 3, "sharding": "deepspeed", "recompute": "full", "micro_batches": 2}
    cpu, nvme = (Run.from_json(_run(**third, offload_optimizer=place)) for place in ("cpu", "nvme"))
    assert host_bytes(nvme) < host_bytes(cpu)
    peaks = [estimate(run).worst.peak_bytes for run in (cpu, nvme)]
    assert peaks[0] < peaks[1]
    # Over 1,024 GPUs no share of a matrix is a MiB, and all gradients wait in 32 bits.
    far = Run.from_json(_run(**third, data=1024, offload_optimizer="nvme"))
    (*_, (_, last)) = step.passes(far, sized(far), 0)
    waiting = 4 * far.model.parameters.total / 1024
    assert climb(Group(label="", children=tuple(last)))[0] == pytest.approx(waiting, rel=0.01)


def test_auto_is_the_square_of_the_hidden_size():
    auto, same = (
        estimate(Run.from_json(_run(reduce_bucket_size=size))).worst.peak_bytes
        for size in ("auto", 4096 * 4096)
    )
    assert auto == same
    # transformers/integrations/deepspeed.py, trainer_config_finalize.
    third = {"zero": 3, "sharding": "deepspeed"}
    auto, same = (
        estimate(
            Run.from_json(_run(**third, prefetch_bucket_size=a, param_persistence_threshold=b))
        ).worst.peak_bytes
        for a, b in (("auto", "auto"), (int(0.9 * 4096**2), 40960))
    )
    assert auto == same


def test_stages_one_and_two_are_deepspeeds_where_nothing_is_said():
    run = Run.from_json(_run())
    assert str(run.sharding.sharding) == "deepspeed"
    assert run.to_json()["sharding"] is None
    assert Run.from_json(run.to_json()) == run


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (_run(recipe="autocast-adam"), "recipe"),
        (_run(sharding="deepspeed", data=1), "sharding"),
        (_run(sharding="deepspeed", implementation="torchtitan"), "sharding"),
        (
            _run(optimizer="paged-adamw", optimizer_kernel=None, offload_optimizer="cpu"),
            "optimizer",
        ),
        (_run(zero=0, sharding="deepspeed", optimizer="muon"), "optimizer"),
        (_run(zero=0, sharding="ddp", optimizer_kernel="deepspeed"), "optimizer_kernel"),
        (_run(optimizer="muon", optimizer_kernel=None), "optimizer"),
        (_run(sharding="ddp"), "zero"),
        (_run(zero=0, reduce_bucket_size=1000), "reduce_bucket_size"),
        (_run(prefetch="explicit"), "prefetch"),
        (_run(pipeline=2), "pipeline"),
        (_run(zero=0, sharding="deepspeed", reduce_bucket_size=1000), "reduce_bucket_size"),
        (_run(zero=0, sharding="deepspeed", overlap_comm=True), "overlap_comm"),
        (_run(zero=0, offload_optimizer="cpu"), "offload_optimizer"),
        (_run(offload_optimizer="nvme"), "offload_optimizer"),
        (_run(adapter="lora", adapter_dtype="fp32"), "adapter_dtype"),
        (_run(adapter="lora", recipe="fp32-adam", frozen_dtype="bf16"), "frozen_dtype"),
        (_run(adapter="qlora", recipe="fp32-adam"), "recipe"),
        (_run(adapter="lora", zero=3, sharding="deepspeed"), "adapter"),
        (_run(adapter="lora", offload_optimizer="cpu"), "offload_optimizer"),
        (_run(zero=3, recipe="autocast-adam", offload_param="nvme"), "offload_param"),
        (
            _run(zero=3, sharding="deepspeed", data=4, model="llama-7b", offload_param="nvme"),
            "offload_param",
        ),
        (_run(offload_optimizer="cpu", offload_param="cpu"), "offload_param"),
        (_run(prefetch_bucket_size=1000), "prefetch_bucket_size"),
        (_run(zero=3, sharding="deepspeed", overlap_comm=True), "overlap_comm"),
        (_run(zero=3, recipe="autocast-adam", max_live_parameters=0), "max_live_parameters"),
        (_run(reduce_bucket_size="much"), "reduce_bucket_size"),
    ],
)
def test_what_deepspeed_has_not_is_refused_with_the_reason(request_, field):
    with pytest.raises(InputErrors) as raised:
        Run.from_json(request_)
    assert field in {error.field for error in raised.value.errors}
