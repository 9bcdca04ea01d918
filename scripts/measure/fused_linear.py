"""Head and loss in one: Liger's fused linear cross-entropy, written again in PyTorch.

The logits never exist all at once, and no backward pass needs them: the forward pass already
computes the gradients, chunk by chunk. Hsu et al. 2024, Liger Kernel, arXiv:2410.10989, §3.2; what
is allocated, and when it is dropped, follows the library as of 2025.
"""
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from typing import Any

from .backend import Tensor, nn, torch
from .labels import IGNORED, shifted


def chunk_tokens(tokens: int, hidden: int, vocabulary: int) -> int:
    """How many tokens are taken at once: as many as make a chunk's logits as large as the input.

    That is tokens / ceil(vocabulary / hidden), rounded up to a power of two.
    """
    wanted = -(-tokens // -(-vocabulary // hidden))
    return min(1 << (wanted - 1).bit_length(), tokens)


# Two kernels that allocate nothing outside themselves, as custom operations: what they do inside is
# not seen on fake tensors, and is right on real ones.


@torch.library.custom_op("measure::loss_over_logits", mutates_args=("logits", "losses"))
def loss_over_logits(
    logits: torch.Tensor, targets: torch.Tensor, losses: torch.Tensor, counted: torch.Tensor
) -> None:
    """Each token's loss into ``losses``, and its gradient in place of the logits."""
    taken = targets != IGNORED
    chances = torch.softmax(logits.float(), dim=-1)
    at = targets.clamp(min=0)[:, None]
    losses.copy_(-chances.gather(1, at)[:, 0].log() * taken / counted)
    chances.scatter_add_(1, at, torch.full_like(at, -1, dtype=chances.dtype))
    logits.copy_(chances * taken[:, None] / counted)


@torch.library.custom_op("measure::add_product", mutates_args=("total",))
def add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """A product of 16-bit matrices added to a 32-bit one without a copy of either."""
    total += left.float() @ right.float()


@loss_over_logits.register_fake
def _(logits: Any, targets: Any, losses: Any, counted: Any) -> None:
    return None


@add_product.register_fake
def _(total: Any, left: Any, right: Any) -> None:
    return None


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        tokens, hidden = rows.shape
        vocabulary = weight.shape[0]
        size = chunk_tokens(tokens, hidden, vocabulary)
        grad_rows = torch.zeros_like(rows)
        # As Liger does it, none for a head that is frozen.
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        losses = torch.zeros(tokens, dtype=torch.float32, device=rows.device)
        counted = (targets != IGNORED).sum()
        buffer = None
        if rows.dtype is weight.dtype and not torch.is_autocast_enabled(rows.device.type):
            buffer = torch.empty((size, vocabulary), dtype=rows.dtype, device=rows.device)
        for start in range(0, tokens, size):
            part = slice(start, min(start + size, tokens))
            chunk = rows[part]
            if buffer is None:
                logits = chunk @ weight.t()
            else:
                logits = buffer[: len(chunk)]
                torch.mm(chunk, weight.t(), out=logits)
            loss_over_logits(logits, targets[part], losses[part], counted)
            if buffer is None:
                grad_rows[part] = logits @ weight
            else:
                torch.mm(logits, weight, out=grad_rows[part])
            if grad_weight is not None:
                _add_weight_gradient(grad_weight, logits, chunk)
            del logits, chunk
        del buffer
        ctx.save_for_backward(grad_rows, grad_weight)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        grad_rows, grad_weight = ctx.saved_tensors
        of_weight = None if grad_weight is None else grad_weight.mul_(grad)
        return grad_rows.mul_(grad), of_weight, None


def _add_weight_gradient(total: Tensor, logits: Tensor, chunk: Tensor) -> None:
    if logits.dtype is torch.float32:
        # No kernel adds this product to the total: it is made on its own first.
        total += torch.mm(logits.t(), chunk)
    elif total.dtype is torch.float32:
        add_product(total, logits.t(), chunk.to(logits.dtype))
    else:
        torch.addmm(total, logits.t(), chunk.to(logits.dtype), out=total)


class FusedLinearLoss(nn.Module):
    """The mean loss over the tokens that have a target, from the last hidden states.

    Gemma's cap on the logits happens inside the kernel, and takes no memory: it is left out.
    """

    def forward(self, hidden: Tensor, head: Any, labels: Tensor) -> Tensor:
        """The mean loss over the tokens that have a target."""
        rows, targets = hidden.flatten(0, 1), shifted(labels)
        return _FusedLinear.apply(rows, head.weight, targets)
