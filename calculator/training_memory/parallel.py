"""Tensor parallelism of a framework: what it does not split, and what of it is not followed yet."""

from __future__ import annotations

from collections.abc import Iterator

from .blocks.ledger import Recompute
from .errors import InputError
from .implementations import Implementation
from .layout import Layout
from .model import Model
from .sharding import Sharding, Way
from .switches import Loss, Switches


def refused(
    layout: Layout,
    sharding: Sharding,
    model: Model,
    implementation: Implementation,
    switches: Switches,
    recompute: Recompute,
) -> Iterator[InputError]:
    """Why a run cannot have its degree of tensor parallelism, or what goes with it."""
    tensor = layout.tensor
    if implementation is not Implementation.TORCHTITAN:
        allowed = (
            "tensor parallelism is followed as torchtitan does it, or in the textbook's way; use "
            "1, or the implementation torchtitan or paper"
        )
        yield InputError("tensor", tensor, allowed)
        return
    for what, size in (
        ("key-value heads", model.kv_heads),
        ("feed-forward features", model.ffn),
        ("vocabulary entries", model.vocabulary),
    ):
        if size % tensor:
            allowed = (
                f"each GPU gets the same number of {what}, and {model.name} has {size:,}, so use a "
                f"divisor of {size:,}"
            )
            yield InputError("tensor", tensor, allowed)
            return
    if model.tied:
        allowed = "a head that is the embedding is not split here; set tied to false, or use 1"
        yield InputError("tensor", tensor, allowed)
    if layout.data > 1 and sharding.sharding is Way.DDP:
        yield InputError("sharding", str(Way.DDP), "beside tensor parallelism there is only fsdp2")
    if switches.loss is not Loss.FULL:
        allowed = "tensor parallelism computes the full loss, each GPU a part of the vocabulary"
        yield InputError("loss", str(switches.loss), allowed)
    if recompute in (Recompute.SELECTIVE, Recompute.MATMULS):
        allowed = "with tensor parallelism none and full are followed so far"
        yield InputError("recompute", str(recompute), allowed)
