"""Which tensors of a run's step ask for so many bytes, and when.

Every event that takes memory is looked at once: a layer's once for all layers, with the turn in
which what is held comes nearest to what the error says was allocated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..categories import Category
from ..estimate import Estimate, RankEstimate
from ..events import Phase, place
from ..implementations import Implementation
from ..records import dataclass
from ..slices import Work
from ..taken import Taken, takings
from .reading import OomReading, When


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A tensor whose making asks for what the error says.

    ``formula`` is its size in the run's symbols (None where only the number is known) and
    ``numbers`` the same in the run's numbers, ``bytes`` what it comes to and ``asked_bytes`` what
    the allocator asks for to hold it. When it is made, from ``least_held_bytes`` to
    ``most_held_bytes`` are held already (one number but for what is made while a model loads);
    ``times`` is how often a step makes one like it. In a job's very first step the optimizer has no
    states yet, and ``first_held_bytes`` are held, where that differs. ``fits_traceback`` says
    whether it is made where the traceback says the job was, None where there is none, and
    ``where`` on which GPUs, where these differ.
    """

    label: str
    why: str
    moment: str
    phase: Phase
    formula: str | None
    numbers: str | None
    bytes: int
    asked_bytes: int
    least_held_bytes: int
    most_held_bytes: int
    times: int
    first_held_bytes: int | None = None
    fits_traceback: bool | None = None
    where: str = ""

    def away(self, allocated_bytes: int | None) -> int:
        """How far what is held is from what was allocated, in any step or in the first one."""
        if allocated_bytes is None:
            return 0
        later = max(
            self.least_held_bytes - allocated_bytes, allocated_bytes - self.most_held_bytes, 0
        )
        if self.first_held_bytes is None:
            return later
        return min(later, abs(self.first_held_bytes - allocated_bytes))

    def to_json(self) -> dict[str, object]:
        """The suspect as plain values."""
        return {
            "label": self.label,
            "why": self.why,
            "moment": self.moment,
            "phase": str(self.phase),
            "formula": self.formula,
            "numbers": self.numbers,
            "bytes": self.bytes,
            "asked_bytes": self.asked_bytes,
            "held_bytes": [self.least_held_bytes, self.most_held_bytes],
            "first_held_bytes": self.first_held_bytes,
            "times": self.times,
            "fits_traceback": self.fits_traceback,
            "where": self.where,
        }


#: The parts of a step that a traceback speaks of; an optimizer's states are made in its first step.
_PHASES = {
    When.LOADING: (Phase.BEFORE,),
    When.FORWARD: (Phase.FORWARD, Phase.LOSS),
    When.LOSS: (Phase.LOSS, Phase.FORWARD),
    When.RECOMPUTING: (Phase.BACKWARD,),
    When.BACKWARD: (Phase.BACKWARD,),
    When.CLIPPING: (Phase.OPTIMIZER,),
    When.OPTIMIZER: (Phase.OPTIMIZER,),
}

#: What the allocator asks for to hold so many bytes.
Asks = Callable[[int], int]


def suspects_in_steps(
    found: Estimate, reading: OomReading, asks: Asks
) -> Work[tuple[Suspect, ...]]:
    """Every tensor of the step that asks for what was asked, the likeliest first.

    First those that are made where the traceback was, then those at whose making the run holds most
    nearly what the error says was allocated.
    """
    requested = reading.requested
    if requested is None:
        return ()
    wanted = _PHASES.get(reading.when) if reading.when else None
    judged = []
    for on in found.ranks:
        where = on.rank.label if len(found.ranks) > 1 else ""
        listed = yield from _Search(found, on, asks, reading).found()
        judged += [_judged(one, wanted, where) for one in listed]
    allocated = reading.allocated.bytes if reading.allocated else None

    def likeliest(one: Suspect) -> tuple[bool, bool, int]:
        elsewhere = not _made_by(reading.line, one.label)
        return one.fits_traceback is False, elsewhere, one.away(allocated)

    return tuple(sorted(judged, key=likeliest))


