"""How an answer is derived: for each category its formula, the run's numbers and every tensor.

The one structure behind the table in the page, ``training-memory explain`` and the exports, so that
what is shown is what was added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .blocks import paper
from .blocks.ledger import RankRow
from .categories import CATEGORIES, Category
from .estimate import RankEstimate
from .formula import Formula, product, symbol, total
from .implementations import Implementation
from .rank import Rank
from .records import dataclass
from .run import Run
from .step import (
    layer_rows,
    logits_bytes,
    logits_formula,
    sharded,
    states,
    values,
    waiting_rows,
)

#: Taken out of an activation formula's sum, as the paper writes it.
TOKENS = product(("s", "b", "h"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One tensor, or one number kept per parameter: its formula and bytes on this GPU.

    ``bytes`` are one layer's for an activation (there are ``Entry.times`` such layers held).
    """

    name: str
    group: str
    formula: Formula
    bytes: int
    why: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One category on one GPU.

    ``total_bytes`` is the largest it gets over the step and ``peak_bytes`` its part of the peak.
    ``formula``, with ``factor`` taken out where that reads better, evaluates to ``total_bytes``
    for ``values``; ``lines`` are the tensors that make up one of its ``times`` repeats.
    """

    category: Category
    total_bytes: int
    peak_bytes: int
    formula: Formula
    factor: Formula | None
    values: Mapping[str, int]
    times: int
    lines: tuple[Line, ...]

    @property
    def symbols_text(self) -> str:
        """The formula in symbols: ``L·s·b·h·(34 + 5·a·s/h)``."""
        return self.formula.text(factor=self.factor)

    @property
    def numbers_text(self) -> str:
        """The formula in this run's numbers."""
        return self.formula.text(factor=self.factor, values=self.values)


def derive(run: Run, on: RankEstimate) -> tuple[Entry, ...]:
    """Every category of one kind of GPU of a run, in the order of ``CATEGORIES``."""
    if run.implementation is not Implementation.PAPER:
        return tuple(_recorded(run, on))
    rank_values = {**values(run), "L": on.rank.layers_at_once, "m": on.rank.in_flight}
    makers = {
        Category.ACTIVATIONS: _activations,
        Category.RECOMPUTED: _recomputed,
        Category.LOGITS: _logits,
        Category.TEMPORARY: _nothing,
    }
    entries = []
    for category in CATEGORIES:
        make = makers.get(category)
        formula, factor, times, lines = (
            make(run, on.rank) if make else _states(run, on.rank, category)
        )
        entries.append(
            Entry(
                category=category,
                total_bytes=on.totals[category],
                peak_bytes=on.peak_parts[category],
                formula=formula,
                factor=factor,
                values={**rank_values, **_counted(run, on.rank, category)}
                | (_waiting(run, on.rank) if category is Category.ACTIVATIONS else {}),
                times=times,
                lines=lines,
            )
        )
    return tuple(entries)


def _recorded(run: Run, on: RankEstimate) -> Iterator[Entry]:
    # A page that shows the textbook's answer need not wait for what records steps.
    from .recorded_derivation import recorded, recorded_parts

    found = recorded(run, on)
    known = {**found.values, "N": found.parameters}
    for category in CATEGORIES:
        formula, factor, times, lines = recorded_parts(found, category, on.totals[category])
        yield Entry(
            category=category,
            total_bytes=on.totals[category],
            peak_bytes=on.peak_parts[category],
            formula=formula,
            factor=factor,
            values=known,
            times=times,
            lines=lines,
        )


_Parts = tuple[Formula, Formula | None, int, tuple[Line, ...]]


def _counted(run: Run, rank: Rank, category: Category) -> dict[str, int]:
    """N and d of a category's formula: where ZeRO spreads it, N is padded to divide evenly."""
    stage, data = run.recipe.zero_stage.get(category), run.layout.replicas
    if stage is None or run.layout.zero < stage:
        return {"N": rank.parameters, "d": data}
    return {"N": sharded(run, rank, stage) * data, "d": data}


def _states(run: Run, rank: Rank, category: Category) -> _Parts:
    spread = run.layout.replicas > 1
    lines = tuple(
        Line(
            name=state.name,
            group=state.dtype,
            formula=state.formula(run.layout.zero if spread else 0),
            bytes=size,
            why=state.why,
            where=state.where,
        )
        for state, size in states(run, rank)
        if state.category is category
    )
    return total(line.formula for line in lines), None, 1, lines


def _layer_lines(run: Run, *, all_rows: bool) -> tuple[Line, ...]:
    return tuple(_line(held) for held in layer_rows(run) if held.kept or all_rows)


def _line(held: RankRow, symbol_of: Formula | int = 1, times: int = 1) -> Line:
    return Line(
        name=held.row.name,
        group=held.row.module,
        formula=held.formula * symbol_of,
        bytes=held.bytes * times,
        why=held.row.why,
        where=held.row.where,
    )


def _waiting(run: Run, rank: Rank) -> dict[str, int]:
    """The micro-batches in flight when activations are largest, and whose weights wait."""
    whole = sum(row.bytes for row in layer_rows(run) if row.kept)
    half = sum(row.bytes for row in waiting_rows(run))
    held = max(rank.waiting, key=lambda one: one[0] * whole + one[1] * half)
    return dict(zip(("m", "W"), held, strict=True))


def _activations(run: Run, rank: Rank) -> _Parts:
    lines = _layer_lines(run, all_rows=False)
    held = _waiting(run, rank)
    if held["W"]:
        of_each = (
            ("m", [row for row in layer_rows(run) if row.kept]),
            ("W", waiting_rows(run)),
        )
        lines = tuple(
            _line(row, symbol(name), held[name]) for name, rows in of_each for row in rows
        )
        formula = total(line.formula for line in lines) * symbol("L")
        return formula, TOKENS * symbol("L"), rank.layers_at_once, lines
    formula, factor = total(line.formula for line in lines) * symbol("L"), TOKENS * symbol("L")
    if rank.in_flight > 1:
        formula, factor = formula * symbol("m"), factor * symbol("m")
    return formula, factor, rank.layers_at_once * rank.in_flight, lines


def _recomputed(run: Run, rank: Rank) -> _Parts:
    if run.recompute == "none":
        return Formula(), None, 1, ()
    lines = _layer_lines(run, all_rows=True)
    return total(line.formula for line in lines), TOKENS, 1, lines


def _nothing(run: Run, rank: Rank) -> _Parts:
    return Formula(), None, 1, ()


def _logits(run: Run, rank: Rank) -> _Parts:
    if not rank.is_last:
        return Formula(), None, 1, ()
    row = paper.LOGITS
    formula = logits_formula(run)
    line = Line(
        name=row.name,
        group=row.module,
        formula=formula,
        bytes=logits_bytes(run),
        why=row.why,
        where=row.where,
    )
    # Parts that interleave come to the head one at a time.
    waiting = rank.in_flight if rank.parts == 1 else 1
    if waiting > 1:
        return formula * symbol("m"), None, waiting, (line,)
    return formula, None, 1, (line,)
