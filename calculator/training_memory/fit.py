"""What to change so that a run fits: each single change tried, and the cheapest plan.

Single changes are :mod:`.moves` and doublings of a split; each is estimated and priced
(:mod:`.cost`). Plans are :mod:`.plans`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from .cost import Cost, cost, global_batch
from .errors import InputErrors
from .estimate import Estimate, peak_bytes
from .implementations import Implementation
from .largest import largest_in_steps, longest_in_steps
from .moves import Allow, Fields, price, single, words
from .need import Fits, at_a_glance
from .plans import Plan, Progress, fewest, search
from .records import dataclass
from .run import Run
from .slices import Work, finished
from .spelling import spellings

# For type checkers alone: typing takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .slices import T


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change to a run, tried.

    ``title`` names it in plain words and ``price`` what it is paid with beyond ``cost``, which is
    the changed run's; ``run`` is that run and ``fields`` its JSON fields to set. ``peak_bytes`` is
    the worst GPU's peak after it, ``saved_bytes`` what that is less than before, and ``fits``
    whether the run's GPU then holds it (None: no GPU named), ``tight`` whether an allocator may
    need more than there is (:mod:`.need`). ``slower_percent`` is by how much fewer tokens a GPU
    then trains on in the same time; ``same_gpus`` and ``same_training`` say whether it runs on as
    many GPUs, and trains with the same sequences, batch and optimizer.
    """

    title: str
    price: str
    run: Run
    fields: Mapping[str, object]
    peak_bytes: int
    saved_bytes: int
    fits: bool | None
    tight: bool
    cost: Cost
    slower_percent: float
    same_gpus: bool
    same_training: bool

    def to_json(self) -> dict[str, object]:
        """The change as plain values."""
        return {
            "title": self.title,
            "price": self.price,
            "fields": dict(self.fields),
            "lines": [one.to_json() for one in spellings(self.fields, self.run)],
            "peak_bytes": self.peak_bytes,
            "saved_bytes": self.saved_bytes,
            "fits": self.fits,
            "tight": self.tight,
            "slower_percent": round(self.slower_percent, 2),
            "same_gpus": self.same_gpus,
            "same_training": self.same_training,
            "cost": self.cost.to_json(),
        }


def changes(before: Estimate) -> tuple[Change, ...]:
    """Every single change that saves anything, best first.

    First come those that are enough alone, tight ones last, the ones that change least about the
    training before the others, and the quickest first; then the rest, the largest saving first.
    Nothing is listed that :func:`estimate` refuses, such as tensor parallelism over more GPUs than
    the model has heads.
    """
    return finished(changes_in_steps(before))


def changes_in_steps(before: Estimate) -> Work[tuple[Change, ...]]:
    """:func:`changes`, which may be left off after every change that is tried."""
    run, old = before.run, cost(before.run)
    request = run.to_json()
    found = []
    for fields in single(run):
        if change := _tried(before, old, request, fields):
            found.append(change)
        yield
    return tuple(sorted(found, key=_order))


def _order(change: Change) -> tuple[bool, bool, bool, bool, float, int]:
    enough = change.fits is True
    return (
        not enough,
        change.tight,
        enough and not change.same_training,
        enough and not change.same_gpus,
        round(change.slower_percent, 3) if enough else 0,
        -change.saved_bytes,
    )


def _tried(before: Estimate, old: Cost, request: Fields, fields: Fields) -> Change | None:
    """A change, tried; None where it saves nothing or the run cannot be."""
    run = before.run
    try:
        after = Run.from_json({**request, **fields})
    except InputErrors:
        return None
    peak = peak_bytes(after)
    saved = before.worst.peak_bytes - peak
    if saved <= 0:
        return None
    new = cost(after)
    return Change(
        title=", ".join(words(run, after)),
        price=price(run, after),
        run=after,
        fields={name: value for name, value in fields.items() if value != request[name]},
        peak_bytes=peak,
        saved_bytes=saved,
        fits=None if after.gpu is None else peak <= after.gpu.memory_bytes,
        tight=after.gpu is not None and at_a_glance(after, peak) is Fits.TIGHT,
        cost=new,
        slower_percent=_slower(old, new),
        same_gpus=new.gpus == old.gpus,
        same_training=trains_the_same(run, after),
    )


def _slower(old: Cost, new: Cost) -> float:
    """By how many percent a GPU trains on fewer tokens in a second; below 0 where on more."""
    before = old.tokens_per_second / old.gpus
    return 100 * (before * new.gpus / new.tokens_per_second - 1)


