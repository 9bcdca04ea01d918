"""The cheapest plan that fits, and the fewest GPUs there is one for.

A plan is a split of the run (:mod:`.splits`) with any of the moves that train the same
(:mod:`.moves`). What cannot fit by a lower bound (:mod:`.bounds`) is passed over; all else is
priced, which needs no memory estimate, and then estimated from the cheapest on: the first that fits
is the cheapest that does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import product

from .bounds import held_bytes, least_bytes
from .cost import Cost, cost
from .errors import InputErrors
from .estimate import peak_bytes
from .implementations import BY_STAGES, Implementation
from .moves import Allow, Fields, in_plans
from .need import Fits, at_a_glance
from .records import dataclass
from .run import Run
from .sharding import Host
from .slices import Work
from .spelling import spellings
from .splits import in_fsdp2, splits

#: After so many plans a search says how far it is.
_TOLD = 8
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
            "lines": [one.to_json() for one in spellings(self.fields, self.run)],
            "run": self.run.to_json(),
            "peak_bytes": self.peak_bytes,
            "fits": str(self.fits),
            "cost": self.cost.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a search is; ``plan`` once it is found.

    Of ``tried`` plans ``priced`` may fit by what they hold at the least, and of these so many were
    ``estimated``. Besides, in ``too_large`` ways to split the run what stays from step to step is
    too much whatever else is changed.
    """

    tried: int = 0
    too_large: int = 0
    priced: int = 0
    estimated: int = 0
    plan: Plan | None = None
    done: bool = False


def search(run: Run, *, gpus: int, batch: int, allow: Collection[Allow] = ()) -> Iterator[Progress]:
    """Look for the cheapest plan of ``run`` on ``gpus`` GPUs with ``batch`` sequences a step.

    The last progress is ``done`` and has the plan, or none if nothing fits. The run must name a
    GPU. Of equally quick plans the one that changes least comes first, and one that surely fits
    before any that is tight. Only where none surely fits are plans tried that train otherwise, or
    on the CPU, in ways that are to ``allow``.
    """
    assert run.gpu is not None
    seen = _Seen()
    tight: Plan | None = None
    for allowed in ((), allow) if allow else ((),):
        waiting: list[tuple[tuple[float, int, int], _Priced]] = []
        for candidate in _that_may_fit(
            run, run.gpu.memory_bytes, seen, gpus=gpus, batch=batch, allow=allowed
        ):
            if candidate:
                seen.priced += 1
                heappush(waiting, _priced(candidate, seen.priced, at_least=True))
            if candidate is None or seen.priced % _TOLD == 0:
                yield seen.progress()
        while waiting:
            (_, _, place), one = heappop(waiting)
            if not one.exact:
                # What it copies is known only when it is recorded, which is for few to find out.
                heappush(waiting, _priced(one.candidate, place))
                continue
            yield seen.progress()
            least = at_a_glance(one.candidate.run, one.candidate.least)
            if least is Fits.NO or (tight and least is Fits.TIGHT):
                continue
            seen.estimated += 1
            peak = peak_bytes(one.candidate.run)
            verdict = at_a_glance(one.candidate.run, peak)
            if verdict is Fits.YES:
                yield seen.progress(one.plan(peak, verdict), done=True)
                return
            if verdict is Fits.TIGHT and tight is None:
                tight = one.plan(peak, verdict)
    yield seen.progress(tight, done=True)


def cheapest(run: Run, *, gpus: int, batch: int, allow: Collection[Allow] = ()) -> Plan | None:
    """The cheapest plan that fits, as :func:`search` finds it."""
    *_, last = search(run, gpus=gpus, batch=batch, allow=allow)
    return last.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """A plan that may fit, with its cost, or less than which it cannot cost."""

    candidate: _Candidate
    cost: Cost
    exact: bool

    def plan(self, peak: int, fits: Fits) -> Plan:
        one = self.candidate
        return Plan(run=one.run, fields=one.fields, peak_bytes=peak, cost=self.cost, fits=fits)


