"""What a step takes, tensor by tensor: each event once, however often its repeats come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .blocks.paper import LOGITS
from .categories import Category
from .estimate import RankEstimate
from .events import Event, Group, Node, Repeat
from .formula import Formula
from .implementations import Implementation
from .records import dataclass
from .run import Run
from .walk import Strip, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An event that takes memory, in the first turn of every repeat around it.

    ``formula`` is the tensor's size before any rounding, None where only the number is known, and
    ``bytes`` what it comes to. ``turns`` are the repeats, outermost first, each with what one turn
    leaves behind; ``before`` is what is held before the event in their first turns, and ``times``
    how often it comes in a step.
    """

    event: Event
    formula: Formula | None
    bytes: int
    before: int
    turns: tuple[tuple[Repeat, int], ...]
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Takings:
    """All that one GPU's step takes, in order, and the run's numbers by the formulas' symbols."""

    values: Mapping[str, int]
    tensors: tuple[Taken, ...]


def takings(run: Run, on: RankEstimate) -> Takings:
    """What the step of one kind of GPU takes."""
    values, formulas = symbols(run, on)
    return Takings(values=values, tensors=tuple(_all(on.plan, values, formulas)))


#: Formulas by the label and the bytes of their events.
_Formulas = Mapping[tuple[str, int], Formula]


def symbols(run: Run, on: RankEstimate) -> tuple[Mapping[str, int], _Formulas]:
    """The run's numbers by the formulas' symbols, and formulas that no recording knows."""
    if run.implementation is Implementation.PAPER:
        return _of_the_textbook(run, on)
    from .recorded_derivation import symbols as of_recorded

    return of_recorded(run, on.rank), {}


def _all(plan: Node, values: Mapping[str, int], formulas: _Formulas) -> Iterator[Taken]:
    for event, known, before, turns, times in _events(plan, 0, (), 1):
        formula = known or formulas.get((event.label, event.bytes))
        size = event.bytes if formula is None else formula.evaluate(values)
        if formula is not None and not is_readable(formula):
            known = formula = None
        one = Taken(
            event=event, formula=formula, bytes=size, before=before, turns=turns, times=times
        )
        if known is None and formula is not None and event.category is Category.LOGITS:
            yield from _logits(one, formula)
        else:
            yield one


def is_readable(formula: Formula) -> bool:
    """Whether its symbols are letters: what is shared out has whole words for some."""
    return all(len(name) == 1 for monomial in formula.terms for name, _ in monomial)


_Turns = tuple[tuple[Repeat, int], ...]


def _events(
    node: Node, before: int, turns: _Turns, times: int
) -> Iterator[tuple[Event, Formula | None, int, _Turns, int]]:
    if isinstance(node, Event):
        if node.bytes > 0:
            yield node, None, before, turns, times
    elif isinstance(node, Strip):
        for event, formula, held in node.taken():
            yield event, formula, before + held, turns, times
    elif isinstance(node, Group):
        for child in node.children:
            yield from _events(child, before, turns, times)
            before += sum(walk(child).remains)
    elif node.count:
        each = sum(walk(node.child).remains)
        yield from _events(node.child, before, (*turns, (node, each)), times * node.count)


def _logits(one: Taken, formula: Formula) -> Iterator[Taken]:
    """The textbook's logits are one event, and two tensors: in 16 bits and in 32."""
    from dataclasses import replace

    before = one.before
    for label, item_bytes in (("the 16-bit logits", 2), ("the 32-bit copy of the logits", 4)):
        size = one.bytes * item_bytes // LOGITS.item_bytes
        yield replace(
            one,
            event=replace(one.event, label=label, bytes=size),
            formula=formula * item_bytes / LOGITS.item_bytes,
            bytes=size,
            before=before,
        )
        before += size


def _of_the_textbook(run: Run, on: RankEstimate) -> tuple[dict[str, int], _Formulas]:
    """The run's symbols, and the formulas of the textbook's events."""
    from .derivation import derive

    values: dict[str, int] = {}
    formulas: dict[tuple[str, int], Formula] = {}
    for entry in derive(run, on):
        values |= entry.values
        for line in entry.lines:
            name = line.name
            for label in (
                name,
                f"the {name}",
                f"layer {{layer}} keeps {name}",
                f"layer {{layer}} makes {name} again",
            ):
                formulas[label, line.bytes] = line.formula
    # A formula whose symbols mean another number elsewhere (N, where ZeRO pads it) is left out.
    right = {key: one for key, one in formulas.items() if _comes_to(one, values, key[1])}
    return values, right


def _comes_to(formula: Formula, values: Mapping[str, int], size: int) -> bool:
    try:
        return formula.evaluate(values) == size
    except ArithmeticError:
        return False
