"""The bytes of what FSDP2's units gather and reduce, by the symbols of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from .autograd.memory import ITEM_BYTES
from .frozen import in_storage, is_packed
from .layouts import Weight, adapter_of, layout_of, rounded
from .model import Model
from .records import dataclass
from .splitting import Share, divided, shard_of, share_of_layout, symbol_of, units
from .tuning import FULL, QuantStorage, Tuning, targeted


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A GPU's shard of one weight: its numbers, and the bytes of one as kept and computed with."""

    numel: int
    keep: int
    compute: int
    trained: bool = True


@lru_cache(maxsize=64)
def unit_values(
    model: Model, implementation: str, wrap: str, share: Share, tuning: Tuning = FULL
) -> tuple[tuple[str, int], ...]:
    """The bytes of every unit's buffers by their symbols.

    FSDP2 sends numbers of several dtypes as bytes, side by side (_fsdp_collectives.py,
    _get_all_gather_input_metadatas); it casts those alone that are kept in another dtype than they
    are computed with, and reduces gradients of what is trained.
    """
    whole = layout_of(model, implementation)
    # Of adapters' weights each part is shared out by itself.
    adapted = not tuning.trains_all
    layout = divided(whole, share.tensor) if adapted else share_of_layout(whole, share)
    found = []
    for unit, weights in units(layout, wrap, tied=model.tied).items():
        parts = list(_parts(weights, share, tuning, transposed=whole.transposed))
        trained = sum(part.numel for part in parts if part.trained)
        sizes = {
            "i": sum(rounded(part.numel * part.compute) for part in parts)
            if share.away
            else sum(part.numel * part.compute for part in parts if part.compute != part.keep),
            "o": sum(part.numel * part.compute for part in parts) * share.shards,
            "u": sum(rounded(part.numel * share.shards * part.compute) for part in parts),
            "r": trained * share.shards * share.reduce,
            "q": trained * share.reduce,
            "z": trained * share.keep,
            "k": sum(part.numel * part.keep for part in parts),
        }
        found += [(symbol_of(unit, letter), size) for letter, size in sizes.items()]
    return tuple(found)


def gathered_bytes(model: Model, implementation: str, share: Share, tuning: Tuning) -> int:
    """What all GPUs together gather to have every weight once."""
    sizes = dict(unit_values(model, implementation, "layers", share, tuning))
    layers = model.layers * sizes[symbol_of("layer", "o")]
    return layers + sizes[symbol_of("root", "o")]


def shard_bytes(model: Model, implementation: str, share: Share, tuning: Tuning) -> tuple[int, int]:
    """One GPU's shards of all weights as they are kept, and of what is trained."""
    sizes = dict(unit_values(model, implementation, "layers", share, tuning))
    kept, trained = (
        model.layers * sizes[symbol_of("layer", letter)] + sizes[symbol_of("root", letter)]
        for letter in ("k", "z")
    )
    return kept, trained


def _parts(
    weights: Sequence[Weight], share: Share, tuning: Tuning, *, transposed: bool
) -> Iterator[Part]:
    if not tuning.trains_all:
        yield from _adapted(weights, share, tuning, transposed=transposed)
        return
    for weight in weights:
        yield Part(numel=weight.numel, keep=share.keep, compute=share.compute)


def _adapted(
    weights: Sequence[Weight], share: Share, tuning: Tuning, *, transposed: bool
) -> Iterator[Part]:
    """Frozen weights' shards and their adapters'; 4-bit weights in whole numbers are not shared."""
    frozen = ITEM_BYTES[tuning.frozen_dtype]
    for weight in weights:
        if not is_packed(weight, tuning):
            one = shard_of(weight, share.shards)
            compute = 2 if share.policy else frozen
            yield Part(numel=one.numel, keep=frozen, compute=compute, trained=False)
        elif tuning.quant_storage is QuantStorage.BF16:
            one = shard_of(in_storage(weight), share.shards)
            yield Part(numel=one.numel, keep=2, compute=2, trained=False)
        if targeted(weight.name, tuning.adapter_targets):
            for matrix in adapter_of(weight, tuning.adapter_rank, transposed=transposed):
                one = shard_of(matrix, share.shards)
                yield Part(numel=one.numel, keep=share.keep, compute=share.compute)
