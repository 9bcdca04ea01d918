"""Stage 3: what a GPU holds from step to step, and the optimizer's step.

As deepspeed/runtime/zero/stage3.py has it (DeepSpeedZeroOptimizer_Stage3): each weight is divided
by itself, its shares lie side by side, and so do the gradients' for which there is always room.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..categories import Category
from ..held import MASTER, WEIGHTS
from ..layouts import UNIT_BYTES, rounded
from ..records import dataclass
from . import flat

BUCKET = "Gradients are copied into it as they come, to be scattered in one go."
GRADIENTS = "The sums of the gradients' shares are added up here, from step to step."
PERSISTENT = "So small that each GPU keeps it whole (stage3_param_persistence_threshold)."
SMALL = "small weights, whole"
SUB_GROUP = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """One GPU's shares of a model's weights: of each group of the optimizer, each weight's."""

    groups: tuple[flat.Group, ...]
    item_bytes: int
    bucket: int
    persistence: int
    offloads: bool = False
    away: bool = False

    def of(self, group: flat.Group) -> list[int]:
        """How many numbers of each weight a GPU has."""
        return [-(-numel // group.gpus) for numel in group.numels]

    def sub_groups(self) -> list[list[int]]:
        """The shares that are updated together."""
        found = []
        for group in self.groups:
            some: list[int] = []
            together = 0
            for share in self.of(group):
                some.append(share)
                together += share
                if together >= SUB_GROUP:
                    found.append(some)
                    some, together = [], 0
            if some:
                found.append(some)
        return found

    def rows(self, optimizer: str) -> Iterator[tuple[str, Category, int, str]]:
        """What stays: name, category, bytes, and why."""
        total = sum(sum(self.of(group)) for group in self.groups)
        if not self.away:
            size = rounded(total * self.item_bytes)
            yield "shares of weights", Category.WEIGHTS, size, WEIGHTS
        small = sum(
            rounded(-(-numel // group.gpus) * group.gpus * self.item_bytes)
            for group in self.groups
            for numel in group.numels
            if numel <= self.persistence
        )
        if small:
            yield SMALL, Category.WEIGHTS, small, PERSISTENT
        size = rounded(self.bucket * self.item_bytes)
        yield "bucket for gradients", Category.GRADIENTS, size, BUCKET
        if not self.offloads:
            yield "loss scaler's and norm's numbers", Category.OPTIMIZER, 2 * UNIT_BYTES, NUMBERS
            yield from self.states(optimizer)

    def states(self, optimizer: str) -> Iterator[tuple[str, Category, int, str]]:
        """What the optimizer has, on the GPU or in the CPU's memory."""
        total = sum(sum(self.of(group)) for group in self.groups)
        groups = [sum(some) for some in self.sub_groups()]
        in_fp32 = sum(rounded(4 * one) for one in groups)
        yield "own shares in fp32", Category.MASTER, in_fp32, MASTER
        for name, size, why in flat.states_of(groups, optimizer):
            yield name, Category.OPTIMIZER, size, why
        size = rounded(total * self.item_bytes)
        yield "shares of gradients", Category.GRADIENTS, size, GRADIENTS


NUMBERS = "Whether a gradient was infinite, and the last step's norm, are kept to be asked for."
