"""How a recorded step's answer is derived: its states, and the tensors that one layer keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .categories import STATES, Category
from .derivation import Line
from .estimate import RankEstimate
from .formula import Formula, as_formula, symbol
from .held import Held
from .implementations import BY_STAGES
from .rank import Rank
from .recorded import RecordedStep, Sized
from .recording import MOST, Recording, Told
from .records import dataclass
from .run import Run

#: Formula, factor to take out, how often the lines are there, the lines: see ``derivation.py``.
Parts = tuple[Formula, Formula | None, int, tuple[Line, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a recorded step's answer comes from: what stays, and a recording with its sizes.

    ``parameters`` of this GPU; its layers' activations are held ``times`` times over.
    ``is_per_parameter``: the states are a multiple of the parameters, as where all of them are
    trained and none is shared out.
    """

    rows: tuple[Held, ...]
    made: Sized
    values: Mapping[str, int]
    parameters: int
    times: int
    is_per_parameter: bool


def recorded(run: Run, on: RankEstimate) -> Recorded:
    """One kind of GPU of a run."""
    plan, rank = on.plan, on.rank
    assert isinstance(plan, RecordedStep)
    by_stages = run.implementation in BY_STAGES
    return Recorded(
        rows=plan.rows,
        made=plan.made,
        values=symbols(run, rank),
        parameters=rank.parameters if by_stages else run.model.parameters.total,
        times=rank.layers_at_once * rank.in_flight if by_stages else run.model.layers,
        is_per_parameter=by_stages or (run.tuning.trains_all and _is_alone(run)),
    )


def _is_alone(run: Run) -> bool:
    """Whether a GPU has all of each weight."""
    from .shares import share_of

    share = share_of(run)
    return share.shards == share.tensor == 1


def symbols(run: Run, rank: Rank) -> dict[str, int]:
    """The run's numbers on one kind of GPU, by the formulas' symbols."""
    if run.implementation in BY_STAGES:
        from .megatron import shape

        return {**shape.values(run), "L": rank.layers_at_once, "m": rank.in_flight}
    from . import recorded_step

    return {**recorded_step.values(run), "m": 1}


def recorded_parts(of: Recorded, category: Category, total_bytes: int) -> Parts:
    """One category of a recorded step. The formula comes to ``total_bytes`` exactly.

    What is not a multiple of a ledger's rows (what the allocator rounds up, what passes by, what is
    around the layers) stands in it as a number of bytes.
    """
    if category in STATES and not of.is_per_parameter:
        return as_formula(total_bytes), None, 1, tuple(_states(of, category))
    if category in STATES:
        # So many bytes a parameter, and what the allocator rounds up.
        each = total_bytes // of.parameters
        return _exact(symbol("N") * each, of, total_bytes), None, 1, tuple(_states(of, category))
    if category is Category.ACTIVATIONS:
        # The rows have their formulas; their sum would be too long to read.
        lines = tuple(_kept(of.made))
        held = symbol("L") if of.values["m"] == 1 else symbol("m") * symbol("L")
        formula = held * sum(line.bytes for line in lines)
        return _exact(formula, of, total_bytes), None, of.times, lines
    return as_formula(total_bytes), None, 1, ()


def _exact(formula: Formula, of: Recorded, total_bytes: int) -> Formula:
    known = {**of.values, "N": of.parameters}
    return formula + (total_bytes - formula.evaluate(known))


def _states(of: Recorded, category: Category) -> Iterator[Line]:
    for row in of.rows:
        if row.category is category:
            yield Line(
                name=row.name,
                group="",
                formula=as_formula(row.bytes),
                bytes=row.bytes,
                why=row.why,
                where="PyTorch's own tensors",
            )


def _kept(made: Sized) -> Iterator[Line]:
    """What a layer in the middle makes in the forward pass and leaves when that ends."""
    index = 1 if made.repeats["layer"] >= MOST else 0
    told = made.recording.told.get(index)
    if told is None:
        told = made.recording.told[index] = tuple(_told(made.recording, index))
    for storage, name, group, formula, why, where in told:
        yield Line(
            name=name, group=group, formula=formula, bytes=made.sizes[storage], why=why, where=where
        )


def _told(recording: Recording, index: int) -> Iterator[Told]:
    taken: list[int] = []
    released = set()
    for section in recording.sections:
        if section.phase != "forward" or section.micro_batch:
            continue
        for place in section.running.places:
            if place < 0:
                released.add(~place)
            elif place in released:
                released.remove(place)  # it goes to another category
            elif section.part == ("layer", index):
                taken.append(place)
    for storage in taken:
        facts = recording.facts[storage]
        # Autocast's copies of weights are working memory.
        if storage in released or facts.category is not Category.ACTIVATIONS:
            continue
        why = " ".join(dict.fromkeys(use.why for use in facts.uses)) or (
            "The next layer's input, from which that layer is made again where it is recomputed."
        )
        operations = ", ".join(dict.fromkeys(use.operation for use in facts.uses))
        where = f"PyTorch's autograd: saved by {operations}" if operations else "checkpoint's input"
        yield storage, facts.name, facts.module or "Layer", facts.bytes, why, where
