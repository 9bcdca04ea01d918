"""What DeepSpeed does in the middle of each micro-batch, and which micro-batches are alike.

It depends on the recording and on sizes of weights alone, and most changes of a run leave these as
they are: so the last ones are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from ..events import Event, Phase
from ..model import Model
from ..recorded import Sized
from ..recording import Recording
from ..records import dataclass
from ..tuning import Tuning
from ..weaving import Said, Stretches, hear, weave
from . import flat, third, zeroth
from .buckets import Buckets
from .gathering import AROUND, AROUND_ADAPTERS, Gathering, Limits
from .owners import OwnersBuckets
from .scattering import Scattering, Sizes, Told
from .trace import Trace

# For type checkers alone: typing takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """All that decides when a GPU's weights and gradients come and go; nothing else is looked at.

    ``gpus`` share the model, of which this is number ``rank``. ``offloads``: the optimizer is on
    the CPU, with ``swaps`` its states on disks, ``away``: so are the weights. ``outer`` is a weight
    that is the whole model's own.
    """

    model: Model
    implementation: str
    tuning: Tuning
    gpus: int
    stage: int
    rank: int
    micro_batches: int
    item_bytes: int
    overlaps: bool
    offloads: bool
    away: bool
    swaps: bool
    limits: Limits
    outer: str | None = None

    @property
    def groups(self) -> tuple[flat.Group, ...]:
        """The optimizer's groups of weights."""
        return flat.groups(self.model, self.implementation, self.gpus, self.tuning)

    def turns(self) -> dict[int, int]:
        """Micro-batches that differ, from 0, and how many in a row are like each.

        The first finds no gradients. Where the last does what no other did (stages 0 and 1 sum
        gradients, an optimizer on the CPU is given them), those between are like the second, else
        all that follow.
        """
        last = self.micro_batches - 1
        if last > 1 and (self.stage < 2 or self.offloads):
            return {0: 1, 1: last - 1, last: 1}
        return {0: 1, 1: last} if last else {0: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Micro-batches from ``turn`` on that are alike; within a pass that is None nothing happens.

    ``begin`` comes before the forward pass, ``end`` follows the backward pass.
    """

    turn: int
    count: int
    forward: Stretches | None = None
    backward: Stretches | None = None
    begin: Sequence[Event] = ()
    end: Sequence[Event] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """A score before it is put between the moves of a recording."""

    turn: int
    count: int
    forward: Sequence[Said] | None = None
    backward: Sequence[Said] | None = None
    begin: Sequence[Event] = ()
    end: Sequence[Event] = ()

    def woven(self, made: Sized) -> Score:
        """What is heard between the moves of a recording."""
        again = min(self.turn, 1)
        forward, backward = self.forward, self.backward
        return Score(
            turn=self.turn,
            count=self.count,
            forward=None if forward is None else weave(made, "forward", again, forward),
            backward=None if backward is None else weave(made, "backward", again, backward),
            begin=self.begin,
            end=self.end,
        )


#: What was last asked for, in order: of a run's two GPUs of interest, for a few runs. Scores are
#: kept with their recording, so that no other takes its place; what was heard by what can be heard
#: of a recording, since many differ in nothing of it.
_known: dict[object, tuple[Recording, tuple[Score, ...]]] = {}
_known_heard: dict[object, tuple[_Heard, ...]] = {}
_MOST_KNOWN = 16


def scores(made: Sized, conditions: Conditions) -> tuple[Score, ...]:
    """A step's micro-batches in order."""

    def heard() -> tuple[_Heard, ...]:
        return tuple(_listened(made, conditions, conditions.turns(), jumps=True))

    def woven() -> tuple[Recording, tuple[Score, ...]]:
        of_notes = _last(_known_heard, (_noted(made.recording), *given), heard)
        return made.recording, tuple([one.woven(made) for one in of_notes])

    given = (*made.repeats.items(), made.first_layer, conditions)
    return _last(_known, (id(made.recording), *given), woven)[1]


def _last(known: dict[object, T], key: object, make: Callable[[], T]) -> T:
    """What is known under a key, made if it is not; the last few are kept."""
    found = known.pop(key, None)
    if found is None:
        found = make()
    known[key] = found
    if len(known) > _MOST_KNOWN:
        del known[next(iter(known))]
    return found


def _noted(recording: Recording) -> tuple[object, ...]:
    """All that can be heard of a recording."""
    return tuple(
        [
            (
                one.micro_batch,
                one.phase,
                one.part,
                one.before_last is None,
                (*map(_WHAT, one.notes),),
            )
            for one in recording.sections
        ]
    )


#: Of a note what it is, and the weight's name.
_WHAT = itemgetter(1, 2)


def played(
    made: Sized, conditions: Conditions, turns: dict[int, int], *, jumps: bool = True
) -> Iterator[Score]:
    """The micro-batches ``turns``, so many of each; without ``jumps`` layer by layer."""
    for one in _listened(made, conditions, turns, jumps=jumps):
        yield one.woven(made)


def _listened(
    made: Sized, conditions: Conditions, turns: dict[int, int], *, jumps: bool
) -> Iterator[_Heard]:
    if not conditions.stage:
        return _summed(conditions, turns)
    if conditions.stage == 3:
        return _gathered(made, conditions, turns, jumps=jumps)
    return _kept(made, conditions, turns, jumps=jumps)


def _summed(given: Conditions, turns: dict[int, int]) -> Iterator[_Heard]:
    """Where every GPU has all, and gradients are summed after the last one."""
    known = flat.numels(given.model, given.implementation, given.tuning)
    trained = {key for group in given.groups for key in group.keys}
    sizes = [numel for key, numel in known.items() if key in trained]
    for turn, count in turns.items():
        last = turn + count == given.micro_batches
        end = zeroth.summed(sizes, given.item_bytes) if last else ()
        yield _Heard(turn=turn, count=count, end=tuple(end))


def _kept(
    made: Sized, given: Conditions, turns: dict[int, int], *, jumps: bool
) -> Iterator[_Heard]:
    """Where every GPU has whole weights."""
    buckets = (OwnersBuckets if jumps else Buckets)(
        given.groups,
        rank=given.rank,
        stage=given.stage,
        size=given.limits.bucket,
        overlaps=given.overlaps,
        item_bytes=given.item_bytes,
        micro_batches=given.micro_batches,
        offloads=given.offloads,
    )
    for turn, count in turns.items():
        buckets.turn = turn
        backward = hear(made, "backward", min(turn, 1), [buckets], jumps=jumps)
        end = tuple(buckets.end())
        yield _Heard(turn=turn, count=count, backward=backward, end=end)


def _gathered(
    made: Sized, given: Conditions, turns: dict[int, int], *, jumps: bool
) -> Iterator[_Heard]:
    """Where weights are gathered, on every GPU alike."""
    weights, _ = flat.weights(given.model, given.implementation, given.tuning)
    swapped = b""
    if given.swaps:
        swapped = bytes(map(frozenset(third.swapped(given.groups)).__contains__, weights.keys()))
    sizes = Sizes(weights, given.gpus, given.item_bytes)
    traces: dict[int, Trace] = {}
    for turn, count in turns.items():
        again = min(turn, 1)
        if again not in traces:
            traces[again] = Trace(weights, made, again, given.outer)
        told = Told()
        gathering = Gathering(
            sizes,
            told,
            traces[again],
            given.limits,
            away=given.away,
            around=AROUND if given.tuning.trains_all else AROUND_ADAPTERS,
        )
        scattering = Scattering(
            sizes,
            told,
            bucket=given.limits.bucket,
            offloads=given.offloads,
            last=turn == given.micro_batches - 1,
            swapped=swapped,
        )
        begin = tuple(gathering.enter())
        forward = hear(made, "forward", again, [gathering], jumps=jumps)
        told.phase = Phase.BACKWARD
        backward = hear(made, "backward", again, [gathering, scattering], jumps=jumps)
        end = (*scattering.end(), *gathering.end())
        yield _Heard(
            turn=turn, count=count, forward=forward, backward=backward, begin=begin, end=end
        )
