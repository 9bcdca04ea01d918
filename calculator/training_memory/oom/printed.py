"""Sizes as programs print them: "1.96 GiB" is any of the ten million bytes that round to it."""

from __future__ import annotations

import re

from ..records import dataclass

#: Every unit that an error prints, in bytes. All count in powers of two, whatever they are called:
#: PyTorch's CUDA allocator prints GiB (format_size in c10/cuda/CUDACachingAllocator.cpp), its MPS
#: allocator printed GB for the same until 2025 (aten/src/ATen/mps/MPSAllocator.h), XLA prints G.
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50, "e": 2**60}

#: A size: a number and its unit, two groups.
SIZE = r"(\d[\d,]*(?:\.\d+)?)\s*(bytes\b|[KMGTPE]i?B\b|[KMGT]\b|B\b)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A size as an error printed it: ``text``, and the least and the most bytes that print so.

    ``bytes`` is the number printed times its unit, to the nearest byte.
    """

    text: str
    bytes: int
    least: int
    most: int

    def covers(self, size_bytes: int) -> bool:
        """Whether a size would have been printed like this."""
        return self.least <= size_bytes <= self.most

    def to_json(self) -> dict[str, object]:
        """The size as plain values."""
        return {"text": self.text, "bytes": self.bytes, "least": self.least, "most": self.most}


def printed(number: str, unit: str) -> Printed:
    """The size of a match of :data:`SIZE`: ``printed("1.96", "GiB")``."""
    unit_bytes = _UNITS[unit[:1].lower() if unit.lower() not in ("b", "bytes") else ""]
    whole, _, decimals = number.replace(",", "").partition(".")
    scale = 10 ** len(decimals)
    scaled = int(whole + decimals) * unit_bytes
    nominal = (2 * scaled + scale) // (2 * scale)
    # Half of the last digit either way; bytes are printed in full.
    slack = -(-unit_bytes // (2 * scale)) if unit_bytes > 1 else 0
    text = f"{number} {unit}"
    return Printed(text=text, bytes=nominal, least=max(nominal - slack, 0), most=nominal + slack)


def exactly(size_bytes: int, text: str) -> Printed:
    """A size that was printed to the byte."""
    return Printed(text=text, bytes=size_bytes, least=size_bytes, most=size_bytes)


def find(pattern: str, text: str) -> Printed | None:
    """The first size in ``text`` where ``pattern`` has ``{}``; None where there is none."""
    match = re.search(pattern.replace("{}", SIZE), text, re.IGNORECASE)
    # A number of a thousand digits is no size.
    return printed(match[1], match[2]) if match and len(match[1]) <= 24 else None
