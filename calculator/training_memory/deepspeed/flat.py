"""The flat memory into which stages 1 and 2 put a model's weights, and which GPU owns what of it.

As deepspeed/runtime/zero/stage_1_and_2.py has it (DeepSpeedZeroOptimizer.__init__,
initialize_gradient_partition): the weights of each of the optimizer's groups lie side by side in
the model's order, are filled up to an even number for each GPU, and each GPU owns as many numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from ..frozen import in_storage, is_packed
from ..held import SCALES, STATES, once
from ..layouts import Layout, Weight, adapter_of, layout_of, rounded
from ..model import Model
from ..optimizers import get
from ..records import dataclass
from ..tuning import Tuning, targeted

#: What each GPU's numbers are a multiple of (nccl_start_alignment_factor).
ALIGNMENT = 2
#: A weight by its name and its layer, from 0; those around the layers have layer 0.
Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Weights that the optimizer treats alike: their keys, how many numbers each has, and GPUs."""

    keys: tuple[Key, ...]
    numels: tuple[int, ...]
    starts: tuple[int, ...]
    gpus: int

    @property
    def share(self) -> int:
        """How many numbers each GPU owns."""
        alignment = ALIGNMENT * self.gpus
        return -(-(self.starts[-1] + self.numels[-1]) // alignment) * ALIGNMENT

    def owned(self, place: int) -> list[tuple[int, int]]:
        """Which GPUs own a weight, and how many numbers of it each."""
        begin, share = self.starts[place], self.share
        end = begin + self.numels[place]
        owners = range(begin // share, (end - 1) // share + 1)
        return [
            (owner, min(end, (owner + 1) * share) - max(begin, owner * share)) for owner in owners
        ]

    def of(self, rank: int) -> list[tuple[int, int]]:
        """The weights that a GPU owns something of, by place, and how many numbers."""
        begin, end = rank * self.share, (rank + 1) * self.share
        return [
            (place, min(end, start + numel) - max(begin, start))
            for place, (start, numel) in enumerate(zip(self.starts, self.numels, strict=True))
            if start < end and start + numel > begin
        ]


def states_of(numels: Iterable[int], optimizer: str) -> list[tuple[str, int, str]]:
    """(name, bytes, why) of each state that an optimizer has of 32-bit tensors of so many numbers.

    It is one optimizer, whatever it is given: what it keeps once is there once.
    """
    sizes: dict[str, int] = {}
    for numel in numels:
        for name, size in get(optimizer).states(Weight(name="share", shape=(numel,)), 4):
            sizes[name] = sizes.get(name, 0) + rounded(size)
    sizes |= once(optimizer)
    return [(name, size, STATES.get(name, SCALES)) for name, size in sizes.items()]


def _every(model: Model, implementation: str, tuning: Tuning) -> list[tuple[Weight, int, bool]]:
    """Every weight with its layer and whether it is trained, in the model's order."""
    layout = layout_of(model, implementation)
    whole = tuning.trains_all

    def around(weights: Iterable[Weight]) -> list[tuple[Weight, int, bool]]:
        return [(one, 0, whole) for one in weights]

    layer = [(one, whole) for one in layout.layer]
    if not whole:
        layer = list(_adapted(layout, tuning))
    return [
        *around(layout.first),
        *((one, number, trained) for number in range(layout.layers) for one, trained in layer),
        *around(layout.last),
    ]


def _adapted(layout: Layout, tuning: Tuning) -> Iterator[tuple[Weight, bool]]:
    """A layer's weights with PEFT's adapters: each is a module around the product's own."""
    waiting: list[Weight] = []
    for weight in layout.layer:
        if not weight.name.endswith(" bias"):
            yield from ((one, True) for one in waiting)
            waiting = []
        yield (in_storage(weight) if is_packed(weight, tuning) else weight), False
        if targeted(weight.name, tuning.adapter_targets):
            waiting += adapter_of(weight, tuning.adapter_rank, transposed=layout.transposed)
    yield from ((one, True) for one in waiting)


@lru_cache(maxsize=64)
def numels(model: Model, implementation: str, tuning: Tuning) -> Mapping[Key, int]:
    """Each weight's numbers, in the model's order, in which DeepSpeed numbers them."""
    every = _every(model, implementation, tuning)
    return {(one.name, layer): one.numel for one, layer, _ in every}


@lru_cache(maxsize=64)
def groups(model: Model, implementation: str, gpus: int, tuning: Tuning) -> tuple[Group, ...]:
    """The groups that transformers' Trainer makes of what is trained: what decays, and the rest."""
    every = _every(model, implementation, tuning)
    found = []
    for decays in (True, False):
        of = [one for one in every if one[2] and (len(one[0].shape) > 1) is decays]
        numels = [one.numel for one, _, _ in of]
        starts = [0]
        for numel in numels[:-1]:
            starts.append(starts[-1] + numel)
        if of:
            found.append(
                Group(
                    keys=tuple((one.name, layer) for one, layer, _ in of),
                    numels=tuple(numels),
                    starts=tuple(starts),
                    gpus=gpus,
                )
            )
    return tuple(found)
