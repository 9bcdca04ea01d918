"""Rows of a long table, of which `make test-fast` takes some and `make test` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sweep(rows: Iterable[Any], *, one_in: int = 11) -> list[Any]:
    """The rows as parameters of a test, all but the first and every ``one_in``-th marked thorough.

    Where a table holds every combination of some choices in order, ``one_in`` is prime to their
    numbers, so that the few rows meet all of them.
    """
    return [
        row if index % one_in == 0 else pytest.param(row, marks=pytest.mark.thorough)
        for index, row in enumerate(rows)
    ]
