"""A model's norms and gates by one kernel each, where its own code has several operations.

RMSNorm becomes PyTorch's ``nn.RMSNorm``. Activation and gate become Liger's LigerSiLUMulFunction,
written again: it saves its two inputs and writes their gradients over them. Hsu et al. 2024, Liger
Kernel, arXiv:2410.10989, §3.2; src/liger_kernel/ops/swiglu.py and utils.py as of 2025.
"""
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from types import MethodType
from typing import Any

from .backend import Tensor, functional, nn, torch


@torch.library.custom_op("measure::gate", mutates_args=("output",))
def gate_kernel(gate: torch.Tensor, up: torch.Tensor, output: torch.Tensor) -> None:
    """silu(gate) · up, in 32 bits within."""
    output.copy_(functional.silu(gate.float()).to(up.dtype) * up)


@torch.library.custom_op("measure::gate_backward", mutates_args=("gate", "up"))
def gate_backward_kernel(gradient: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> None:
    """The gradients of both, in their place."""
    half = torch.sigmoid(gate.float())
    activated = gate.float() * half
    of_gate = gradient * (activated * (1 - half) + half) * up
    up.copy_(gradient * activated)
    gate.copy_(of_gate)


@gate_kernel.register_fake
def _(gate: Any, up: Any, output: Any) -> None:
    return None


@gate_backward_kernel.register_fake
def _(gradient: Any, gate: Any, up: Any) -> None:
    return None


class Gated(torch.autograd.Function):
    """silu(gate) · up; whatever is not contiguous is copied first."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """The product; keeps its two factors."""
        gate, up = gate.contiguous(), up.contiguous()
        output = torch.empty_like(up)
        gate_kernel(gate, up, output)
        ctx.save_for_backward(gate, up)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients, over what was kept."""
        gate, up = ctx.saved_tensors
        gate_backward_kernel(gradient.contiguous(), gate, up)
        return gate, up


def _separate(self: Any, x: Tensor) -> Tensor:
    return self.down_proj(Gated.apply(self.gate_proj(x), self.up_proj(x)))


def _joint(self: Any, x: Tensor) -> Tensor:
    both = self.gate_up_proj(x)
    gate, up = both.chunk(2, dim=-1)
    return self.down_proj(Gated.apply(gate, up))


def _plain(self: Any, x: Tensor) -> Tensor:
    return self.w2(Gated.apply(self.w1(x), self.w3(x)))


class WrittenOut(nn.Module):
    """RMSNorm in several operations, as torchtitan had it before PyTorch's was one kernel."""

    def __init__(self, weight: Any, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, x: Tensor) -> Tensor:
        """In 32 bits, back to the input's dtype, times the scale."""
        dtype = x.dtype
        x = x.float()
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)


def apply(built: Any, *, norm: str, mlp: str) -> None:
    """Exchange a model's norms, and the way of its feed-forward layers, where asked for."""
    for module in list(built.modules()):
        for name, child in list(module.named_children()):
            kind = type(child).__name__
            if norm == "fused" and kind.endswith("RMSNorm") and not isinstance(child, nn.RMSNorm):
                setattr(module, name, _one_kernel(child))
            if norm == "unfused" and isinstance(child, nn.RMSNorm):
                setattr(module, name, WrittenOut(child.weight, child.eps or 1e-6))
        if mlp == "fused":
            _fuse(module)


def _one_kernel(norm: Any) -> Any:
    made = nn.RMSNorm(norm.weight.shape, eps=1e-6)
    made.weight = norm.weight
    return made


def _fuse(module: Any) -> None:
    if hasattr(module, "gate_up_proj") and hasattr(module, "down_proj"):
        module.forward = MethodType(_joint, module)
    elif hasattr(module, "gate_proj") and hasattr(module, "down_proj"):
        module.forward = MethodType(_separate, module)
    elif type(module).__name__ == "FeedForward":
        module.forward = MethodType(_plain, module)
    elif type(module).__name__ == "GPT2MLP":
        # One of PyTorch's own kernels in place of NewGELUActivation's eight operations.
        module.act = nn.GELU(approximate="tanh")
