"""Sizes that stand under one another, all in one unit so that they can be compared at a glance."""

from __future__ import annotations

from collections.abc import Callable

from ..units import ratio

_DECIMAL = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))
_BINARY = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))

Show = Callable[[int], str]


def sizes(largest_bytes: int, *, binary: bool = False) -> Show:
    """How to write sizes up to ``largest_bytes``: ``sizes(2 * 10**11)(786_432_000) == "0.8 GB"``.

    Terabytes stay gigabytes, as the memory of GPUs is told; what would round to nothing says so.
    """
    units = _BINARY if binary else _DECIMAL
    name, size = next((unit for unit in units if largest_bytes >= unit[1]), units[-1])
    digits = 0 if size == 1 else 1

    def show(value_bytes: int) -> str:
        if value_bytes == 0:
            return "0"
        if size > 1 and 20 * value_bytes < size:
            return f"< 0.1 {name}"
        return f"{ratio(value_bytes, size, digits)} {name}"

    return show
