"""How near the calculator comes to PyTorch on several GPUs, by framework and parallelism.

The traces are data (docs/data/traces/sharded-*.csv, context-steps.csv, fsdp1-steps.csv and
zero-steps.csv, made by scripts/measure); the predictions are asked of the calculator whenever the
tables are made. Fine-tuned models, and what makes room, have a file of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import tuning_tables
from compared import END, Compared, Row, at, by_error, end, error, exact, request_of, rows_of
from table import Cell, Column, Table
from training_memory.deepspeed.step import step_on
from training_memory.estimate import estimate
from training_memory.recorded_step import optimizer_id, sized
from training_memory.run import Run
from training_memory.walk import climb

_FRAMEWORKS = {"huggingface": "Hugging Face", "torchtitan": "torchtitan"}
#: What DeepSpeed is told in numbers, and what it is called here.
_NUMBERS = {
    "reduce_bucket_size": "buckets of",
    "prefetch_bucket_size": "prefetch of",
    "param_persistence_threshold": "whole up to",
}
#: What torch's context_parallel calls the ways to exchange keys and values.
_EXCHANGES = {"allgather": "all-gather", "alltoall": "ring"}
#: What a table of FSDP2's steps alone leaves out.
_OF_FSDP2 = {
    "sharding": "fsdp2",
    "tensor": "1",
    "sequence_parallel": "no",
    "turn": "2",
    "bucket_views": "no",
}
_WAYS = {"ddp": "DDP", "fsdp2": "FSDP2"}
#: FSDP1's strategies as PyTorch names them.
_STRATEGIES = {"hybrid_shard_zero2": "_HYBRID_SHARD_ZERO2"}


def run_of(row: Row) -> Run:
    """The run that a row of the traces is of."""
    if "stage" in row:
        return _of_deepspeed(row)
    if "strategy" in row:
        return _of_fsdp1(row)
    request = {
        **request_of(row),
        **tuning_tables.adapters_of(row),
        "loss": row["loss"],
        "optimizer_in_backward": row.get("in_backward", "no"),
        "offload": row.get("offload", "none"),
        "data": int(row["data"]) * int(row["replicas"]),
        "tensor": row["tensor"],
        "sequence_parallel": row["sequence_parallel"] == "yes",
    }
    if "context" in row:
        request |= {"context": row["context"], "context_exchange": _EXCHANGES[row["rotate"]]}
    if row["sharding"] == "ddp":
        own = {"bucket_views": row["bucket_views"] == "yes", "first_step": row["turn"] == "1"}
        request |= {"sharding": "ddp", **own}
    elif row["sharding"] == "fsdp2":
        request |= {
            "sharding": "fsdp2",
            "replicate": row["replicas"],
            "reshard_after_forward": row["reshard"] == "yes",
            "fsdp_units": row["wrap"],
            "prefetch": row["prefetch"],
            "reduce_dtype": row["reduce_dtype"],
            "offload_param": "cpu" if row.get("offload_params") == "yes" else "none",
            "sync_each_batch": row["synced"] == "yes" and row["implementation"] == "huggingface",
        }
    return Run.from_json(request)


def _of_fsdp1(row: Row) -> Run:
    data, strategy = int(row["data"]) * int(row["replicas"]), row["strategy"]
    request = {
        **request_of(row),
        **tuning_tables.adapters_of(row),
        "loss": row["loss"],
        "hold_logits": row["hold_logits"] == "yes",
        "offload": row["offload"],
        "sharding": "fsdp1",
        "data": data,
        "replicate": data if strategy == "no_shard" else row["replicas"],
        "reshard_after_forward": strategy in ("full_shard", "hybrid_shard", "no_shard"),
        "backward_prefetch": row["backward_prefetch"],
        "forward_prefetch": row["forward_prefetch"] == "yes",
        "use_orig_params": row["use_orig_params"] == "yes",
        "reduce_dtype": row["reduce_dtype"],
        "offload_param": "cpu" if row["offload_params"] == "yes" else "none",
        "sync_each_batch": row["synced"] == "yes",
    }
    return Run.from_json(request)


def _of_deepspeed(row: Row) -> Run:
    told: dict[str, object] = {name: row[name] for name in ("data", *_NUMBERS) if row[name]}
    if row["overlap_comm"]:
        told["overlap_comm"] = row["overlap_comm"] == "True"
    told |= {name: row[name] for name in ("offload_optimizer", "offload_param")}
    told |= tuning_tables.adapters_of(row)
    told |= {"sharding": "deepspeed", "zero": row["stage"], "loss": row["loss"]}
    request = {**request_of(row), **told}
    return Run.from_json(request)


def _under_deepspeed(row: Row) -> Compared:
    """What the GPU that was traced holds, which need not be the one that needs most."""
    run = _of_deepspeed(row)
    step = step_on(run, sized(run), optimizer_id(run), int(row["rank"]))
    traced = max(int(row[f"{phase}_bytes"]) for phase in ("forward", "backward", "step"))
    return Compared(row=row, predicted=climb(step)[1], traced=traced)


@cache
def compared() -> tuple[Compared, ...]:
    """Every traced step."""
    return (
        *(
            Compared(row=row, predicted=estimate(run_of(row)).worst.peak_bytes, traced=traced)
            for row, traced in _traced()
        ),
        *map(_under_deepspeed, rows_of("zero-steps.csv")),
    )


def _traced() -> Iterator[tuple[Row, int]]:
    """The steps, and what each takes at its highest."""
    for row in rows_of("sharded-steps.csv"):
        yield row, int(row["peak_bytes"])
    for row in rows_of("sharded-tuning.csv"):
        yield row, tuning_tables.highest(row)
    for row in rows_of("context-steps.csv"):
        # The calculator's is the GPU that holds most: it has others before and after it.
        if int(row["rank"]) == min(1, int(row["context"]) - 2):
            yield {**row, **_OF_FSDP2}, tuning_tables.highest(row)
    for row in rows_of("fsdp1-steps.csv"):
        yield row, max(int(row[f"{phase}_bytes"] or 0) for phase in _PHASES)


_PHASES = ("forward", "backward", "clip", "step")


def way(row: Row) -> str:
    """How the GPUs of a row share the model."""
    if "stage" in row:
        zero = int(row["stage"])
        parts = [f"ZeRO-{zero} of DeepSpeed" if zero else "DeepSpeed without ZeRO"]
    elif "strategy" in row:
        parts = [f"FSDP1, {_STRATEGIES.get(row['strategy'], row['strategy'].upper())}"]
    else:
        parts = _parts(row)
    if adapter := tuning_tables.ADAPTERS.get(row.get("adapter", "")):
        parts[0] = f"{parts[0]}, {adapter}"
    return " with ".join(parts)


def _parts(row: Row) -> list[str]:
    """By what a run of PyTorch's own parts is split, one after the other."""
    parts = [_WAYS[row["sharding"]]] if row["sharding"] in _WAYS else []
    if row["replicas"] != "1":
        parts[-1] += ", hybrid"
    if row["tensor"] != "1":
        sequence = " and sequence" if row["sequence_parallel"] == "yes" else ""
        parts.append(f"tensor{sequence} parallel")
    if "context" in row:
        parts.append("context parallel")
    return parts


