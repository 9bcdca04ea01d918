"""The loss by chunks of tokens, where the logits are not to exist all at once."""

from __future__ import annotations

from typing import Any

from .backend import Tensor, functional, nn, torch
from .labels import IGNORED, shifted
from .recompute import run_again

CHUNK_TOKENS = 1024
"""How many tokens' logits the chunked loss holds at once."""


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
        for part, wanted in zip(rows.split(CHUNK_TOKENS), targets.split(CHUNK_TOKENS), strict=True):
            total = total + run_again(self._chunk, part, head, wanted)
        return total / (targets != IGNORED).sum()

    def _chunk(self, rows: Tensor, head: Any, targets: Tensor) -> Tensor:
        logits = capped(head(rows), self.cap).float()
        return functional.cross_entropy(logits, targets, reduction="sum")


def within(built: Any, loss: Any) -> None:
    """Have the model's own forward pass compute a loss, as Liger does: what is shared out sees it.

    The head's module is not called: the loss reads its weight.
    """

    def forward(input_ids: Tensor, labels: Tensor, **_: Any) -> dict[str, Tensor]:
        hidden = built.base_model(input_ids=input_ids)
        return {"loss": loss(hidden.last_hidden_state, built.get_output_embeddings(), labels)}

    built.forward = forward
