"""Plans: each is possible and fits, none cheaper is missed, and no smaller number of GPUs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_memory.cost import cost, global_batch
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.fit import trains_the_same
from training_memory.need import Fits, at_a_glance
from training_memory.plans import Plan, cheapest, every, fewest_gpus, search
from training_memory.run import Run
from training_memory.splits import divisors, splits


def ask(**request: object) -> Run:
    return Run.from_json(request)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Run, int, int]:
    """A run, a number of GPUs and a batch: some with no plan, some with many."""
    library = draw(st.booleans())
    request: dict[str, object] = {
        "sequence": draw(st.sampled_from([512, 1024])),
        "recipe": draw(st.sampled_from(["mixed-adam", "fp32-adam", "bf16-adam"])),
        "gpu": draw(st.sampled_from(["t4-16gb", "rtx-4090-24gb", "80gb"])),
    }
    if library:
        model = draw(st.sampled_from(["gpt2", "llama-3.2-1b", "qwen2.5-0.5b"]))
        request |= {
            "implementation": draw(st.sampled_from(["huggingface", "torchtitan"])),
            "attention": draw(st.sampled_from(["flash", "eager"])),
            "hold_logits": draw(st.booleans()),
        }
        if request["implementation"] == "torchtitan":
            model = "llama-3.2-1b"
        gpus = draw(st.sampled_from([1, 1, 2]))
    else:
        model = draw(st.sampled_from(["gpt2", "gpt2-xl", "llama-3.2-1b", "llama-7b"]))
        gpus = draw(st.sampled_from([1, 2, 3, 4, 8]))
    run = ask(model=model, **request)
    return run, gpus, draw(st.sampled_from([1, 2, 6, 8])) * gpus


@given(questions())
@settings(max_examples=12, deadline=None)
def test_a_plan_is_possible_fits_and_is_the_cheapest(question: tuple[Run, int, int]) -> None:
    run, gpus, batch = question
    plan = cheapest(run, gpus=gpus, batch=batch)
    fitting: dict[Fits, list[float]] = {fits: [] for fits in Fits}
    for one, _ in every(run, gpus=gpus, batch=batch):
        verdict = at_a_glance(one, estimate(one).worst.peak_bytes)
        fitting[verdict].append(cost(one).seconds)
    if plan is None:
        assert not fitting[Fits.YES]
        assert not fitting[Fits.TIGHT]
        return
    found = estimate(Run.from_json({**run.to_json(), **plan.fields}))
    assert found.run == plan.run
    assert found.worst.peak_bytes == plan.peak_bytes
    assert found.room_bytes is not None
    assert found.room_bytes >= 0
    assert found.run.layout.gpus == gpus
    assert global_batch(found.run) == batch
    assert plan.fits is (Fits.YES if fitting[Fits.YES] else Fits.TIGHT)
    assert plan.cost.seconds == pytest.approx(min(fitting[plan.fits]), rel=1e-5)


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
