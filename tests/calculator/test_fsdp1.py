"""FSDP's first version: PyTorch's own code, traced under a fake process group, and its errors."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps import sweep
from traced import asked as traced_run
from traced import highest_of_run, rows_of
from training_memory.bounds import least_bytes
from training_memory.categories import Category
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.fit import Fit, fitting
from training_memory.flat import flat_units
from training_memory.readers.formats import read_files
from training_memory.recorded_step import held_rows
from training_memory.run import Run
from training_memory.shares import share_of

ROWS = rows_of("fsdp1-steps.csv")
PHASES = ("forward", "backward", "clip", "step")
#: Gemma 3 has rotary tables of two kinds. PyTorch gives those of the layers that look at all tokens
#: back once the last of these is through its backward pass; all layers have both here.
TABLES_OF_ONE_KIND = 2 * 2 * 1024 * 256
ABOVE = {("gemma-3-1b", "full", "none"): TABLES_OF_ONE_KIND}
ADAPTERS = (
    *("adapter", "adapter_rank", "adapter_targets", "adapter_dtype", "adapter_dropout"),
    "frozen_dtype",
)


def asked(row: dict[str, str]) -> dict[str, Any]:
    """The run that a row traced."""
    data, replicas = int(row["data"]), int(row["replicas"])
    return {
        **traced_run(row),
        **({name: row[name] for name in ADAPTERS} if row["adapter"] != "none" else {}),
        "offload": row["offload"],
        "data": data * replicas,
        "sharding": "fsdp1",
        "replicate": data if row["strategy"] == "no_shard" else replicas,
        "reshard_after_forward": row["strategy"] in ("full_shard", "hybrid_shard", "no_shard"),
        "backward_prefetch": row["backward_prefetch"],
        "forward_prefetch": row["forward_prefetch"] == "yes",
        "use_orig_params": row["use_orig_params"] == "yes",
        "reduce_dtype": row["reduce_dtype"],
        "offload_param": "cpu" if row["offload_params"] == "yes" else "none",
        "sync_each_batch": row["synced"] == "yes",
    }


def test_there_are_rows_of_every_kind():
    assert len(ROWS) >= 200
    adapted = [row for row in ROWS if row["adapter"] != "none"]
    assert len(adapted) >= 85
    for name, values in (
        ("adapter", 2),
        ("adapter_targets", 2),
        ("adapter_dtype", 2),
        ("adapter_dropout", 2),
        ("frozen_dtype", 2),
        ("strategy", 3),
        ("data", 3),
        ("backward_prefetch", 3),
        ("forward_prefetch", 2),
        ("use_orig_params", 2),
        ("reduce_dtype", 2),
        ("offload_params", 2),
        ("synced", 2),
        ("recompute", 4),
        ("precision", 3),
        ("loss", 3),
        ("offload", 3),
        ("model", 9),
    ):
        assert len({row[name] for row in adapted}) == values, name
    assert {row["data"] for row in ROWS} >= {"8", "64", "7"}
    for name, values in (
        ("strategy", 5),
        ("backward_prefetch", 3),
        ("forward_prefetch", 2),
        ("limit_all_gathers", 2),
        ("use_orig_params", 2),
        ("reduce_dtype", 2),
        ("offload_params", 2),
        ("synced", 2),
        ("clip", 2),
        ("recompute", 4),
        ("precision", 3),
        ("loss", 3),
        ("offload", 3),
        ("optimizer", 9),
    ):
        assert len({row[name] for row in ROWS}) == values, name
    models = {row["model"] for row in ROWS}
    assert models >= {"llama-7b", "llama-3-8b", "qwen2.5-0.5b", "gpt2", "mistral-7b"}


@pytest.mark.parametrize("row", sweep(ROWS), ids=lambda row: row["step"])
def test_every_phase_is_as_high_as_in_pytorch(row):
    found = highest_of_run(Run.from_json(asked(row)))
    above = ABOVE.get((row["model"], row["recompute"], row["adapter"]), 0)
    for phase in PHASES:
        if row[f"{phase}_bytes"] and phase in found:
            more = above if phase == "backward" else 0
            assert found[phase].bytes - more == int(row[f"{phase}_bytes"]), phase


@pytest.mark.parametrize("row", sweep(ROWS), ids=lambda row: row["step"])
def test_the_peak_and_what_stays_are_pytorchs(row):
    run = Run.from_json(asked(row))
    # Tokens and labels, 8 bytes each.
    batch = 2 * 8 * run.sequence * run.micro_batch
    assert sum(one.bytes for one in held_rows(run)) + batch == int(row["persistent_bytes"])
    traced = max(int(row[f"{phase}_bytes"] or 0) for phase in PHASES)
    above = ABOVE.get((row["model"], row["recompute"], row["adapter"]), 0)
    assert estimate(run).worst.peak_bytes - above == traced


def test_limiting_all_gathers_changes_no_bytes():
    # It makes the CPU wait, and the program asks for the same memory in the same order.
    told = [row for row in ROWS if row["limit_all_gathers"] == "no"]
    assert told
    for row in told:
        found = highest_of_run(Run.from_json(asked(row)))
        assert found["backward"].bytes == int(row["backward_bytes"])


def test_no_bound_is_above_what_pytorch_takes():
    for row in ROWS:
        run = Run.from_json(asked(row))
        traced = max(int(row[f"{phase}_bytes"] or 0) for phase in PHASES)
        assert least_bytes(run) <= traced, row["step"]


BASE = {
    "implementation": "huggingface",
    "model": "llama-3.2-1b",
    "sharding": "fsdp1",
    "data": 8,
    "sequence": 512,
}


def test_a_run_is_read_back_and_has_accelerates_own_defaults():
    run = Run.from_json(BASE)
    assert Run.from_json(run.to_json()) == run
    assert (run.layout.zero, run.recipe.id) == (3, "autocast-adam")
    # accelerate 1.15, set_mixed_precision: both are what is computed with.
    assert str(run.sharding.reduce_dtype) == "bf16"
    assert run.to_json()["fsdp_units"] is None


def test_flat_weights_are_padded_as_their_optimizer_wants_them():
    run = Run.from_json({**BASE, "model": "gpt2", "data": 7})
    views = flat_units(run.model, "huggingface", share_of(run))
    assert all(one.numel % 7 == 0 for one in views.values())
    run = Run.from_json({**BASE, "model": "gpt2", "data": 7, "use_orig_params": False})
    flat = flat_units(run.model, "huggingface", share_of(run))["layer"]
    # A layer of GPT-2: 12·h² + 13·h parameters.
    assert flat.numel == 12 * 768**2 + 13 * 768
    assert flat.share == -(-flat.numel // 7)


def test_prefetching_ahead_takes_a_layer_more():
    peaks = [
        estimate(
            Run.from_json({**BASE, "recompute": "full", "backward_prefetch": when})
        ).worst.totals[Category.TEMPORARY]
        for when in ("none", "pre")
    ]
    assert peaks[1] >= peaks[0]


def test_what_streams_keep_is_said():
    omitted = estimate(Run.from_json(BASE)).omitted
    assert any("record_stream" in one for one in omitted)


@pytest.mark.parametrize(
    ("request_json", "field", "reason"),
    [
        ({"zero": 2}, "zero", "SHARD_GRAD_OP"),
        ({"replicate": 3}, "replicate", "8 itself is NO_SHARD"),
        ({"recipe": "mixed-adam"}, "sharding", "no second copy"),
        ({"adapter": "lora", "adapter_dtype": "bf16"}, "adapter_dtype", "accelerate puts"),
        ({"adapter": "lora", "replicate": 8}, "replicate", "head and embedding are one"),
        (
            {"adapter": "qlora", "quant_storage": "uint8"},
            "quant_storage",
            "floating-point numbers alone",
        ),
        ({"adapter": "qlora", "frozen_dtype": "fp32"}, "frozen_dtype", "all of one dtype"),
        ({"adapter": "qlora", "reduce_dtype": "fp32"}, "reduce_dtype", "stored in"),
        (
            {"adapter": "qlora", "recipe": "bf16-adam", "adapter_dtype": "fp32"},
            "adapter_dtype",
            "inputs in 32 bits",
        ),
        (
            {"adapter": "qlora", "reshard_after_forward": False},
            "reshard_after_forward",
            "set use_orig_params to false",
        ),
        ({"optimizer": "muon"}, "optimizer", "Muon's are matrices"),
        ({"optimizer_in_backward": True}, "optimizer_in_backward", "once all of a layer's are"),
        ({"fsdp_units": "layers"}, "fsdp_units", "only FSDP2 has this"),
        ({"prefetch": "explicit"}, "prefetch", "only FSDP2 has this"),
        ({"bucket_views": True}, "bucket_views", "only DDP has this"),
        ({"offload_param": "cpu", "replicate": 8}, "offload_param", "NO_SHARD"),
        (
            {"offload_param": "cpu", "sync_each_batch": True, "micro_batches": 2},
            "sync_each_batch",
            "not added to",
        ),
        ({"sharding": "fsdp2", "forward_prefetch": True}, "forward_prefetch", "only FSDP1 has"),
        ({"sharding": "fsdp2", "backward_prefetch": "pre"}, "backward_prefetch", "only FSDP1 has"),
        ({"sharding": "ddp", "use_orig_params": False}, "use_orig_params", "only FSDP1 has this"),
        ({"sharding": "ddp", "replicate": 2}, "replicate", "only FSDP1 and FSDP2 have this"),
        ({"implementation": "torchtitan"}, "sharding", "does not wrap its model"),
    ],
)
def test_what_it_has_not_is_refused_with_the_reason(request_json, field, reason):
    with pytest.raises(InputErrors) as caught:
        Run.from_json({**BASE, **request_json})
    (error,) = caught.value.errors
    assert error.field == field
    assert reason in error.message


ACCELERATE = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n"
TOLD = (
    "  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_backward_prefetch: BACKWARD_POST\n"
    "  fsdp_forward_prefetch: true\n  fsdp_use_orig_params: false\n"
)
TRAINER = "bf16: true\nper_device_train_batch_size: 1\nlearning_rate: 1e-5\nfsdp: {}\n"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        # accelerate 1.15, commands/launch.py: --fsdp_version is 1 unless it is said.
        (f"{ACCELERATE}  fsdp_sharding_strategy: FULL_SHARD\n", {"sharding": "fsdp1"}),
        (f"{ACCELERATE}  fsdp_version: 2\n", {"sharding": None}),
        (
            f"{ACCELERATE}  fsdp_sharding_strategy: 3\n",
            {"sharding": "fsdp1", "replicate": 8, "zero": 3},
        ),
        (
            ACCELERATE + TOLD,
            {
                "sharding": "fsdp1",
                "reshard_after_forward": False,
                "backward_prefetch": "post",
                "forward_prefetch": True,
                "use_orig_params": False,
            },
        ),
        # transformers 5.24, training_args.py: version 2 unless it is said.
        (TRAINER.format("full_shard auto_wrap"), {"sharding": None}),
        (
            TRAINER.format("shard_grad_op auto_wrap offload") + "fsdp_config:\n  version: 1\n",
            {"sharding": "fsdp1", "reshard_after_forward": False, "offload_param": "cpu"},
        ),
    ],
)
def test_files_mean_the_version_that_their_program_takes(text, fields):
    resolved = read_files([("run.yaml", text)], {"data": 8})
    found = resolved.fields
    assert {name: found.get(name) for name in fields} == fields
    Run.from_json({**found, "model": "llama-3.2-1b", "sequence": 512})


@pytest.mark.parametrize(("kind", "more"), [("lora", ""), ("qlora", "load_in_4bit: true\n")])
def test_adapters_in_a_file_are_counted_under_the_version_that_it_has(kind, more):
    text = (
        f"base_model: meta-llama/Llama-2-7b-hf\nadapter: {kind}\n{more}lora_r: 8\nbf16: true\n"
        "sequence_len: 512\nmicro_batch_size: 1\nlora_target_linear: true\n"
        "fsdp_version: 1\nfsdp: [full_shard, auto_wrap]\n"
        "fsdp_config:\n  fsdp_offload_params: true\n  fsdp_use_orig_params: false\n"
    )
    resolved = read_files([("a.yml", text)], {"data": 8})
    told = {
        "sharding": "fsdp1",
        "adapter": kind,
        "use_orig_params": False,
        "offload_param": "cpu",
    }
    assert {name: resolved.fields[name] for name in told} == told
    Run.from_json(resolved.fields)


def test_a_gpus_share_of_flat_weights_is_counted_by_hand():
    # Llama 3 8B: seven products and two norms in each of 32 layers; embedding, head, last norm.
    asked_for = {**BASE, "model": "llama-3-8b", "adapter": "qlora", "adapter_rank": 16}
    rows = {one.name: one.bytes for one in held_rows(Run.from_json(asked_for))}
    products = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    around = 2 * 128_256 * 4096 + 65 * 4096
    share = products // 2 // 8 + 2 * around // 8
    frozen = rows["frozen weights, a layer's products in 4 bits"]
    # The allocator rounds a layer's share up.
    assert 0 <= frozen - share <= 33 * 512
    adapters = 16 * 32 * (2 * 8192 + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    assert rows["adapters"] == 4 * adapters // 8
    assert rows["first moment"] == rows["adapters"]


def test_a_plan_that_splits_layers_is_of_the_second_version():
    run = {**BASE, "model": "llama-2-70b", "sequence": 4096, "gpu": "h100-80gb"}
    *_, found = fitting(estimate(Run.from_json(run)), gpus=64, batch=8)
    assert isinstance(found, Fit)
    plan = found.found.plan
    assert plan is not None
    assert plan.run.layout.tensor > 1
    assert str(plan.run.sharding.sharding) == "fsdp2"
    assert found.found.fewest is not None
    assert found.found.fewest <= 64
