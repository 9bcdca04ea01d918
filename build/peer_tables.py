"""Other tools' formulas on the same steps: traced ones, and those that others measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import accuracy_tables
from measured import measured
from peers import PEERS, can_describe
from peers_split import megatron_report
from table import Cell, Column, Table
from training_memory.implementations import Implementation
from training_memory.units import gib, ratio

OURS = "This calculator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What every tool says of one step, by name, and what is true of it."""

    id: str
    truth_bytes: int
    by_tool: dict[str, int]

    def error(self, tool: str) -> float:
        """How far a tool is off, as a share of what is true."""
        return abs(self.by_tool[tool] - self.truth_bytes) / self.truth_bytes


@cache
def traced() -> tuple[Said, ...]:
    """Every traced step that the formulas are for."""
    found = []
    for one in accuracy_tables.compared():
        run = accuracy_tables.run_of(one.row)
        if can_describe(run):
            by_tool = {peer.name: peer.bytes_of(run) for peer in PEERS}
            by_tool[OURS] = one.predicted
            found.append(Said(id=one.row["step"], truth_bytes=one.traced, by_tool=by_tool))
    return tuple(found)


@cache
def published() -> tuple[Said, ...]:
    """Every published whole step on one GPU that is compared."""
    found = []
    for one in measured():
        if one.run and one.is_scored and one.run.layout.gpus == 1 and can_describe(one.run):
            by_tool = {peer.name: peer.bytes_of(one.run) for peer in PEERS}
            assert one.predicted_bytes is not None
            by_tool[OURS] = one.predicted_bytes
            found.append(Said(id=one.id, truth_bytes=one.bytes, by_tool=by_tool))
    return tuple(found)


MEGATRON = "Megatron-LM's report"


@cache
def split() -> tuple[Said, ...]:
    """Every published Megatron step that its report can describe: whole sequences on each GPU."""
    found = []
    for one in measured():
        run = one.run
        if run is None or run.implementation is not Implementation.MEGATRON:
            continue
        if run.layout.context == 1 and not run.model.experts:
            assert one.predicted_bytes is not None
            by_tool = {MEGATRON: megatron_report(run), OURS: one.predicted_bytes}
            found.append(Said(id=one.id, truth_bytes=one.bytes, by_tool=by_tool))
    return tuple(found)


def _tools() -> tuple[str, ...]:
    return (*(peer.name for peer in PEERS), OURS)


def _signed(said: Said, tool: str) -> Cell:
    value = ratio(100 * (said.by_tool[tool] - said.truth_bytes), said.truth_bytes)
    return Cell(value, f"{value} %".replace("-", "−"))


def _percentile(ordered: Sequence[float], share: float) -> Cell:
    value = f"{100 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]:.1f}"
    return Cell(value, f"{value} %")


def summary() -> Table:
    """Each tool's errors over the traced steps."""
    steps = traced()
    rows = []
    for tool in _tools():
        errors = sorted(one.error(tool) for one in steps)
        worst = max((one.error(tool), one.id, one) for one in steps)[2]
        rows.append(
            (
                Cell(tool, f"**{tool}**" if tool == OURS else tool),
                Cell(len(steps)),
                _percentile(errors, 0.5),
                _percentile(errors, 0.95),
                _signed(worst, tool),
                Cell(worst.id if errors[-1] else "", worst.id if errors[-1] else "none"),
                Cell(sum(one.by_tool[tool] < one.truth_bytes for one in steps)),
            )
        )
    return Table(
        columns=(
            Column(heading="Tool", name="tool", right=False),
            Column(heading="Steps", name="steps"),
            Column(heading="Median error", name="median_error_percent"),
            Column(heading="95th percentile", name="p95_error_percent"),
            Column(heading="Worst", name="worst_error_percent"),
            Column(heading="Which", name="worst_step", right=False),
            Column(heading="Too low in", name="too_low"),
        ),
        rows=tuple(rows),
    )


def rows() -> Table:
    """The published steps on one GPU, one by one, by every tool."""
    return _one_by_one(published(), _tools())


def split_rows() -> Table:
    """The published Megatron steps, one by one, by its own report."""
    return _one_by_one(split(), (MEGATRON, OURS))


def _one_by_one(steps: Sequence[Said], tools: Sequence[str]) -> Table:
    return Table(
        columns=(
            Column(heading="Row", name="row", right=False),
            Column(heading="Measured", name="measured_bytes"),
            *(Column(heading=tool, name=tool.lower().replace(" ", "_")) for tool in tools),
        ),
        rows=tuple(
            (
                Cell(one.id),
                Cell(one.truth_bytes, gib(one.truth_bytes, 1)),
                *(
                    Cell(
                        one.by_tool[tool],
                        f"{gib(one.by_tool[tool], 1)} ({_signed(one, tool).shown})",
                    )
                    for tool in tools
                ),
            )
            for one in steps
        ),
    )
