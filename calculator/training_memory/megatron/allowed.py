"""What Megatron-Core refuses, and what is not followed of it here."""

from __future__ import annotations

from collections.abc import Iterator

from ..blocks.ledger import Recompute
from ..errors import InputError
from ..run import Run

_RECIPES = ("mixed-adam-fp32-grad", "mixed-adam")
_MOST_ZERO = 1


def refused(run: Run) -> Iterator[InputError]:
    """Every field that cannot be so in Megatron."""
    layout, model = run.layout, run.model
    if run.recipe.id not in _RECIPES:
        allowed = f"Megatron trains 16-bit weights with a 32-bit copy: {' or '.join(_RECIPES)}"
        yield InputError("recipe", run.recipe.id, allowed)
    if run.recompute is Recompute.MATMULS:
        allowed = "Megatron knows none, selective (the attention core), full (each layer)"
        yield InputError("recompute", str(run.recompute), allowed)
    if layout.zero > _MOST_ZERO:
        allowed = (
            "the distributed optimizer shares master copies and Adam's states, as ZeRO's stage 1 "
            "does; Megatron-FSDP is not followed here: use 0 or 1"
        )
        yield InputError("zero", layout.zero, allowed)
    if layout.context > 1:
        allowed = "the textbook counts it; how Megatron exchanges keys and values is not followed"
        yield InputError("context", layout.context, allowed)
    yield from _shares(run)
    if layout.layers_per_stage is None and model.layers % layout.pipeline:
        allowed = (
            f"Megatron spreads {model.layers:,} layers evenly over the stages unless told "
            "otherwise: use a divisor, or give layers_per_stage"
        )
        yield InputError("pipeline", layout.pipeline, allowed)


def _shares(run: Run) -> Iterator[InputError]:
    """What tensor parallelism divides that must divide evenly."""
    model, tensor = run.model, run.layout.tensor
    for what, size in (("key-value heads", model.kv_heads), ("feed-forward width", model.ffn)):
        if size % tensor:
            allowed = (
                f"each GPU gets whole {what}, and {model.name} has {size:,}, so use a divisor of "
                f"{size:,}"
            )
            yield InputError("tensor", tensor, allowed)
            return
