"""A recorded step: a few layers and what is around them, for every run of one structure."""

from __future__ import annotations

from functools import lru_cache

from .autograd import operations as op
from .autograd.tape import Entry, Facts, Tape, Tensor
from .blocks.causal_lm import CausalLM
from .blocks.sizes import ROWS
from .categories import Category
from .formula import Formula
from .records import dataclass
from .structure import Structure

#: A storage, the category it leaves and the one it comes to, by place; −1 is neither.
Move = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the step, such as the forward pass of a layer: its moves in order."""

    micro_batch: int
    phase: str
    name: str
    moves: tuple[Move, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Which part of a step it is."""
        return self.phase, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All sections of a step with one layer, and what is known of every storage.

    ``formulas`` are the different sizes there are, and ``formula_of`` each storage's among them.
    """

    sections: tuple[Section, ...]
    facts: tuple[Facts, ...]
    formulas: tuple[Formula, ...]
    formula_of: tuple[int, ...]


#: Layers that a recording needs for a model of any depth: a first, one to repeat, and a last.
MOST_LAYERS = 3


@lru_cache(maxsize=64)
def record(structure: Structure, layers: int) -> Recording:
    """Run one step of the model, or two micro-batches of it where the run accumulates."""
    tape = Tape(autocast=structure.autocast)
    model = CausalLM(structure, layers)
    starts = []
    held: Tensor | None = None
    for _ in range(2 if structure.accumulates else 1):
        starts.append(len(tape.marks))
        held = _micro_batch(tape, model)
        tape.marks.append((len(tape.entries), "", ("", 0)))
    end = len(tape.entries)
    sections = _sections(tape, starts, end)
    del held
    places: dict[Formula, int] = {}
    formula_of = tuple(places.setdefault(facts.bytes, len(places)) for facts in tape.facts)
    return Recording(
        sections=sections,
        facts=tuple(tape.facts),
        formulas=tuple(places),
        formula_of=formula_of,
    )


def _micro_batch(tape: Tape, model: CausalLM) -> Tensor | None:
    tape.mark("forward", "inputs")
    ids = tape.new("token ids", ROWS, "int64")
    labels = tape.new("labels", ROWS, "int64")
    tape.mark("forward", "embedding")
    loss, logits = model.forward(tape, ids, labels)
    tape.mark("forward", "loss")
    tape.forget_casts()
    if tape.autocast:
        # accelerate's convert_to_fp32 wraps the model: what it returns is in fp32 (operations.py).
        with tape.as_category(Category.LOGITS):
            logits = op.to(tape, logits.detached(), "fp32", "logits returned in fp32")
    held = logits if model.structure.held_logits else None
    del logits
    tape.mark("backward", "loss")
    tape.backward(loss)
    return held


def _sections(tape: Tape, starts: list[int], end: int) -> tuple[Section, ...]:
    found = []
    marks = [*tape.marks, (end, "", ("", 0))]
    for place, (begin, phase, (name, _)) in enumerate(marks[:-1]):
        if not phase:
            continue
        turn = sum(start <= place for start in starts) - 1
        moves = tuple(_move(entry) for entry in tape.entries[begin : marks[place + 1][0]])
        found.append(Section(micro_batch=turn, phase=phase, name=name, moves=moves))
    return tuple(found)


def _move(entry: Entry) -> Move:
    return (
        entry.storage,
        -1 if entry.source is None else entry.source.place,
        -1 if entry.target is None else entry.target.place,
    )
