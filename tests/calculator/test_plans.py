"""Plans: each is possible and fits, none cheaper is missed, and no smaller number of GPUs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_memory.cost import cost, global_batch
from training_memory.errors import InputErrors
from training_memory.estimate import estimate, peak_bytes
from training_memory.fit import trains_the_same
from training_memory.moves import Allow
from training_memory.need import Fits, at_a_glance
from training_memory.plans import Plan, cheapest, every, fewest_gpus, search
from training_memory.run import Run
from training_memory.sharding import Host
from training_memory.spelling import spellings
from training_memory.splits import divisors, splits


def ask(**request: object) -> Run:
    return Run.from_json(request)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Run, int, int, tuple[Allow, ...]]:
    """A run, a number of GPUs, a batch, what is allowed: some with no plan, some with many."""
    way = draw(st.sampled_from(["paper", "paper", "huggingface", "torchtitan", "megatron"]))
    request: dict[str, object] = {
        "implementation": way,
        "sequence": draw(st.sampled_from([512, 1024])),
        "recipe": draw(st.sampled_from(["mixed-adam", "fp32-adam", "bf16-adam"])),
        "gpu": draw(st.sampled_from(["t4-16gb", "rtx-4090-24gb", "80gb"])),
    }
    batches = [1, 2, 6, 8]
    allow: list[tuple[Allow, ...]] = [()]
    if way == "paper":
        model = draw(st.sampled_from(["gpt2", "gpt2-xl", "llama-3.2-1b", "llama-7b"]))
        gpus = draw(st.sampled_from([1, 2, 3, 4, 8]))
    elif way == "megatron":
        model = draw(st.sampled_from(["llama-3.2-1b", "llama-3.2-3b"]))
        request["recipe"] = draw(st.sampled_from(["mixed-adam", "mixed-adam-fp32-grad"]))
        gpus = draw(st.sampled_from([1, 2, 4]))
    else:
        request |= {
            "attention": draw(st.sampled_from(["flash", "eager"])) if way != "torchtitan" else None,
            "hold_logits": draw(st.booleans()),
            "recipe": draw(st.sampled_from(["mixed-adam", "autocast-adam", "bf16-adam"])),
        }
        names = ["llama-3.2-1b", "llama-3.2-3b", "llama-3-8b"]
        model = draw(st.sampled_from(names if way == "torchtitan" else [*names, "gpt2"]))
        gpus, batches = draw(st.sampled_from([1, 1, 2])), [1, 2]
        if gpus == 1:
            batches = [1]
            allow += [(Allow.OPTIMIZER,), tuple(Allow)]
        else:
            allow += [(Allow.CPU,)]
    run = ask(model=model, **request)
    return run, gpus, draw(st.sampled_from(batches)) * gpus, draw(st.sampled_from(allow))


@pytest.mark.thorough
@given(questions())
@settings(max_examples=12, deadline=None)
def test_a_plan_is_possible_fits_and_is_the_cheapest(
    question: tuple[Run, int, int, tuple[Allow, ...]],
) -> None:
    """Held against every plan there is, estimated without any bound."""
    run, gpus, batch, allow = question
    plan = cheapest(run, gpus=gpus, batch=batch, allow=allow)
    fitting: dict[tuple[Fits, bool], list[float]] = {}
    for one, _ in every(run, gpus=gpus, batch=batch, allow=allow):
        verdict = at_a_glance(one, peak_bytes(one))
        if verdict is not Fits.NO:
            fitting.setdefault((verdict, _trains_as(run, one)), []).append(cost(one).seconds)
    # What surely fits before what is tight, and of these what trains the same before the rest.
    order = [(fits, same) for fits in (Fits.YES, Fits.TIGHT) for same in (True, False)]
    best = next((kind for kind in order if kind in fitting), None)
    if plan is None:
        assert best is None
        return
    found = estimate(Run.from_json({**run.to_json(), **plan.fields}))
    assert found.run == plan.run
    assert found.worst.peak_bytes == plan.peak_bytes
    assert found.room_bytes is not None
    assert found.room_bytes >= 0
    assert found.run.layout.gpus == gpus
    assert global_batch(found.run) == batch
    assert best == (plan.fits, _trains_as(run, plan.run))
    assert plan.cost == cost(plan.run)
    assert plan.cost.seconds == pytest.approx(min(fitting[best]), rel=1e-5)


def _trains_as(run: Run, plan: Run) -> bool:
    """Whether a plan uses nothing of what must be allowed."""
    same = plan.tuning == run.tuning and plan.switches.optimizer is run.switches.optimizer
    there = Host.CPU in (plan.sharding.offload_param, plan.sharding.offload_optimizer)
    return same and not there


def test_of_equally_quick_plans_the_one_that_changes_least() -> None:
    plan = cheapest(ask(model="gpt2", sequence=512), gpus=1, batch=1)
    assert plan is not None
    assert plan.fields == {}


@pytest.mark.parametrize(("gpus", "batch"), [(1, 4), (4, 8), (6, 12), (8, 8)])
@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b"])
def test_every_split_is_among_them(model: str, gpus: int, batch: int) -> None:
    """Held against all there could be, but for stages of ZeRO that pipelines do not go with."""
    run = ask(model=model, sequence=480)
    names = (
        "data",
        "tensor",
        "pipeline",
        "zero",
        "sequence_parallel",
        "interleave",
        "micro_batch",
        "micro_batches",
    )
    found = {
        tuple(sorted((name, fields[name]) for name in names))
        for fields in splits(run, gpus=gpus, batch=batch)
    }
    possible = set()
    degrees = range(1, gpus + 1)
    flags = (False, True)
    batches = range(1, batch + 1)
    for values in product(degrees, degrees, degrees, range(4), flags, (1, 2), batches):
        fields: dict[str, object] = dict(zip(names[:-1], values, strict=True))
        data, tensor, pipeline, zero, together, parts, micro_batch = values
        if data * tensor * pipeline != gpus or batch % (data * micro_batch):
            continue
        if zero and (data == 1 or (zero > 1 and pipeline > 1)):
            continue
        fields["micro_batches"] = batch // data // micro_batch
        try:
            Run.from_json({**run.to_json(), **fields})
        except InputErrors:
            assert together or tensor > 1 or pipeline > 1 or parts > 1
            continue
        possible.add(tuple(sorted(fields.items())))
    assert possible <= found
    for fields_ in found - possible:
        with pytest.raises(InputErrors):
            Run.from_json({**run.to_json(), **dict(fields_)})


def test_plans_train_the_same() -> None:
    run = ask(implementation="huggingface", model="llama-3.2-1b", optimizer="muon", micro_batch=4)
    for one, _ in every(run, gpus=1, batch=4):
        assert trains_the_same(run, one)


@pytest.mark.parametrize("model", ["gpt2-xl", "llama-7b", "llama-3.2-1b"])
@pytest.mark.parametrize("gpu", ["t4-16gb", "rtx-4090-24gb", "80gb"])
def test_fewest_gpus(model: str, gpu: str) -> None:
    run = ask(model=model, sequence=1024, gpu=gpu)
    found = fewest_gpus(run)
    assert found is not None
    assert cheapest(run, gpus=found, batch=found) is not None
    for fewer in range(1, found):
        if fewer <= 8 or fewer % 8 == 0:
            plan = cheapest(run, gpus=fewer, batch=fewer)
            assert plan is None or plan.fits is Fits.TIGHT


def test_no_number_of_gpus_may_be_enough() -> None:
    """One layer of 4 sequences of 64 million tokens, and no sequence is ever split."""
    run = ask(model="gpt2", sequence=2**20, shape={"positions": 2**20}, gpu="t4-16gb")
    assert fewest_gpus(run, batch=1) is None


OFFLOADS = {
    "model": "llama-3.2-1b",
    "implementation": "huggingface",
    "recipe": "autocast-adam",
    "gpu": "rtx-4090-24gb",
    "sequence": 32_768,
}


def test_what_waits_on_the_cpu_is_in_plans_with_its_copies() -> None:
    """Only with checkpoints on the CPU and the optimizer in backward does this fit at all."""
    plan = cheapest(ask(**OFFLOADS), gpus=1, batch=1)
    assert plan is not None
    assert plan.fields["offload"] == "checkpoints"
    assert plan.fields["optimizer_in_backward"] is True
    # Each of 16 layers' inputs, 32-bit numbers, there and back.
    assert plan.cost.copied_bytes == 2 * 16 * 32_768 * 2048 * 4
    assert trains_the_same(ask(**OFFLOADS), plan.run)


def test_what_trains_otherwise_is_in_plans_only_if_allowed_and_needed() -> None:
    small = ask(**{**OFFLOADS, "sequence": 1024})
    allowed = cheapest(small, gpus=1, batch=1, allow=tuple(Allow))
    assert allowed == cheapest(small, gpus=1, batch=1)
    large = ask(**{**OFFLOADS, "model": "llama-3-8b", "sequence": 2048})
    assert cheapest(large, gpus=1, batch=1) is None
    assert cheapest(large, gpus=1, batch=1, allow=(Allow.OPTIMIZER,)) is None
    plan = cheapest(large, gpus=1, batch=1, allow=tuple(Allow))
    assert plan is not None
    assert plan.fields["adapter"] == "qlora"
    assert not trains_the_same(large, plan.run)
    assert fewest_gpus(large, batch=1, allow=(Allow.ADAPTERS,)) == 1


def test_what_is_passed_over_by_a_smaller_micro_batch_is_counted() -> None:
    """Every plan there is, where no split is too large by what stays."""
    run = ask(model="llama-3.2-1b", implementation="megatron", sequence=8192, gpu="h100-80gb")
    *_, last = search(run, gpus=4, batch=96)
    assert last.too_large == 0
    assert last.priced < last.tried == sum(1 for _ in every(run, gpus=4, batch=96))


def test_a_search_tells_how_far_it_is() -> None:
    told = list(search(ask(model="llama-7b"), gpus=8, batch=8))
    assert [one.done for one in told] == [False] * (len(told) - 1) + [True]
    counts = [(one.tried, one.priced, one.estimated) for one in told]
    assert counts == sorted(counts)
    assert isinstance(told[-1].plan, Plan)
    assert 0 < told[-1].estimated <= told[-1].priced < told[-1].tried
    assert told[-1].too_large > 0


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(49) == [1, 7, 49]
    assert divisors(1) == [1]


def test_the_optimizer_is_on_the_cpu_in_plans_only_if_allowed_and_needed() -> None:
    asked = {"implementation": "torchtitan", "recipe": "autocast-adam", "sequence": 2048}
    large = ask(model="llama-3.1-70b", gpu="h100-80gb", data=8, **asked)
    assert cheapest(large, gpus=8, batch=8) is None
    plan = cheapest(large, gpus=8, batch=8, allow=(Allow.CPU,))
    assert plan is not None
    assert plan.fields["offload_param"] == "cpu"
    assert trains_the_same(large, plan.run)
    lines = {one.library: one.lines for one in spellings(plan.fields, plan.run)}
    assert "enable_cpu_offload = true" in lines["torchtitan"]
    assert "fsdp_offload_params: true" in lines["Hugging Face"]
    small = ask(model="llama-3.2-1b", gpu="h100-80gb", **asked)
    assert cheapest(small, gpus=8, batch=8, allow=tuple(Allow)) == cheapest(small, gpus=8, batch=8)
