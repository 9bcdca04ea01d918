"""What decides the order of a step's events, apart from any size: the key of a recording."""

from __future__ import annotations

from .records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """One way in which a step can run.

    Two runs with equal structures allocate and release the same tensors in the same order; only
    their sizes differ. ``weights`` is the dtype in which the model computes, or fp32 under
    ``autocast``; ``grouped`` says that several query heads share a key head, ``one_sequence`` that
    the micro-batch is one (then joining batch and heads copies nothing). ``recompute`` is "none",
    "selective" (the attention core), "full" or "matmuls" (all but matrix products by weights).
    """

    family: str
    weights: str
    autocast: bool
    attention: str
    recompute: str
    loss: str
    held_logits: bool
    main_gradients: bool
    accumulates: bool

    one_sequence: bool
    grouped: bool
    wide_heads: bool
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: str
    post_norm: bool
    four_norms: bool
    activation: str
    learned_positions: bool
