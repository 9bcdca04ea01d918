"""What FSDP's first version does not share out, and what of it is not followed: the reasons."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import InputError
from .implementations import Implementation
from .layout import Layout
from .recipe import Recipe
from .sharding import Host, Sharding, Way, no_second_copy
from .switches import Optimizer, Switches
from .tuning import Tuning


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
        allowed = (
            "none: beside adapters each of their matrices is a flat weight of its own under FSDP1, "
            "which is not followed; set sharding to fsdp2"
        )
        yield InputError("adapter", str(tuning.adapter), allowed)
    yield from _switches(switches)
    if sharding.offload_param is Host.CPU:
        yield from _away(sharding, layout)


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
