"""The flat memory into which stages 1 and 2 put a model's weights, and which GPU owns what of it.

As deepspeed/runtime/zero/stage_1_and_2.py has it (DeepSpeedZeroOptimizer.__init__,
initialize_gradient_partition): the weights of each of the optimizer's groups lie side by side in
the model's order, are filled up to an even number for each GPU, and each GPU owns as many numbers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain, repeat

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


#: So many numbers stage 3 updates together, or a weight more (sub_group_size).
SUB_GROUP = 1_000_000_000


class SubGroup:
    """Weights from one place to before another that are updated together: a GPU's shares of them.

    All of it has so many numbers, and the largest share ``largest``.
    """

    __slots__ = ("begin", "end", "largest", "numel")

    def __init__(self, begin: int, shares: Sequence[int]) -> None:
        self.begin, self.end = begin, begin + len(shares)
        self.numel = sum(shares)
        self.largest = max(shares)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Weights that the optimizer treats alike, each one's numbers, and over how many GPUs.

    ``weights`` are the same as layers; ``keys``, ``numels`` and ``starts`` have one after another.
    Each GPU owns ``share`` numbers.
    """

    weights: Weights
    keys: tuple[Key, ...]
    numels: tuple[int, ...]
    starts: tuple[int, ...]
    gpus: int
    share: int

    def owners(self, first: int, end: int) -> list[tuple[int, int]]:
        """Which GPUs own something of the weights from a place to before another, and how much."""
        share = self.share
        begin, stop = self.starts[first], self.starts[end - 1] + self.numels[end - 1]
        return [
            (owner, min(stop, (owner + 1) * share) - max(begin, owner * share))
            for owner in range(begin // share, (stop - 1) // share + 1)
        ]

    def places(self, rank: int) -> range:
        """The weights that a GPU owns something of."""
        begin, end = rank * self.share, (rank + 1) * self.share
        first = max(0, bisect_right(self.starts, begin) - 1)
        if self.starts[first] + self.numels[first] <= begin:
            first += 1
        return range(first, max(first, bisect_left(self.starts, end)))

    def of(self, rank: int) -> list[tuple[int, int]]:
        """The weights that a GPU owns something of, by place, and how many numbers."""
        places = self.places(rank)
        found = list(zip(places, self.numels[places.start : places.stop], strict=True))
        # Of the first and the last a part may be another GPU's.
        for at in {0, len(found) - 1} if found else ():
            place = places[at]
            found[at] = place, dict(self.owners(place, place + 1))[rank]
        return found

    @cached_property
    def divided(self) -> Sequence[int]:
        """How many numbers of each weight a GPU has, where each is divided by itself."""
        gpus = self.gpus
        share = {numel: -(-numel // gpus) for numel in set(self.numels)}
        return list(map(share.__getitem__, self.numels))

    @cached_property
    def sub_groups(self) -> Sequence[SubGroup]:
        """What is updated together, where each weight is divided by itself."""
        shares = self.divided
        until = list(accumulate(shares, initial=0))
        found = []
        begin = 0
        while begin < len(shares):
            end = bisect_left(until, until[begin] + SUB_GROUP)
            found.append(SubGroup(begin, shares[begin:end]))
            begin = end
        return found


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights in the model's order: before the layers, of every layer, and after them."""

    first: tuple[Weight, ...]
    layer: tuple[Weight, ...]
    last: tuple[Weight, ...]
    layers: int

    @property
    def of_layers(self) -> range:
        """The places of those that are in layers."""
        begin = len(self.first)
        return range(begin, begin + self.layers * len(self.layer))

    def places(self) -> dict[str, int]:
        """Where in the order the weights of each name are: of those in layers the first layer's."""
        all_but = [*self.first, *self.layer]
        found = {one.name: at for at, one in enumerate(all_but)}
        return found | {one.name: at for at, one in enumerate(self.last, self.of_layers.stop)}

    def steps(self) -> dict[str, tuple[int, int]]:
        """The same places, and how far the next layer's weight of the name is from each."""
        layers, each = self.of_layers, len(self.layer)
        return {
            name: (place, each if place in layers else 0) for name, place in self.places().items()
        }

    def names(self) -> list[str]:
        """Every weight's name."""
        first, layer, last = (
            [one.name for one in some] for some in (self.first, self.layer, self.last)
        )
        return [*first, *self.layers * layer, *last]

    def keys(self) -> Iterator[Key]:
        """Every weight's name and layer."""
        # Names and numbers are put together by loops of Python's own: there are thousands.
        layers, each = self.layers, len(self.layer)
        numbers = chain.from_iterable(map(repeat, range(layers), repeat(each)))
        return chain(
            [(one.name, 0) for one in self.first],
            zip(layers * [one.name for one in self.layer], numbers, strict=True),
            [(one.name, 0) for one in self.last],
        )

    def numels(self) -> list[int]:
        """How many numbers each has."""
        first, layer, last = (
            [one.numel for one in some] for some in (self.first, self.layer, self.last)
        )
        return [*first, *self.layers * layer, *last]


@lru_cache(maxsize=64)
def weights(model: Model, implementation: str, tuning: Tuning) -> tuple[Weights, Weights]:
    """Every weight, and those that are trained."""
    layout = layout_of(model, implementation)
    layer = [(one, True) for one in layout.layer]
    around = (layout.first, layout.last)
    if not tuning.trains_all:
        layer = list(_adapted(layout, tuning))
        around = ((), ())
    first, last = around
    return (
        Weights(
            first=layout.first,
            layer=tuple(one for one, _ in layer),
            last=layout.last,
            layers=layout.layers,
        ),
        Weights(
            first=first,
            layer=tuple(one for one, trained in layer if trained),
            last=last,
            layers=layout.layers,
        ),
    )


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
    every, _ = weights(model, implementation, tuning)
    return dict(zip(every.keys(), every.numels(), strict=True))


@lru_cache(maxsize=64)
def groups(model: Model, implementation: str, gpus: int, tuning: Tuning) -> tuple[Group, ...]:
    """The groups that transformers' Trainer makes of what is trained: what decays, and the rest."""
    _, trained = weights(model, implementation, tuning)
    found = []
    for decays in (True, False):
        first, layer, last = (
            tuple(one for one in some if (len(one.shape) > 1) is decays)
            for some in (trained.first, trained.layer, trained.last)
        )
        of = Weights(first=first, layer=layer, last=last, layers=trained.layers)
        numels = of.numels()
        if numels:
            starts = accumulate(numels[:-1], initial=0)
            alignment = ALIGNMENT * gpus
            found.append(
                Group(
                    weights=of,
                    keys=tuple(of.keys()),
                    numels=tuple(numels),
                    starts=tuple(starts),
                    gpus=gpus,
                    share=-(-sum(numels) // alignment) * ALIGNMENT,
                )
            )
    return tuple(found)
