"""What FSDP2 does not share out, and what of it is not followed: the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .errors import InputError
from .implementations import Implementation
from .layout import Layout
from .recipe import Recipe
from .sharding import Sharding, Way, no_second_copy
from .switches import Loss, Optimizer, Switches
from .tuning import Adapter, Dtype, Tuning

_WHOLE_ALONE = "its kernels take whole tensors alone (bitsandbytes 0.50 refuses a DTensor)"
#: Why an optimizer does not go with weights that are shared out, as PyTorch 2.13 says itself.
_NOT_SHARED: Mapping[Optimizer, str] = {
    Optimizer.ADAFACTOR: "PyTorch's Adafactor stops at norms of columns whose rows GPUs share",
    Optimizer.ADAFACTOR_HF: "transformers' Adafactor stops where it mixes whole and shared tensors",
    Optimizer.MUON: "DTensor lays its products out by a cost of its own, which is not followed",
    Optimizer.ADAMW_8BIT: _WHOLE_ALONE,
    Optimizer.PAGED_ADAMW: _WHOLE_ALONE,
    Optimizer.PAGED_ADAMW_8BIT: _WHOLE_ALONE,
}


def refused(
    sharding: Sharding,
    layout: Layout,
    recipe: Recipe,
    switches: Switches,
    tuning: Tuning,
    implementation: Implementation,
) -> Iterator[InputError]:
    """Why a run cannot be shared out by FSDP2."""
    yield from _degrees(sharding, layout, recipe)
    if sharding.sync_each_batch and implementation is not Implementation.HUGGINGFACE:
        allowed = f"{implementation} reduces gradients after every micro-batch anyway; leave it out"
        yield InputError("sync_each_batch", "true", allowed)
    if switches.loss is not Loss.FULL:
        yield from _loss(switches.loss, implementation, tuning)
    yield from not_shared(switches)
    if not tuning.trains_all:
        yield from _adapters(tuning, recipe)


def not_shared(switches: Switches) -> Iterator[InputError]:
    """Why an optimizer cannot step weights of which each GPU has a share, as DTensor has them."""
    if reason := _NOT_SHARED.get(switches.optimizer):
        allowed = f"adamw or sgd-momentum where GPUs share each weight: {reason}"
        yield InputError("optimizer", str(switches.optimizer), allowed)


def _degrees(sharding: Sharding, layout: Layout, recipe: Recipe) -> Iterator[InputError]:
    if layout.zero in (1, 2):
        allowed = "FSDP2 shares weights as well, which is stage 3; use 3"
        yield InputError("zero", layout.zero, allowed)
    if layout.data % sharding.replicate or sharding.replicate == layout.data > 1:
        allowed = (
            f"the {layout.data:,} data-parallel GPUs are divided into so many groups of 2 or more, "
            f"so use a smaller divisor of {layout.data:,}"
        )
        yield InputError("replicate", sharding.replicate, allowed)
    yield from no_second_copy(Way.FSDP2, recipe)


def _loss(loss: Loss, implementation: Implementation, tuning: Tuning) -> Iterator[InputError]:
    """A loss that reads the head's weight is right where that is gathered, with the last norm."""
    if loss is Loss.CHUNKED:
        allowed = (
            "full or fused-linear under FSDP2: a head that is called chunk by chunk is gathered "
            "and reduced with each, which is not followed"
        )
    elif implementation is Implementation.TORCHTITAN:
        allowed = "full: torchtitan computes the loss outside of what it shards"
    elif not tuning.trains_all:
        allowed = (
            "full: beside adapters accelerate makes the head a unit of its own, and a loss that "
            "reads its weight without calling it finds the shard"
        )
    else:
        return
    yield InputError("loss", str(loss), allowed)


def _adapters(tuning: Tuning, recipe: Recipe) -> Iterator[InputError]:
    """What accelerate does to adapters under FSDP2."""
    policy = recipe.precision == "autocast"
    if policy and tuning.adapter is Adapter.LORA and tuning.adapter_dtype is Dtype.BF16:
        allowed = "fp32: accelerate puts whatever is trained in mixed precision under FSDP2 there"
        yield InputError("adapter_dtype", str(tuning.adapter_dtype), allowed)
    if not policy and tuning.adapter is Adapter.QLORA and tuning.frozen_dtype is Dtype.FP32:
        allowed = "bf16, or the recipe autocast-adam: FSDP2 gathers 32-bit weights as they are"
        yield InputError("frozen_dtype", str(tuning.frozen_dtype), allowed)
