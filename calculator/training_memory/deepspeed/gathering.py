"""Stage 3: which weights are gathered when, and which layers need not be followed.

As DeepSpeed does it once it has seen a whole step
(deepspeed/runtime/zero/partitioned_param_coordinator.py): a module asks for its weights before it
runs, the next ones are asked for ahead, and what is used again soon is not given back. All numbers
are of numbers, not bytes, as in DeepSpeed's configuration; a weight is its place in the model's
order.

How far ahead weights are fetched is another thing in each layer; but after some layers all of it
comes again, and whole rounds of layers are then passed over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence

from ..events import Event
from ..layouts import rounded
from ..recording import Section
from ..records import dataclass
from ..weaving import Heard, Listener
from .scattering import GONE, Sizes, Told
from .trace import ASKS, NONE, Trace

GATHER = "Weights that are needed next are brought together from all GPUs in one go."
WHOLE = "Each weight is copied out of what was gathered, to memory of its own."
ALONE = "Each GPU holds a share of the weight; all of them are brought together to compute."
FROM_CPU = "This GPU's shares are in the CPU's memory, and are copied before they are sent."
RELEASED = "It is not used again soon; each GPU goes on holding its share."


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of DeepSpeed's zero_optimization: stage3_prefetch_bucket_size and the like, in numbers."""

    bucket: int
    prefetch: int
    persistence: int
    live: int
    reuse: int


#: Tables: no gradient flows on from them, which is what ends a module's backward pass.
UNFINISHED = ("embedding", "positions")
#: The model, and the same without its head: modules that ask for what comes next as others do.
AROUND = 2
#: PEFT's model, its tuner, and the model without its head; the one with it is not called as one.
AROUND_ADAPTERS = 3


#: Where more weights are there, layers are heard sooner than it is told where they stand.
_MANY = 1000


class _Gather:
    """Weights gathered together, and how many of them are still waited for."""

    __slots__ = ("size", "taken", "waiting", "weights")

    def __init__(self, weights: Sequence[int], size: int) -> None:
        self.weights = weights
        self.size = size
        self.waiting = len(weights)
        self.taken = False

    def moved(self, by: int) -> _Gather:
        """The same of weights so many places further."""
        found = _Gather([weight + by for weight in self.weights], self.size)
        found.waiting, found.taken = self.waiting, self.taken
        return found


class _Mark:
    """Where a gathering stands: at which place and layer, and after how many judgements."""

    __slots__ = ("at", "judged", "layer", "step")

    def __init__(self, at: int, judged: int, layer: int, step: int) -> None:
        self.at = at
        self.judged = judged
        self.layer = layer
        self.step = step


