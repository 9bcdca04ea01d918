"""Stage 3: how gradients are scattered to their owners, one full bucket after another.

As deepspeed/runtime/zero/stage3.py has it (reduce_independent_p_g_buckets_and_remove_grads,
partition_grads). All numbers are of numbers, not bytes; a weight is its place in the model's order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ..categories import Category
from ..events import Event, Phase
from ..layouts import UNIT_BYTES, rounded
from ..recording import Section
from ..weaving import Heard, Listener
from .buckets import NORM, TO_CPU
from .flat import Weights

FLAT = "Gradients are put in the order of their owners, to be scattered."
LARGE = "It is larger than the bucket, and is scattered by itself when the next gradient is there."
BACK = "It is added up in the CPU's memory, and brought back to be looked at."
TO_DISK = "Those of a bucket wait in 32 bits until all of them are written to disk."
#: Norms are taken of so many numbers at a time (_constant_buffered_norm2).
NORM_NUMBERS = 250_000_000
GONE = "Nothing reads it any more."


def is_written(share: int) -> bool:
    """Whether so many 32-bit numbers of a gradient go to a disk, and their memory then goes.

    Less than a MiB does not, and of what is no multiple of an aligned piece the rest stays, which
    holds all of its memory (swap_tensor/optimizer_utils.py: _swap_out_gradients,
    _adjust_for_misaligned_lengths).
    """
    return 4 * share >= LEAST_WRITTEN and 4 * share % ALIGNED == 0


#: MIN_AIO_BYTES and AIO_ALIGNED_BYTES of swap_tensor/utils.py, in bytes.
LEAST_WRITTEN, ALIGNED = 2**20, 1024


class Sizes:
    """Every weight's name and sizes, in the model's order; each is divided over so many GPUs."""

    def __init__(self, weights: Weights, gpus: int, item_bytes: int) -> None:
        self.gpus, self.item_bytes = gpus, item_bytes
        self.each, self.layers = len(weights.layer), weights.of_layers
        self.steps = weights.steps()
        self.numels = weights.numels()
        self.names = weights.names()
        known = set(self.numels)
        own = {numel: rounded(numel * item_bytes) for numel in known}
        padded = {numel: -(-numel // gpus) * gpus for numel in known}
        self.own_bytes = list(map(own.__getitem__, self.numels))
        self.padded = list(map(padded.__getitem__, self.numels))


class Told:
    """Events of a micro-batch; layers have the same ones, which are then soon compared."""

    def __init__(self) -> None:
        self.phase = Phase.FORWARD
        self._known: dict[tuple[str, int, str, Phase], Event] = {}

    def event(self, name: str, size: int, why: str) -> Event:
        """Memory of so many bytes is taken, or given back."""
        key = (name, size, why, self.phase)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Event(
                phase=self.phase,
                category=Category.TEMPORARY,
                bytes=size,
                label=f"{name}: {'taken' if size > 0 else 'given back'}",
                why=why,
                moment=f"in the {self.phase} pass, at the {name} (DeepSpeed)",
            )
        return found


class _Mark:
    """Where the gradients stand: at which layer."""

    __slots__ = ("layer", "step")

    def __init__(self, layer: int, step: int) -> None:
        self.layer = layer
        self.step = step


class Scattering(Listener):
    """One GPU's gradients in a micro-batch, the ``last`` one of a step or not.

    ``swapped`` has a 1 for each weight whose states are on disks, if any are.
    """

    def __init__(
        self,
        sizes: Sizes,
        told: Told,
        *,
        bucket: int,
        offloads: bool,
        last: bool,
        swapped: bytes,
    ) -> None:
        self.sizes, self.bucket = sizes, bucket
        self.offloads, self.last, self.swapped = offloads, last, swapped
        self.numels = sizes.numels
        self.event = told.event
        #: Of a section which notes are of gradients, which one in the first layer, and how far the
        #: next layer's is.
        self._notes: dict[int, list[tuple[int, int, int]]] = {}
        self.inside: list[int] = []
        self.filled = 0
        #: Whether a bucket was given away since it was last asked where things stand.
        self.given = False

    def hear(self, section: Section, layer: int) -> Heard:
        """What happens as gradients are there: before each is dropped, and after."""
        notes = self._notes.get(id(section))
        if notes is None:
            notes = self._notes[id(section)] = list(self._placed(section))
        found = []
        for note, first, each in notes:
            before, after = self.arrived(first + each * layer)
            if before or after:
                found.append((note, before, after))
        return tuple(found)

    def _placed(self, section: Section) -> Iterator[tuple[int, int, int]]:
        for note, (_, kind, name) in enumerate(section.notes):
            if kind == "gradient":
                yield note, *self.sizes.steps[name]

    def arrived(self, weight: int) -> tuple[list[Event], list[Event]]:
        """A gradient is there: what happens before it is dropped, and after."""
        before: list[Event] = []
        numel = self.numels[weight]
        if self.inside and self.filled + numel > self.bucket:
            before = self.scatter()
        self.inside.append(weight)
        self.filled += numel
        if self.filled <= self.bucket:
            return before, []
        name = f"gradient of {self.sizes.names[weight]}"
        return before, [self.event(name, self.sizes.own_bytes[weight], LARGE)]

    def scatter(self) -> list[Event]:
        """Give every owner its part of the gradients that are in the bucket."""
        events = []
        size = 0
        if len(self.inside) > 1 or self.numels[self.inside[0]] % self.sizes.gpus:
            padded = [self.sizes.padded[weight] for weight in self.inside]
            size = rounded(sum(padded) * self.sizes.item_bytes)
            events.append(self.event("gradients by owner", size, FLAT))
        if self.offloads:
            events += self._to_the_cpu()
        if size:
            events.append(self.event("gradients by owner", -size, GONE))
        if self.filled > self.bucket:
            (weight,) = self.inside
            name = f"gradient of {self.sizes.names[weight]}"
            events.append(self.event(name, -self.sizes.own_bytes[weight], GONE))
        self.inside, self.filled, self.given = [], 0, True
        return events

    def end(self) -> list[Event]:
        """The end of a micro-batch."""
        return self.scatter() if self.inside else []

    def _to_the_cpu(self) -> list[Event]:
        """This GPU's sums go to the CPU and come back, and their norms are taken."""
        events = []
        kept: list[tuple[int, int]] = []
        for weight in sorted(self.inside):
            share = self.sizes.padded[weight] // self.sizes.gpus
            swaps = self.last and bool(self.swapped) and bool(self.swapped[weight])
            back = rounded(share * self.sizes.item_bytes)
            events.append(self.event("own gradient", back, BACK))
            if self.last:
                norm = rounded(8 * min(share, NORM_NUMBERS))
                events.append(self.event("own gradient in fp64", norm, NORM))
                events.append(self.event("norm of a gradient", UNIT_BYTES, NORM))
                events.append(self.event("own gradient in fp64", -norm, GONE))
            in_fp32 = rounded(4 * share)
            if self.last and self.sizes.item_bytes != 4:
                why = TO_DISK if swaps else TO_CPU
                events.append(self.event("own gradient in fp32", in_fp32, why))
            if swaps:
                kept.append((share, in_fp32))
            elif self.last and self.sizes.item_bytes != 4:
                events.append(self.event("own gradient in fp32", -in_fp32, GONE))
            if self.sizes.item_bytes != 4 or not swaps:
                events.append(self.event("own gradient", -back, GONE))
        # What a disk is not asked to take stays until the optimizer steps.
        gone = sum(size for share, size in kept if is_written(share))
        return [*events, self.event("own gradients in fp32", -gone, GONE)] if gone else events

    # -- rounds of layers --------------------------------------------------------------------------

    def mark(self, section: Section, layer: int, step: int) -> tuple[Hashable, object]:
        """What is in the bucket, told by how far it is from this layer."""
        mark = _Mark(layer, step)
        if not self.given:  # it only became fuller, and may be large
            return mark, mark
        self.given = False
        moved = (-layer * self.sizes.each).__add__
        return (*map(moved, self.inside),), mark

    def jump(self, before: object, now: object, left: int) -> int:
        """Pass over rounds of layers whose gradients fill as many buckets alike."""
        assert isinstance(before, _Mark)
        assert isinstance(now, _Mark)
        if self.swapped and not self._swaps_alike(before, now, left):
            return 0
        rounds = left // ((now.layer - before.layer) * now.step)
        by = rounds * (now.layer - before.layer) * self.sizes.each
        layers = self.sizes.layers
        self.inside = [weight + by if weight in layers else weight for weight in self.inside]
        return rounds

    def _swaps_alike(self, before: _Mark, now: _Mark, left: int) -> bool:
        """Whether in all layers that are in the bucket, or will be, the same is on disks."""
        layers, each = self.sizes.layers, self.sizes.each
        begin = layers.start
        of = [(weight - begin) // each for weight in self.inside if weight in layers]
        of += (before.layer, now.layer + (left - 1) * now.step)
        low, high = min(of), max(of)
        some = self.swapped[begin + low * each : begin + (high + 1) * each]
        return some == some[:each] * (high + 1 - low)