#: Lines of code, and the tensors that they make, by a word of each one's name.
_MAKES = (
    (r"\.float\(\)|float32", "in fp32"),
    (r"cross_entropy|log_softmax|nll_loss", "log-probabilities"),
    (r"lm_head|self\.output\(", "logits"),
    (r"gate_proj|act_fn|\bw1\b|\bsilu\b", "mlp"),
    (r"softmax\(", "attention"),
)


def _made_by(line: str, label: str) -> bool:
    """Whether a line of code makes a tensor with such a label, as far as that is known."""
    return any(re.search(code, line) and word in label for code, word in _MAKES)


def _judged(one: Suspect, wanted: Sequence[Phase] | None, where: str) -> Suspect:
    from dataclasses import replace

    fits = None if wanted is None else one.phase in wanted
    return replace(one, fits_traceback=fits, where=where)


class _Search:
    """One search through a step for what asks for what an error says."""

    def __init__(self, of: Estimate, on: RankEstimate, asks: Asks, reading: OomReading) -> None:
        assert reading.requested is not None
        self.run, self.on, self.asks = of.run, on, asks
        self.requested = reading.requested
        self.allocated = reading.allocated.bytes if reading.allocated else None
        self.takings = takings(of.run, on)
        self.states = sum(
            one.bytes
            for one in self.takings.tensors
            if one.event.phase is Phase.BEFORE and one.event.category is Category.OPTIMIZER
        )

    def found(self) -> Work[list[Suspect]]:
        """Everything that asks for it, each kind of tensor once."""
        nearest: dict[tuple[str, Phase, int], Suspect] = {}
        times: dict[tuple[str, Phase, int], int] = {}
        for one in self.takings.tensors:
            yield
            if not self.requested.covers(self.asks(one.bytes)):
                continue
            key = (one.event.label, one.event.phase, one.bytes)
            times[key] = times.get(key, 0) + one.times
            suspect = self._suspect(one)
            known = nearest.get(key)
            if known is None or suspect.away(self.allocated) < known.away(self.allocated):
                nearest[key] = suspect
        from dataclasses import replace

        found = [replace(one, times=times[key]) for key, one in nearest.items()]
        if self.run.implementation in (Implementation.HUGGINGFACE, Implementation.TORCHTITAN):
            from .held_tensors import held_tensors

            found += (
                one
                for one in held_tensors(self.run, self.on, self.asks)
                if self.requested.covers(one.asked_bytes)
            )
        return found

    def _suspect(self, one: Taken) -> Suspect:
        event, formula = one.event, one.formula
        # In any step, and in the first one, whose turns are told by what is held without states.
        first = 0 if event.phase in (Phase.BEFORE, Phase.OPTIMIZER) else self.states
        counters, held = _turn(one, self.allocated)
        if first and (allocated := self.allocated) is not None:
            other, held_then = _turn(one, allocated + first)
            if abs(held_then - first - allocated) < abs(held - allocated):
                counters, held = other, held_then
        return Suspect(
            label=place(event.label, counters),
            why=event.why,
            moment=place(event.moment, counters),
            phase=event.phase,
            formula=None if formula is None else formula.text(),
            numbers=None if formula is None else formula.text(values=self.takings.values),
            bytes=one.bytes,
            asked_bytes=self.asks(one.bytes),
            least_held_bytes=held,
            most_held_bytes=held,
            first_held_bytes=held - first if first else None,
            times=one.times,
        )


def _turn(one: Taken, allocated: int | None) -> tuple[dict[str, int], int]:
    """The turn of each repeat in which most nearly so much is held, and what is held then."""
    counters: dict[str, int] = {}
    held = one.before
    for repeat, each in one.turns:
        turn = 0
        if each and allocated is not None:
            turn = min(max(round((allocated - held) / each), 0), repeat.count - 1)
        counters |= repeat.counted(turn)
        held += turn * each
    return counters, held
