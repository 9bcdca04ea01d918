"""Which memory is taken and released, in order, and what is known of every piece of it."""

from __future__ import annotations

from ..categories import Category
from ..formula import Formula
from ..running import Move

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

    __slots__ = ("module", "operation", "part", "why")

    def __init__(self, operation: str, why: str, module: str, part: PartOf) -> None:
        self.operation = operation
        self.why = why
        self.module = module
        self.part = part


class Facts:
    """What is known of a storage: its size, where and as what it was made, and what saved it."""

    __slots__ = ("category", "dtype", "module", "name", "numel", "part", "uses", "why")

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
        self.uses: list[Use] = []
        #: What it is for, where nothing saves it.
        self.why = ""

    @property
    def bytes(self) -> Formula:
        """Its size, before the allocator rounds it."""
        return self.numel * ITEM_BYTES[self.dtype]


class Storage:
    """Memory that is taken while this object lives."""

    __slots__ = ("memory", "number")

    def __init__(self, memory: Memory, number: int) -> None:
        self.memory = memory
        self.number = number

    def __del__(self) -> None:
        self.memory.release(self.number)


class _While:
    """Gives one of a memory's settings another value while a block runs."""

    __slots__ = ("before", "memory", "setting", "value")

    def __init__(self, memory: Memory, setting: str, value: object) -> None:
        self.memory = memory
        self.setting = setting
        self.value = value

    def __enter__(self) -> None:
        self.before = getattr(self.memory, self.setting)
        setattr(self.memory, self.setting, self.value)

    def __exit__(self, *_: object) -> None:
        setattr(self.memory, self.setting, self.before)


class Memory:
    """The record of a step's memory, divided into the parts of the step."""

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self.facts: list[Facts] = []
        self.category = Category.ACTIVATIONS
        #: Where each part of the step begins: (moves before it, phase, part).
        self.marks: list[tuple[int, str, PartOf]] = []
        self.part = NOWHERE
        #: Points at which others take memory, who know the run's sizes; None where nobody does.
        self.notes: list[Note] | None = None
        #: The innermost part of the model that is being computed.
        self.module_name = ""

    def mark(self, phase: str, name: str, index: int = 0) -> None:
        """Begin a part of the step (``index`` tells layers apart), unless it is what goes on."""
        part = (name, index)
        if not self.marks or self.marks[-1][1:] != (phase, part):
            self.marks.append((len(self.moves), phase, part))
        self.part = part

    def note(self, kind: str, weight: str) -> None:
        """Keep in mind that something happens here to a weight, if anybody wants to know."""
        if self.notes is not None:
            self.notes.append((len(self.moves), len(self.marks), kind, weight))

    def taken(self, facts: Facts) -> int:
        """Record that a storage is taken; returns its number."""
        number = len(self.facts)
        self.facts.append(facts)
        self.moves.append((number, -1, facts.category.place))
        return number

    def release(self, number: int) -> None:
        """Record that a storage is released."""
        self.moves.append((number, self.facts[number].category.place, -1))

    def count_as(self, storage: Storage, category: Category) -> None:
        """Count a storage under another category from here on."""
        facts = self.facts[storage.number]
        if facts.category is not category:
            self.moves.append((storage.number, facts.category.place, category.place))
            facts.category = category

    def storage(self, name: str, numel: Formula, dtype: str) -> Storage:
        """New memory, taken now."""
        facts = Facts(numel, dtype, name, self.module_name, self.part, self.category)
        return Storage(self, self.taken(facts))

    def module(self, name: str) -> _While:
        """Name the part of the model that the operations within belong to."""
        return _While(self, "module_name", name)

    def as_category(self, category: Category) -> _While:
        """Count what is allocated within under ``category``."""
        return _While(self, "category", category)
