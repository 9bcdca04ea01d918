"""What model families have where the textbook has GPT's: rotary positions, shared heads, experts.

Each is written the plain way, without fused kernels. What a shape's numbers do not hold (sliding
windows, soft caps, positions that turn a part of each head, layers whose halves run side by side)
is left out.
"""

# PyTorch is an extra: absent, its classes are Any to a type checker; present, many results are.
# mypy: allow-subclassing-any
# mypy: disable-error-code="import-not-found, no-any-return, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..model import Model, QkNorm

MakeNorm = Callable[[Model, int], nn.Module]


def rotary_table(model: Model, sequence: int) -> Tensor:
    """Cosines and sines of rotary positions: (2, s, 1, 1, head width), Su et al. 2021, §3.2."""
    width = model.qk_rope_head_dim if model.latent else model.head_dim
    # On the CPU in 32-bit, whatever the defaults: positions in the thousands need the digits.
    rates = 10_000 ** -(_count_to(width, by=2) / width)
    angles = torch.outer(_count_to(sequence), rates).repeat(1, 2)
    table = torch.stack([angles.cos(), angles.sin()])[:, :, None, None]
    return table.to(dtype=torch.get_default_dtype(), device=torch.get_default_device())


def _count_to(end: int, *, by: int = 1) -> Tensor:
    return torch.arange(0, end, by, dtype=torch.float32, device="cpu")


def rotated(x: Tensor, table: Tensor) -> Tensor:
    """``x`` (s, b, a, head width) turned by its positions."""
    first, second = x.chunk(2, -1)
    return x * table[0] + torch.cat([-second, first], -1) * table[1]


class Heads(nn.Module):
    """Queries, keys and values, each (s, b·a, head width), for any number of key-value heads."""

    def __init__(self, model: Model, norm: MakeNorm | None) -> None:
        super().__init__()
        self.head_dim = model.head_dim
        self.shared_by = model.heads // model.kv_heads
        self.query = nn.Linear(model.hidden, model.query_width, bias=model.qkv_bias)
        self.key = nn.Linear(model.hidden, model.kv_width, bias=model.qkv_bias)
        self.value = nn.Linear(model.hidden, model.kv_width, bias=model.qkv_bias)
        self.norm_whole = model.qk_norm is QkNorm.FULL
        widths = (model.query_width, model.kv_width) if self.norm_whole else (model.head_dim,) * 2
        self.query_norm, self.key_norm = (
            norm(model, width) if norm else nn.Identity() for width in widths
        )

    def forward(self, x: Tensor, rotary: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of ``x`` (s, b, h)."""
        q = self._positioned(self.query(x), self.query_norm, rotary)
        k = self._positioned(self.key(x), self.key_norm, rotary)
        v = self._split(self.value(x))
        if self.shared_by > 1:
            k, v = (t.repeat_interleave(self.shared_by, dim=2) for t in (k, v))
        # Merging b and a is free in this layout; in (b, s, h) it would copy all three.
        return q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))

    def _positioned(self, x: Tensor, norm: nn.Module, rotary: Tensor | None) -> Tensor:
        x = self._split(norm(x)) if self.norm_whole else norm(self._split(x))
        return x if rotary is None else rotated(x, rotary)


class LatentHeads(nn.Module):
    """The same by multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, §2.1.2)."""

    def __init__(self, model: Model, norm: MakeNorm) -> None:
        super().__init__()
        self.heads = model.heads
        self.nope, self.rope = model.qk_nope_head_dim, model.qk_rope_head_dim
        self.latent, value = model.kv_lora_rank, model.v_head_dim
        bias = model.qkv_bias
        rank = model.q_lora_rank
        self.query_latent = (
            nn.Sequential(nn.Linear(model.hidden, rank, bias=bias), norm(model, rank))
            if rank
            else nn.Identity()
        )
        self.query = nn.Linear(rank or model.hidden, model.query_width, bias=bias)
        self.key_value_latent = nn.Linear(model.hidden, self.latent + self.rope, bias=bias)
        self.key_value_norm = norm(model, self.latent)
        self.key_value = nn.Linear(self.latent, model.heads * (self.nope + value), bias=bias)

    def forward(self, x: Tensor, rotary: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of ``x`` (s, b, h)."""
        q = self.query(self.query_latent(x)).unflatten(-1, (self.heads, -1))
        latent, k_rope = self.key_value_latent(x).split([self.latent, self.rope], -1)
        pairs = self.key_value(self.key_value_norm(latent)).unflatten(-1, (self.heads, -1))
        k_nope, v = pairs.split([self.nope, pairs.shape[-1] - self.nope], -1)
        q_nope, q_rope = q.split([self.nope, self.rope], -1)
        k_rope = k_rope[:, :, None]  # one for all heads
        if rotary is not None:
            q_rope, k_rope = rotated(q_rope, rotary), rotated(k_rope, rotary)
        q = torch.cat([q_nope, q_rope], -1)
        k = torch.cat([k_nope, k_rope.expand(-1, -1, self.heads, -1)], -1)
        return q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2)


class Experts(nn.Module):
    """A mixture of experts: each token goes to the few that the router rates highest."""

    def __init__(self, model: Model, mlp: Callable[[Model, int], nn.Module]) -> None:
        super().__init__()
        self.chosen = model.experts_per_token
        self.router = nn.Linear(model.hidden, model.experts, bias=False)
        self.experts = nn.ModuleList(mlp(model, model.expert_ffn) for _ in range(model.experts))
        shared = model.shared_experts * model.shared_expert_ffn
        self.shared = mlp(model, shared) if shared else None
        self.gate = nn.Linear(model.hidden, 1, bias=False) if model.shared_expert_gate else None

    def forward(self, x: Tensor) -> Tensor:
        """The chosen experts' answers, weighted, and the shared experts': (s, b, h)."""
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            mixed = mixed.index_add(0, rows, expert(tokens[rows]) * weights[rows, place, None])
        if self.shared is not None:
            shared = self.shared(tokens)
            mixed = mixed + (shared if self.gate is None else self.gate(tokens).sigmoid() * shared)
        return mixed.view_as(x)
