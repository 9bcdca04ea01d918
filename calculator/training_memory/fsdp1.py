"""What FSDP's first version does not share out, and what of it is not followed: the reasons."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import InputError
from .implementations import Implementation
from .layout import Layout
from .recipe import Recipe
from .sharding import Host, ReduceDtype, Sharding, Way, no_second_copy
from .switches import Optimizer, Switches
from .tuning import Adapter, Dtype, QuantStorage, Tuning


def refused(
    sharding: Sharding,
    layout: Layout,
    recipe: Recipe,
    switches: Switches,
    tuning: Tuning,
    implementation: Implementation,
) -> Iterator[InputError]:
    """Why a run cannot be shared out by FSDP1."""
    if implementation is not Implementation.HUGGINGFACE:
        allowed = f"fsdp2 or ddp: {implementation} does not wrap its model in FSDP1"
        yield InputError("sharding", str(Way.FSDP1), allowed)
    if layout.zero in (1, 2):
        allowed = (
            "FSDP shares weights as well, which is stage 3; use 3 (SHARD_GRAD_OP is stage 3 too, "
        )
        yield InputError("zero", layout.zero, allowed + "with reshard_after_forward false)")
    if layout.data % sharding.replicate:
        allowed = (
            f"the {layout.data:,} data-parallel GPUs are divided into so many groups, so use a "
            f"divisor of {layout.data:,}; {layout.data:,} itself is NO_SHARD"
        )
        yield InputError("replicate", sharding.replicate, allowed)
    yield from no_second_copy(Way.FSDP1, recipe)
    if not tuning.trains_all:
        yield from _adapters(sharding, layout, recipe, tuning)
    yield from _switches(switches)
    if sharding.offload_param is Host.CPU:
        yield from _away(sharding, layout)


def _adapters(
    sharding: Sharding, layout: Layout, recipe: Recipe, tuning: Tuning
) -> Iterator[InputError]:
    """What does not go with PEFT's wrapping, or what transformers makes of it."""
    if recipe.precision == "autocast" and tuning.adapter_dtype is Dtype.BF16:
        allowed = "fp32: accelerate puts whatever is trained in mixed precision under FSDP there"
        yield InputError("adapter_dtype", str(tuning.adapter_dtype), allowed)
    if sharding.replicate == layout.data > 1:
        allowed = (
            f"fewer than {layout.data:,}, or set sharding to ddp: of frozen weights that no GPU "
            "has a share of (NO_SHARD) PyTorch does not find its way back after a backward pass, "
            "and stops in the next step where head and embedding are one"
        )
        yield InputError("replicate", sharding.replicate, allowed)
    if tuning.adapter is not Adapter.QLORA:
        return
    if tuning.quant_storage is QuantStorage.UINT8:
        allowed = (
            "bf16 (bnb_4bit_quant_storage): FSDP1 lays a layer's weights side by side, and takes "
            "floating-point numbers alone"
        )
        yield InputError("quant_storage", str(tuning.quant_storage), allowed)
    if tuning.frozen_dtype is Dtype.FP32:
        allowed = "bf16: FSDP1 lays a layer's weights side by side, which are all of one dtype"
        yield InputError("frozen_dtype", str(tuning.frozen_dtype), allowed)
    if recipe.precision == "autocast" and sharding.reduce_dtype is ReduceDtype.FP32:
        allowed = "bf16: beside weights in 4 bits transformers takes what these are stored in"
        yield InputError("reduce_dtype", str(sharding.reduce_dtype), allowed)
    if recipe.precision != "autocast" and tuning.adapter_dtype is Dtype.FP32:
        allowed = (
            "bf16, or the recipe autocast-adam: FSDP1 gathers adapters in what 4-bit weights are "
            "stored in, PEFT gives them inputs in 32 bits, and there is no product of the two"
        )
        yield InputError("adapter_dtype", str(tuning.adapter_dtype), allowed)
    stays = not sharding.reshard_after_forward and sharding.replicate < layout.data
    if stays and sharding.use_orig_params:
        allowed = (
            "true, or set use_orig_params to false: bitsandbytes puts a weight of its own in a "
            "gathered one's place, at which PyTorch stops where that stays gathered"
        )
        yield InputError("reshard_after_forward", "false", allowed)


def _switches(switches: Switches) -> Iterator[InputError]:
    if switches.optimizer is Optimizer.MUON:
        allowed = (
            "one that steps vectors as well: FSDP1's weights are flat, and Muon's are matrices"
        )
        yield InputError("optimizer", str(switches.optimizer), allowed)
    if switches.optimizer_in_backward:
        allowed = "false: a flat weight's gradient is there once all of a layer's are"
        yield InputError("optimizer_in_backward", "true", allowed)


def _away(sharding: Sharding, layout: Layout) -> Iterator[InputError]:
    if sharding.replicate == layout.data:
        allowed = "none where no GPU has a share alone (NO_SHARD)"
        yield InputError("offload_param", str(Host.CPU), allowed)
    if sharding.sync_each_batch:
        allowed = "false: gradients on the CPU are written anew by each reduction, not added to"
        yield InputError("sync_each_batch", "true", allowed)
