"""The loss from the last hidden states: all logits at once, by chunks, or fused with the head.

A loss here replaces transformers' own only where the logits are not to exist all at once.
"""

from __future__ import annotations

from typing import Any

from .backend import Tensor, functional, nn, torch
from .recompute import run_again

CHUNK_TOKENS = 1024
"""How many tokens' logits the chunked loss holds at once."""


def shifted(labels: Tensor) -> Tensor:
    """Each token's target, the next token, in one row; the last of a sequence has none."""
    return functional.pad(labels, (0, 1), value=-100)[..., 1:].reshape(-1)


def capped(logits: Tensor, cap: float | None) -> Tensor:
    """Gemma's soft cap on the logits."""
    return logits if cap is None else torch.tanh(logits / cap) * cap


class ChunkedLoss(nn.Module):  # type: ignore[misc, unused-ignore]
    """Cross-entropy chunk by chunk; each chunk's logits are made again in the backward pass."""

    def __init__(self, cap: float | None = None) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, hidden: Tensor, head: Any, labels: Tensor) -> Tensor:
        """The mean loss over the tokens that have a target."""
        rows, targets = hidden.flatten(0, 1), shifted(labels)
        total = torch.zeros((), dtype=torch.float32, device=rows.device)
        for start in range(0, len(rows), CHUNK_TOKENS):
            part = slice(start, start + CHUNK_TOKENS)
            total = total + run_again(self._chunk, rows[part], head, targets[part])
        return total / (targets != -100).sum()

    def _chunk(self, rows: Tensor, head: Any, targets: Tensor) -> Tensor:
        logits = capped(head(rows), self.cap).float()
        return functional.cross_entropy(logits, targets, reduction="sum")


def fused_chunk_tokens(tokens: int, hidden: int, vocabulary: int) -> int:
    """How many tokens the fused loss takes at once: a chunk's logits are as large as the input.

    Hsu et al. 2024, Liger Kernel, arXiv:2410.10989, §3.2: tokens / ceil(vocabulary / hidden),
    rounded up to a power of two.
    """
    wanted = -(-tokens // -(-vocabulary // hidden))
    return 1 << (wanted - 1).bit_length()


class _FusedLinear(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Head and loss in one: gradients are computed in the forward pass, chunk by chunk."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, targets: Tensor, cap: Any) -> Tensor:
        tokens, hidden = rows.shape
        vocabulary = weight.shape[0]
        size = fused_chunk_tokens(tokens, hidden, vocabulary)
        grad_rows = torch.zeros_like(rows)
        grad_weight = torch.zeros_like(weight)
        losses = torch.zeros(tokens, dtype=torch.float32, device=rows.device)
        for start in range(0, tokens, size):
            part = slice(start, start + size)
            chunk = rows[part]
            logits = chunk @ weight.t()
            # Liger's kernel reads the logits and writes their gradient in place. On fake tensors
            # nothing is computed: what counts is that no second tensor of this size is made.
            logits.mul_(1.0)
            losses[part].fill_(0.0)
            grad_rows[part] = logits @ weight
            grad_weight += torch.mm(logits.t(), chunk)
        ctx.save_for_backward(grad_rows, grad_weight)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_rows, grad_weight = ctx.saved_tensors
        return grad_rows, grad_weight, None, None


class FusedLinearLoss(nn.Module):  # type: ignore[misc, unused-ignore]
    """Liger's fused linear cross-entropy in PyTorch's operations."""

    def __init__(self, cap: float | None = None) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, hidden: Tensor, head: Any, labels: Tensor) -> Tensor:
        """The mean loss over the tokens that have a target."""
        return _FusedLinear.apply(hidden.flatten(0, 1), head.weight, shifted(labels), self.cap)