def trains_the_same(run: Run, other: Run) -> bool:
    """Whether two runs train the same: sequences, their number in a step, numbers and optimizer."""
    return (
        run.model == other.model
        and run.sequence == other.sequence
        and global_batch(run) == global_batch(other)
        and _numbers(run) == _numbers(other)
        and run.tuning == other.tuning
        and run.switches.optimizer is other.switches.optimizer
        and run.switches.clip == other.switches.clip
    )


def _numbers(run: Run) -> str:
    """The numbers that are trained; FSDP2's 32-bit shards are others' copies of 16-bit weights."""
    shards = run.implementation is not Implementation.PAPER and run.layout.zero == 3
    return "master" if shards and run.recipe.precision == "autocast" else run.recipe.precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What plans there are for a run.

    ``plan`` is the cheapest on ``gpus`` GPUs with ``batch`` sequences a step, of ``tried``; in
    ``too_large`` ways to split the run what stays is too much by itself. ``fewest`` is the smallest
    number of GPUs with any plan. What of the training was to ``allow`` is among plans only where
    no other surely fits. ``longest`` and ``largest`` are the tokens a sequence and the
    sequences a micro-batch can have, of the plan if there is one, else of the run; None where not
    even the smallest fits. Until it is ``done`` the fewest are still looked for.
    """

    run: Run
    gpus: int
    batch: int
    plan: Plan | None
    tried: int
    too_large: int
    fewest: int | None
    longest: int | None
    largest: int | None
    allow: tuple[Allow, ...] = ()
    done: bool = True

    def to_json(self) -> dict[str, object]:
        """The answer as plain values."""
        return {
            "gpus": self.gpus,
            "global_batch": self.batch,
            "plan": self.plan.to_json() if self.plan else None,
            "plans_tried": self.tried,
            "splits_too_large": self.too_large,
            "fewest_gpus": self.fewest,
            "longest_sequence": self.longest,
            "largest_micro_batch": self.largest,
            "allowed": [str(one) for one in self.allow],
        }


def batch_for(run: Run, gpus: int) -> int:
    """The sequences of a step that plans keep: the run's, or one a GPU.

    Nobody means a step of a single sequence on several GPUs: it is what a run says that names no
    batch.
    """
    given = global_batch(run)
    return gpus if given == 1 else given


def finding(
    run: Run, *, gpus: int, batch: int, allow: tuple[Allow, ...] = ()
) -> Iterator[Progress | Found]:
    """Look for plans of a run that names a GPU: progress, and what was found.

    That first without the fewest GPUs, which take as long again, and at the end whole.
    """
    progress = Progress()
    for progress in search(run, gpus=gpus, batch=batch, allow=allow):
        yield progress
    shown = progress.plan.run if progress.plan else run
    limits = []
    for limit in (longest_in_steps(shown), largest_in_steps(shown)):
        limits.append((yield from _telling(limit, progress)))
    longest, largest = limits

    def found(least: int | None, *, done: bool) -> Found:
        return Found(
            run=run,
            gpus=gpus,
            batch=batch,
            plan=progress.plan,
            tried=progress.tried,
            too_large=progress.too_large,
            fewest=least,
            longest=longest,
            largest=largest,
            allow=allow,
            done=done,
        )

    yield found(None, done=False)
    least: int | None = None
    for told in fewest(run, batch=batch, allow=allow):
        least = told.gpus
        yield progress
    yield found(least, done=True)


def _telling(work: Work[T], progress: Progress) -> Generator[Progress, None, T]:
    """The same work, which tells of a progress wherever it may be left off."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result
        yield progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a run fits its GPU, what would make it, and how far it can grow."""

    before: Estimate
    cost: Cost
    changes: tuple[Change, ...]
    found: Found

    def to_json(self) -> dict[str, object]:
        """The answer as plain values."""
        return {
            "run": self.before.run.to_json(),
            "peak_bytes": self.before.worst.peak_bytes,
            "capacity_bytes": self.before.capacity_bytes,
            "room_bytes": self.before.room_bytes,
            "fits": str(self.before.fits),
            "cost": self.cost.to_json(),
            "changes": [change.to_json() for change in self.changes],
            **self.found.to_json(),
        }


def fitting(
    before: Estimate, *, gpus: int, batch: int, allow: tuple[Allow, ...] = ()
) -> Iterator[Progress | Fit]:
    """The whole answer for an estimate whose run names a GPU: progress, and the answer last."""
    for told in finding(before.run, gpus=gpus, batch=batch, allow=allow):
        if isinstance(told, Progress):
            yield told
        elif told.done:
            price_now = cost(before.run)
            yield Fit(before=before, cost=price_now, changes=changes(before), found=told)
