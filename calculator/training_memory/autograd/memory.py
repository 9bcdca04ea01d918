"""Which memory is taken and released, in order, and what is known of every piece of it."""

from __future__ import annotations

from ..categories import Category
from ..formula import Formula

ITEM_BYTES = {"fp32": 4, "bf16": 2, "bool": 1, "int32": 4, "int64": 8, "uint64": 8, "complex64": 8}

#: What counts for a moment: gradients on their way and what computes them, copies of weights.
WORKING = Category.TEMPORARY

#: What happens at a point of the record: how many moves come before, marks with them; what it is,
#: and the name of the weight that it is about.
Note = tuple[int, int, str, str]

#: A part of the step: its name, and which of several it is.
PartOf = tuple[str, int]
NOWHERE: PartOf = ("", 0)


class Use:
    """An operation that saved a storage for its backward pass: where it runs, and why it did."""

    def __init__(self, operation: str, why: str, module: str, part: PartOf) -> None:
        self.operation = operation
        self.why = why
        self.module = module
        self.part = part


class Facts:
    """What is known of a storage: its size, where and as what it was made, and what saved it."""

    uses: tuple[Use, ...] = ()
    #: What it is for, where nothing saves it.
    why = ""

    def __init__(
        self, numel: Formula, dtype: str, name: str, module: str, part: PartOf, category: Category
    ) -> None:
        self.numel = numel
        self.dtype = dtype
        self.name = name
        #: The part of the layer or model whose operation made it.
        self.module = module
        self.part = part
        self.category = category

    @property
    def bytes(self) -> Formula:
        """Its size, before the allocator rounds it."""
        return self.numel * ITEM_BYTES[self.dtype]


class Storage:
    """Memory that is taken while this object lives."""

    def __init__(self, memory: Memory, number: int) -> None:
        self.memory = memory
        self.number = number

    def __del__(self) -> None:
        self.memory.release(self.number)


class _InModule:
    """Gives a memory another module's name while a block runs."""

    def __init__(self, memory: Memory, name: str) -> None:
        self.memory = memory
        self.name = name
        self.before = memory.module_name

    def __enter__(self) -> None:
        self.memory.module_name = self.name

    def __exit__(self, *_: object) -> None:
        self.memory.module_name = self.before


class _AsCategory:
    """Gives a memory another category while a block runs."""

    def __init__(self, memory: Memory, category: Category) -> None:
        self.memory = memory
        self.category = category
        self.before = memory.category

    def __enter__(self) -> None:
        self.memory.category = self.category

    def __exit__(self, *_: object) -> None:
        self.memory.category = self.before


class Memory:
    """The record of a step's memory, divided into the parts of the step."""

    def __init__(self) -> None:
        #: Its moves: the storage's number, or the number's complement where it is released (or
        #: leaves a category), and what each does (running.py).
        self.places: list[int] = []
        self.codes: list[int] = []
        self.facts: list[Facts] = []
        self.category = Category.ACTIVATIONS
        #: Where each part of the step begins: (moves before it, phase, part).
        self.marks: list[tuple[int, str, PartOf]] = []
        self.phase, self.part = "", NOWHERE
        #: Points at which others take memory, who know the run's sizes; None where nobody does.
        self.notes: list[Note] | None = None
        #: The innermost part of the model that is being computed.
        self.module_name = ""

    def mark(self, phase: str, name: str, index: int = 0) -> None:
        """Begin a part of the step (``index`` tells layers apart), unless it is what goes on."""
        self.go_on(phase, (name, index))

    def go_on(self, phase: str, part: PartOf) -> None:
        """:meth:`mark` with the part as one."""
        if part != self.part or phase != self.phase:
            self.marks.append((len(self.places), phase, part))
            self.phase, self.part = phase, part

    def note(self, kind: str, weight: str) -> None:
        """Keep in mind that something happens here to a weight, if anybody wants to know."""
        if self.notes is not None:
            self.notes.append((len(self.places), len(self.marks), kind, weight))

    def taken(self, facts: Facts) -> int:
        """Record that a storage is taken; returns its number."""
        number = len(self.facts)
        self.facts.append(facts)
        self.places.append(number)
        self.codes.append(facts.category.comes)
        return number

    def release(self, number: int) -> None:
        """Record that a storage is released."""
        self.places.append(~number)
        self.codes.append(self.facts[number].category.leaves)

    def count_as(self, storage: Storage, category: Category) -> None:
        """Count a storage under another category from here on."""
        facts = self.facts[storage.number]
        if facts.category is not category:
            self.places += ~storage.number, storage.number
            self.codes += facts.category.leaves, category.comes
            facts.category = category

    def storage(self, name: str, numel: Formula, dtype: str) -> Storage:
        """New memory, taken now."""
        facts = Facts(numel, dtype, name, self.module_name, self.part, self.category)
        return Storage(self, self.taken(facts))

    def module(self, name: str) -> _InModule:
        """Name the part of the model that the operations within belong to."""
        return _InModule(self, name)

    def as_category(self, category: Category) -> _AsCategory:
        """Count what is allocated within under ``category``."""
        return _AsCategory(self, category)
