"""Tables of published measurements beside the calculator's predictions."""

from __future__ import annotations

from measured import Measured, measured
from table import Cell, Column, Table
from training_memory.units import gib, ratio

#: Losses by themselves, which would outnumber whole steps in a median.
_LOSSES = "linkedin/Liger-Kernel"
#: Sources by the names that people know them by.
_SOURCES = {
    "pytorch/torchtitan": "torchtitan",
    "pytorch/torchtune": "torchtune",
    "huggingface.co/nanotron/old_bench": "nanotron",
    "MooreThreads/SimuMax": "Megatron, by SimuMax",
    "karpathy/llm.c printout": "llm.c",
    "Lightning-AI/litgpt": "litgpt",
    "linkedin/Liger-Kernel": "Liger's losses",
}


def percent_apart(one: Measured) -> Cell:
    """How far a prediction is off, with its sign: above 0 it is too high."""
    value = ratio(one.apart * 100, one.bytes, 2)
    sign = "" if value.startswith("-") or not float(value) else "+"
    return Cell(value, f"{sign}{value} %".replace("-", "−"))


def _of(source: str | None) -> list[Measured]:
    """A source's figures; without a source those of all whole steps."""
    if source is None:
        return [one for one in measured() if one.row["source"] != _LOSSES]
    return [one for one in measured() if one.row["source"] == source]


def _error(one: Measured) -> float:
    return abs(one.apart) / one.bytes


def _percentile(ordered: list[Measured], share: float) -> Cell:
    one = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    value = ratio(abs(one.apart) * 100, one.bytes, 2)
    return Cell(value, f"{value} %")


def summary() -> Table:
    """By source: how many figures, how many compared, and the errors."""
    rows = []
    sources = sorted(_SOURCES.items(), key=lambda item: item[0] == _LOSSES)
    for source, name in (*sources[:-1], (None, "**All whole steps**"), sources[-1]):
        every = _of(source)
        ordered = sorted((one for one in every if one.is_scored), key=_error)
        none = Cell("", "–")
        rows.append(
            (
                Cell(name.strip("*"), name),
                Cell(len(every)),
                Cell(len(ordered)),
                _percentile(ordered, 0.5) if ordered else none,
                _percentile(ordered, 0.9) if ordered else none,
                _percentile(ordered, 0.95) if ordered else none,
                percent_apart(ordered[-1]) if ordered else none,
                Cell(ordered[-1].id) if ordered else none,
            )
        )
    return Table(
        columns=(
            Column(heading="Source", name="source", right=False),
            Column(heading="Figures", name="figures"),
            Column(heading="Compared", name="compared"),
            Column(heading="Median", name="median_error_percent"),
            Column(heading="90th", name="p90_error_percent"),
            Column(heading="95th", name="p95_error_percent"),
            Column(heading="Worst", name="worst_error_percent"),
            Column(heading="Which", name="worst_row", right=False),
        ),
        rows=tuple(rows),
    )


def rows() -> Table:
    """Every published figure: what it is of, measured and predicted size, what to know of it."""
    return Table(
        columns=(
            Column(heading="Row", name="row", right=False),
            Column(heading="Source", name="source", right=False),
            Column(heading="Run", name="run", right=False),
            Column(heading="Counter", name="counter", right=False),
            Column(heading="Measured", name="measured_bytes"),
            Column(heading="Predicted", name="predicted_bytes"),
            Column(heading="Error", name="error_percent"),
            Column(heading="Note", name="note", right=False),
        ),
        rows=tuple(_row(one) for one in measured()),
    )


def _row(one: Measured) -> tuple[Cell, ...]:
    none = Cell("", "–")
    predicted = one.predicted_bytes
    notes = (one.why_not, one.note, one.missing and f"Its source does not say: {one.missing}.")
    return (
        Cell(one.id),
        Cell(f"{one.row['source']}, {one.row['source_ref']}", _SOURCES[one.row["source"]]),
        Cell(_words(one)),
        Cell(str(one.counter)),
        Cell(one.bytes, gib(one.bytes, 2)),
        none if predicted is None else Cell(predicted, _size(one)),
        percent_apart(one) if one.is_scored else Cell("", _within(one)),
        Cell(" ".join(note for note in notes if note)),
    )


def _size(one: Measured) -> str:
    """What is predicted; bounds where another counter was read."""
    assert one.predicted_bytes is not None
    size = gib(one.predicted_bytes, 2)
    return f"{size} to {gib(one.most_bytes, 2)}" if one.most_bytes else size


def _within(one: Measured) -> str:
    """Where a figure of another counter lies in its bounds."""
    if one.predicted_bytes is None or one.most_bytes is None:
        return "–"
    if one.bytes < one.predicted_bytes:
        return "below"
    return "within" if one.bytes <= one.most_bytes else "above"


def _words(one: Measured) -> str:
    """What was run, in a few words."""
    row = one.row
    if row["task"] == "kernel":
        return f"{row['scope'].split(': ')[1].replace('_', ' ')}, {row['loss_impl']}"
    words = [row["model"], row["task"], f"{row['micro_batch']} × {row['seq_len']}"]
    splits = {"tp": "tensor", "pp": "pipeline", "dp_or_fsdp_degree": "data"}
    words += [f"{name} {row[key]}" for key, name in splits.items() if row[key] not in ("", "1")]
    if row["recompute"] not in ("", "none"):
        words.append(f"recomputing {row['recompute'].split(' ')[0]}")
    if row["compile"] == "yes":
        words.append("compiled")
    if "chunk" in row["loss_impl"].lower() and "unchunked" not in row["loss_impl"]:
        words.append("loss in chunks")
    return ", ".join(words)
