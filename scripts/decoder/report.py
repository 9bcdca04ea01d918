"""Everything the Decoder has to show: as data for a program, and as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter

from training_memory.blocks.paper import LAYER

from .comparison import Comparison, compare
from .count import Count, CountRow, count_step
from .gradients import Checked, gradient_check
from .model import DECODER, Shape
from .training import SEQUENCES, train


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One run of all parts: what was kept, how that compares, the gradients and the training."""

    shape: Shape
    count: Count
    comparison: Comparison
    gradients: tuple[Checked, ...]
    losses: tuple[float, ...]
    seconds: float

    def to_json(self) -> dict[str, object]:
        """The same as plain lists and numbers, with the sums written out."""
        return {
            "shape": asdict(self.shape),
            "parameters": self.count.states["weights"],
            "states": self.count.states,
            "block": {
                "rows": [asdict(row) for row in self.count.block],
                "values": self.count.block_values,
                "values_read": self.count.block_values_read,
            },
            "head": [asdict(row) for row in self.count.head],
            "step": {
                "sequences": self.count.sequences,
                "peak": asdict(self.count.peak),
                "timeline": [asdict(moment) for moment in self.count.timeline],
            },
            "comparison": {
                "pairs": [
                    {**asdict(pair), "difference": pair.difference}
                    for pair in self.comparison.pairs
                ],
                "counted_values": self.comparison.counted_values,
                "textbook_values": self.comparison.textbook_values,
                "difference": self.comparison.difference,
                "by_cause": self.comparison.by_cause,
            },
            "gradients": [asdict(checked) for checked in self.gradients],
            "losses": list(self.losses),
            "seconds": self.seconds,
        }


def make_report(
    *,
    steps: int = 100,
    elements: int | None = 8,
    shape: Shape = DECODER,
    seed: int = 0,
    on_step: Callable[[int, float], None] | None = None,
) -> Report:
    """Count, compare, check the gradients and train; ``seconds`` is what the training took."""
    counted = count_step(shape=shape, sequences=SEQUENCES, seed=seed)
    comparison = compare(LAYER.rows, shape=shape, counted=counted.block)
    gradients = gradient_check(elements=elements, shape=shape, seed=seed)
    start = perf_counter()
    losses = train(steps, on_step, shape=shape, seed=seed)
    return Report(
        shape=shape,
        count=counted,
        comparison=comparison,
        gradients=tuple(gradients),
        losses=tuple(losses),
        seconds=perf_counter() - start,
    )


def as_text(report: Report) -> str:
    """The report as tables, a section each."""
    return "\n\n".join(
        (
            _count_text(report.count),
            _comparison_text(report.comparison),
            _gradients_text(report.gradients),
            _training_text(report),
        )
    )


def _count_text(count: Count) -> str:
    rows = [_count_cells(row) for row in count.block]
    rows.append(["one block, one sequence", "", f"{count.block_values:,}", "", ""])
    rows.append(["of which read by backward", "", f"{count.block_values_read:,}", "", ""])
    table = _table(["kept value", "shape", "values", "read", "what backward needs it for"], rows)
    head = _table(
        ["after the blocks", "shape", "values", "read", "what backward needs it for"],
        [_count_cells(row) for row in count.head],
    )
    states = _table(
        ["for as long as training lasts", "values"],
        [[name, f"{values:,}"] for name, values in count.states.items()],
    )
    peak = (
        f"Most on the tape in a step of {count.sequences} sequences: "
        f"{count.peak.values:,} values, on keeping {count.peak.name}."
    )
    return f"What is kept, counted from a run\n\n{table}\n\n{head}\n\n{states}\n\n{peak}"


def _count_cells(row: CountRow) -> list[str]:
    shape = " × ".join(map(str, row.shape))
    return [row.name, shape, f"{row.values:,}", "yes" if row.read else "no", row.why]


def _comparison_text(comparison: Comparison) -> str:
    rows = [
        [
            pair.counted or "–",
            pair.textbook or "–",
            f"{pair.counted_values:,}",
            f"{pair.textbook_values:,}",
            _signed(pair.difference),
            pair.reason,
        ]
        for pair in comparison.pairs
    ]
    rows.append(
        [
            "total",
            "",
            f"{comparison.counted_values:,}",
            f"{comparison.textbook_values:,}",
            _signed(comparison.difference),
            "",
        ]
    )
    table = _table(["counted", "textbook", "values", "values", "difference", "reason"], rows)
    causes = _table(
        ["cause", "difference"],
        [[cause, _signed(values)] for cause, values in comparison.by_cause.items()],
    )
    return f"The count beside the formula, in two-byte values\n\n{table}\n\n{causes}"


def _gradients_text(gradients: Sequence[Checked]) -> str:
    rows = [
        [
            checked.tensor,
            " × ".join(map(str, checked.shape)),
            f"{checked.elements:,} of {checked.values:,}",
            f"{checked.max_relative_error:.1e}",
            f"{checked.direction_relative_error:.1e}",
        ]
        for checked in gradients
    ]
    table = _table(["tensor", "shape", "checked", "largest error", "random direction"], rows)
    return f"Gradients against numerical derivatives, errors relative\n\n{table}"


def _training_text(report: Report) -> str:
    losses = report.losses
    if not losses:
        return "Training: no steps"
    size = max(1, len(losses) // 20)
    highest = max(losses)
    rows = []
    for start in range(0, len(losses), size):
        group = losses[start : start + size]
        mean = sum(group) / len(group)
        rows.append(
            [f"{start + 1}–{start + len(group)}", f"{mean:.3f}", "█" * round(40 * mean / highest)]
        )
    table = _table(["steps", "loss", ""], rows)
    title = (
        f"Training: {len(losses)} steps in {report.seconds:.1f} s, mean loss in nats a character"
    )
    return f"{title}\n\n{table}"


def _signed(values: int) -> str:
    return f"{values:+,}".replace("-", "−") if values else "0"


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; those that hold numbers set to the right."""
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    to_right = [
        all(cell[:1] in "0123456789+−" for cell in column) for column in zip(*rows, strict=True)
    ]

    def line(cells: Sequence[str]) -> str:
        placed = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, to_right, strict=True)
        )
        return "  ".join(placed).rstrip()

    rule = "  ".join("─" * width for width in widths)
    return "\n".join([line(heading), rule, *map(line, rows)])