class Gathering(Listener):
    """One GPU's weights in a micro-batch of stage 3, which are asked for as ``trace`` says.

    ``away``: this GPU's shares are in the CPU's memory.
    """

    def __init__(
        self,
        sizes: Sizes,
        told: Told,
        trace: Trace,
        limits: Limits,
        *,
        away: bool,
        around: int = AROUND,
    ) -> None:
        self.sizes, self.trace, self.limits = sizes, trace, limits
        self.event = told.event
        self.away, self.around = away, around
        self.layers, self.each = sizes.layers, sizes.each
        self.numels, self.names = sizes.numels, sizes.names
        persists = {numel: numel <= limits.persistence for numel in set(self.numels)}
        #: Whether a weight is so small that it is never given back.
        self.persists = list(map(persists.__getitem__, self.numels))
        self.outside = frozenset(range(len(self.numels))).difference(self.layers)
        self.uses_of_outer = trace.uses_of_outer
        self.asked = len(trace.asked)
        #: Of a section what a weight is asked for or given back at: which note, whether it is
        #: asked for, which one in the first layer, and how far the next layer's is.
        self._notes: dict[int, list[tuple[int, bool, int, int]]] = {}
        #: Of what is asked for, how much was, and how much was looked at ahead.
        self.at = self.ahead = 0
        self.flying: dict[int, _Gather] = {}
        self.there: set[int] = set()
        self.live = 0
        #: Whether weights were kept for being used again: each with where things stood.
        self._judged: list[tuple[int, int, int, bool]] = []

    def enter(self) -> list[Event]:
        """The modules around all others are called, which have no weight of their own."""
        events = self._fetch(self.trace.outer)
        for _ in range(self.around - 1):
            events += self._fetch(NONE)
        return events

    # -- what is heard -----------------------------------------------------------------------------

    def hear(self, section: Section, layer: int) -> Heard:
        """What happens as modules ask for their weights and have run."""
        notes = self._notes.get(id(section))
        if notes is None:
            notes = self._notes[id(section)] = list(self._placed(section))
        found: list[tuple[int, Sequence[Event], Sequence[Event]]] = []
        for note, asks, first, each in notes:
            weight = first + each * layer
            events = self._fetch(weight) if asks else self._release(weight)
            if events:
                found.append((note, events, ()))
        return tuple(found)

    def _placed(self, section: Section) -> Iterator[tuple[int, bool, int, int]]:
        for note, (_, kind, name) in enumerate(section.notes):
            weight, each = self.sizes.steps.get(name, (NONE, 0))
            if kind == "gradient":
                continue
            if kind == "use" and weight == self.trace.outer != NONE:
                # The loss reads it by itself, and calls no module.
                self.uses_of_outer -= 1
                if not self.uses_of_outer:
                    continue
            yield note, kind in ASKS, weight, each

    def _fetch(self, weight: int) -> list[Event]:
        events: list[Event] = []
        if weight != NONE:
            if not self.persists[weight]:
                gather = self.flying.pop(weight, None)
                if gather is None and weight not in self.there:
                    events = self._gather([weight])
                    gather = self.flying.pop(weight)
                if gather is not None:
                    events += self._wait(weight, gather)
            if self.ahead == self.at:
                self.ahead += 1
        if self.live < self.limits.live and self.ahead < self.asked:
            events += self._look_ahead()
        if weight != NONE:
            self.at += 1
        return events

    def _look_ahead(self) -> list[Event]:
        """Ask for what comes next."""
        most = min(self.limits.live - self.live, self.limits.prefetch)
        asked, numels = self.trace.asked, self.numels
        there, flying, persists = self.there, self.flying, self.persists
        found: list[int] = []
        numel = 0
        at = self.ahead
        while numel < most and at < len(asked):
            weight = asked[at]
            at += 1
            if not (persists[weight] or weight in there or weight in flying or weight in found):
                found.append(weight)
                numel += numels[weight]
        self.ahead = at
        return self._gather(found) if found else []

    def _gather(self, weights: list[int]) -> list[Event]:
        weights.sort()
        size = sum([self.sizes.padded[weight] for weight in weights]) * self.sizes.item_bytes
        gather = _Gather(weights, rounded(size))
        for weight in weights:
            self.flying[weight] = gather
            self.live += self.numels[weight]
        why = ALONE if len(weights) == 1 else GATHER
        events = [self.event(self._name(weights), gather.size, why)]
        if self.away:
            shares = (self.sizes.padded[weight] // self.sizes.gpus for weight in weights)
            size = sum(rounded(share * self.sizes.item_bytes) for share in shares)
            events.append(self.event("shares from the CPU", size, FROM_CPU))
            events.append(self.event("shares from the CPU", -size, GONE))
        return events

    def _name(self, weights: Sequence[int]) -> str:
        if len(weights) == 1:
            return f"gathered {self.names[weights[0]]}"
        return f"buffer of {len(weights)} weights"

    def _wait(self, weight: int, gather: _Gather) -> list[Event]:
        events = []
        several = len(gather.weights) > 1
        if several and not gather.taken:
            gather.taken = True
            self.there.update(gather.weights)
            copies = sum([self.sizes.own_bytes[one] for one in gather.weights])
            events.append(self.event("gathered weights", copies, WHOLE))
        self.there.add(weight)
        gather.waiting -= 1
        if several and not gather.waiting:
            events.append(self.event(self._name(gather.weights), -gather.size, GONE))
        return events

    def _release(self, weight: int) -> list[Event]:
        if weight not in self.there or weight == self.trace.outer:
            return []
        stays = self._is_used_again(weight, self.at, self.ahead)
        self._judged.append((weight, self.at, self.ahead, stays))
        return [] if stays else [self._free(weight)]

    def _is_used_again(self, weight: int, at: int, ahead: int) -> bool:
        """Soon enough that it is kept, or before what is asked for ahead comes to it again."""
        again = self.trace.again(weight, at)
        if again is None:
            return self.names[weight] in UNFINISHED
        before = self.trace.before
        return again < ahead or before[again] - before[at] < self.limits.reuse

    def _free(self, weight: int) -> Event:
        self.there.discard(weight)
        self.live -= self.numels[weight]
        return self.event(f"gathered {self.names[weight]}", -self.sizes.own_bytes[weight], RELEASED)

    # -- rounds of layers --------------------------------------------------------------------------

    def mark(self, section: Section, layer: int, step: int) -> tuple[Hashable, object] | None:
        """All that decides what comes next; of weights, how far they are from this layer's."""
        if len(self.there) + len(self.flying) > _MANY:
            return None
        moved = (-layer * self.each).__add__
        around = self.there & self.outside
        key = (
            self.ahead - self.at if self.ahead < len(self.trace.asked) else None,
            self.live,
            (*map(moved, self.flying),),
            tuple(
                [
                    ((*map(moved, one.weights),), one.waiting, one.taken)
                    for one in dict.fromkeys(self.flying.values())
                ]
            ),
            frozenset(map(moved, self.there - around)),
            frozenset(around),
        )
        return key, _Mark(self.at, len(self._judged), layer, step)

    def jump(self, before: object, now: object, left: int) -> int:
        """Pass over rounds whose every answer is the first one's."""
        assert isinstance(before, _Mark)
        assert isinstance(now, _Mark)
        layers = (now.layer - before.layer) * now.step
        places = now.at - before.at
        rounds = left // layers
        ahead = places if self.ahead < len(self.trace.asked) else 0
        if ahead:
            # What is looked at ahead is these layers' as well.
            end = now.at + left * places // layers
            rounds = min(rounds, (end - self.ahead) // places)
        by = (now.layer - before.layer) * self.each
        judged = self._judged[before.judged :]

        def answers(turns: int) -> bool:
            """Whether as many rounds later all is kept that was, and nothing else."""
            return all(
                self._is_used_again(
                    weight + turns * by, at + turns * places, looked + turns * ahead
                )
                is stays
                for weight, at, looked, stays in judged
            )

        if rounds < 1 or not answers(1):
            return 0
        # How far it is to where a weight is used again grows or shrinks evenly: an answer that is
        # another one once stays so.
        if not answers(rounds):
            rounds = bisect_left(range(1, rounds), True, key=lambda turns: not answers(turns))
        if rounds:
            self._move(rounds * by)
            self.at += rounds * places
            self.ahead += rounds * ahead
        return rounds

    def _move(self, by: int) -> None:
        """Have so many places later what is there now."""
        layers = self.layers
        self.there = {weight + by if weight in layers else weight for weight in self.there}
        gathers = {id(one): one.moved(by) for one in self.flying.values()}
        self.flying = {weight + by: gathers[id(one)] for weight, one in self.flying.items()}
        self._judged = []

    def end(self) -> list[Event]:
        """The end of a micro-batch."""
        events = [self._free(weight) for weight in sorted(self.there)]
        for gather in dict.fromkeys(self.flying.values()):
            events.append(self.event(self._name(gather.weights), -gather.size, GONE))
        return events
