"""The flat weights of FSDP's first version: how many numbers each unit's has, and who has which.

As torch/distributed/fsdp/_flat_param.py of PyTorch 2.13 has it: FlatParamHandle lays a unit's
weights side by side. With ``use_orig_params`` each begins at a whole number of 16 bytes, and the
GPUs divide their end; without, the last GPU's share is padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .autograd.memory import ITEM_BYTES
from .frozen import FROZEN, READ, in_storage, is_packed, stays_on_the_gpu
from .layouts import Layout, Weight, bytes_of, layout_of, rounded, trained
from .model import Model
from .records import dataclass
from .splitting import Share, symbol_of, units
from .tuning import FULL, Adapter, Tuning

#: Where an address may begin (_get_aligned_numel).
ALIGNED_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """A unit's flat weight: its numbers, those of a GPU's share, and the bytes of padding's zeros.

    ``starts`` is where each of its weights begins.
    """

    numel: int
    share: int
    zeros: int
    starts: tuple[int, ...]


def flat_of(weights: Sequence[Weight], share: Share, compute: int = 0) -> Flat:
    """The flat weight that some weights become; ``compute`` bytes a number, or the share's."""
    compute = compute or share.compute
    aligned = ALIGNED_BYTES // compute if share.views else 1
    total, starts, pads = 0, [], []
    for weight in weights:
        pads.append(-total % aligned)
        total += pads[-1]
        starts.append(total)
        total += weight.numel
    if share.views:
        pads.append(-total % share.flat)
        total += pads[-1]
    return Flat(
        numel=total,
        share=-(-total // share.shards),
        zeros=sum(rounded(pad * compute) for pad in pads),
        starts=tuple(starts),
    )


def flat_units(
    model: Model, implementation: str, share: Share, tuning: Tuning = FULL
) -> dict[str, Flat]:
    """Every unit's flat weight: the whole model's, a layer's, and one for each adapter's matrix.

    A module with a weight that is trained and no other module in it is a unit of its own where a
    model has adapters (PEFT 0.21, utils/other.py, fsdp_auto_wrap_policy).
    """
    layout = layout_of(model, implementation)
    return {**_around(layout, share, tuning, tied=model.tied), **_trained(layout, share, tuning)}


def trained_units(
    model: Model, implementation: str, share: Share, tuning: Tuning = FULL
) -> Iterable[Flat]:
    """The flat weights that have a gradient."""
    if tuning.trains_all:
        return flat_units(model, implementation, share).values()
    return _trained(layout_of(model, implementation), share, tuning).values()


def _around(layout: Layout, share: Share, tuning: Tuning, *, tied: bool) -> dict[str, Flat]:
    found = units(layout, "layers", tied=tied)
    compute = (
        share.compute if tuning.trains_all or share.policy else ITEM_BYTES[tuning.frozen_dtype]
    )
    return {
        unit: flat_of(
            [in_storage(one) if is_packed(one, tuning) else one for one in found[unit]],
            share,
            compute,
        )
        for unit in ("root", "layer")
    }


def _trained(layout: Layout, share: Share, tuning: Tuning) -> dict[str, Flat]:
    if tuning.trains_all:
        return {}
    return {one.name: flat_of([one], share) for one in trained(layout, tuning).layer}


def flat_values(
    model: Model, implementation: str, share: Share, tuning: Tuning = FULL
) -> Iterator[tuple[str, int]]:
    """The sizes of every unit by their symbols."""
    for unit, flat in flat_units(model, implementation, share, tuning).items():
        whole = flat.share * share.shards
        sizes = {
            "n": flat.numel,
            "m": whole,
            "d": flat.share,
            "b": flat.numel,
            "g": whole if whole != flat.numel else 0,
            "c": flat.share,
            "k": flat.zeros,
        }
        yield from ((symbol_of(unit, letter), size) for letter, size in sizes.items())


def kept(layout: Layout, share: Share, *, tied: bool, tuning: Tuning = FULL) -> Layout:
    """What a GPU keeps of what is trained: a share of each flat weight."""
    if tuning.trains_all:
        return around(layout, share, tied=tied)
    flats = _trained(layout, share, tuning)
    shares = (Weight(name=name, shape=(one.share,)) for name, one in flats.items())
    return Layout(first=(), layer=tuple(shares), last=(), layers=layout.layers)


def around(layout: Layout, share: Share, *, tied: bool, tuning: Tuning = FULL) -> Layout:
    """What a GPU keeps of the model and of its layers; beside adapters all of it is frozen."""
    found = _around(layout, share, tuning, tied=tied)
    root, layer = (
        Weight(name=f"{name}'s flat", shape=(found[unit].share,))
        for unit, name in (("root", "the model"), ("layer", "the layer"))
    )
    return Layout(first=(root,), layer=(layer,), last=(), layers=layout.layers)


def stepped(layout: Layout, share: Share, *, tied: bool, tuning: Tuning = FULL) -> Layout:
    """What the first GPU's optimizer is given: flat weights, or its pieces of the model's own."""
    if not share.views:
        return kept(layout, share, tied=tied, tuning=tuning)
    if share.shards == 1:
        return trained(layout, tuning)
    if not tuning.trains_all:
        pieces = (piece for one in trained(layout, tuning).layer for piece in _pieces([one], share))
        return Layout(first=(), layer=tuple(pieces), last=(), layers=layout.layers)
    found = units(layout, "layers", tied=tied)
    root = list(_pieces(found["root"], share))
    return Layout(
        first=tuple(root[: len(layout.first)]),
        layer=tuple(_pieces(layout.layer, share)),
        last=tuple(root[len(layout.first) :]),
        layers=layout.layers,
    )


def frozen_flat(
    layout: Layout, tuning: Tuning, share: Share, *, tied: bool
) -> Iterator[tuple[str, int, str]]:
    """(name, bytes, why) of what is frozen: shares of flat weights, and what is no parameter."""
    kept_bytes = bytes_of(
        around(layout, share, tied=tied, tuning=tuning), ITEM_BYTES[tuning.frozen_dtype]
    )
    four_bits = tuning.adapter is Adapter.QLORA
    yield IN_FLAT if four_bits else FROZEN, kept_bytes, READ
    yield from stays_on_the_gpu(layout, tuning)


IN_FLAT = "frozen weights, a layer's products in 4 bits"


def _pieces(weights: Sequence[Weight], share: Share) -> Iterator[Weight]:
    flat = flat_of(weights, share)
    for weight, start in zip(weights, flat.starts, strict=True):
        numel = min(weight.numel, flat.share - start)
        if numel > 0:
            yield Weight(name=weight.name, shape=(numel,), vocabulary=weight.vocabulary)
