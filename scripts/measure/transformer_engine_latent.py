"""What latent attention has of its own without its kernels: as :mod:`.transformer_engine`.

Transformer Engine 2.11's ``pytorch/module/linear.py`` on all GPUs alike, and Megatron-Core's
Triton kernels, ``core/fusions/fused_mla_yarn_rope_apply.py``.
"""
# mypy: disable-error-code=misc

from __future__ import annotations

from typing import Any

from .backend import Tensor, nn, torch
from .transformer_engine import _Linear, _parameter

Function: Any = torch.autograd.Function


class Linear(nn.Module):
    """``TELinear``, whose weight every GPU has whole."""

    def __init__(
        self, input_size: int, output_size: int, *, config: Any, bias: bool, **_: Any
    ) -> None:
        super().__init__()
        self.weight = _parameter(output_size, input_size)
        self.weight.sequence_parallel = config.sequence_parallel
        assert not bias

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """The product of this GPU's tokens."""
        return _Linear.apply(x, self.weight, 1), None


class _Queries(Function):
    """Turned where they are, and back where the gradient is."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return q.view(-1, *q.shape[-2:]).view(q.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient.contiguous().view(gradient.shape), None, None


def rope_for_q(q: Tensor, cos: Tensor, sin: Tensor, *_: Any) -> Tensor:
    """``fused_apply_mla_rope_for_q``."""
    return _Queries.apply(q, cos, sin)


class _Keys(Function):
    @staticmethod
    def forward(
        ctx: Any, kv: Tensor, turned: Tensor, cos: Tensor, sin: Tensor, sizes: tuple[int, int, int]
    ) -> tuple[Tensor, Tensor]:
        tokens, batch, heads, _ = kv.shape
        part, k, v = sizes
        key = kv.new_empty(tokens * batch, heads, part + k)
        value = kv.new_empty(tokens * batch, heads, v)
        ctx.save_for_backward(cos, sin)
        ctx.sizes = sizes
        return key.view(tokens, batch, heads, -1), value.view(tokens, batch, heads, -1)

    @staticmethod
    def backward(ctx: Any, of_key: Tensor, of_value: Tensor) -> tuple[Tensor | None, ...]:
        tokens, batch, heads, _ = of_key.shape
        part, k, v = ctx.sizes
        of_kv = of_key.new_empty(tokens * batch, heads, k + v)
        of_part = of_key.new_empty(tokens * batch, 1, part)
        whole = of_kv.view(tokens, batch, heads, -1)
        return whole, of_part.view(tokens, batch, 1, -1), None, None, None


def rope_for_kv(
    kv: Tensor, turned: Tensor, cos: Tensor, sin: Tensor, part: int, k: int, v: int, *_: Any
) -> tuple[Tensor, Tensor]:
    """``fused_apply_mla_rope_for_kv``."""
    found: tuple[Tensor, Tensor] = _Keys.apply(kv, turned, cos, sin, (part, k, v))
    return found
