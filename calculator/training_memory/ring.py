"""Context parallelism of PyTorch, as torchtitan has it: what is not followed."""

from __future__ import annotations

from collections.abc import Iterator

from .blocks.ledger import Recompute
from .errors import InputError
from .implementations import Implementation
from .layout import Exchange, Layout
from .recipe import Recipe
from .sharding import Sharding, Way
from .switches import Attention, Compile, Loss, Offload, Switches
from .tuning import Tuning


def refused(
    layout: Layout,
    sharding: Sharding,
    recipe: Recipe,
    recompute: Recompute,
    implementation: Implementation,
    switches: Switches,
    tuning: Tuning,
) -> Iterator[InputError]:
    """Why GPUs cannot share a sequence, or what goes with it that is not followed."""
    with_it = "where GPUs share a sequence"
    if implementation is Implementation.HUGGINGFACE:
        allowed = (
            "accelerate's way for Hugging Face's models is not followed; use 1, or the "
            "implementation torchtitan, which has the same attention, paper or megatron"
        )
        yield InputError("context", layout.context, allowed)
        return
    if sharding.sharding is not Way.FSDP2:
        allowed = f"fsdp2 {with_it}: torchtitan has no other"
        yield InputError("sharding", str(sharding.sharding), allowed)
    if layout.tensor > 1:
        allowed = f"1 {with_it}: heads that are shared as well are not followed"
        yield InputError("tensor", layout.tensor, allowed)
    if layout.context_exchange is Exchange.ULYSSES:
        allowed = "PyTorch passes keys and values round or gathers them: ring or all-gather"
        yield InputError("context_exchange", str(layout.context_exchange), allowed)
    if recipe.precision == "fp32":
        allowed = f"autocast-adam or bf16-adam {with_it}: of the kernels FlashAttention is followed"
        yield InputError("recipe", recipe.id, allowed)
    if recompute not in (Recompute.NONE, Recompute.FULL):
        yield InputError("recompute", str(recompute), f"none or full {with_it}")
    if not tuning.trains_all:
        yield InputError("adapter", str(tuning.adapter), f"none {with_it}: not followed")
    for name, usual in (
        ("attention", Attention.FLASH),
        ("loss", Loss.FULL),
        ("compile", Compile.NONE),
        ("offload", Offload.NONE),
    ):
        value = getattr(switches, name)
        if value is not usual:
            yield InputError(name, str(value), f"{usual} {with_it}: nothing else is followed")
