"""Stage 3: what a GPU holds from step to step, and the optimizer's step.

As deepspeed/runtime/zero/stage3.py has it (DeepSpeedZeroOptimizer_Stage3): each weight is divided
by itself, its shares lie side by side, and so do the gradients' for which there is always room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..categories import Category
from ..held import MASTER, WEIGHTS
from ..layouts import UNIT_BYTES, rounded
from ..records import dataclass
from . import flat
from .scattering import LEAST_WRITTEN

BUCKET = "Gradients are copied into it as they come, to be scattered in one go."
GRADIENTS = "The sums of the gradients' shares are added up here, from step to step."
PERSISTENT = "So small that each GPU keeps it whole (stage3_param_persistence_threshold)."
SMALL = "small weights, whole"
#: Buffers through which states and weights go to disks and come back, and numbers of the latter.
STATES_BUFFERS = 4
WEIGHTS_BUFFERS, WEIGHTS_BUFFER = 5, 100_000_000


def swapped(groups: Iterable[flat.Group]) -> Iterator[flat.Key]:
    """Weights whose states go to disks: those updated together with enough numbers for one."""
    for group in groups:
        for one in group.sub_groups:
            if 4 * one.numel >= LEAST_WRITTEN:
                yield from group.keys[one.begin : one.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """One GPU's shares of a model's weights: of each group of the optimizer, each weight's.

    ``every`` are the model's weights, trained or not.
    """

    groups: tuple[flat.Group, ...]
    every: flat.Weights
    item_bytes: int
    bucket: int
    persistence: int
    offloads: bool = False
    away: bool = False

    def sub_groups(self) -> list[flat.SubGroup]:
        """The shares that are updated together."""
        return [one for group in self.groups for one in group.sub_groups]

    def small_bytes(self) -> int:
        """What the weights take that stay whole."""
        gpus, every = self.groups[0].gpus, self.every
        of_layer, around = (
            sum(
                rounded(-(-one.numel // gpus) * gpus * self.item_bytes)
                for one in some
                if one.numel <= self.persistence
            )
            for some in (every.layer, (*every.first, *every.last))
        )
        return every.layers * of_layer + around

    def rows(self, optimizer: str) -> Iterator[tuple[str, Category, int, str]]:
        """What stays: name, category, bytes, and why."""
        total = sum(one.numel for one in self.sub_groups())
        if not self.away:
            size = rounded(total * self.item_bytes)
            yield "shares of weights", Category.WEIGHTS, size, WEIGHTS
        if small := self.small_bytes():
            yield SMALL, Category.WEIGHTS, small, PERSISTENT
        size = rounded(self.bucket * self.item_bytes)
        yield "bucket for gradients", Category.GRADIENTS, size, BUCKET
        if not self.offloads:
            yield "loss scaler's and norm's numbers", Category.OPTIMIZER, 2 * UNIT_BYTES, NUMBERS
            yield from self.states(optimizer)

    def host_bytes(self, optimizer: str, *, swaps: bool, reads: bool) -> int:
        """What is in the CPU's memory; with ``swaps`` states are on disks, ``reads`` weights.

        Of what is on disks the buffers are there through which it goes
        (runtime/zero/offload_config.py: buffer_count, buffer_size).
        """
        groups = [one.numel for one in self.sub_groups()]
        found = self.item_bytes * sum(groups) if self.away else 0
        if reads:
            found += WEIGHTS_BUFFERS * WEIGHTS_BUFFER * self.item_bytes
        if self.offloads:
            on_disks = [one for one in groups if swaps and 4 * one >= LEAST_WRITTEN]
            here = [one for one in groups if one not in on_disks]
            # The 32-bit weights, gradients in 32 bits, and as they were made.
            found += 8 * sum(here) + self.item_bytes * sum(groups)
            found += sum(size for _, size, _ in flat.states_of(here, optimizer))
            found += STATES_BUFFERS * 4 * max(on_disks, default=0)
        return found

    def states(self, optimizer: str) -> Iterator[tuple[str, Category, int, str]]:
        """What the optimizer has, on the GPU or in the CPU's memory."""
        groups = [one.numel for one in self.sub_groups()]
        in_fp32 = sum(rounded(4 * one) for one in groups)
        yield "own shares in fp32", Category.MASTER, in_fp32, MASTER
        for name, size, why in flat.states_of(groups, optimizer):
            yield name, Category.OPTIMIZER, size, why
        size = rounded(sum(groups) * self.item_bytes)
        yield "shares of gradients", Category.GRADIENTS, size, GRADIENTS


NUMBERS = "Whether a gradient was infinite, and the last step's norm, are kept to be asked for."
