"""Stages 1 and 2: gradients are copied into a bucket, summed over the GPUs, and their owner's kept.

As deepspeed/runtime/zero/stage_1_and_2.py does it: process_gradients and setup_buckets as each
gradient is there, reduce_ipg_grads and average_tensor where the bucket is full,
copy_grads_in_partition for what this GPU owns, independent_gradient_partition_epilogue at the end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from itertools import accumulate

from ..categories import Category
from ..events import Event, Phase
from ..layouts import UNIT_BYTES, rounded
from ..recording import Section
from ..weaving import Heard, Listener
from .flat import Group

BUCKET = "Gradients lie side by side in it, to be summed over the GPUs in one go."
FLAT = "Numbers of several owners are summed as one tensor, copied together for it."
OWN = "The sums of what this GPU owns of the weights; the next bucket overwrites the old ones."
WHOLE = "ZeRO-1 sums gradients once all of them are there, so each GPU has whole ones until then."
LARGE = "It is larger than the bucket, and is summed by itself when the next gradient is there."
GONE = "Nothing reads it any more."


#: Weights of a group from a place to before another: the group's number, and both.
Run = tuple[int, int, int]


class Buckets(Listener):
    """One GPU's gradients in a backward pass. ``stage`` is 1 or 2, ``size`` in numbers."""

    def __init__(
        self,
        groups: tuple[Group, ...],
        *,
        rank: int,
        stage: int,
        size: int,
        overlaps: bool,
        item_bytes: int,
        micro_batches: int,
        offloads: bool,
    ) -> None:
        self.groups, self.rank, self.stage = groups, rank, stage
        self.size, self.overlaps, self.item_bytes = size, overlaps, item_bytes
        self.buffers = 1 + overlaps
        self.micro_batches = micro_batches
        self.offloads = offloads
        #: Where the weight of a name is: in which group, at which place, and how far the next
        #: layer's is.
        self.places: dict[str, tuple[int, int, int]] = {}
        for number, group in enumerate(groups):
            for name, (place, each) in group.weights.steps().items():
                self.places[name] = number, place, each
        #: The weights that this GPU owns something of, by group.
        self.own = [group.places(rank) for group in groups]
        own_numel = sum(
            sum(group.numels[own.start : own.stop])
            for group, own in zip(groups, self.own, strict=True)
        )
        self.own_bytes = rounded(own_numel * item_bytes)
        #: Weights in the bucket, in order.
        self.inside: list[Run] = []
        self.filled = 0
        #: Whole gradients that are no part of any bucket, and of which nothing is this GPU's.
        self.left: list[Run] = []
        self.has_bucket = False
        self.has_own = False
        #: Micro-batches so far.
        self.turn = 0
        #: Events that are there already: layers have the same ones, which are then soon compared.
        self._said: dict[tuple[str, int, Category, str], Event] = {}

    # -- as gradients come -------------------------------------------------------------------------

    def mark(self, section: Section, layer: int, step: int) -> tuple[Hashable, object] | None:
        """Every layer is worked out by itself; :mod:`.owners` knows better."""
        return None

    def hear(self, section: Section, layer: int) -> Heard:
        """What happens as gradients are there: before each is dropped, and after."""
        found = []
        for note, (_, kind, weight) in enumerate(section.notes):
            if kind == "gradient":
                number, place, each = self.places[weight]
                before, after = self._arrived(number, place + layer * each)
                if before or after:
                    found.append((note, before, after))
        return tuple(found)

    def _arrived(self, number: int, place: int) -> tuple[list[Event], list[Event]]:
        before = list(self._begin())
        numel = self.groups[number].numels[place]
        if self.waits:
            return before, [] if self.turn else [self._whole(number, place, WHOLE)]
        before += self.add((number, place, place + 1), numel)
        is_there = self.stage == 1 and self.turn > 0
        if numel > self.size:
            if self.stage == 1 and place not in self.own[number]:
                self.left.append((number, place, place + 1))
            return before, [] if is_there else [self._whole(number, place, LARGE)]
        return before, [self._whole(number, place, COPIED, freed=True)] if is_there else []

    @property
    def waits(self) -> bool:
        """Whether gradients stay where they are, whoever owns them."""
        is_last = self.turn == self.micro_batches - 1
        return self.stage == 1 and not (self.overlaps and is_last)

    def _begin(self) -> Iterator[Event]:
        if not self.has_bucket:
            self.has_bucket = True
            for _ in range(self.buffers):
                yield self._event("bucket for gradients", self.size, BUCKET)

    def add(self, run: Run, numel: int) -> list[Event]:
        """Put weights of so many numbers into the bucket; a full one is given away first."""
        events = []
        if self.filled + numel > self.size:
            events = list(self._reduce())
        self.inside.append(run)
        self.filled += numel
        return events

    def _reduce(self) -> Iterator[Event]:
        """Sum what is in the bucket, and keep what this GPU owns."""
        for numel in self._flattened():
            yield self._event("tensor of several owners' gradients", numel, FLAT)
            yield self._event("tensor of several owners' gradients", -numel, GONE)
        mine = [
            (number, place)
            for number, first, end in self.inside
            for place in _common(range(first, end), self.own[number])
        ]
        if mine and self.offloads:
            for number, place in mine:
                yield from self._to_the_cpu(number, place)
        elif mine and not self.has_own:
            self.has_own = True
            yield self.sized("buffer of own gradients", self.own_bytes, Category.GRADIENTS, OWN)
        if self.filled > self.size and (mine or self.stage == 2):
            ((number, place, _),) = self.inside
            yield self._whole(number, place, GONE, freed=True)
        self.inside = []
        self.filled = 0

    def _to_the_cpu(self, number: int, place: int) -> Iterator[Event]:
        """A gradient's norm is taken, and it is copied to the CPU in 32 bits."""
        if self.turn < self.micro_batches - 1:
            return  # as it is, into the CPU's sums
        numel = dict(self.groups[number].owners(place, place + 1))[self.rank]
        size = rounded(8 * numel)
        yield self.sized("own gradient in fp64", size, Category.TEMPORARY, NORM)
        yield self.sized("norm of a gradient", UNIT_BYTES, Category.TEMPORARY, NORM)
        yield self.sized("own gradient in fp64", -size, Category.TEMPORARY, GONE)
        if self.item_bytes != 4:
            size = rounded(4 * numel)
            yield self.sized("own gradient in fp32", size, Category.TEMPORARY, TO_CPU)
            yield self.sized("own gradient in fp32", -size, Category.TEMPORARY, GONE)

    @property
    def _category(self) -> Category:
        return Category.GRADIENTS if self.stage == 1 else Category.TEMPORARY

    def _flattened(self) -> Iterator[int]:
        """The numbers of each tensor that is made to be summed.

        Neighbours of one owner are one part of the bucket already, and are copied only where
        another owner's come with them.
        """
        parts: list[tuple[int, int]] = []
        for number, first, end in self.inside:
            for owner, numel in self.groups[number].owners(first, end):
                if parts and parts[-1][0] == owner:
                    parts[-1] = (owner, parts[-1][1] + numel)
                else:
                    parts.append((owner, numel))
        together = count = 0
        for _, numel in parts:
            together += numel
            count += 1
            if together > self.size:
                if count > 1:
                    yield together
                together = count = 0
        if count > 1:
            yield together

    # -- the end of a backward pass ---------------------------------------------------------------

    def end(self) -> Iterator[Event]:
        """The epilogue of a micro-batch."""
        last = self.turn == self.micro_batches - 1
        if self.stage == 1 and last and not self.overlaps:
            yield from self._all_at_once()
        elif self.stage == 2 or last:
            yield from self._reduce()
        if self.stage == 2 or last:
            for _ in range(self.buffers):
                yield self._event("bucket for gradients", -self.size, GONE)
            self.has_bucket = False
        for number, place, _ in self.left:
            yield self._whole(number, place, GONE, freed=True)
        self.left = []
        if self.stage == 2 and self.turn and self.has_own:
            yield self.sized("buffer of own gradients", -self.own_bytes, Category.GRADIENTS, ADDED)
        self.has_own = False
        self.turn += 1

    def _all_at_once(self) -> Iterator[Event]:
        """ZeRO-1 sums all gradients after the last micro-batch, bucket by bucket."""
        copied = 0
        for number, group in enumerate(self.groups):
            sizes = {numel: rounded(numel * self.item_bytes) for numel in set(group.numels)}
            taken = [0, *accumulate(map(sizes.__getitem__, group.numels))]
            until = [*group.starts, group.starts[-1] + group.numels[-1]]
            first, last = 0, len(group.numels)
            while first < last:
                # As many as there is room for; one that is larger than the bucket has it alone.
                room = self.size - self.filled
                end = bisect_right(until, until[first] + room, first + 1) - 1
                if end == first:
                    events = list(self._reduce())
                    if events and copied:
                        yield self._copied(copied)
                        copied = 0
                    yield from events
                    end = max(first + 1, bisect_right(until, until[first] + self.size) - 1)
                self.inside.append((number, first, end))
                self.filled += until[end] - until[first]
                if self.filled <= self.size:
                    copied += taken[end] - taken[first]
                elif first not in self.own[number]:
                    self.left.append((number, first, end))
                first = end
        if copied:
            yield self._copied(copied)
        yield from self._reduce()

    def _copied(self, size: int) -> Event:
        return self.sized(
            "memory of gradients that are in the bucket", -size, Category.GRADIENTS, COPIED
        )

    # -- events -----------------------------------------------------------------------------------

    def _whole(self, number: int, place: int, why: str, *, freed: bool = False) -> Event:
        group = self.groups[number]
        size = rounded(group.numels[place] * self.item_bytes)
        name = f"gradient of {group.keys[place][0]}"
        return self.sized(name, -size if freed else size, self._category, why)

    def _event(self, name: str, numel: int, why: str) -> Event:
        size = rounded(abs(numel) * self.item_bytes)
        return self.sized(name, size if numel > 0 else -size, Category.TEMPORARY, why)

    def sized(self, name: str, size: int, category: Category, why: str) -> Event:
        """Memory of so many bytes is taken, or given back."""
        key = (name, size, category, why)
        found = self._said.get(key)
        if found is None:
            found = self._said[key] = Event(
                phase=Phase.BACKWARD,
                category=category,
                bytes=size,
                label=f"{name} {'is made' if size > 0 else 'is freed'}",
                why=why,
                moment=f"in the backward pass, at the {name} (DeepSpeed)",
            )
        return found


def _common(one: range, other: range) -> range:
    """What is in both of two stretches."""
    return range(max(one.start, other.start), min(one.stop, other.stop))


NORM = "The norm of a gradient is taken in 64 bits, of one whole tensor at a time."
TO_CPU = "The optimizer's own gradients are in 32 bits, in the CPU's memory."
ADDED = "It is added to what the micro-batches before it summed."
COPIED = "Each gradient is copied into the bucket, and its own memory is given back."
