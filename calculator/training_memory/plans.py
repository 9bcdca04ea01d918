"""The cheapest plan that fits, and the fewest GPUs there is one for.

A plan is a split of the run (:mod:`.splits`) with any of the moves that train the same
(:mod:`.moves`). All are priced first, which needs no memory estimate, and then estimated from the
cheapest on: the first that fits is the cheapest that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from .cost import Cost, cost
from .errors import InputErrors
from .estimate import peak_bytes
from .implementations import Implementation
from .megatron.held import held_rows as of_megatron
from .moves import in_plans
from .need import Fits, at_a_glance
from .rank import ranks
from .recorded_step import held_rows
from .records import dataclass
from .run import Run
from .splits import in_fsdp2, splits
from .step import states

#: After so many plans a search says how far it is.
_TOLD = 32
#: Machines' worth of GPUs: below one machine any number is tried.
_MACHINE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run that fits: ``fields`` are what is different from the run asked about.

    ``fits`` is yes, or tight where no plan surely fits: by the published share of what an allocator
    reserves (:mod:`.need`).
    """

    run: Run
    fields: Mapping[str, object]
    peak_bytes: int
    cost: Cost
    fits: Fits

    def to_json(self) -> dict[str, object]:
        """The plan as plain values."""
        return {
            "fields": dict(self.fields),
            "run": self.run.to_json(),
            "peak_bytes": self.peak_bytes,
            "fits": str(self.fits),
            "cost": self.cost.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a search is: plans priced and estimated, of how many; ``plan`` once it is found."""

    priced: int = 0
    estimated: int = 0
    of: int = 0
    plan: Plan | None = None
    done: bool = False


def search(run: Run, *, gpus: int, batch: int) -> Iterator[Progress]:
    """Look for the cheapest plan of ``run`` on ``gpus`` GPUs with ``batch`` sequences a step.

    The last progress is ``done`` and has the plan, or none if nothing fits. The run must name a
    GPU. Of equally quick plans the one that changes least comes first, and one that surely fits
    before any that is tight.
    """
    assert run.gpu is not None
    priced: list[_Priced] = []
    tight: Plan | None = None
    for candidate in _candidates(run, gpus=gpus, batch=batch):
        priced.append(candidate)
        if len(priced) % _TOLD == 0:
            yield Progress(priced=len(priced))
    priced.sort(key=lambda one: one.order)
    for index, one in enumerate(priced):
        if index % _TOLD == 0:
            yield Progress(priced=len(priced), estimated=index, of=len(priced))
        verdict, peak = _fits(one.run)
        if verdict is Fits.NO or (verdict is Fits.TIGHT and tight is not None):
            continue
        plan = Plan(run=one.run, fields=one.fields, peak_bytes=peak, cost=one.cost, fits=verdict)
        if verdict is Fits.TIGHT:
            tight = plan
            continue
        yield Progress(
            priced=len(priced), estimated=index + 1, of=len(priced), plan=plan, done=True
        )
        return
    yield Progress(priced=len(priced), estimated=len(priced), of=len(priced), plan=tight, done=True)


def _fits(run: Run) -> tuple[Fits, int]:
    """Whether a run fits its GPU, and its peak in bytes; 0 where that need not be known."""
    assert run.gpu is not None
    if floor_bytes(run) > run.gpu.memory_bytes:
        return Fits.NO, 0
    peak = peak_bytes(run)
    return at_a_glance(run, peak), peak


def cheapest(run: Run, *, gpus: int, batch: int) -> Plan | None:
    """The cheapest plan that fits, as :func:`search` finds it."""
    *_, last = search(run, gpus=gpus, batch=batch)
    return last.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """A plan that may fit: ``order`` is smaller for a cheaper one."""

    run: Run
    fields: Mapping[str, object]
    cost: Cost
    order: tuple[float, int, int]


def _candidates(run: Run, *, gpus: int, batch: int) -> Iterator[_Priced]:
    for index, (one, fields) in enumerate(every(run, gpus=gpus, batch=batch)):
        found = cost(one)
        # Six digits: what differs by less is equally quick, and then fewer changes are better.
        order = (float(f"{found.seconds:.6g}"), len(fields), index)
        yield _Priced(run=one, fields=fields, cost=found, order=order)


def every(run: Run, *, gpus: int, batch: int) -> Iterator[tuple[Run, Mapping[str, object]]]:
    """Every plan there is, fitting or not, with what is different from ``run``."""
    request = run.to_json()
    for split in splits(run, gpus=gpus, batch=batch):
        for one, move in _moved(run, {**request, **split}):
            if one.layout.zero != split["zero"]:
                continue  # a framework that shares in one way only, whatever is asked
            wanted = {**split, **move}
            yield one, {name: value for name, value in wanted.items() if value != request[name]}


def floor_bytes(run: Run) -> int:
    """Less than which no step of ``run`` can take.

    In the textbook all its states, which are there together as the optimizer steps, in a recorded
    step what stays from one to the next. Much faster to know than the peak, and enough to rule most
    plans out on few GPUs.
    """
    if run.implementation is Implementation.PAPER:
        return max(sum(size for _, size in states(run, rank)) for rank in ranks(run))
    if run.implementation is Implementation.MEGATRON:
        return max(sum(row.bytes for row in of_megatron(run, rank)) for rank in ranks(run))
    return sum(row.bytes for row in held_rows(run))


def fewest_gpus(run: Run, *, batch: int | None = None) -> int | None:
    """The smallest number of GPUs on which a plan of ``run`` fits, as :func:`fewest` finds it."""
    *_, last = fewest(run, batch=batch)
    return last.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewest:
    """How far the search for the fewest GPUs is: the number being tried, or that was found."""

    trying: int = 0
    gpus: int | None = None


def fewest(run: Run, *, batch: int | None = None) -> Iterator[Fewest]:
    """Look for the smallest number of GPUs on which a plan surely fits: up to 8, then by eights.

    ``batch`` sequences a step; None is one for every GPU. The last one told has the number, or None
    if no number that is tried is enough. The run must name a GPU.
    """
    assert run.gpu is not None
    for gpus in _numbers(run, batch):
        for fitting in _any_fits(run, gpus=gpus, batch=batch or gpus):
            if fitting:
                yield Fewest(trying=gpus, gpus=gpus)
                return
            yield Fewest(trying=gpus)
    yield Fewest()


def _numbers(run: Run, batch: int | None) -> Iterator[int]:
    """Numbers of GPUs worth trying: from where all states together fit, if ever anything does."""
    assert run.gpu is not None
    yield 1
    if not _ever_fits(run, batch):
        return
    least = 2
    if run.implementation is Implementation.PAPER:
        states_bytes = run.recipe.bytes_per_parameter * run.model.parameters.total
        least = max(least, -(-states_bytes // run.gpu.memory_bytes))
    yield from range(least, _MACHINE + 1)
    first = max(2, -(-least // _MACHINE))
    # What fits at all fits long before this: beyond its states a run needs no more GPUs.
    for machines in range(first, 4 * first + _MACHINES):
        yield machines * _MACHINE


#: So many machines more than four times those that hold the states are tried.
_MACHINES = 64


def _ever_fits(run: Run, batch: int | None) -> bool:
    """Whether anything fits on however many GPUs: each with as little as there can be on one."""
    # Megatron shares optimizer states at most, and the others everything.
    shared = 1 if run.implementation is Implementation.MEGATRON else 3
    request = {**run.to_json(), **(in_fsdp2(run) if shared == 3 else {})} | {
        "data": min(batch or _MOST_REPLICAS, _MOST_REPLICAS),
        "zero": shared,
        "micro_batch": 1,
        "micro_batches": 1,
        "layers_per_stage": None,
        "interleave": 1,
        "schedule": None,
    }
    stages = {2**power for power in range(run.model.layers.bit_length())} | {run.model.layers}
    for tensor, pipeline in product(range(_MACHINE, 0, -1), sorted(stages, reverse=True)):
        split = {"tensor": tensor, "pipeline": pipeline}
        for together in (True, False) if tensor > 1 else (False,):
            wanted = request | split | {"sequence_parallel": together}
            if any(_fits(one)[0] is Fits.YES for one, _ in _moved(run, wanted)):
                return True
    return False


def _moved(run: Run, request: Mapping[str, object]) -> Iterator[tuple[Run, dict[str, object]]]:
    """A request with every choice of moves for ``run``, as far as they can be: run and move."""
    try:
        Run.from_json(request)
    except InputErrors:
        return  # a split that cannot be is none with other moves either
    for choice in product(*in_plans(run)):
        move = {name: value for change in choice for name, value in change.items()}
        try:
            yield Run.from_json({**request, **move}), move
        except InputErrors:
            continue


_MOST_REPLICAS = 8192


def _any_fits(run: Run, *, gpus: int, batch: int) -> Iterator[bool]:
    """True once a plan fits; before, False every now and then, for others to have their turn."""
    assert run.gpu is not None
    found = []
    for one, _ in every(run, gpus=gpus, batch=batch):
        found.append(one)
        if len(found) % _TOLD == 0:
            yield False
    # Whatever costs most usually needs least, and is the last of the moves.
    for index, one in enumerate(reversed(found)):
        if _fits(one)[0] is Fits.YES:
            yield True
            return
        if index % _TOLD == 0:
            yield False
