"""Memory that code takes and drops as it runs, recorded with the part of the model it works on."""

from __future__ import annotations

from .autograd.memory import WORKING, Memory, Storage
from .formula import Formula

#: Bytes are counted as numbers of one byte each.
BYTE = "bool"


class Room(Memory):
    """A record of scratch memory, its sizes known in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.category = WORKING

    def take(self, name: str, size_bytes: int, why: str) -> Storage:
        """Take memory; it is given back when nothing holds what is returned."""
        made = self.storage(name, Formula({(): size_bytes}), BYTE)
        self.facts[made.number].why = why
        return made
