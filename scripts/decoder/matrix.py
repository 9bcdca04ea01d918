"""Matrices as lists of rows: the little linear algebra that the trainer needs, nothing hidden."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

Row = list[float]
Rows = list[Row]

if sys.version_info >= (3, 12):
    # About three times as fast as a generator, and it rounds only once.
    dot = math.sumprod
else:

    def dot(a: Sequence[float], b: Sequence[float], /) -> float:
        """The sum of products of two vectors of one length."""
        return sum(x * y for x, y in zip(a, b, strict=True))


def columns(a: Rows) -> Rows:
    """The transpose: the columns of ``a`` as rows."""
    return [list(column) for column in zip(*a, strict=True)]


def times_transposed(a: Rows, b: Rows) -> Rows:
    """``a bᵀ``: every row of ``a`` (m × k) with every row of ``b`` (n × k); m × n."""
    return [[dot(row, other) for other in b] for row in a]


def times(a: Rows, b: Rows) -> Rows:
    """``a b``: m × k and k × n; m × n."""
    return times_transposed(a, columns(b))


def added(a: Rows, b: Rows) -> Rows:
    """``a + b``, element by element, as new rows."""
    return [[x + y for x, y in zip(p, q, strict=True)] for p, q in zip(a, b, strict=True)]


def scaled(a: Rows, factor: float) -> Rows:
    """``factor · a`` as new rows."""
    return [[factor * x for x in row] for row in a]


def zeros_like(a: Rows) -> Rows:
    """As many zeros as ``a`` has values, in the same rows."""
    return [[0.0] * len(row) for row in a]


def count(a: Rows) -> int:
    """How many values the rows hold, found by looking at each row."""
    return sum(len(row) for row in a)


def split_heads(a: Rows, sequence: int, heads: int) -> list[Rows]:
    """Rows of tokens (b·s × h) as an s × h/a block for each sequence and each of its heads."""
    width = len(a[0]) // heads
    return [
        [row[head * width : (head + 1) * width] for row in a[start : start + sequence]]
        for start in range(0, len(a), sequence)
        for head in range(heads)
    ]


def merge_heads(blocks: Sequence[Rows], heads: int) -> Rows:
    """The inverse of :func:`split_heads`: the heads of each token side by side again."""
    return [
        [x for part in parts for x in part]
        for start in range(0, len(blocks), heads)
        for parts in zip(*blocks[start : start + heads], strict=True)
    ]
