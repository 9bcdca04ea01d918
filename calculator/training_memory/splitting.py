"""How GPUs share a run's weights, gradients and optimizer states, in a framework's own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .layouts import Layout, Weight, rounded, trained
from .records import dataclass
from .tuning import FULL, Tuning

#: The units that FSDP2 gathers: each layer, the embedding, the last norm and the head, and the
#: whole model with what is left.
UNITS = ("root", "embedding", "layer", "tail")
#: What each unit takes, by the letter of its symbol.
QUANTITIES: Mapping[str, str] = {
    "i": "a GPU's shard in the dtype to compute in",
    "o": "what a gather writes",
    "u": "weights, whole",
    "r": "gradients, to be reduced",
    "q": "a GPU's share of the reduced gradients",
    "z": "the same in the dtype of the weights",
    "k": "a GPU's shard as it is kept",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitting:
    """What decides the order of events where several GPUs share a step; part of a structure.

    ``way`` is "fsdp2", "ddp", "deepspeed", :data:`WITHOUT_ZERO` or "" for none of them. FSDP2:
    ``wrap`` says which modules are units by themselves, "layers" or "ends" too, or "head" where of
    the ends the last norm is not;
    ``reshards`` whether a unit's weights are freed between its forward and backward pass;
    ``explicit`` whether each layer gathers the next one itself;
    ``casts`` whether it computes in another dtype than it keeps, ``recasts`` whether gradients are
    reduced in another dtype than they are kept, ``widens`` in another than they are made in;
    ``replicated`` whether each shard is on several
    GPUs; ``waits``, over 0, that gradients are reduced after the last micro-batch alone, and that
    so many micro-batches (2 or 3) are of different kinds; ``away`` that shards and their gradients
    are in the CPU's memory. DDP: ``views`` whether gradients live in
    its buckets. FSDP's first version has ``reshards``, ``casts``, ``recasts``, ``waits`` and
    ``away`` as well; ``backward`` is when it gathers the layer before in a backward pass ("pre",
    "post", "none"), ``views`` whether weights that come from the CPU stay for the views of them,
    ``forward`` whether it gathers the next one ahead; ``shares`` that weights are
    shared out at all, ``pads`` that flat gradients are padded for that, ``zeros`` that padding has
    a gradient; ``frozen`` is the dtype of what is frozen beside adapters, and ``originals`` whether
    a module has a weight of its own back once it was computed with; ``adapters`` are the names of
    their matrices in the order in which they are gathered ahead. ``tensor`` says that several GPUs
    share each layer, ``sequence`` that they share the tokens between its parts as well; ``context``
    GPUs share each sequence, and with ``gathers`` each gathers all keys and values at once.
    """

    way: str = ""
    tensor: bool = False
    sequence: bool = False
    wrap: str = "layers"
    reshards: bool = True
    explicit: bool = False
    casts: bool = False
    recasts: bool = False
    widens: bool = False
    replicated: bool = False
    waits: int = 0
    away: bool = False
    views: bool = False
    backward: str = ""
    forward: bool = False
    shares: bool = True
    pads: bool = False
    zeros: bool = False
    context: int = 1
    gathers: bool = False
    frozen: str = ""
    originals: bool = False
    adapters: tuple[str, ...] = ()


ALONE = Splitting()
#: DeepSpeed's engine alone: gradients stay where they are made, and it scales the loss itself.
WITHOUT_ZERO = "deepspeed-0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Of how many GPUs one holds a share of each weight, and in bytes a number of what it does.

    ``shards`` GPUs share the rows of each weight, of which each has one of ``tensor`` shares of a
    layer before, and with ``sequence`` of its tokens; ``compute``, ``keep`` and ``reduce`` are the
    bytes of a number that is computed with, kept, and reduced, of what is trained. With ``buckets``
    gradients have buckets in which they are sent; with ``policy`` whatever is gathered comes in 16
    bits; with ``away`` all that is kept is in the CPU's memory. ``flat``, over 0, is among how many
    GPUs FSDP's first version has flat weights, and ``views`` whether the optimizer is given views
    of them (``use_orig_params``).
    """

    shards: int = 1
    tensor: int = 1
    sequence: bool = False
    compute: int = 4
    keep: int = 4
    reduce: int = 4
    buckets: bool = False
    policy: bool = False
    away: bool = False
    flat: int = 0
    views: bool = False


