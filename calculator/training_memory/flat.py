"""The flat weights of FSDP's first version: how many numbers each unit's has, and who has which.

As torch/distributed/fsdp/_flat_param.py of PyTorch 2.13 has it: FlatParamHandle lays a unit's
weights side by side. With ``use_orig_params`` each begins at a whole number of 16 bytes, and the
GPUs divide their end; without, the last GPU's share is padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .layouts import Layout, Weight, layout_of, rounded
from .model import Model
from .records import dataclass
from .splitting import Share, symbol_of, units

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


def flat_of(weights: Sequence[Weight], share: Share) -> Flat:
    """The flat weight that some weights become."""
    aligned = ALIGNED_BYTES // share.compute if share.views else 1
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
        zeros=sum(rounded(pad * share.compute) for pad in pads),
        starts=tuple(starts),
    )


def flat_units(model: Model, implementation: str, share: Share) -> dict[str, Flat]:
    """Every unit's flat weight: the whole model's, and a layer's."""
    layout = layout_of(model, implementation)
    found = units(layout, "layers", tied=model.tied)
    return {unit: flat_of(found[unit], share) for unit in ("root", "layer")}


def flat_values(model: Model, implementation: str, share: Share) -> Iterator[tuple[str, int]]:
    """The sizes of every unit by their symbols."""
    for unit, flat in flat_units(model, implementation, share).items():
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


def kept(layout: Layout, share: Share, *, tied: bool) -> Layout:
    """What a GPU keeps of the weights: a share of each flat one."""
    found = units(layout, "layers", tied=tied)
    root, layer = (
        Weight(name=f"{name}'s flat", shape=(flat_of(found[unit], share).share,))
        for unit, name in (("root", "the model"), ("layer", "the layer"))
    )
    return Layout(first=(root,), layer=(layer,), last=(), layers=layout.layers)


def stepped(layout: Layout, share: Share, *, tied: bool) -> Layout:
    """What the first GPU's optimizer is given: flat weights, or its pieces of the model's own."""
    if not share.views:
        return kept(layout, share, tied=tied)
    if share.shards == 1:
        return layout
    found = units(layout, "layers", tied=tied)
    root = list(_pieces(found["root"], share))
    return Layout(
        first=tuple(root[: len(layout.first)]),
        layer=tuple(_pieces(layout.layer, share)),
        last=tuple(root[len(layout.first) :]),
        layers=layout.layers,
    )


def _pieces(weights: Sequence[Weight], share: Share) -> Iterator[Weight]:
    flat = flat_of(weights, share)
    for weight, start in zip(weights, flat.starts, strict=True):
        numel = min(weight.numel, flat.share - start)
        if numel > 0:
            yield Weight(name=weight.name, shape=(numel,), vocabulary=weight.vocabulary)
