"""The model that the check trains, in plain PyTorch, with just the parameters of a catalog shape.

A GPT shape's layer is the one that the textbook's ledger counts, tensor for tensor: layer norm,
separate projections, scores kept whole, three dropouts, GELU. Tensors are laid out (s, b, h),
sequence first, as in the ledger: heads can then be split off without copying anything.
What other families have instead is in :mod:`.families`.
"""

# PyTorch is an extra: absent, its classes are Any to a type checker; present, many results are.
# mypy: allow-subclassing-any
# mypy: disable-error-code="import-not-found, no-any-return, no-untyped-call"

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ..blocks.ledger import Recompute
from ..model import Activation, Model, Norm, QkNorm
from .families import Experts, Heads, LatentHeads, rotary_table

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: lambda x: functional.gelu(x, approximate="tanh"),
    Activation.SILU: functional.silu,
    Activation.RELU: functional.relu,
}


def drop(x: Tensor, share: float) -> Tensor:
    """Dropout that keeps a mask of one byte an element, on a CPU as on a GPU."""
    # functional.dropout calls the same kernel on a GPU, but keeps a 16-bit mask on a CPU.
    return torch.native_dropout(x, share, True)[0] if share else x


def norm_of(model: Model, width: int) -> nn.Module:
    """The model's kind of normalisation over ``width`` features."""
    if model.norm is Norm.RMSNORM:
        return nn.RMSNorm(width, eps=1e-5)
    return nn.LayerNorm(width, bias=model.norm_bias)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float) -> Tensor:
    """The attention core, which selective recomputation runs twice.

    q and k are (s, b·a, head width), v (s, b·a, its width), as is what comes back; ``mask``
    (1, s, s) is 0 where a token may look and minus infinity where not.
    """
    q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    scale = 1 / math.sqrt(q.shape[-1])
    # One expression, so that nothing holds the scores once their softmax exists.
    weights = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=scale).softmax(-1)
    return torch.bmm(drop(weights, dropout), v).transpose(0, 1)


class Attention(nn.Module):
    """Causal self-attention with every score kept."""

    def __init__(self, model: Model, dropout: float, recompute: Recompute) -> None:
        super().__init__()
        norms = None if model.qk_norm is QkNorm.NONE else norm_of
        self.heads = LatentHeads(model, norm_of) if model.latent else Heads(model, norms)
        self.output = nn.Linear(model.context_width, model.hidden, bias=model.output_bias)
        self.dropout = dropout
        self.selective = recompute is Recompute.SELECTIVE

    def forward(self, x: Tensor, mask: Tensor, rotary: Tensor | None) -> Tensor:
        """What each token takes from those before it: (s, b, h) from (s, b, h)."""
        q, k, v = self.heads(x, rotary)
        if self.selective:
            context = checkpoint(attend, q, k, v, mask, self.dropout, use_reentrant=False)
        else:
            context = attend(q, k, v, mask, self.dropout)
        return self.output(context.reshape(*x.shape[:2], -1))


class Mlp(nn.Module):
    """A feed-forward layer, gated or not."""

    def __init__(self, model: Model, width: int) -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[model.activation]
        self.gate = nn.Linear(model.hidden, width, bias=model.mlp_bias) if model.gated else None
        self.up = nn.Linear(model.hidden, width, bias=model.mlp_bias)
        self.down = nn.Linear(width, model.hidden, bias=model.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """The same to every token: (s, b, h) from (s, b, h)."""
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """Attention and a feed-forward layer, each with its norms, dropout and residual."""

    def __init__(
        self, model: Model, dropout: float, recompute: Recompute, *, experts: bool
    ) -> None:
        super().__init__()
        both = model.norms_per_layer == 4
        before, after = both or not model.post_norm, both or model.post_norm
        none = nn.Identity
        self.attention_norm = norm_of(model, model.hidden) if before else none()
        self.attention = Attention(model, dropout, recompute)
        self.attention_output_norm = norm_of(model, model.hidden) if after else none()
        self.mlp_norm = norm_of(model, model.hidden) if before else none()
        self.mlp = Experts(model, Mlp) if experts else Mlp(model, model.ffn)
        self.mlp_output_norm = norm_of(model, model.hidden) if after else none()
        self.dropout = dropout

    def forward(self, x: Tensor, mask: Tensor, rotary: Tensor | None) -> Tensor:
        """The residual stream after the layer: (s, b, h) from (s, b, h)."""
        attended = self.attention(self.attention_norm(x), mask, rotary)
        x = x + drop(self.attention_output_norm(attended), self.dropout)
        return x + drop(self.mlp_output_norm(self.mlp(self.mlp_norm(x))), self.dropout)


class Network(nn.Module):
    """A decoder-only transformer of ``model``'s shape, for sequences of ``sequence`` tokens.

    Made on the current default device and in the current default dtype.
    """

    def __init__(self, model: Model, *, sequence: int, dropout: float, recompute: Recompute):
        super().__init__()
        self.embedding = nn.Embedding(model.vocabulary, model.hidden)
        self.positions = nn.Embedding(model.positions, model.hidden) if model.positions else None
        self.layers = nn.ModuleList(
            Layer(model, dropout, recompute, experts=kind == "expert")
            for kind, count in model.layer_kinds
            for _ in range(count)
        )
        self.norm = norm_of(model, model.hidden) if model.final_norm else nn.Identity()
        self.head = nn.Linear(model.hidden, model.vocabulary, bias=model.head_bias)
        if model.tied:
            self.head.weight = self.embedding.weight
        self.dropout = dropout
        self.full = recompute is Recompute.FULL
        mask = torch.full((1, sequence, sequence), -math.inf).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        rotary = None if model.positions else rotary_table(model, sequence)
        self.register_buffer("rotary", rotary, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits (s, b, V) of ``tokens`` (s, b)."""
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: len(tokens), None]
        x = drop(x, self.dropout)
        for layer in self.layers:
            if self.full:
                x = checkpoint(layer, x, self.mask, self.rotary, use_reentrant=False)
            else:
                x = layer(x, self.mask, self.rotary)
        return self.head(self.norm(x))