WHOLE = Share()


#: Weights that tensor parallelism splits by rows of the matrix, and by columns of it.
_BY_FIRST = (
    *("query", "key", "value", "gate", "up", "embedding", "head"),
    *("query bias", "key bias", "value bias", "gate bias", "up bias"),
)
_BY_SECOND = ("attention output", "down")


def divided(layout: Layout, tensor: int) -> Layout:
    """The layout of one of ``tensor`` GPUs that share each layer; norms are whole on each."""
    return _each(layout, lambda weight: _division(weight, tensor)) if tensor > 1 else layout


def _division(weight: Weight, tensor: int) -> Weight:
    shape = list(weight.shape)
    for names, place in ((_BY_FIRST, 0), (_BY_SECOND, 1)):
        if weight.name in names:
            shape[place] = -(-shape[place] // tensor)
    return Weight(name=weight.name, shape=tuple(shape), vocabulary=weight.vocabulary)


def is_divided(weight: Weight) -> bool:
    """Whether tensor-parallel GPUs share a weight, and do not each have all of it.

    Of an adapter's two matrices that one is shared whose features they share (PEFT 0.21,
    tuners/lora/model.py, add_lora_tp_hooks_dtensor).
    """
    name, _, which = weight.name.partition("'s adapter, ")
    shared = {"up": _BY_FIRST, "down": _BY_SECOND}.get(which, (*_BY_FIRST, *_BY_SECOND))
    return name in shared


def _each(layout: Layout, change: Callable[[Weight], Weight]) -> Layout:
    return Layout(
        first=tuple(map(change, layout.first)),
        layer=tuple(map(change, layout.layer)),
        last=tuple(map(change, layout.last)),
        layers=layout.layers,
        transposed=layout.transposed,
    )


def share_of_layout(layout: Layout, share: Share, tuning: Tuning = FULL) -> Layout:
    """What one GPU keeps of each weight that is trained."""
    return sharded(trained(divided(layout, share.tensor), tuning), share.shards)


def sharded(layout: Layout, shards: int) -> Layout:
    """The layout with each weight's first dimension divided, up to whole rows.

    As FSDP2 does (torch/distributed/fsdp/_fully_shard/_fsdp_param.py, _init_sharded_param): every
    GPU holds as many rows, the last ones padded; rank 0 has no padding.
    """
    return _each(layout, lambda weight: shard_of(weight, shards)) if shards > 1 else layout


def shard_of(weight: Weight, shards: int) -> Weight:
    """A GPU's rows of a weight."""
    rows, *rest = weight.shape
    return Weight(name=weight.name, shape=(-(-rows // shards), *rest), vocabulary=weight.vocabulary)


def symbol_of(unit: str, letter: str) -> str:
    """The symbol that stands for one of a unit's quantities in bytes."""
    return f"{letter}:{unit}"


def units(layout: Layout, wrap: str, *, tied: bool) -> dict[str, Sequence[Weight]]:
    """The weights of each unit."""
    if wrap == "layers":
        found: dict[str, Sequence[Weight]] = {
            "root": (*layout.first, *layout.last),
            "embedding": (),
            "tail": (),
        }
    else:
        tables, rest = layout.first[:1], layout.first[1:]
        apart = [weight for weight in layout.last if wrap == "head" and "norm" in weight.name]
        last = [weight for weight in layout.last if weight not in apart]
        # Where the head is the embedding, both are in the last unit.
        found = {
            "root": (*rest, *apart),
            "embedding": () if tied else tables,
            "tail": (*last, *tables) if tied else last,
        }
    return {**found, "layer": layout.layer}


def parameters_of(unit: str, wrap: str, *, tied: bool) -> Iterator[str]:
    """Names of the weights around the layers that belong to a unit, as the layers' code has them.

    The root has whatever is not named.
    """
    if wrap == "layers":
        return
    if unit == ("tail" if tied else "embedding"):
        yield "embedding"
    if unit == "tail":
        yield from ("head", "head bias")
        if wrap != "head":
            yield from ("final norm", "final norm bias")


def total_bytes(layout: Layout, item_bytes: int) -> int:
    """All weights side by side in one buffer."""
    return rounded(layout.parameters * item_bytes)
