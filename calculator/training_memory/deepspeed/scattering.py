"""Stage 3: how gradients are scattered to their owners, one full bucket after another.

As deepspeed/runtime/zero/stage3.py has it (reduce_independent_p_g_buckets_and_remove_grads,
partition_grads). All numbers are of numbers, not bytes; a weight is its place in the model's order.
"""

from __future__ import annotations

from ..categories import Category
from ..events import Event, Phase
from ..layouts import UNIT_BYTES, rounded
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


class Scattering:
    """One GPU's gradients in a micro-batch, the ``last`` one of a step or not.

    ``swapped`` has a 1 for each weight whose states are on disks, if any are.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        gpus: int,
        item_bytes: int,
        bucket: int,
        offloads: bool,
        last: bool,
        swapped: bytes,
    ) -> None:
        self.gpus, self.item_bytes, self.bucket = gpus, item_bytes, bucket
        self.offloads, self.last, self.swapped = offloads, last, swapped
        self.numels = weights.numels()
        self.names = weights.names()
        known = set(self.numels)
        own = {numel: rounded(numel * item_bytes) for numel in known}
        padded = {numel: -(-numel // gpus) * gpus for numel in known}
        self.own_bytes = list(map(own.__getitem__, self.numels))
        self.padded = list(map(padded.__getitem__, self.numels))
        self.phase = Phase.FORWARD
        #: Events that are there already: layers have the same ones, which are then soon compared.
        self._said: dict[tuple[str, int, str, bool], Event] = {}
        self.inside: list[int] = []
        self.filled = 0

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
        name = f"gradient of {self.names[weight]}"
        return before, [self.event(name, self.own_bytes[weight], LARGE)]

    def scatter(self) -> list[Event]:
        """Give every owner its part of the gradients that are in the bucket."""
        events = []
        size = 0
        if len(self.inside) > 1 or self.numels[self.inside[0]] % self.gpus:
            padded = [self.padded[weight] for weight in self.inside]
            size = rounded(sum(padded) * self.item_bytes)
            events.append(self.event("gradients by owner", size, FLAT))
        if self.offloads:
            events += self._to_the_cpu()
        if size:
            events.append(self.event("gradients by owner", -size, GONE))
        if self.filled > self.bucket:
            (weight,) = self.inside
            name = f"gradient of {self.names[weight]}"
            events.append(self.event(name, -self.own_bytes[weight], GONE))
        self.inside, self.filled = [], 0
        return events

    def _to_the_cpu(self) -> list[Event]:
        """This GPU's sums go to the CPU and come back, and their norms are taken."""
        events = []
        kept: list[tuple[int, int]] = []
        for weight in sorted(self.inside):
            share = self.padded[weight] // self.gpus
            swaps = self.last and bool(self.swapped) and bool(self.swapped[weight])
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

    def event(self, name: str, size: int, why: str) -> Event:
        """Memory of so many bytes is taken, or given back."""
        backward = self.phase is Phase.BACKWARD
        key = (name, size, why, backward)
        found = self._said.get(key)
        if found is None:
            found = self._said[key] = Event(
                phase=self.phase,
                category=Category.TEMPORARY,
                bytes=size,
                label=f"{name}: {'taken' if size > 0 else 'given back'}",
                why=why,
                moment=f"in the {'backward' if backward else 'forward'} pass, "
                f"at the {name} (DeepSpeed)",
            )
        return found
