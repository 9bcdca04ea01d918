"""Why a request for memory was refused, in a word, and told."""

from __future__ import annotations

from enum import StrEnum

from ..records import dataclass
from ..units import show_bytes


class Cause(StrEnum):
    """Why a request was refused."""

    TOO_MUCH = "too much"
    FRAGMENTATION = "fragmentation"
    OTHER_PROCESSES = "other processes"
    LIMIT = "a limit"
    OUTSIDE = "outside PyTorch"
    HOST = "the machine's memory"
    SERVER = "a server's plan"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The cause in a word, told in sentences, and what to set or do about it besides the run.

    ``missing_bytes`` is how much more was needed, with whatever lay unused put to use; negative
    where that would have been enough, None where it cannot be said. ``room_bytes`` is the most
    that the job's tensors could have on that GPU, None likewise.
    """

    cause: Cause
    sentences: tuple[str, ...]
    remedies: tuple[str, ...]
    missing_bytes: int | None = None
    room_bytes: int | None = None

    def to_json(self) -> dict[str, object]:
        """The verdict as plain values."""
        return {
            "cause": str(self.cause),
            "sentences": list(self.sentences),
            "remedies": list(self.remedies),
            "missing_bytes": self.missing_bytes,
            "room_bytes": self.room_bytes,
        }


def printed_size(size: int) -> str:
    """A size as PyTorch prints it, in powers of two to two decimals."""
    return show_bytes(size, binary=True, digits=2)
