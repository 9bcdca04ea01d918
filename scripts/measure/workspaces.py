"""Scratch memory that a kernel allocates inside itself, where its source says how much."""

from __future__ import annotations

from typing import Any

FLASH_BACKWARD = "aten._scaled_dot_product_flash_attention_backward.default"


def workspace_bytes(operation: str, arguments: Any, rounding: int) -> int:
    """What an operation holds while it runs, beyond its results; 0 where that is not known."""
    if operation != FLASH_BACKWARD:
        return 0
    query, key = arguments[1], arguments[2]
    batch, heads, sequence, width = query.shape
    return flash_backward_bytes(
        batch=batch,
        heads=heads,
        kv_heads=key.shape[1],
        sequence=sequence,
        key_sequence=key.shape[2],
        width=width,
        rounding=rounding,
    )


def flash_backward_bytes(
    *,
    batch: int,
    heads: int,
    kv_heads: int,
    sequence: int,
    key_sequence: int,
    width: int,
    rounding: int,
) -> int:
    """PyTorch's flash backward kernel: a 32-bit sum of the query's gradient, and more.

    ``mha_bwd`` in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp: the sum, one
    number a query, and with grouped queries 16-bit gradients of keys and values for every head.
    """
    rows = _up(sequence, 128)
    columns = _up(width, 32 if width <= 128 else 64)
    held = _up(4 * batch * rows * heads * columns, rounding)
    held += _up(4 * batch * heads * rows, rounding)
    if kv_heads != heads:
        held += 2 * _up(2 * batch * key_sequence * heads * width, rounding)
    return held


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
