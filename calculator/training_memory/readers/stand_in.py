"""The textbook's way in the place of a way that is not counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import layout, sharding, switches, tuning
from ..errors import InputError

_NOT_OF_THE_TEXTBOOK = frozenset({*switches.USUAL, *tuning.USUAL, *sharding.USUAL})


def textbook(
    fields: Mapping[str, object], errors: Sequence[InputError]
) -> dict[str, object] | None:
    """The same run in the textbook's way, where only another way is what cannot be; else None.

    The textbook keeps every score of attention, and FlashAttention none; selective recomputation,
    which drops them, stands in for it.
    """
    way = {"implementation", "recompute", "recipe", *layout.USUAL, *_NOT_OF_THE_TEXTBOOK}
    if fields.get("implementation") in (None, "paper") or {one.field for one in errors} - way:
        return None
    return as_textbook(fields)


def as_textbook(fields: Mapping[str, object]) -> dict[str, object]:
    """A run's fields without what the textbook does not have."""
    kept = {name: value for name, value in fields.items() if name not in _NOT_OF_THE_TEXTBOOK}
    copies = fields.get("replicate", 1)
    if isinstance(copies, int) and copies > 1:
        # What one GPU holds is decided by those that share one copy.
        kept["data"] = int(str(fields.get("data", 1))) // copies
    drops = fields.get("recompute") in (None, "none", "matmuls")
    if drops and fields.get("attention") != "eager":
        kept["recompute"] = "selective"
    return {**kept, "implementation": "paper"}
