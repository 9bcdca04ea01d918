"""Stages 1 and 2: gradients are copied into a bucket, summed over the GPUs, and their owner's kept.

As deepspeed/runtime/zero/stage_1_and_2.py does it: process_gradients and setup_buckets as each
gradient is there, reduce_ipg_grads and average_tensor where the bucket is full,
copy_grads_in_partition for what this GPU owns, independent_gradient_partition_epilogue at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

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
        #: What this GPU owns of a weight, in numbers.
        self.pieces = {
            (number, place): numel
            for number, group in enumerate(groups)
            for place, numel in group.of(rank)
        }
        self.norms = 0
        self.place = {
            key: (number, place)
            for number, group in enumerate(groups)
            for place, key in enumerate(group.keys)
        }
        self.own = {
            (number, place) for number, group in enumerate(groups) for place, _ in group.of(rank)
        }
        own_numel = sum(groups[number].numels[place] for number, place in self.own)
        self.own_bytes = rounded(own_numel * item_bytes)
        #: Weights in the bucket, in order.
        self.inside: list[tuple[int, int]] = []
        self.filled = 0
        #: Whole gradients that are no part of any bucket, and of which nothing is this GPU's.
        self.left: list[tuple[int, int]] = []
        self.has_bucket = False
        self.has_own = False
        #: Micro-batches so far.
        self.turn = 0
        #: Events that are there already: layers have the same ones, which are then soon compared.
        self._said: dict[tuple[str, int, Category, str], Event] = {}

    # -- as gradients come -------------------------------------------------------------------------

    def hear(self, section: Section, layer: int) -> Heard:
        """What happens as gradients are there: before each is dropped, and after."""
        found = []
        for note, (_, kind, weight) in enumerate(section.notes):
            if kind == "gradient":
                before, after = self._arrived(self.place[weight, layer])
                if before or after:
                    found.append((note, before, after))
        return tuple(found)

    def _arrived(self, where: tuple[int, int]) -> tuple[list[Event], list[Event]]:
        before = list(self._begin())
        is_last = self.turn == self.micro_batches - 1
        if self.stage == 1 and not (self.overlaps and is_last):
            return before, [] if self.turn else [self._whole(where, self._category, WHOLE)]
        before += self._add(where)
        is_there = self.stage == 1 and self.turn > 0
        if self._is_large(where):
            if self.stage == 1 and where not in self.own:
                self.left.append(where)
            return before, [] if is_there else [self._whole(where, self._category, LARGE)]
        return before, [self._whole(where, self._category, COPIED, freed=True)] if is_there else []

    def _begin(self) -> Iterator[Event]:
        if not self.has_bucket:
            self.has_bucket = True
            for _ in range(self.buffers):
                yield self._event("bucket for gradients", self.size, BUCKET)

    def _numel(self, where: tuple[int, int]) -> int:
        return self.groups[where[0]].numels[where[1]]

    def _is_large(self, where: tuple[int, int]) -> bool:
        return self._numel(where) > self.size

    def _add(self, where: tuple[int, int]) -> list[Event]:
        events = []
        if self.filled + self._numel(where) > self.size:
            events = list(self._reduce())
        self.inside.append(where)
        self.filled += self._numel(where)
        return events

    def _reduce(self) -> Iterator[Event]:
        """Sum what is in the bucket, and keep what this GPU owns."""
        for numel in self._flattened():
            yield self._event("tensor of several owners' gradients", numel, FLAT)
            yield self._event("tensor of several owners' gradients", -numel, GONE)
        for where in self.inside:
            mine = where in self.own
            if mine and self.offloads:
                yield from self._to_the_cpu(where)
            elif mine and not self.has_own:
                self.has_own = True
                yield self.sized("buffer of own gradients", self.own_bytes, Category.GRADIENTS, OWN)
            if self._is_large(where) and (mine or self.stage == 2):
                yield self._whole(where, self._category, GONE, freed=True)
        self.inside = []
        self.filled = 0

    def _to_the_cpu(self, where: tuple[int, int]) -> Iterator[Event]:
        """A gradient's norm is taken, and it is copied to the CPU in 32 bits."""
        if self.turn < self.micro_batches - 1:
            return  # as it is, into the CPU's sums
        numel = self.pieces[where]
        size = rounded(8 * numel)
        yield self.sized("own gradient in fp64", size, Category.TEMPORARY, NORM)
        yield self.sized("norm of a gradient", UNIT_BYTES, Category.TEMPORARY, NORM)
        self.norms += UNIT_BYTES
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
        parts: list[tuple[tuple[int, int], int]] = []
        for number, place in self.inside:
            for owner, numel in self.groups[number].owned(place):
                if parts and parts[-1][0] == (owner, 0):
                    parts[-1] = ((owner, 0), parts[-1][1] + numel)
                else:
                    parts.append(((owner, 0), numel))
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
        for where in self.left:
            yield self._whole(where, self._category, GONE, freed=True)
        self.left = []
        if self.stage == 2 and self.turn and self.has_own:
            yield self.sized("buffer of own gradients", -self.own_bytes, Category.GRADIENTS, ADDED)
        self.has_own = False
        self.turn += 1

    def _all_at_once(self) -> Iterator[Event]:
        """ZeRO-1 sums all gradients after the last micro-batch, weight by weight."""
        copied = 0
        for where in self.place.values():
            events = self._add(where)
            if events:
                if copied:
                    yield self._copied(copied)
                copied = 0
                yield from events
            if not self._is_large(where):
                copied += rounded(self._numel(where) * self.item_bytes)
            elif where not in self.own:
                self.left.append(where)
        if copied:
            yield self._copied(copied)
        yield from self._reduce()

    def _copied(self, size: int) -> Event:
        return self.sized(
            "memory of gradients that are in the bucket", -size, Category.GRADIENTS, COPIED
        )

    # -- events -----------------------------------------------------------------------------------

    def _whole(
        self, where: tuple[int, int], category: Category, why: str, *, freed: bool = False
    ) -> Event:
        name = self.groups[where[0]].keys[where[1]][0]
        size = rounded(self._numel(where) * self.item_bytes)
        return self.sized(f"gradient of {name}", -size if freed else size, category, why)

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


NORM = "The norm of a gradient is taken in 64 bits, of one whole tensor at a time."
TO_CPU = "The optimizer's own gradients are in 32 bits, in the CPU's memory."
ADDED = "It is added to what the micro-batches before it summed."
COPIED = "Each gradient is copied into the bucket, and its own memory is given back."
