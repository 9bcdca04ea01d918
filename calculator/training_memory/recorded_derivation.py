"""How a recorded step's answer is derived: its states, and the tensors that one layer keeps."""

from __future__ import annotations

from collections.abc import Iterator

from .categories import STATES, Category
from .formula import Formula, as_formula, symbol
from .recorded import Sized
from .recorded_step import held_rows, sized, values
from .recording import MOST
from .run import Run
from .shares import share_of

#: Formula, factor to take out, how often the lines are there, the lines: see ``derivation.py``.
Line = tuple[str, str, Formula, int, str, str]
Parts = tuple[Formula, Formula | None, int, tuple[Line, ...]]


def recorded_parts(run: Run, category: Category, total_bytes: int) -> Parts:
    """One category of a recorded step. The formula comes to ``total_bytes`` exactly.

    What is not a multiple of a ledger's rows (what the allocator rounds up, what passes by, what is
    around the layers) stands in it as a number of bytes.
    """
    if category in STATES and not run.tuning.trains_all:
        return as_formula(total_bytes), None, 1, tuple(_states(run, category))
    if category in STATES:
        if share_of(run).shards > 1:
            return as_formula(total_bytes), None, 1, tuple(_states(run, category))
        # So many bytes a parameter, and what the allocator rounds up.
        each = total_bytes // run.model.parameters.total
        return _exact(symbol("N") * each, run, total_bytes), None, 1, tuple(_states(run, category))
    if category is Category.ACTIVATIONS:
        # The rows have their formulas; their sum would be too long to read.
        lines = tuple(_kept(sized(run)))
        formula = symbol("L") * sum(line[3] for line in lines)
        return _exact(formula, run, total_bytes), None, run.model.layers, lines
    return as_formula(total_bytes), None, 1, ()


def _exact(formula: Formula, run: Run, total_bytes: int) -> Formula:
    known = {**values(run), "N": run.model.parameters.total}
    return formula + (total_bytes - formula.evaluate(known))


def _states(run: Run, category: Category) -> Iterator[Line]:
    for row in held_rows(run):
        if row.category is category:
            yield row.name, "", as_formula(row.bytes), row.bytes, row.why, "PyTorch's own tensors"


def _kept(made: Sized) -> Iterator[Line]:
    """What a layer in the middle makes in the forward pass and leaves when that ends."""
    index = 1 if made.repeats["layer"] >= MOST else 0
    taken: list[int] = []
    released = set()
    for section in made.recording.sections:
        if section.phase != "forward" or section.micro_batch:
            continue
        for storage, source, target in section.moves:
            if target < 0:
                released.add(storage)
            elif source < 0 and section.part == ("layer", index):
                taken.append(storage)
    for storage in taken:
        facts = made.recording.facts[storage]
        # Autocast's copies of weights are working memory.
        if storage in released or facts.category is not Category.ACTIVATIONS:
            continue
        why = " ".join(dict.fromkeys(use.why for use in facts.uses)) or (
            "The next layer's input, from which that layer is made again where it is recomputed."
        )
        operations = ", ".join(dict.fromkeys(use.operation for use in facts.uses))
        where = f"PyTorch's autograd: saved by {operations}" if operations else "checkpoint's input"
        yield facts.name, facts.module or "Layer", facts.bytes, made.sizes[storage], why, where
