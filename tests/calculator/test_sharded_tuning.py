"""Steps of fine-tuning on one of several GPUs against PyTorch, PEFT and bitsandbytes, traced."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps import sweep
from traced import asked as traced_run
from traced import found_by, highest_of_run, rows_of
from training_memory import gathering
from training_memory.categories import Category
from training_memory.copies import optimizer_copies
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.omitted import omitted
from training_memory.recorded_step import (
    held_rows,
    host_bytes,
    optimizer_step,
    trained_parameters,
)
from training_memory.run import Run
from training_memory.shares import share_of

STEPS = rows_of("sharded-tuning.csv")
PHASES = ("forward", "backward", "clip", "step")
ADAPTERS = (
    *("adapter", "adapter_rank", "adapter_targets", "adapter_dtype", "adapter_dropout"),
    "frozen_dtype",
)


def asked(row: dict[str, str]) -> dict[str, Any]:
    """The run that a row traced."""
    request = {
        **traced_run(row),
        **{name: row[name] for name in ("offload", "tensor", "sequence_parallel")},
        "optimizer_in_backward": row["in_backward"],
    }
    if row["adapter"] != "none":
        request |= {name: row[name] for name in ADAPTERS}
    if row["adapter"] == "qlora":
        request["quant_storage"] = row["quant_storage"]
    if row["sharding"] == "none":
        return request
    request |= {"sharding": row["sharding"], "data": row["data"]}
    if row["sharding"] == "ddp":
        return {**request, "bucket_views": row["bucket_views"], "first_step": row["turn"] == "1"}
    return {
        **request,
        "data": int(row["data"]) * int(row["replicas"]),
        "replicate": row["replicas"],
        "reshard_after_forward": row["reshard"],
        "fsdp_units": row["wrap"],
        "prefetch": row["prefetch"],
        "reduce_dtype": row["reduce_dtype"],
        "offload_param": "cpu" if row["offload_params"] == "yes" else "none",
        "sync_each_batch": row["synced"] == "yes" and row["implementation"] == "huggingface",
    }


def test_the_rows_are_many_and_of_every_kind():
    assert len(STEPS) >= 250
    assert {row["adapter"] for row in STEPS} == {"none", "lora", "qlora"}
    assert {row["offload"] for row in STEPS} == {"none", "checkpoints", "saved"}
    assert {row["loss"] for row in STEPS} == {"full", "chunked", "fused-linear"}
    assert sum(row["in_backward"] == "yes" for row in STEPS) >= 6
    assert len({row["optimizer"] for row in STEPS if row["sharding"] == "ddp"}) >= 6
    assert {row["sharding"] for row in STEPS} == {"none", "ddp", "fsdp2"}
    assert {row["data"] for row in STEPS} == {"1", "4", "8", "64"}
    assert {row["recompute"] for row in STEPS} == {"none", "selective", "matmuls", "full"}
    split = [row for row in STEPS if row["tensor"] != "1"]
    assert {row["implementation"] for row in split} == {"huggingface", "torchtitan"}
    assert len({row["tensor"] for row in split}) == 3
    assert {row["adapter_rank"] for row in STEPS} == {"8", "16"}
    assert sum(row["offload_params"] == "yes" and row["adapter"] != "none" for row in STEPS) >= 15
    assert sum(row["clip"] == "yes" for row in split) >= 20
    assert sum(row["adapter"] == "lora" for row in split) >= 18
    assert len({row["model"] for row in STEPS}) >= 14
    names = ("adapter_targets", "adapter_dtype", "frozen_dtype", "quant_storage")
    for name in (*names, "reshard", "wrap", "prefetch", "reduce_dtype", "bucket_views", "turn"):
        assert len({row[name] for row in STEPS}) == 2, name


@pytest.mark.parametrize("row", sweep(STEPS), ids=lambda row: row["step"])
def test_every_phase_is_as_high_as_in_pytorch(row):
    run = Run.from_json(asked(row))
    held = found_by(run)
    assert held + 2 * 8 * run.sequence * run.micro_batch == int(row["persistent_bytes"])
    found = highest_of_run(run)
    for phase in PHASES:
        done = "yes" in (row["offload_params"], row["in_backward"])
        if phase in ("clip", "step") and done:
            # What the optimizer does is done on the CPU, or was as each gradient came.
            assert not optimizer_step(run).children
            assert row[f"{phase}_peak_bytes"] in ("", row["persistent_bytes"])
        elif row[f"{phase}_peak_bytes"]:
            assert found[phase].bytes == int(row[f"{phase}_peak_bytes"]), phase


@pytest.mark.parametrize("row", sweep(STEPS), ids=lambda row: row["step"])
def test_a_run_peaks_where_pytorch_does(row):
    run = Run.from_json(asked(row))
    traced = max(int(row[f"{phase}_peak_bytes"] or 0) for phase in PHASES)
    assert estimate(run).worst.peak_bytes == traced
    assert Run.from_json(run.to_json()) == run


RUN = {
    "implementation": "huggingface",
    "model": "llama-3.1-70b",
    "recipe": "autocast-adam",
    "recompute": "full",
    "zero": 3,
}


def test_frozen_weights_are_shared_and_scales_are_not():
    one, eight = (
        {
            row.name: row.bytes
            for row in held_rows(Run.from_json({**RUN, "adapter": "qlora", "data": data}))
        }
        for data in (1, 8)
    )
    codes, scales = "frozen weights in 4 bits", "scales of the weights in 4 bits"
    assert eight[codes] == one[codes] // 8
    assert eight[scales] == one[scales]
    assert eight["adapters"] == one["adapters"] // 8


def test_codes_in_bytes_are_whole_on_each_gpu():
    # accelerate/utils/fsdp_utils.py: "Excluding from FSDP2 sharding".
    found = [
        estimate(Run.from_json({**RUN, "adapter": "qlora", "data": 8, "quant_storage": storage}))
        for storage in ("bf16", "uint8")
    ]
    shared, whole = (one.worst.totals[Category.WEIGHTS] for one in found)
    layers = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
    assert whole - shared == layers // 2 * 7 // 8


def test_a_layer_is_gathered_with_its_adapters_padded_to_whole_rows():
    run = Run.from_json({**RUN, "adapter": "lora", "adapter_rank": 8, "data": 64})
    sizes = dict(gathering.unit_values(run.model, "huggingface", "head", share_of(run), run.tuning))
    h, kv, f, rank = 8192, 1024, 28672, 8
    layer = 2 * h * h + 2 * h * kv + 3 * h * f + 2 * h
    # Of 8 rows each of 64 GPUs sends one, or a row of padding.
    down = 64 * (6 * h + f)
    up = rank * (2 * h + 2 * kv + 2 * f + h)
    assert sizes["o:layer"] == 2 * (layer + down + up)
    assert trained_parameters(run) == 80 * (rank * (6 * h + f) + up)


@pytest.mark.parametrize(
    ("request_json", "field", "reason"),
    [
        ({"adapter": "lora", "adapter_dtype": "bf16"}, "adapter_dtype", "accelerate puts"),
        (
            {"adapter": "qlora", "recipe": "bf16-adam", "frozen_dtype": "fp32"},
            "frozen_dtype",
            "as they are",
        ),
        ({"quant_storage": "uint8"}, "quant_storage", "every weight is trained"),
        ({"adapter": "lora", "quant_storage": "uint8"}, "quant_storage", "nothing is in 4 bits"),
        ({"adapter": "lora", "loss": "fused-linear"}, "loss", "finds the shard"),
        ({"optimizer": "adamw-8bit"}, "optimizer", "a DTensor"),
        ({"optimizer": "adafactor"}, "optimizer", "norms of columns"),
        ({"zero": 0, "optimizer_in_backward": True}, "optimizer_in_backward", "set sharding to"),
    ],
)
def test_what_adapters_under_fsdp2_have_not_is_refused_with_the_reason(request_json, field, reason):
    with pytest.raises(InputErrors) as caught:
        Run.from_json({**RUN, "data": 8, **request_json})
    (error,) = caught.value.errors
    assert error.field == field
    assert reason in error.message


def test_what_fsdp2_leaves_on_the_cpu_is_told():
    run = {"implementation": "torchtitan", "recipe": "autocast-adam", "data": 8}
    here, away = (Run.from_json({**run, "offload_param": place}) for place in ("none", "cpu"))
    # Four bytes of weights and of gradients, eight of the two moments.
    shares = 16 * here.model.parameters.total // 8
    assert shares <= host_bytes(away) < 1.001 * shares
    assert host_bytes(here) == 0
    (told,) = (text for text in omitted(away) if "CPU" in text)
    assert told.startswith("Shards of the weights, their gradients")
    held = 4 * here.model.parameters.total // 8
    assert optimizer_copies(away) == (held, 2 * held)
    three = Run.from_json({**run, "offload_param": "cpu", "micro_batches": 3})
    assert optimizer_copies(three) == (3 * held, 6 * held)


def test_beside_adapters_what_is_frozen_is_on_the_cpu_as_well():
    run = {**RUN, "model": "llama-3-8b", "data": 8, "offload_param": "cpu", "adapter_rank": 8}
    frozen = 8_030_261_248
    adapters = 32 * 8 * (2 * 8192 + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    for adapter, kept in (("lora", 2 * frozen), ("qlora", None)):
        away = Run.from_json({**run, "adapter": adapter})
        held = {row.name: row.bytes for row in held_rows(away)}
        gradients, shards = optimizer_copies(away)
        assert gradients == 4 * adapters // 8
        if kept is None:
            # Codes in 4 bits; norms, embedding and head in 16. Scales are no parameters: they stay.
            layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
            kept = layers // 2 + 2 * (frozen - layers)
            assert held["scales of the weights in 4 bits"] > layers // 64
        assert shards == 2 * (kept + 4 * adapters) // 8
        assert "adapters" not in held
        # The adapters, their gradients and two moments.
        there = (kept + 16 * adapters) // 8
        assert there <= host_bytes(away) < 1.001 * there


def test_torchtitans_own_lora_is_refused_with_the_reason():
    # torchtitan 0.3.0, components/lora.py: LoRAConverter without target_modules takes every Linear.
    with pytest.raises(InputErrors, match="own LoRA, beside the head as well"):
        Run.from_json({"implementation": "torchtitan", "adapter": "lora"})


def test_of_a_split_products_adapter_the_matrix_after_it_is_split():
    run = Run.from_json(
        {
            "implementation": "huggingface",
            "model": "llama-3-8b",
            "tensor": 4,
            "recipe": "autocast-adam",
            "adapter": "lora",
            "adapter_targets": "query-value",
        }
    )
    held = {row.name: row.bytes for row in held_rows(run)}
    # Rank 16, 32 layers: down to the rank whole, up from it a quarter of 4,096 and of 1,024.
    assert held["adapters"] == 4 * 32 * 16 * (2 * 4096 + (4096 + 1024) // 4)
