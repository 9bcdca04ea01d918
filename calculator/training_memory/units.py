"""Bytes and counts: parsing, rounding and showing them, in one place.

Bytes are ``int`` until they are shown. ``GB`` is 10**9 bytes and ``GiB`` 2**30; neither is ever
shown under the other's name.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .errors import InputError

GB = 10**9
GIB = 2**30

_DECIMAL = (("TB", 10**12), ("GB", GB), ("MB", 10**6), ("kB", 10**3))
_BINARY = (("TiB", 2**40), ("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10))

_COUNT = re.compile(r"(\d{1,3}(?:[,_\u202f\u00a0 ]\d{3})+|\d+)\s*([kKmM]?)")
_COUNT_SUFFIX = {"": 1, "k": 1024, "m": 1024**2}


@lru_cache(maxsize=1024)  # an answer shows most sizes several times
def ratio(numerator: int, denominator: int, digits: int = 1) -> str:
    """A quotient of two counts to ``digits`` decimals: ``ratio(199.5e9, 80e9) == "2.5"``.

    Halves go away from zero. Whole numbers throughout: floats would make the last digit depend on
    the platform's rounding of a value this large.
    """
    scale = 10**digits
    scaled = (abs(numerator) * scale * 2 + denominator) // (2 * denominator)
    whole, rest = divmod(scaled, scale)
    sign = "-" if numerator < 0 and scaled else ""
    text = f"{sign}{whole:,}"
    return f"{text}.{rest:0{digits}d}" if digits else text


def gb(value_bytes: int, digits: int = 1) -> str:
    """Bytes as GB (10**9), without the unit: ``gb(199_539_351_552) == "199.5"``."""
    return ratio(value_bytes, GB, digits)


def gib(value_bytes: int, digits: int = 1) -> str:
    """Bytes as GiB (2**30), without the unit."""
    return ratio(value_bytes, GIB, digits)


@lru_cache(maxsize=1024)  # states are as large as in the answer before
def show_bytes(value_bytes: int, *, binary: bool = False, digits: int = 1) -> str:
    """Bytes in the largest unit that leaves at least one: ``"199.5 GB"``, ``"96 B"``."""
    for name, size in _BINARY if binary else _DECIMAL:
        if abs(value_bytes) >= size:
            return f"{ratio(value_bytes, size, digits)} {name}"
    return f"{value_bytes} B"


def percent(part: int, whole: int, digits: int = 0) -> str:
    """A share as a percentage without the sign: ``percent(7, 10) == "70"``."""
    return ratio(part * 100, whole, digits)


def parse_count(field: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """A whole number from an int or from text as people write it.

    Takes ``4096``, ``"4,096"``, ``"4 096"``, ``"4k"`` and ``"128K"`` (k = 1,024, as context lengths
    are named). Raises :class:`InputError` naming ``field``.
    """
    upper = f" to {most:,}" if most is not None else " or more"
    allowed = f"a whole number, {least:,}{upper}, such as 4096, 4,096 or 4k"
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, str) and (match := _COUNT.fullmatch(value.strip())):
        digits = re.sub(r"\D", "", match[1])
        # A thousand digits are not a size, and int() of very long text raises on its own.
        if len(digits) <= 18:
            number = int(digits) * _COUNT_SUFFIX[match[2].lower()]
    if number is None or number < least or (most is not None and number > most):
        raise InputError(field, value, allowed)
    return number
