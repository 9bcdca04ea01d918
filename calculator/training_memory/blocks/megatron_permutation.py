"""Tokens put in the order of their experts by PyTorch's own operations, without fused kernels.

Megatron-Core 0.16, core/transformer/moe/moe_utils.py (``permute``, ``unpermute``,
``sort_chunks_by_idxs``) without ``--moe-permute-fusion``; PyTorch's CUDA kernels of
``masked_select`` (aten/src/ATen/native/cuda/IndexKernel.cpp).
"""

from __future__ import annotations

from ..autograd.operations.common import IDS, MASKED, like, only
from ..autograd.tape import Save, Tape
from ..autograd.tensors import Grads, Tensor
from ..formula import Formula
from .sizes import OWN_CHOSEN, OWN_ROWS, OWN_SCORES, SENT


def permuted(tape: Tape, x: Tensor, chances: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each token as often as it was chosen, expert by expert, its chances, and where it was."""
    chosen = tape.new("chosen tokens, by expert", OWN_SCORES, "bool")
    numbers = tape.new("numbers of the tokens", OWN_ROWS, "int64")
    places = _selected(tape, numbers, chosen, "places of the tokens")
    by_expert = _turned(tape, chances)
    sent_chances = _selected(tape, by_expert, chosen, "their chances")
    del by_expert
    own, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of the tokens", own, dtype),)

    node = tape.node("index_select", [x], backward, [(places, IDS)])
    sent = tape.new("tokens by expert", SENT, dtype)
    tape.attach(node, sent)
    del numbers, chosen
    return sent, sent_chances, places


def unpermuted(tape: Tape, x: Tensor, places: Tensor, numel: Formula) -> Tensor:
    """What the experts made of each token, added up in zeros."""
    size, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradients by expert", size, dtype),)

    y = tape.new("experts' sum", numel, dtype)
    node = tape.node("scatter_add", [x], backward, [(places, IDS)])
    tape.attach(node, y)
    return y


def sorted_chunks(
    tape: Tape, x: Tensor, weights: Tensor | None, rows: Formula
) -> tuple[Tensor, Tensor | None]:
    """Chunks of what came, split apart and joined in another order; back, the same."""
    made = [_reordered(tape, one) for one in (x, weights) if one]
    return made[0], made[1] if len(made) > 1 else None


def _reordered(tape: Tape, x: Tensor) -> Tensor:
    size, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradients by GPU", size, dtype),)

    node = tape.node("sort", [x], backward)
    y = like(tape, x, "in the order of experts")
    tape.attach(node, y)
    return y


def _turned(tape: Tape, x: Tensor) -> Tensor:
    """``x.T.contiguous()``."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (only(grads),)

    node = tape.node("clone", [x], backward)
    y = like(tape, x, "chances, by expert")
    tape.attach(node, y)
    return y


def _selected(tape: Tape, x: Tensor, chosen: Tensor, name: str) -> Tensor:
    """``x.masked_select(chosen)``: saves both; the places of what is chosen are found first."""
    size, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        zeros = tape.new("gradient of all chances", size, dtype)
        tape.new("running sum of what was chosen", size, "int64")
        return (zeros,)

    kept: list[Save] = [(x, MASKED), (chosen, MASKED)]
    node = tape.node("masked_select", [x], backward, kept)
    found = tape.new("where something was chosen", OWN_CHOSEN * 2, "int64")
    y = tape.new(name, OWN_CHOSEN, dtype)
    del found
    tape.attach(node, y)
    return y
