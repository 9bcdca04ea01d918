"""The GPT of Korthikanti et al. 2022 (arXiv:2205.05198, figure 2), in plain PyTorch.

Pre-LayerNorm, biases, one projection for queries, keys and values, three dropouts a layer, GELU in
one operation, a feed-forward width of its own, learned positions, the head tied to the embedding.
"""
# mypy: disable-error-code=misc

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from training_memory.model import Model

from .backend import Tensor, functional, nn, torch
from .labels import shifted
from .recompute import call_again, layer_function

DROPOUT = 0.1


class Attention(nn.Module):
    """Causal attention; eager materialises the scores, flash leaves them to PyTorch's kernel."""

    def __init__(self, model: Model, attention: str) -> None:
        super().__init__()
        self.heads, self.eager = model.heads, attention == "eager"
        self.again = False
        self.qkv = nn.Linear(model.hidden, 3 * model.hidden)
        self.projection = nn.Linear(model.hidden, model.hidden)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """What the heads see, projected back."""
        batch, sequence, hidden = x.shape
        split = (batch, sequence, self.heads, hidden // self.heads)
        query, key, value = (
            part.view(split).transpose(1, 2) for part in self.qkv(x).split(hidden, dim=2)
        )
        core = call_again(self.core) if self.again else self.core
        seen = core(query, key, value, mask)
        return self.projection(seen.transpose(1, 2).reshape(batch, sequence, hidden))

    def core(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Scores, softmax, dropout and the weighted sum of the values."""
        if not self.eager:
            return functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, dropout_p=DROPOUT
            )
        scores = (query @ key.transpose(-1, -2)) * (1 / math.sqrt(query.shape[-1]))
        return self.dropout(torch.softmax(scores + mask, dim=-1)) @ value


class Layer(nn.Module):
    """Attention and the feed-forward layer, each after a LayerNorm and with a residual."""

    def __init__(self, model: Model, attention: str) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(model.hidden), nn.LayerNorm(model.hidden)
        self.attention = Attention(model, attention)
        self.up, self.down = (
            nn.Linear(model.hidden, model.ffn),
            nn.Linear(model.ffn, model.hidden),
        )
        self.gelu = nn.GELU()
        self.dropout_1, self.dropout_2 = nn.Dropout(DROPOUT), nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The residual stream after this layer."""
        x = x + self.dropout_1(self.attention(self.norm_1(x), mask))
        return x + self.dropout_2(self.down(self.gelu(self.up(self.norm_2(x)))))


class Base(nn.Module):
    """Embeddings, layers and the final norm: the last hidden states from tokens."""

    def __init__(self, model: Model, attention: str) -> None:
        super().__init__()
        self.wte = nn.Embedding(model.vocabulary, model.hidden)
        self.wpe = nn.Embedding(model.positions, model.hidden)
        self.drop = nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList(Layer(model, attention) for _ in range(model.layers))
        self.ln_f = nn.LayerNorm(model.hidden)
        self.eager, self.recompute = attention == "eager", "none"

    def forward(self, input_ids: Tensor) -> Tensor:
        """The last hidden states."""
        length = input_ids.shape[1]
        x = self.drop(self.wte(input_ids) + self.wpe(torch.arange(length, device=input_ids.device)))
        mask = self._mask(length, x) if self.eager else None
        again = layer_function(self.recompute)
        for layer in self.layers:
            x = again(layer, x, mask) if again else layer(x, mask)
        return self.ln_f(x)

    @staticmethod
    def _mask(length: int, x: Tensor) -> Tensor:
        half = torch.is_autocast_enabled("cuda") or x.dtype == torch.bfloat16
        return torch.full(
            (1, 1, length, length),
            float("-inf"),
            dtype=torch.bfloat16 if half else x.dtype,
            device=x.device,
        ).triu(1)


class ClassicGpt(nn.Module):
    """The whole model with its loss on 32-bit logits."""

    def __init__(self, model: Model, attention: str) -> None:
        super().__init__()
        self.transformer = Base(model, attention)
        self.lm_head = nn.Linear(model.hidden, model.vocabulary, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    @property
    def base_model(self) -> Any:
        """The part before the head."""
        return self.transformer

    def get_output_embeddings(self) -> Any:
        """The head."""
        return self.lm_head

    def set_recompute(self, recompute: str) -> None:
        """What the backward pass computes again."""
        self.transformer.recompute = recompute
        for layer in self.transformer.layers:
            layer.attention.again = recompute == "selective"

    def forward(self, input_ids: Tensor, labels: Tensor) -> SimpleNamespace:
        """The mean loss and the logits."""
        logits = self.lm_head(self.transformer(input_ids))
        loss = functional.cross_entropy(logits.float().flatten(0, 1), shifted(labels))
        return SimpleNamespace(loss=loss, logits=logits)
