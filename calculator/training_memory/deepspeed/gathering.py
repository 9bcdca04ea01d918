"""Stage 3: which weights are gathered when, and how gradients are scattered.

As DeepSpeed does it once it has seen a whole step
(deepspeed/runtime/zero/partitioned_param_coordinator.py): a module asks for its weights before it
runs, the next ones are asked for ahead, and what is used again soon is not given back. All numbers
are of numbers, not bytes, as in DeepSpeed's configuration.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from ..categories import Category
from ..events import Event, Phase
from ..layouts import UNIT_BYTES, rounded
from ..records import dataclass
from .buckets import NORM, TO_CPU
from .flat import Key

GATHER = "Weights that are needed next are brought together from all GPUs in one go."
WHOLE = "Each weight is copied out of what was gathered, to memory of its own."
ALONE = "Each GPU holds a share of the weight; all of them are brought together to compute."
FLAT = "Gradients are put in the order of their owners, to be scattered."
LARGE = "It is larger than the bucket, and is scattered by itself when the next gradient is there."
GONE = "Nothing reads it any more."
BACK = "It is added up in the CPU's memory, and brought back to be looked at."
TO_DISK = "Those of a bucket wait in 32 bits until all of them are written to disk."
#: Norms are taken of so many numbers at a time (_constant_buffered_norm2).
NORM_NUMBERS = 250_000_000
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
ROOT: Key = ("", 0)


def is_written(share: int) -> bool:
    """Whether so many 32-bit numbers of a gradient go to a disk, and their memory then goes.

    Less than a MiB does not, and of what is no multiple of an aligned piece the rest stays, which
    holds all of its memory (swap_tensor/optimizer_utils.py: _swap_out_gradients,
    _adjust_for_misaligned_lengths).
    """
    return 4 * share >= LEAST_WRITTEN and 4 * share % ALIGNED == 0


#: MIN_AIO_BYTES and AIO_ALIGNED_BYTES of swap_tensor/utils.py, in bytes.
LEAST_WRITTEN, ALIGNED = 2**20, 1024


class _Gather:
    """Weights gathered together, and how many of them are still waited for."""

    __slots__ = ("keys", "size", "taken", "waiting")

    def __init__(self, keys: Sequence[Key], size: int) -> None:
        self.keys = keys
        self.size = size
        self.waiting = len(keys)
        self.taken = False


#: What happens at a point: kind of note and the weight, as :data:`..weaving.Hear` is told.
Call = tuple[str, Key]


class Gathering:
    """One GPU's weights and gradients in a micro-batch of stage 3.

    ``calls`` are all that the recording notes, in order; ``numels`` each weight's numbers. A loss
    that reads the head's weight by itself makes it the whole model's own (``outer``), which asks
    for it as it begins and holds it (parameter_offload.py, ZeROOrderedDict).
    ``swapped`` are weights whose states are on disks.
    """

    def __init__(
        self,
        numels: Mapping[Key, int],
        calls: Iterable[Call],
        limits: Limits,
        *,
        gpus: int,
        item_bytes: int,
        offloads: bool,
        away: bool,
        last: bool,
        outer: Key | None = None,
        swapped: frozenset[Key] = frozenset(),
        around: int = AROUND,
    ) -> None:
        self.numels, self.limits = numels, limits
        self.gpus, self.item_bytes = gpus, item_bytes
        self.offloads, self.away, self.last = offloads, away, last
        self.order = {key: place for place, key in enumerate(numels)}
        #: The weight that each module asks for, in the order of the step; None where it has none.
        calls = [call for call in calls if call[0] in ("use", "back")]
        self.outer = outer
        self.swapped = swapped
        self.around = around
        #: How often the model's own weight is used until the loss reads it, which calls no module.
        self.uses_of_outer = calls.count(("use", outer)) if outer else 0
        if outer:
            last_use = len(calls) - 1 - calls[::-1].index(("use", outer))
            del calls[last_use]
        self.asked = [
            *(outer, *(None for _ in range(around - 1))),
            *(key if key in numels else None for _, key in calls),
        ]
        weights = [(key and numels[key]) or 0 for key in self.asked]
        self.before = [0, *accumulate(weights)]
        self.uses: dict[Key, list[int]] = {}
        for place, key in enumerate(self.asked):
            if key:
                self.uses.setdefault(key, []).append(place)
        self.phase = Phase.FORWARD
        #: Events that are there already: layers have the same ones, which are then soon compared.
        self._said: dict[tuple[str, int, str, Phase], Event] = {}
        self.begin()

    def begin(self) -> None:
        """A micro-batch begins."""
        self.at = 0
        self.queue = deque(place for place, key in enumerate(self.asked) if key)
        self.fetched_for: dict[Key, int] = {}
        self.flying: dict[Key, _Gather] = {}
        self.there: set[Key] = set()
        self.active: set[Key] = set()
        self.live = 0
        self.inside: list[Key] = []
        self.filled = 0

    def persists(self, key: Key) -> bool:
        """Whether a weight is so small that it is never given back."""
        return self.numels[key] <= self.limits.persistence

    def enter(self) -> list[Event]:
        """The modules around all others are called, which have no weight of their own."""
        first = self._fetch(self.outer or ROOT)
        return first + [event for _ in range(self.around - 1) for event in self._fetch(ROOT)]

    # -- what is heard -----------------------------------------------------------------------------

    def hear(self, kind: str, weight: str, layer: int) -> tuple[list[Event], list[Event]]:
        """What happens before and after a point of the step."""
        key = (weight, layer)
        if kind == "use" and key == self.outer:
            self.uses_of_outer -= 1
            if not self.uses_of_outer:
                return [], []
        if kind in ("use", "back"):
            return self._fetch(key), []
        if kind in ("used", "backed"):
            return self._release(key), []
        return self._arrived(key)

    def _fetch(self, key: Key) -> list[Event]:
        events = []
        if key in self.numels and not self.persists(key):
            self.active.add(key)
            if key not in self.there and key not in self.flying:
                events += self._gather([key])
            events += self._wait(key)
        if key in self.numels and self.fetched_for.get(key, -1) < self.at and self.queue:
            place = self.queue.popleft()
            one = self.asked[place]
            assert one is not None
            self.fetched_for[one] = place
        events += self._ahead()
        self.at += 1
        return events

    def _ahead(self) -> list[Event]:
        """Ask for what comes next."""
        most = min(self.limits.live - self.live, self.limits.prefetch)
        found: list[Key] = []
        numel = 0
        while self.queue and numel < most:
            place = self.queue.popleft()
            key = self.asked[place]
            assert key is not None
            self.fetched_for[key] = max(self.fetched_for.get(key, -1), place)
            is_here = key in self.there or key in self.flying or self.persists(key)
            if not is_here and key not in found:
                found.append(key)
                numel += self.numels[key]
        return self._gather(found) if found else []

    def _gather(self, keys: list[Key]) -> list[Event]:
        keys.sort(key=self.order.__getitem__)
        size = sum(self._padded(key) for key in keys) * self.item_bytes
        gather = _Gather(keys, rounded(size))
        for key in keys:
            self.flying[key] = gather
            self.live += self.numels[key]
        why = ALONE if len(keys) == 1 else GATHER
        events = [self.event(self._name(keys), gather.size, why)]
        if self.away:
            shares = (self._padded(key) // self.gpus for key in keys)
            size = sum(rounded(share * self.item_bytes) for share in shares)
            events.append(self.event("shares from the CPU", size, FROM_CPU))
            events.append(self.event("shares from the CPU", -size, GONE))
        return events

    def _name(self, keys: Sequence[Key]) -> str:
        return f"gathered {keys[0][0]}" if len(keys) == 1 else f"buffer of {len(keys)} weights"

    def _wait(self, key: Key) -> list[Event]:
        gather = self.flying.pop(key, None)
        if gather is None:
            return []
        events = []
        if len(gather.keys) > 1 and not gather.taken:
            gather.taken = True
            for one in gather.keys:
                self.there.add(one)
            copies = sum(rounded(self.numels[one] * self.item_bytes) for one in gather.keys)
            events.append(self.event("gathered weights", copies, WHOLE))
        self.there.add(key)
        gather.waiting -= 1
        if len(gather.keys) > 1 and not gather.waiting:
            events.append(self.event(self._name(gather.keys), -gather.size, GONE))
        return events

    def _release(self, key: Key) -> list[Event]:
        self.active.discard(key)
        stays = key == self.outer or self.persists(key)
        if key not in self.there or stays or self._is_used_again(key):
            return []
        return [self._free(key)]

    def _is_used_again(self, key: Key) -> bool:
        """Soon enough that it is kept, or before what is asked for ahead comes to it again."""
        if self.fetched_for.get(key, -1) > self.at:
            return True
        uses = self.uses[key]
        place = bisect_left(uses, self.at)
        if place == len(uses):
            return key[0] in UNFINISHED
        return self.before[uses[place]] - self.before[self.at] < self.limits.reuse

    def _free(self, key: Key) -> Event:
        self.there.discard(key)
        self.live -= self.numels[key]
        return self.event(f"gathered {key[0]}", -self._own_bytes(key), RELEASED)

    def _own_bytes(self, key: Key) -> int:
        return rounded(self.numels[key] * self.item_bytes)

    def _padded(self, key: Key) -> int:
        return -(-self.numels[key] // self.gpus) * self.gpus

    # -- gradients ---------------------------------------------------------------------------------

    def _arrived(self, key: Key) -> tuple[list[Event], list[Event]]:
        self.phase = Phase.BACKWARD
        before = []
        if self.inside and self.filled + self.numels[key] > self.limits.bucket:
            before = self._scatter()
        self.inside.append(key)
        self.filled += self.numels[key]
        large = self.filled > self.limits.bucket
        after = [self.event(f"gradient of {key[0]}", self._own_bytes(key), LARGE)] if large else []
        return before, after

    def _scatter(self) -> list[Event]:
        events = []
        size = 0
        if len(self.inside) > 1 or self.numels[self.inside[0]] % self.gpus:
            size = rounded(sum(map(self._padded, self.inside)) * self.item_bytes)
            events.append(self.event("gradients by owner", size, FLAT))
        if self.offloads:
            events += self._to_the_cpu()
        if size:
            events.append(self.event("gradients by owner", -size, GONE))
        if self.filled > self.limits.bucket:
            (key,) = self.inside
            events.append(self.event(f"gradient of {key[0]}", -self._own_bytes(key), GONE))
        self.inside, self.filled = [], 0
        return events

    def _to_the_cpu(self) -> list[Event]:
        """This GPU's sums go to the CPU and come back, and their norms are taken."""
        events = []
        kept: list[tuple[int, int]] = []
        for key in sorted(self.inside, key=self.order.__getitem__):
            share = self._padded(key) // self.gpus
            swaps = self.last and key in self.swapped
            back = rounded(share * self.item_bytes)
            events.append(self.event("own gradient", back, BACK))
            if self.last:
                norm = rounded(8 * min(share, NORM_NUMBERS))
                events.append(self.event("own gradient in fp64", norm, NORM))
                events.append(self.event("norm of a gradient", UNIT_BYTES, NORM))
                events.append(self.event("own gradient in fp64", -norm, GONE))
            in_fp32 = rounded(4 * share)
            if self.last and self.item_bytes != 4:
                why = TO_DISK if swaps else TO_CPU
                events.append(self.event("own gradient in fp32", in_fp32, why))
            if swaps:
                kept.append((share, in_fp32))
            elif self.last and self.item_bytes != 4:
                events.append(self.event("own gradient in fp32", -in_fp32, GONE))
            if self.item_bytes != 4 or not swaps:
                events.append(self.event("own gradient", -back, GONE))
        # What a disk is not asked to take stays until the optimizer steps.
        gone = sum(size for share, size in kept if is_written(share))
        return [*events, self.event("own gradients in fp32", -gone, GONE)] if gone else events

    def end(self) -> list[Event]:
        """The end of a micro-batch."""
        self.phase = Phase.BACKWARD
        events = self._scatter() if self.inside else []
        events += [self._free(key) for key in list(self.there)]
        for gather in dict.fromkeys(self.flying.values()):
            events.append(self.event(self._name(gather.keys), -gather.size, GONE))
        return events

    def event(self, name: str, size: int, why: str) -> Event:
        """Memory of so many bytes is taken, or given back."""
        key = (name, size, why, self.phase)
        found = self._said.get(key)
        if found is None:
            which = "backward" if self.phase is Phase.BACKWARD else "forward"
            found = self._said[key] = Event(
                phase=self.phase,
                category=Category.TEMPORARY,
                bytes=size,
                label=f"{name}: {'taken' if size > 0 else 'given back'}",
                why=why,
                moment=f"in the {which} pass, at the {name} (DeepSpeed)",
            )
        return found
