"""Which runs DeepSpeed has, and which of them are followed."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import InputError
from ..implementations import Implementation
from ..layout import Layout
from ..recipe import Recipe
from ..switches import Offload, Optimizer, Switches
from ..tuning import Adapter, Dtype, Tuning

_WAY = ("sharding", "deepspeed")


#: bitsandbytes' optimizers, which step on the GPU.
_ON_THE_GPU = (Optimizer.ADAMW_8BIT, Optimizer.PAGED_ADAMW, Optimizer.PAGED_ADAMW_8BIT)


def refused(
    layout: Layout,
    recipe: Recipe,
    switches: Switches,
    tuning: Tuning,
    implementation: Implementation,
    *,
    offloads: bool,
) -> Iterator[InputError]:
    """What DeepSpeed does not do, or what is not followed of it yet."""
    if implementation is not Implementation.HUGGINGFACE:
        allowed = f"{implementation} shares by fsdp2; set implementation to huggingface"
        yield InputError(*_WAY, allowed)
    if layout.data == 1:
        yield InputError(*_WAY, "ZeRO shares over replicas; set data to 2 or more")
    if recipe.precision not in ("master", "fp32"):
        allowed = (
            "DeepSpeed's bf16 is 16-bit weights with a 32-bit copy: use mixed-adam, or fp32-adam"
        )
        yield InputError("recipe", recipe.id, allowed)
    if not tuning.trains_all:
        yield from _adapters(layout, recipe, tuning, offloads=offloads)
    if switches.optimizer is Optimizer.MUON:
        allowed = (
            "DeepSpeed steps one optimizer, and PyTorch's Muon comes with another for the rest; it "
            "has a Muon of its own, which is not followed: use another optimizer, or sharding ddp"
        )
        yield InputError("optimizer", str(switches.optimizer), allowed)
    if offloads and switches.optimizer in _ON_THE_GPU:
        allowed = "it steps on the GPU, and what is offloaded on the CPU: use another optimizer"
        yield InputError("optimizer", str(switches.optimizer), allowed)
    if switches.offload is not Offload.NONE:
        yield InputError("offload", str(switches.offload), "none under DeepSpeed so far")
    if switches.optimizer_in_backward:
        allowed = "off: DeepSpeed's optimizer steps once all gradients are there"
        yield InputError("optimizer_in_backward", "true", allowed)


def _adapters(
    layout: Layout, recipe: Recipe, tuning: Tuning, *, offloads: bool
) -> Iterator[InputError]:
    """Adapters: DeepSpeed's engine has all of a model in its own numbers."""
    dtype = Dtype.FP32 if recipe.precision == "fp32" else Dtype.BF16
    for name in ("adapter_dtype", "frozen_dtype"):
        if getattr(tuning, name) is not dtype:
            allowed = f"{dtype}: DeepSpeed's engine turns the whole model into that"
            yield InputError(name, str(getattr(tuning, name)), allowed)
    if tuning.adapter is Adapter.QLORA and recipe.precision == "fp32":
        yield InputError("recipe", recipe.id, "with qlora under DeepSpeed mixed-adam")
    if layout.zero == 3:
        allowed = "under DeepSpeed's stage 3 whole models are trained so far; use none, or fsdp2"
        yield InputError("adapter", str(tuning.adapter), allowed)
    if offloads:
        allowed = "none with adapters: what is elsewhere then is not followed yet"
        yield InputError("offload_optimizer", "cpu", allowed)
