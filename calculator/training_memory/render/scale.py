"""A scale of bytes: round steps in a unit that suits its length."""

from __future__ import annotations

from collections.abc import Iterator

from ..records import dataclass
from ..units import ratio

_DECIMAL = ("B", "kB", "MB", "GB", "TB")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From 0 to ``top_bytes``, with ``ticks`` at round sizes, each with its label."""

    top_bytes: int
    ticks: tuple[tuple[int, str], ...]


def scale(top_bytes: int, *, binary: bool = False, most: int = 5) -> Scale:
    """A scale up to ``top_bytes`` (at least 1) with at most ``most`` ticks above 0."""
    unit, name = _unit(top_bytes, binary=binary)
    step = next(step for step in _steps(unit) if top_bytes // step <= most)
    digits = 0 if step % unit == 0 else 1
    ticks = [(0, "0")]
    for size in range(step, top_bytes + 1, step):
        ticks.append((size, f"{ratio(size, unit, digits)} {name}"))
    return Scale(top_bytes=top_bytes, ticks=tuple(ticks))


def _unit(top_bytes: int, *, binary: bool) -> tuple[int, str]:
    """The largest unit of which there is at least one."""
    base, names = (1024, _BINARY) if binary else (1000, _DECIMAL)
    power = 0
    while power + 1 < len(names) and top_bytes >= base ** (power + 1):
        power += 1
    return base**power, names[power]


def _steps(unit: int) -> Iterator[int]:
    """1, 2 and 5 times the powers of ten of a unit, from a tenth of it (or a byte) on."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            yield max(1, digit * power * unit // 10)
        power *= 10
