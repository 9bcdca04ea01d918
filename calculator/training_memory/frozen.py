"""What frozen weights take: in 16 or 32 bits, or in 4 with their scales, as bitsandbytes has them.

bitsandbytes 0.50, functional.py: quantize_4bit, quantize_blockwise. Blocks of 64 numbers share a
scale; with double quantisation the scales are in 8 bits, and blocks of 256 of them share one in 32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .autograd.memory import ITEM_BYTES
from .formula import LINEAR
from .layouts import Layout, Weight, bytes_of, rounded
from .splitting import WHOLE, Share, divided, shard_of, sharded
from .tuning import Adapter, QuantStorage, Tuning

_BLOCK, _BLOCK_OF_SCALES = 64, 256
#: Each tensor's own tables, in fp32: what its 16 codes and its scales' 256 codes stand for, and
#: the mean of the scales, which is taken from them before they are quantised.
_TABLES = (16, 256, 1)


def frozen(layout: Layout, tuning: Tuning, share: Share = WHOLE) -> Iterator[tuple[str, int, str]]:
    """(name, bytes, why) of each kind of what is frozen, of which a GPU holds a share.

    FSDP2 shares parameters: 4-bit weights where their storage is of floating-point numbers, and no
    scales, which are none.
    """
    item_bytes = ITEM_BYTES[tuning.frozen_dtype]
    layout = divided(layout, share.tensor)
    if tuning.adapter is not Adapter.QLORA:
        yield FROZEN, bytes_of(sharded(layout, share.shards), item_bytes), READ
        return
    packed = [weight for weight in layout.layer if is_packed(weight, tuning)]
    shared = share.shards if tuning.quant_storage is QuantStorage.BF16 else 1
    yield IN_4_BITS, _all(layout, packed, _codes_of(shared)), READ
    yield SCALES, _all(layout, packed, _scales), SCALED
    rest = Layout(
        first=layout.first,
        layer=tuple(weight for weight in layout.layer if not _by_packed(weight)),
        last=layout.last,
        layers=layout.layers,
    )
    rest = sharded(rest, share.shards)
    # Linear4bit turns its bias into the dtype that it computes in; what FSDP2 gathers goes again.
    bias_bytes = item_bytes if share.shards > 1 else 2
    biases = [weight for weight in layout.layer if _by_packed(weight) and weight not in packed]
    more = layout.layers * sum(
        rounded(bias_bytes * shard_of(weight, share.shards).numel) for weight in biases
    )
    yield f"frozen weights in {8 * item_bytes} bits", bytes_of(rest, item_bytes) + more, READ


def stays_on_the_gpu(layout: Layout, tuning: Tuning) -> Iterator[tuple[str, int, str]]:
    """The same of what is on the GPU where FSDP2 has parameters in the CPU's memory: no parameter.

    Scales are none, and codes in whole numbers are none of FSDP2's.
    """
    packed = [weight for weight in layout.layer if is_packed(weight, tuning)]
    if not packed:
        return
    if tuning.quant_storage is QuantStorage.UINT8:
        yield IN_4_BITS, _all(layout, packed, _codes_of(1)), READ
    yield SCALES, _all(layout, packed, _scales), SCALED


def is_packed(weight: Weight, tuning: Tuning) -> bool:
    """Whether a frozen weight is in 4 bits."""
    return tuning.adapter is Adapter.QLORA and weight.name in LINEAR


def in_storage(weight: Weight) -> Weight:
    """A weight in 4 bits as a column of 16-bit numbers of 4 codes each."""
    return Weight(name=weight.name, shape=(-(-weight.numel // 4), 1))


def _by_packed(weight: Weight) -> bool:
    """Whether it is a weight in 4 bits, or its bias."""
    return weight.name.removesuffix(" bias") in LINEAR


def _all(layout: Layout, packed: list[Weight], size: Callable[[Weight], int]) -> int:
    return layout.layers * sum(size(weight) for weight in packed)


def _codes_of(shards: int) -> Callable[[Weight], int]:
    if shards == 1:
        return lambda weight: rounded(-(-weight.numel // 2))
    return lambda weight: rounded(2 * shard_of(in_storage(weight), shards).numel)


def _scales(weight: Weight) -> int:
    scales = -(-weight.numel // _BLOCK)
    tables = sum(rounded(4 * entries) for entries in _TABLES)
    return rounded(scales) + rounded(4 * -(-scales // _BLOCK_OF_SCALES)) + tables


FROZEN = "frozen weights"
IN_4_BITS, SCALES = "frozen weights in 4 bits", "scales of the weights in 4 bits"
READ = "Every product with a weight reads it; none of it is trained."
SCALED = "A block of 64 numbers in 4 bits has a scale of its own, and 256 of these one as well."
