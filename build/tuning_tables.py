"""How near the calculator comes to PyTorch, PEFT and bitsandbytes where a model is fine-tuned.

The traces are data (docs/data/traces/tuning-steps.csv, made by scripts/measure); the predictions
are asked of the calculator whenever the tables are made.
"""

from __future__ import annotations

from functools import cache

from compared import END, Compared, Row, at, by_error, end, error, exact, request_of, rows_of
from table import Cell, Column, Table
from training_memory.estimate import estimate
from training_memory.run import Run

_PHASES = ("forward", "backward", "clip", "step")
ADAPTERS = {"lora": "LoRA", "qlora": "QLoRA"}
_OF_ADAPTERS = (
    "adapter",
    "adapter_rank",
    "adapter_targets",
    "adapter_dtype",
    "adapter_dropout",
    "frozen_dtype",
)


def run_of(row: Row) -> Run:
    """The run that a row of the traces is of."""
    request = {
        **request_of(row),
        "loss": row["loss"],
        "hold_logits": row["hold_logits"],
        "optimizer_in_backward": row["in_backward"],
        "offload": row["offload"],
        **adapters_of(row),
    }
    return Run.from_json(request)


def adapters_of(row: Row) -> dict[str, str]:
    """What a row says of adapters, where there are any, as a run does."""
    if row.get("adapter", "none") == "none":
        return {}
    stored = {}
    if row["adapter"] == "qlora" and "quant_storage" in row:
        stored["quant_storage"] = row["quant_storage"]
    return {**{name: row[name] for name in _OF_ADAPTERS}, **stored}


def highest(row: Row) -> int:
    """The highest of a step's phases."""
    return max(int(row[f"{phase}_peak_bytes"] or 0) for phase in _PHASES)


@cache
def compared() -> tuple[Compared, ...]:
    """Every traced step, in the traces' order."""
    return tuple(
        Compared(
            row=row,
            predicted=estimate(run_of(row)).worst.peak_bytes,
            traced=highest(row),
        )
        for row in rows_of("tuning-steps.csv")
    )


def kind(row: Row) -> str:
    """What a step shows, in a few words."""
    if row["adapter"] != "none":
        adapter = ADAPTERS[row["adapter"]]
        return f"{adapter}, layers' inputs on the CPU" if row["offload"] != "none" else adapter
    if row["in_backward"] == "yes":
        return "optimizer in backward"
    if row["offload"] == "saved":
        return "all that is saved on the CPU"
    return "layers' inputs on the CPU" if row["offload"] != "none" else "paged optimizer"


def summary() -> Table:
    """By what a step shows: how many steps, how many exact, and the errors."""
    kinds: dict[str, list[Compared]] = {}
    for one in compared():
        kinds.setdefault(kind(one.row), []).append(one)
    rows = []
    for name, steps_ in (*kinds.items(), ("**All**", list(compared()))):
        ordered = by_error(steps_)
        rows.append(
            (
                Cell(name.strip("*"), name),
                Cell(len({one.row["model"] for one in steps_})),
                Cell(len(steps_)),
                exact(steps_),
                error(at(ordered, 0.5)),
                error(ordered[-1]),
            )
        )
    return Table(
        columns=(
            Column(heading="What", name="what", right=False),
            Column(heading="Models", name="models"),
            Column(heading="Steps", name="steps"),
            Column(heading="Exact to the byte", name="exact"),
            Column(heading="Median error", name="median_error_percent"),
            Column(heading="Worst", name="worst_error_percent"),
        ),
        rows=tuple(rows),
    )


_WORDS = ("step", "model", "precision", "frozen_dtype", "adapter_dtype", "adapter_targets")


def steps() -> Table:
    """Every step: what it is, its traced and its predicted peak, and the error."""
    return Table(
        columns=(
            Column(heading="What", name="what", right=False),
            *(
                Column(heading=name.replace("_", " ").capitalize(), name=name, right=False)
                for name in (*_WORDS, "recompute", "optimizer", "loss")
            ),
            Column(heading="Trained", name="trained"),
            *END,
        ),
        rows=tuple(_row(one) for one in compared()),
    )


def _row(one: Compared) -> tuple[Cell, ...]:
    row = one.row
    own = () if row["adapter"] != "none" else ("frozen_dtype", "adapter_dtype", "adapter_targets")
    return (
        Cell(kind(row)),
        *(
            Cell("" if name in own else row[name])
            for name in (*_WORDS, "recompute", "optimizer", "loss")
        ),
        Cell(int(row["trained"])),
        *end(one),
    )
