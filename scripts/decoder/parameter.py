"""A tensor that is trained: its numbers, and as many more for its gradient."""

from __future__ import annotations

from .matrix import Row, Rows, added, count, zeros_like


class Parameter:
    """A named matrix (a vector has one row) with the gradient of the loss beside it."""

    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self.rows = rows
        self.gradient = zeros_like(rows)

    @property
    def short_name(self) -> str:
        """The name without its block: ``"query weight"`` of ``"block 1/query weight"``."""
        return self.name.rpartition("/")[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns), or (length,) for a vector."""
        if len(self.rows) == 1:
            return (len(self.rows[0]),)
        return (len(self.rows), len(self.rows[0]))

    @property
    def values(self) -> int:
        """How many numbers it has, gradient not included."""
        return count(self.rows)

    def add(self, rows: Rows) -> None:
        """Add to the gradient of the whole tensor."""
        self.gradient = added(self.gradient, rows)

    def add_to_row(self, index: int, row: Row) -> None:
        """Add to the gradient of one row, as a lookup does."""
        self.gradient[index] = [x + y for x, y in zip(self.gradient[index], row, strict=True)]

    def clear_gradient(self) -> None:
        """Back to zero, for the next step."""
        self.gradient = zeros_like(self.rows)
