"""Steps under DeepSpeed against DeepSpeed itself, traced on fake tensors under a fake group."""

from __future__ import annotations

from typing import Any

import pytest

from traced import OPTIMIZERS, RECIPES, rows_of
from training_memory.deepspeed import flat, step
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.events import Group
from training_memory.model import Model
from training_memory.recorded_step import held_rows, optimizer_id, sized
from training_memory.run import Run
from training_memory.walk import climb, walk, walk_expanded

ROWS = rows_of("zero-steps.csv")


def asked(row: dict[str, str]) -> dict[str, Any]:
    """The run that a row traced."""
    optimizer, kernel = OPTIMIZERS[row["optimizer"]]
    told = {
        name: row[name] if name == "reduce_bucket_size" else row[name] == "True"
        for name in ("reduce_bucket_size", "overlap_comm")
        if row[name]
    }
    return {
        "model": row["model"],
        "shape": dict(pair.split("=") for pair in row["shape"].split()),
        "sequence": row["sequence"],
        "micro_batch": row["micro_batch"],
        "micro_batches": row["micro_batches"],
        "recipe": RECIPES[row["precision"]],
        "recompute": row["recompute"],
        "implementation": row["implementation"],
        "optimizer": optimizer,
        "optimizer_kernel": kernel,
        "clip": row["clip"] == "yes",
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
    for micro_batch in step.passes(run, sized(run), rank):
        for phase, node in zip(("forward", "backward"), micro_batch, strict=True):
            remains, peak = climb(node)
            found[phase] = max(found[phase], now + peak)
            now += remains
    events = Group(label="", children=tuple(step.optimizer_events(run, optimizer_id(run), rank)))
    found["step"] = now + climb(events)[1]
    return found


def test_there_are_rows_of_every_kind():
    assert len(ROWS) >= 12
    assert {row["stage"] for row in ROWS} >= {"1", "2"}
    assert {row["data"] for row in ROWS} >= {"8", "64"}
    for name in ("overlap_comm", "reduce_bucket_size", "recompute", "rank", "precision"):
        assert len({row[name] for row in ROWS}) > 1, name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["step"])
def test_every_phase_is_as_high_as_under_deepspeed(row):
    for phase, ours in highest(row).items():
        assert ours == int(row[f"{phase}_bytes"]), phase


@pytest.mark.parametrize("row", ROWS[::5], ids=lambda row: row["step"])
def test_the_walk_of_a_woven_step_is_that_of_its_events(row):
    run = Run.from_json(asked(row))
    tree = step.step(run, sized(run), optimizer_id(run))
    assert walk(tree).peak == walk_expanded(tree).peak
    assert sum(walk(tree).remains) == sum(one.bytes for one in held_rows(run))


@pytest.mark.parametrize("gpus", [2, 3, 8, 64, 1024])
def test_every_number_of_a_group_has_one_owner(gpus):
    run = Run.from_json({"model": "qwen2.5-0.5b", "implementation": "huggingface"})
    for group in flat.groups(run.model, "huggingface", gpus):
        owned = [0] * gpus
        for place in range(len(group.numels)):
            owners = group.owned(place)
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


def test_auto_is_the_square_of_the_hidden_size():
    auto, same = (
        estimate(Run.from_json(_run(reduce_bucket_size=size))).worst.peak_bytes
        for size in ("auto", 4096 * 4096)
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
        (_run(loss="chunked"), "loss"),
        (_run(optimizer="muon", optimizer_kernel=None), "optimizer"),
        (_run(sharding="ddp"), "zero"),
        (_run(zero=0, reduce_bucket_size=1000), "reduce_bucket_size"),
        (_run(prefetch="explicit"), "prefetch"),
        (_run(pipeline=2), "pipeline"),
        (_run(reduce_bucket_size="much"), "reduce_bucket_size"),
    ],
)
def test_what_deepspeed_has_not_is_refused_with_the_reason(request_, field):
    with pytest.raises(InputErrors) as raised:
        Run.from_json(request_)
    assert field in {error.field for error in raised.value.errors}
