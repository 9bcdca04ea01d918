"""What the backward pass computes again: nothing, whole layers, attention's core, all but matmuls.

Always by ``torch.utils.checkpoint`` in its non-reentrant form.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from .backend import checkpoint, torch

#: What "matmuls" keeps: products with weights. Products of a batch (attention's) are made again.
KEPT_OPERATIONS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)

ATTENTION_OPERATIONS = (
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
)

run_again: Callable[..., Any] = partial(checkpoint.checkpoint, use_reentrant=False)


def call_again(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under a checkpoint: its intermediate results are made again in backward."""
    return partial(run_again, function)


def keep_matmuls() -> Any:
    """The two contexts in which a checkpointed layer runs, so that it keeps its matmuls."""
    return checkpoint.create_selective_checkpoint_contexts(list(KEPT_OPERATIONS))


def keep_every_other_matmul() -> Any:
    """The same by torchtitan's rule: every second product with a weight, and what attention gives.

    torchtitan/distributed/activation_checkpoint.py, mode "selective", option "op", as of 2025.
    """
    products = {"forward": 0, "again": 0}

    def policy(context: Any, operation: Any, *_: Any, **__: Any) -> Any:
        if operation in ATTENTION_OPERATIONS:
            return checkpoint.CheckpointPolicy.MUST_SAVE
        if operation is torch.ops.aten.mm.default:
            when = "again" if context.is_recompute else "forward"
            products[when] += 1
            if products[when] % 2:
                return checkpoint.CheckpointPolicy.MUST_SAVE
        return checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

    return checkpoint.create_selective_checkpoint_contexts(policy)


def layer_function(
    recompute: str, kept: Callable[[], Any] = keep_matmuls
) -> Callable[..., Any] | None:
    """How a model of this package calls a layer: None where nothing is computed again.

    With "matmuls", ``kept`` makes the contexts that keep them.
    """
    if recompute == "full":
        return run_again
    if recompute == "matmuls":
        return partial(run_again, context_fn=kept)
    return None


def apply(built: Any, recompute: str, *, offload: bool = False) -> None:
    """Make a built model compute again what ``recompute`` says: none, full, selective, matmuls."""
    if hasattr(built, "set_recompute"):
        built.set_recompute(recompute)
    elif recompute == "selective":
        _wrap_attention(built)
    elif recompute != "none":
        options: dict[str, Any] = {"use_reentrant": False}
        if recompute == "matmuls":
            options["context_fn"] = keep_matmuls
        built.activation_checkpointing_enable(options, offload=offload)


def _wrap_attention(built: Any) -> None:
    """Run transformers' attention function, between the projections, under a checkpoint.

    It is registered as one more attention implementation with the mask of the one it wraps.
    """
    modeling = import_module("transformers.modeling_utils")
    masking = import_module("transformers.masking_utils")
    wrapped = built.config._attn_implementation
    name = f"{wrapped}_again"

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> Any:
        own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        function = modeling.ALL_ATTENTION_FUNCTIONS.get_interface(wrapped, own)

        def core(query: Any, key: Any, value: Any) -> Any:
            return function(module, query, key, value, mask, **options)

        # By place: a checkpoint looks for a device, and so for autocast's state, in these alone.
        return run_again(core, query, key, value)

    modeling.ALL_ATTENTION_FUNCTIONS.register(name, attention)
    masking.ALL_MASK_ATTENTION_FUNCTIONS.register(
        name, masking.ALL_MASK_ATTENTION_FUNCTIONS[wrapped]
    )
    # Set on the configuration itself: the model's own setter would look for a kernel of this name.
    for module in built.modules():
        if hasattr(module, "config") and hasattr(module.config, "_attn_implementation_internal"):
            module.config._attn_implementation_internal = name
