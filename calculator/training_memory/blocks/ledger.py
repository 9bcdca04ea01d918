"""A ledger row: one tensor that a layer keeps between its forward and its backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from ..formula import Formula, product, symbol, total
from ..records import dataclass


class Split(StrEnum):
    """What divides a kept tensor over the GPUs of a tensor-parallel group."""

    #: Made by the split matrix multiplications: each GPU keeps 1/t.
    TENSOR = "tensor"
    #: Whole on every GPU, until sequence parallelism gives each its 1/t of the tokens.
    SEQUENCE = "sequence"


class Recompute(StrEnum):
    """What is thrown away in the forward pass and made again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"
    #: All but the products with weights; the textbook does not know it.
    MATMULS = "matmuls"


class Part(StrEnum):
    """Where in a recomputed layer a tensor stands, which decides which policy drops it."""

    #: The layer's own input: with it, everything else can be made again, so every policy keeps it.
    INPUT = "input"
    #: The attention core (scores, softmax, its dropout): large to keep, cheap to make again.
    CORE = "core"
    REST = "rest"


#: The policies that the textbook knows.
TEXTBOOK = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)

_KEPT: dict[Recompute, frozenset[Part]] = {
    Recompute.NONE: frozenset(Part),
    Recompute.SELECTIVE: frozenset({Part.INPUT, Part.REST}),
    Recompute.FULL: frozenset({Part.INPUT}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kept tensor.

    ``shape`` is in the run's symbols (``("s", "b", 4, "h")``), ``item_bytes`` the bytes of one
    element, ``module`` the heading it stands under, ``why`` what backward needs it for, ``where``
    the published place that counts it.
    """

    name: str
    module: str
    shape: tuple[str | int, ...]
    item_bytes: int
    split: Split
    part: Part
    why: str
    where: str

    @property
    def bytes(self) -> Formula:
        """The whole tensor's bytes, before any splitting."""
        return product(self.shape) * self.item_bytes

    def rank_bytes(
        self, *, tensor: bool, sequence_parallel: bool, context: bool = False
    ) -> Formula:
        """The bytes on one GPU of a tensor-parallel group, in the run's symbols.

        With ``context`` parallelism the group has its share of every sequence: of the scores, those
        of its own queries.
        """
        shared = self.bytes / symbol("C") if context else self.bytes
        if tensor and (self.split is Split.TENSOR or sequence_parallel):
            return shared / symbol("t")
        return shared

    def kept_under(self, recompute: Recompute) -> bool:
        """Whether it outlives the forward pass."""
        return self.part in _KEPT[recompute]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """A row on one GPU: the ledger's row, its formula there and the run's bytes."""

    row: Row
    formula: Formula
    bytes: int
    kept: bool


class Ledger:
    """The rows of one implementation's layer."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        # A formula is the same for every run, so it is made once: estimates only evaluate it.
        self._formulas = {
            (tensor, sequence, context): tuple(
                row.rank_bytes(tensor=tensor, sequence_parallel=sequence, context=context)
                for row in self.rows
            )
            for tensor in (False, True)
            for sequence in (False, True)
            for context in (False, True)
        }

    def kept_bytes(
        self,
        recompute: Recompute = Recompute.NONE,
        *,
        tensor: bool = False,
        sequence_parallel: bool = False,
    ) -> Formula:
        """What one layer keeps under a policy: the sum of its rows, as a formula."""
        formulas = self._formulas[tensor, sequence_parallel, False]
        return total(
            formula
            for row, formula in zip(self.rows, formulas, strict=True)
            if row.kept_under(recompute)
        )

    def on_rank(
        self, values: Mapping[str, int], recompute: Recompute, *, sequence_parallel: bool
    ) -> tuple[RankRow, ...]:
        """Each row with its bytes for the run's ``values`` (s, b, h, a, t and C)."""
        formulas = self._formulas[values["t"] > 1, sequence_parallel, values["C"] > 1]
        return tuple(
            RankRow(
                row=row,
                formula=formula,
                bytes=formula.evaluate(values),
                kept=row.kept_under(recompute),
            )
            for row, formula in zip(self.rows, formulas, strict=True)
        )
