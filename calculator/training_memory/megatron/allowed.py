"""What Megatron-Core refuses, and what is not followed of it here."""

from __future__ import annotations

from collections.abc import Iterator

from ..blocks.ledger import Recompute
from ..errors import InputError
from ..implementations import Implementation
from ..layout import Exchange
from ..pipeline import Schedule
from ..run import Run
from ..switches import Loss

_RECIPES = ("mixed-adam-fp32-grad", "mixed-adam")
_MOST_ZERO = 1
_ZERO = {
    Implementation.MEGATRON: "the distributed optimizer shares master copies and Adam's states, as "
    "ZeRO's stage 1 does; Megatron-FSDP is not followed here: use 0 or 1",
    Implementation.NANOTRON: "nanotron's replicas share master copies and Adam's states, as ZeRO's "
    "stage 1 does: use 0 or 1",
}


def refused(run: Run) -> Iterator[InputError]:
    """Every field that cannot be so in Megatron, or in nanotron."""
    nanotron = run.implementation is Implementation.NANOTRON
    yield from _of_nanotron(run) if nanotron else _of_megatron(run)
    if run.layout.schedule is Schedule.ZERO_BUBBLE:
        allowed = f"{run.implementation} has no zero-bubble schedule: 1f1b or interleaved"
        yield InputError("schedule", str(run.layout.schedule), allowed)
    if run.layout.zero > _MOST_ZERO:
        yield InputError("zero", run.layout.zero, _ZERO[run.implementation])
    yield from _shares(run)


def _of_megatron(run: Run) -> Iterator[InputError]:
    """What Megatron-Core alone refuses."""
    layout, layers = run.layout, run.model.layers
    if run.recipe.id not in _RECIPES:
        allowed = f"Megatron trains 16-bit weights with a 32-bit copy: {' or '.join(_RECIPES)}"
        yield InputError("recipe", run.recipe.id, allowed)
    if run.recompute is Recompute.MATMULS:
        allowed = "Megatron knows none, selective (the attention core), full (each layer)"
        yield InputError("recompute", str(run.recompute), allowed)
    if run.model.latent and layout.context_exchange is not Exchange.RING:
        allowed = "ring with latent attention: its other exchanges are not followed"
        yield InputError("context_exchange", str(layout.context_exchange), allowed)
    if run.model.positions and layout.context > 1:
        allowed = "learned positions of GPUs that share a sequence are not followed; use 1"
        yield InputError("context", layout.context, allowed)
    if run.switches.mtp_layers and layout.context > 1:
        allowed = "1 where tokens further on are predicted: its exchanges are not followed"
        yield InputError("context", layout.context, allowed)
    if run.model.experts:
        yield from _of_experts(run)
    if layout.layers_per_stage is None and layers % layout.pipeline:
        allowed = (
            f"Megatron spreads {layers:,} layers evenly over the stages unless told "
            "otherwise: use a divisor, or give layers_per_stage"
        )
        yield InputError("pipeline", layout.pipeline, allowed)


def _of_experts(run: Run) -> Iterator[InputError]:
    """What Megatron's mixture refuses (core/transformer/moe/moe_layer.py)."""
    model, layout = run.model, run.layout
    if layout.tensor > 1 and not layout.sequence_parallel:
        allowed = "Megatron trains experts with tensor parallelism only with this on: set it true"
        yield InputError("sequence_parallel", False, allowed)
    for field, size, over in (
        ("expert_tensor", model.expert_ffn, layout.expert_tensor),
        ("tensor", model.shared_experts * model.shared_expert_ffn, layout.tensor),
    ):
        if size % over:
            allowed = (
                f"each GPU gets as much of an expert's {size:,} features: a divisor of {size:,}"
            )
            yield InputError(field, over, allowed)


def _of_nanotron(run: Run) -> Iterator[InputError]:
    """Where nanotron is followed less far than Megatron."""
    layout = run.layout
    if run.recompute is not Recompute.NONE:
        allowed = "of nanotron only steps are followed that recompute nothing; use none"
        yield InputError("recompute", str(run.recompute), allowed)
    if run.switches.loss is not Loss.FULL:
        yield InputError("loss", str(run.switches.loss), "nanotron has the full loss alone")
    if layout.context > 1:
        allowed = "nanotron's GPUs share no sequence in the steps that are followed; use 1"
        yield InputError("context", layout.context, allowed)
    if layout.interleave > 1:
        allowed = "nanotron's stages have one part of the model each; use 1"
        yield InputError("interleave", layout.interleave, allowed)
    if run.recipe.id != "mixed-adam-fp32-grad":
        allowed = "nanotron's gradients are summed in 32 bits: mixed-adam-fp32-grad"
        yield InputError("recipe", run.recipe.id, allowed)
    if run.switches.dropout:
        yield InputError("dropout", True, "nanotron's Llamas drop nothing; use false")
    if run.switches.mtp_layers:
        allowed = "nanotron's Llamas predict the next token alone; use 0"
        yield InputError("mtp_layers", run.switches.mtp_layers, allowed)
    if run.model.latent:
        yield InputError("implementation", "nanotron", "a Llama, which has kv_lora_rank 0")


def _shares(run: Run) -> Iterator[InputError]:
    """What tensor parallelism divides that must divide evenly."""
    model, tensor, layout = run.model, run.layout.tensor, run.layout
    over = tensor * layout.context
    if layout.context_exchange is Exchange.ULYSSES and model.kv_heads % over:
        allowed = (
            f"ulysses gives each of tensor × context ({over:,}) GPUs whole key-value heads, and "
            f"{model.name} has {model.kv_heads:,}"
        )
        yield InputError("context", layout.context, allowed)
    widths = (
        () if model.experts and not model.dense_layers else (("feed-forward width", model.ffn),)
    )
    for what, size in (("key-value heads", model.kv_heads), *widths):
        if size % tensor:
            allowed = (
                f"each GPU gets whole {what}, and {model.name} has {size:,}, so use a divisor of "
                f"{size:,}"
            )
            yield InputError("tensor", tensor, allowed)
            return