def summary() -> Table:
    """By framework and parallelism: how many steps, how many exact, and the errors."""
    kinds: dict[tuple[str, str], list[Compared]] = {}
    for one in compared():
        kinds.setdefault((_FRAMEWORKS[one.row["implementation"]], way(one.row)), []).append(one)
    rows = []
    for (framework, parallelism), steps_ in sorted(kinds.items()):
        ordered = by_error(steps_)
        rows.append(
            (
                Cell(framework),
                Cell(parallelism),
                Cell(len(steps_)),
                exact(steps_),
                error(at(ordered, 0.5)),
                error(ordered[-1]),
            )
        )
    return Table(
        columns=(
            Column(heading="Framework", name="framework", right=False),
            Column(heading="Parallelism", name="parallelism", right=False),
            Column(heading="Steps", name="steps"),
            Column(heading="Exact to the byte", name="exact"),
            Column(heading="Median error", name="median_error_percent"),
            Column(heading="Worst", name="worst_error_percent"),
        ),
        rows=tuple(rows),
    )


def steps() -> Table:
    """Every step: what it is, its traced and its predicted peak, and the error."""
    return Table(
        columns=(
            Column(heading="Step", name="step", right=False),
            Column(heading="Framework", name="framework", right=False),
            Column(heading="Model", name="model", right=False),
            Column(heading="Layers", name="layers"),
            Column(heading="GPUs", name="gpus"),
            Column(heading="Parallelism", name="parallelism", right=False),
            Column(heading="Told", name="told", right=False),
            Column(heading="Precision", name="precision", right=False),
            Column(heading="Recompute", name="recompute", right=False),
            *END,
        ),
        rows=tuple(_row(one) for one in compared()),
    )


