"""The answer: how much memory one step of a run takes, when, and of what it is made."""

from __future__ import annotations

from functools import cached_property

from .categories import STATES, Category
from .errors import InputError
from .events import Group, place
from .need import Fits, Need, is_played, needing
from .omitted import omitted
from .rank import Rank, rank_at, ranks
from .recorded_step import trained_parameters
from .records import dataclass
from .run import Run
from .slices import Work, finished
from .step import step
from .units import show_bytes
from .walk import Segment, by_category, climb, opened, walk


@dataclass(frozen=True, kw_only=True)
class RankEstimate:
    """One kind of GPU: its step as it was built, and the walk over it. All sizes in bytes."""

    rank: Rank
    plan: Group
    segment: Segment

    @cached_property
    def tree(self) -> Group:
        """The step as a tree of events. A recorded step's events are made only for this."""
        tree = opened(self.plan)
        assert isinstance(tree, Group)
        return tree

    @property
    def peak_bytes(self) -> int:
        """The highest total over the step."""
        return self.segment.peak

    @cached_property
    def peak_parts(self) -> dict[Category, int]:
        """What the peak is made of; sums to :attr:`peak_bytes`."""
        return by_category(self.segment.parts)

    @cached_property
    def totals(self) -> dict[Category, int]:
        """The largest each category gets, each at its own time; sums to the peak or more."""
        return by_category(self.segment.largest)

    @property
    def peak_moment(self) -> str:
        """Completes "the peak comes …"."""
        event = self.segment.at
        return place(event.moment, self.segment.counters) if event else "never: nothing is held"

    @property
    def states_bytes(self) -> int:
        """Weights, gradients, master copy and optimizer states, all in place."""
        return sum(self.totals[category] for category in STATES)

    def to_json(self) -> dict[str, object]:
        """This kind of GPU in a few plain values."""
        return {
            "rank": self.rank.label,
            "stage": self.rank.stage + 1,
            "layers": self.rank.layers,
            "parameters": self.rank.parameters,
            "peak": self.peak_json(),
            "totals": _named(self.totals),
            "states_bytes": self.states_bytes,
        }

    def peak_json(self) -> dict[str, object]:
        """The peak with its moment and make-up."""
        return {
            "bytes": self.peak_bytes,
            "moment": self.peak_moment,
            "parts": _named(self.peak_parts),
        }


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A run and its kinds of GPU, the one that needs most first in importance: :attr:`worst`."""

    run: Run
    ranks: tuple[RankEstimate, ...]

    @cached_property
    def worst(self) -> RankEstimate:
        """The kind of GPU with the highest peak, the earliest stage of equals."""
        return max(self.ranks, key=lambda rank: rank.peak_bytes)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return self.run.model.parameters.total

    @property
    def trained_parameters(self) -> int:
        """How many are trained: all of them, or the adapters'."""
        return trained_parameters(self.run)

    @property
    def capacity_bytes(self) -> int | None:
        """What the run's GPU holds; None where no GPU was named."""
        return self.run.gpu.memory_bytes if self.run.gpu else None

    @property
    def room_bytes(self) -> int | None:
        """Capacity less the worst peak: negative where the run does not fit."""
        capacity = self.capacity_bytes
        return None if capacity is None else capacity - self.worst.peak_bytes

    @cached_property
    def need(self) -> Need:
        """What must be free on the fullest GPU; it takes longer than all else together."""
        return finished(self.needing())

    def needing(self) -> Work[Need]:
        """:attr:`need`, which may be left off; once it is found, it is there."""
        if "need" not in self.__dict__:
            worst = self.worst
            self.__dict__["need"] = yield from needing(self.run, worst.rank, worst.peak_bytes)
        return self.need

    @property
    def fits(self) -> Fits | None:
        """Whether the run's GPU is enough for it: yes, tight or no; None where none was named."""
        return self.need.fits(self.run.gpu) if self.run.gpu else None

    @cached_property
    def omitted(self) -> tuple[str, ...]:
        """What this accounting leaves out, a sentence each."""
        return omitted(self.run)

    def to_json(self, *, full: bool = True) -> dict[str, object]:
        """The answer as plain values: the worst GPU's, and each kind's under ``ranks``.

        Unless ``full`` it leaves out ``need`` and ``fits`` where they take longer than all else.
        """
        full = full or not is_played(self.run)
        return {
            "run": self.run.to_json(),
            "peak": self.worst.peak_json(),
            "totals": _named(self.worst.totals),
            "states_bytes": self.worst.states_bytes,
            "parameters": self.parameters,
            "trained_parameters": self.trained_parameters,
            "gpus": self.run.layout.gpus,
            "rank": self.worst.rank.label,
            "ranks": [rank.to_json() for rank in self.ranks],
            "capacity_bytes": self.capacity_bytes,
            "room_bytes": self.room_bytes,
            **(self._need_json() if full else {}),
            "omitted": list(self.omitted),
        }

    def _need_json(self) -> dict[str, object]:
        fits = self.fits
        return {"need": self.need.to_json(), "fits": None if fits is None else str(fits)}

    def __str__(self) -> str:
        return f"{self.run.model.name}: {show_bytes(self.worst.peak_bytes)}"


def _named(values: dict[Category, int]) -> dict[str, int]:
    return {str(category): size for category, size in values.items()}


def estimate(run: Run) -> Estimate:
    """What one training step of ``run`` takes on each kind of its GPUs."""
    return Estimate(
        run=run,
        ranks=tuple(_on(run, rank) for rank in ranks(run)),
    )


def estimate_on(run: Run, number: int) -> Estimate:
    """The same for one GPU alone, by its number from 0 as Megatron-LM counts them.

    GPUs that share layers are neighbours, then come replicas, and pipeline stages are outermost
    (Megatron-Core, parallel_state.initialize_model_parallel). Raises :class:`InputError` for a
    number that is no GPU of the run's.
    """
    gpus = run.layout.gpus
    if not 0 <= number < gpus:
        raise InputError("rank", number, f"allowed: 0 to {gpus - 1:,}, since the GPUs are {gpus:,}")
    stage = number // (gpus // run.layout.pipeline)
    return Estimate(run=run, ranks=(_on(run, rank_at(run, stage)),))


def peak_bytes(run: Run) -> int:
    """The worst GPU's peak alone, as ``estimate(run).worst.peak_bytes``, but several times faster.

    For searches, which want nothing else of most runs that they try.
    """
    return max(climb(step(run, rank))[1] for rank in ranks(run))


def _on(run: Run, rank: Rank) -> RankEstimate:
    plan = step(run, rank)
    return RankEstimate(rank=rank, plan=plan, segment=walk(plan))
