"""Which token each token is to predict."""

from __future__ import annotations

from .backend import Tensor, functional

IGNORED = -100
"""The target of a token that has none, as PyTorch's losses take it."""


def shifted(labels: Tensor) -> Tensor:
    """Each token's target, the next token, in one row; the last of a sequence has none."""
    return functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].reshape(-1)