def _row(one: Compared) -> tuple[Cell, ...]:
    row, run = one.row, run_of(one.row)
    return (
        Cell(row["step"]),
        Cell(_FRAMEWORKS[row["implementation"]]),
        Cell(row["model"]),
        Cell(run.model.layers),
        Cell(run.layout.gpus),
        Cell(way(row)),
        Cell(_told(row)),
        Cell(row["precision"]),
        Cell(row["recompute"]),
        *end(one),
    )


def _told(row: Row) -> str:
    """What the framework was told that it does not do by itself."""
    if "stage" in row:
        return _told_deepspeed(row)
    if "strategy" in row:
        return _told_fsdp1(row)
    found = []
    if row["sharding"] == "fsdp2":
        found += [
            text
            for text, told in (
                ("the rest in one unit", row["wrap"] == "layers"),
                ("not resharded", row["reshard"] == "no"),
                ("explicit prefetch", row["prefetch"] == "explicit"),
                ("reduced in bf16", row["reduce_dtype"] == "bf16"),
                ("keys and values passed round", row.get("rotate") == "alltoall"),
            )
            if told
        ]
    found += [
        text
        for text, told in (
            ("all that is kept on the CPU", row.get("offload_params") == "yes"),
            ("optimizer in backward", row.get("in_backward") == "yes"),
            ("layers' inputs on the CPU", row.get("offload") == "checkpoints"),
            ("all that is saved on the CPU", row.get("offload") == "saved"),
            (f"{row['loss']} loss", row["loss"] != "full"),
        )
        if told
    ]
    found += _adapters(row)
    if row["turn"] == "1":
        found.append("the first step")
    if row["bucket_views"] == "yes":
        found.append("gradients in buckets")
    if row["micro_batches"] != "1":
        waits = ", reduced after the last" if row["synced"] == "no" else ""
        found.append(f"{row['micro_batches']} micro-batches{waits}")
    return ", ".join(found)


def _adapters(row: Row) -> Iterator[str]:
    if row.get("adapter", "none") == "none":
        return
    every = row["adapter_targets"] == "all-linear"
    yield f"rank {row['adapter_rank']}" + (", all products" if every else "")
    if row["adapter_dtype"] == "bf16":
        yield "adapters in bf16"
    if row["frozen_dtype"] == "fp32":
        yield "frozen in fp32"
    if row["adapter"] == "qlora" and row["quant_storage"] == "uint8":
        yield "4-bit weights in bytes"


def _told_fsdp1(row: Row) -> str:
    each = row["micro_batches"]
    waits = "" if row["synced"] == "yes" else ", reduced after the last"
    found = [
        text
        for text, told in (
            (f"backward prefetch {row['backward_prefetch']}", row["backward_prefetch"] != "none"),
            ("forward prefetch", row["forward_prefetch"] == "yes"),
            ("all-gathers not limited", row["limit_all_gathers"] == "no"),
            ("the optimizer given flat weights", row["use_orig_params"] == "no"),
            ("reduced in fp32", row["reduce_dtype"] == "fp32" and row["precision"] == "autocast"),
            ("all that is kept on the CPU", row["offload_params"] == "yes"),
            ("layers' inputs on the CPU", row["offload"] == "checkpoints"),
            ("all that is saved on the CPU", row["offload"] == "saved"),
            (f"{row['loss']} loss", row["loss"] != "full"),
            ("logits held", row["hold_logits"] == "yes"),
            (f"{each} micro-batches{waits}", each != "1"),
        )
        if told
    ]
    return ", ".join([*found, *_adapters(row)])


_USUAL_OPTIMIZERS = ("adamw-fused", "adamw-foreach")


def _told_deepspeed(row: Row) -> str:
    found = [row["optimizer"]] if row["optimizer"] not in _USUAL_OPTIMIZERS else []
    found += [f"{words} {row[name]}" for name, words in _NUMBERS.items() if row[name]]
    found += [
        text
        for text, told in (
            ("overlap_comm", row["overlap_comm"] == "True"),
            (f"{row['loss']} loss", row["loss"] != "full"),
            ("optimizer on the CPU", row["offload_optimizer"] == "cpu"),
            ("optimizer's states on disks", row["offload_optimizer"] == "nvme"),
            ("weights on disks", row["offload_param"] == "nvme"),
            ("weights on the CPU", row["offload_param"] == "cpu"),
            (f"{row['micro_batches']} micro-batches", row["micro_batches"] != "1"),
            (f"GPU {row['rank']}", row["rank"] != "0"),
        )
        if told
    ]
    return ", ".join(found)