def _priced(
    one: _Candidate, place: int, *, at_least: bool = False
) -> tuple[tuple[float, int, int], _Priced]:
    """A plan with what orders it: smaller for a cheaper one."""
    found = cost(one.run, at_least=at_least)
    # Six digits: what differs by less is equally quick; then fewer changes are better.
    order = (float(f"{found.seconds:.6g}"), len(one.fields), place)
    return order, _Priced(candidate=one, cost=found, exact=not (at_least and found.copied_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A plan that may fit, and less than which it cannot take."""

    run: Run
    fields: Fields
    least: int


def every(
    run: Run, *, gpus: int, batch: int, allow: Collection[Allow] = ()
) -> Iterator[tuple[Run, Fields]]:
    """Every plan there is, fitting or not, with what is different from ``run``."""
    request = run.to_json()
    for split in splits(run, gpus=gpus, batch=batch):
        for choice in product(*in_plans(run, allow)):
            if one := _made(request, split, choice):
                yield one, _different(request, split, choice)


class _Seen:
    """How far a search is; see :class:`Progress`."""

    __slots__ = ("estimated", "priced", "too_large", "tried")

    def __init__(self) -> None:
        self.tried = self.too_large = self.priced = self.estimated = 0

    def progress(self, plan: Plan | None = None, *, done: bool = False) -> Progress:
        return Progress(
            tried=self.tried,
            too_large=self.too_large,
            priced=self.priced,
            estimated=self.estimated,
            plan=plan,
            done=done,
        )


def _that_may_fit(
    run: Run, limit: int, seen: _Seen, *, gpus: int, batch: int, allow: Collection[Allow] = ()
) -> Iterator[_Candidate | None]:
    """The plans of :func:`every` that a lower bound does not put above ``limit`` bytes.

    Where something is to ``allow``, only those with any of that. None every now and then, for
    others to have their turn.
    """
    request = run.to_json()
    held: dict[object, tuple[int, ...]] = {}
    beyond: dict[object, set[int]] = {}
    moves: dict[object, list[list[Fields]]] = {}
    for split in splits(run, gpus=gpus, batch=batch):
        alike = tuple(value for name, value in split.items() if name not in _BATCH)
        if alike not in held:
            found = _held(request, split)
            yield None
            if found is None:
                continue
            held[alike] = found
            seen.too_large += not allow and max(found, default=0) > limit
        known = held[alike]
        # Less is held where less is trained.
        if not known or (not allow and max(known) > limit):
            continue
        # What is refused depends on what is split, not on among how many.
        kind = (split["zero"], *(value != 1 for value in alike))
        if kind not in moves:
            options = in_plans(run, allow)
            moves[kind] = [_possible(request, split, fields) for fields in options]
        passed, turns = beyond.setdefault(alike, set()), _takes_turns(split)
        for place, choice in enumerate(product(*moves[kind])):
            if place in passed:
                seen.tried += turns
                continue
            one = _made(request, split, choice)
            if one is None or (allow and _needs_no_leave(run, one)):
                continue
            seen.tried += 1
            least = least_bytes(one, None if allow else known)
            if least <= limit:
                yield _Candidate(run=one, fields=_different(request, split, choice), least=least)
            else:
                if run.implementation in BY_STAGES:
                    # Micro-batches come the smallest first, and larger ones take no less by stages.
                    passed.add(place)
                if seen.tried % _TOLD == 0:
                    yield None


def _takes_turns(split: Fields) -> bool:
    """Whether a split's micro-batches can be, where smaller ones could: parts take turns by all."""
    if split["interleave"] == 1:
        return True
    return split["micro_batches"] % split["pipeline"] == 0  # type: ignore[operator,no-any-return]


def _needs_no_leave(run: Run, other: Run) -> bool:
    """Whether a plan has none of the moves that must be allowed."""
    same = other.switches.optimizer is run.switches.optimizer and other.tuning == run.tuning
    before, after = run.sharding, other.sharding
    here = (after.offload_optimizer, after.offload_param)
    return same and here in ((before.offload_optimizer, before.offload_param), _ON_THE_GPU)


_ON_THE_GPU = (Host.NONE, Host.NONE)


_BATCH = ("micro_batch", "micro_batches")


def _held(request: Fields, split: Fields) -> tuple[int, ...] | None:
    """What a split holds at the least on each kind of GPU, nothing where it is refused.

    None where other micro-batches may not be. The first of a split's are the smallest, which hold
    no more than others.
    """
    try:
        return held_bytes(Run.from_json({**request, **split}))
    except InputErrors as refused:
        return None if _of_the_batch(refused) else ()


def _of_the_batch(refused: InputErrors) -> bool:
    return any(error.field in _BATCH for error in refused.errors)


def _possible(request: Fields, split: Fields, options: Iterable[Fields]) -> list[Fields]:
    """Those of a move's options that a split does not rule out, whatever else is changed."""
    found = []
    for fields in options:
        try:
            Run.from_json({**request, **split, **fields})
        except InputErrors as refused:
            if not _of_the_batch(refused):
                continue
        found.append(fields)
    return found


def _made(request: Fields, split: Fields, choice: Iterable[Fields]) -> Run | None:
    """The run of a plan; None if it is refused."""
    asked = {**request, **split}
    for fields in choice:
        asked.update(fields)
    try:
        made = Run.from_json(asked)
    except InputErrors:
        return None
    # A framework may share in one way only, whatever is asked.
    return made if made.layout.zero == split["zero"] else None


def _different(request: Fields, split: Fields, choice: Iterable[Fields]) -> Fields:
    wanted = dict(split)
    for fields in choice:
        wanted.update(fields)
    return {name: value for name, value in wanted.items() if value != request[name]}


def fewest_gpus(run: Run, *, batch: int | None = None, allow: Collection[Allow] = ()) -> int | None:
    """The smallest number of GPUs on which a plan of ``run`` fits, as :func:`fewest` finds it."""
    *_, last = fewest(run, batch=batch, allow=allow)
    return last.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewest:
    """How far the search for the fewest GPUs is: the number being tried, or that was found."""

    trying: int = 0
    gpus: int | None = None


def fewest(
    run: Run, *, batch: int | None = None, allow: Collection[Allow] = ()
) -> Iterator[Fewest]:
    """Look for the smallest number of GPUs on which a plan surely fits: up to 8, then by eights.

    ``batch`` sequences a step; None is one for every GPU. The last one told has the number, or None
    if no number that is tried is enough. The run must name a GPU.
    """
    assert run.gpu is not None
    for gpus in _numbers(run, batch, allow):
        if gpus is None:
            yield Fewest()
            continue
        for fitting in _any_fits(run, gpus=gpus, batch=batch or gpus, allow=allow):
            if fitting:
                yield Fewest(trying=gpus, gpus=gpus)
                return
            yield Fewest(trying=gpus)
    yield Fewest()


def _numbers(run: Run, batch: int | None, allow: Collection[Allow]) -> Iterator[int | None]:
    """Numbers of GPUs worth trying: from where all states together fit, if ever anything does.

    None every now and then, for others to have their turn.
    """
    assert run.gpu is not None
    yield 1
    if not (yield from _ever_fits(run, batch, allow)):
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


def _ever_fits(run: Run, batch: int | None, allow: Collection[Allow]) -> Work[bool]:
    """Whether anything fits on however many GPUs: each with as little as there can be on one."""
    # Megatron shares optimizer states at most, and the others everything.
    shared = 1 if run.implementation in BY_STAGES else 3
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
    moves = [*in_plans(run, allow)]
    for tensor, pipeline in product(range(_MACHINE, 0, -1), sorted(stages, reverse=True)):
        split = {"tensor": tensor, "pipeline": pipeline, "zero": shared}
        for together in (True, False) if tensor > 1 else (False,):
            wanted = split | {"sequence_parallel": together}
            possible = [_possible(request, wanted, options) for options in moves]
            for choice in product(*possible):
                yield
                one = _made(request, wanted, choice)
                if one and _surely_fits(one, least_bytes(one)):
                    return True
    return False


_MOST_REPLICAS = 8192


def _surely_fits(run: Run, least: int) -> bool:
    """Whether a run that takes ``least`` bytes or more surely fits its GPU."""
    return at_a_glance(run, least) is Fits.YES and at_a_glance(run, peak_bytes(run)) is Fits.YES


def _any_fits(run: Run, *, gpus: int, batch: int, allow: Collection[Allow]) -> Iterator[bool]:
    """True once a plan surely fits; before, False now and then, for others to have their turn."""
    assert run.gpu is not None
    for allowed in ((), allow) if allow else ((),):
        found: list[_Candidate] = []
        for one in _that_may_fit(
            run, run.gpu.memory_bytes, _Seen(), gpus=gpus, batch=batch, allow=allowed
        ):
            if one:
                found.append(one)
            if one is None or len(found) % _TOLD == 0:
                yield False
        # What takes least by the bound most likely fits.
        for one in sorted(found, key=lambda one: one.least):
            if _surely_fits(one.run, one.least):
                yield True
                return
            yield False
