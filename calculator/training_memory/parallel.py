"""Tensor parallelism of a framework: what it does not split, and what of it is not followed yet."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import InputError
from .fsdp2 import not_shared
from .implementations import Implementation
from .layout import Layout
from .model import Model
from .sharding import Sharding, Way
from .switches import Loss, Switches
from .tuning import Adapter, Targets, Tuning

#: Models whose plan in transformers is Llama's.
_PLANNED = ("llama", "mistral", "qwen", "gemma")


def refused(
    layout: Layout,
    sharding: Sharding,
    model: Model,
    implementation: Implementation,
    switches: Switches,
    tuning: Tuning,
) -> Iterator[InputError]:
    """Why a run cannot have its degree of tensor parallelism, or what goes with it."""
    tensor = layout.tensor
    if implementation is Implementation.HUGGINGFACE:
        if layout.sequence_parallel:
            allowed = "the plans that come with transformers' models leave the tokens whole"
            yield InputError("sequence_parallel", "true", allowed)
        if model.family not in _PLANNED or model.experts:
            allowed = f"of transformers' plans Llama's is followed, which {model.name} has not"
            yield InputError("tensor", tensor, allowed)
            return
        if model.kv_heads % tensor:
            allowed = (
                f"its keys and values are cut into {model.kv_heads:,} whole heads, and PyTorch "
                f"stops where a GPU gets a part of one: use a divisor of {model.kv_heads:,}"
            )
            yield InputError("tensor", tensor, allowed)
            return
    else:
        for what, size in (
            ("key-value heads", model.kv_heads),
            ("feed-forward features", model.ffn),
            ("vocabulary entries", model.vocabulary),
        ):
            if size % tensor:
                allowed = (
                    f"each GPU gets the same number of {what}, and {model.name} has {size:,}, so "
                    f"use a divisor of {size:,}"
                )
                yield InputError("tensor", tensor, allowed)
                return
        if model.tied:
            allowed = "a head that is the embedding is not split here; set tied to false, or use 1"
            yield InputError("tensor", tensor, allowed)
    if layout.data > 1 and sharding.sharding is not Way.FSDP2:
        allowed = "beside tensor parallelism there is only fsdp2"
        yield InputError("sharding", str(sharding.sharding), allowed)
    if not tuning.trains_all and implementation is Implementation.HUGGINGFACE:
        yield from _adapters(tuning)
    if layout.data == 1:
        yield from not_shared(switches)
    if switches.loss is not Loss.FULL:
        allowed = "full with tensor parallelism, whose head has a part of the vocabulary"
        yield InputError("loss", str(switches.loss), allowed)


def _adapters(tuning: Tuning) -> Iterator[InputError]:
    """What stops of PEFT 0.21 with transformers 5.24, as tried."""
    if tuning.adapter is Adapter.QLORA:
        allowed = (
            "none or lora with tensor parallelism: a weight in 4 bits that is split loses "
            "bitsandbytes' state (a DTensor has no compress_statistics)"
        )
        yield InputError("adapter", str(tuning.adapter), allowed)
    elif tuning.adapter_targets is Targets.ALL_LINEAR:
        allowed = (
            "query-value with tensor parallelism: PEFT makes the adapters of attention output and "
            "down as wide as a GPU's share, and transformers splits them once more and stops"
        )
        yield InputError("adapter_targets", str(tuning.adapter_targets), allowed)
