"""A plain Llama in the style of torchtitan's: PyTorch's own parts wherever it has one.

``nn.RMSNorm``, PyTorch's attention kernels with keys and values repeated for grouped queries,
rotary positions by complex numbers in 32 bits, SwiGLU in two operations. (torchtitan,
torchtitan/models/llama3, as of 2025.)
"""
# mypy: disable-error-code=misc

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from training_memory.model import Model

from .backend import Tensor, functional, nn, torch
from .recompute import call_again, keep_every_other_matmul, layer_function


def rotations(head_dim: int, positions: int) -> Tensor:
    """A complex number of length one for each position and pair of features."""
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float32)
    angles = torch.outer(torch.arange(positions).float(), 10_000.0 ** (-pairs / head_dim))
    return torch.polar(torch.ones_like(angles), angles)


def rotated(x: Tensor, by: Tensor) -> Tensor:
    """Each pair of a head's features turned by its position's angle, computed in 32 bits."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * by).flatten(3).type_as(x)


def repeated(x: Tensor, times: int) -> Tensor:
    """Each head of keys or values as often as query heads share it."""
    if times == 1:
        return x
    return x.unsqueeze(3).expand(-1, -1, -1, times, -1).flatten(2, 3)


class Attention(nn.Module):
    """Grouped-query causal attention; eager materialises the scores."""

    def __init__(self, model: Model, attention: str) -> None:
        super().__init__()
        self.head_dim = model.head_dim
        self.groups = model.heads // model.kv_heads
        self.eager, self.again = attention == "eager", False
        self.wq = nn.Linear(model.hidden, model.query_width, bias=False)
        self.wk = nn.Linear(model.hidden, model.kv_width, bias=False)
        self.wv = nn.Linear(model.hidden, model.kv_width, bias=False)
        self.wo = nn.Linear(model.query_width, model.hidden, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """What the heads see, projected back."""
        query, key, value = (
            projected.unflatten(-1, (-1, self.head_dim))
            for projected in (self.wq(x), self.wk(x), self.wv(x))
        )
        query, key = rotated(query, rotation), rotated(key, rotation)
        key, value = repeated(key, self.groups), repeated(value, self.groups)
        core = call_again(self.core) if self.again else self.core
        seen = core(*(part.transpose(1, 2) for part in (query, key, value)))
        return self.wo(seen.transpose(1, 2).contiguous().flatten(2))

    def core(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """From queries, keys and values to the weighted sum of the values."""
        if not self.eager:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        length = query.shape[2]
        scores = (query @ key.transpose(-1, -2)) * self.head_dim**-0.5
        future = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")).float(), dim=-1)
        return weights.type_as(query) @ value


class FeedForward(nn.Module):
    """SwiGLU: the gate's SiLU times the up projection, projected down."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.w1 = nn.Linear(model.hidden, model.ffn, bias=False)
        self.w2 = nn.Linear(model.ffn, model.hidden, bias=False)
        self.w3 = nn.Linear(model.hidden, model.ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output."""
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """Attention and the feed-forward layer, each after an RMSNorm and with a residual."""

    def __init__(self, model: Model, attention: str) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(model, attention), FeedForward(model)
        self.attention_norm = nn.RMSNorm(model.hidden, eps=1e-5)
        self.ffn_norm = nn.RMSNorm(model.hidden, eps=1e-5)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """The residual stream after this layer."""
        x = x + self.attention(self.attention_norm(x), rotation)
        return x + self.feed_forward(self.ffn_norm(x))


class Base(nn.Module):
    """Embedding, layers and the final norm: the last hidden states from tokens."""

    def __init__(self, model: Model, attention: str) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(model.vocabulary, model.hidden)
        self.layers = nn.ModuleList(Layer(model, attention) for _ in range(model.layers))
        self.norm = nn.RMSNorm(model.hidden, eps=1e-5)
        table = rotations(model.head_dim, model.context or 8192)
        self.register_buffer("rotations", table, persistent=False)
        self.recompute = "none"

    def forward(self, input_ids: Tensor) -> Tensor:
        """The last hidden states."""
        x = self.tok_embeddings(input_ids)
        rotation = self.rotations[None, : input_ids.shape[1], None]
        again = layer_function(self.recompute, keep_every_other_matmul)
        for layer in self.layers:
            x = again(layer, x, rotation) if again else layer(x, rotation)
        return self.norm(x)


class PlainLlama(nn.Module):
    """The whole model with its loss on 32-bit logits; labels are already each token's next."""

    def __init__(self, model: Model, attention: str) -> None:
        super().__init__()
        self.model = Base(model, attention)
        self.output = nn.Linear(model.hidden, model.vocabulary, bias=False)
        if model.tied:
            self.output.weight = self.model.tok_embeddings.weight

    @property
    def base_model(self) -> Any:
        """The part before the head."""
        return self.model

    def get_output_embeddings(self) -> Any:
        """The head."""
        return self.output

    def set_recompute(self, recompute: str) -> None:
        """What the backward pass computes again."""
        self.model.recompute = recompute
        for layer in self.model.layers:
            layer.attention.again = recompute == "selective"

    def forward(self, input_ids: Tensor, labels: Tensor) -> SimpleNamespace:
        """The mean loss and the logits."""
        logits = self.output(self.model(input_ids))
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))
        return SimpleNamespace(loss=loss, logits=logits)
