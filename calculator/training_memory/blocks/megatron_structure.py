"""What decides the order of a Megatron stage's events."""

from __future__ import annotations

from ..formula import Formula
from ..records import dataclass
from .megatron_experts import ExpertStructure
from .sizes import OWN_ROWS, OWN_TOKENS, ROWS, TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStructure:
    """What decides the order of a stage's events, apart from any size.

    ``split``: several GPUs share each layer; ``shares_tokens``: and the tokens between its products
    (sequence parallelism). ``context`` is how GPUs that share a sequence exchange what attention
    reads ("ring", "all-gather", "ulysses"), or "none". ``first`` and ``last``: the stage has the
    embedding, the head. ``grouped``: several query heads share a key head; ``normed``: each head's
    queries and keys are normalised. ``learned``: positions are looked up in a table; ``shifted``:
    norms are LayerNorms, with a mean and a bias; ``biased``: products have biases; ``gated``: the
    feed-forward layer has a gate; ``drops``: some of what goes into the residual stream is dropped.
    ``predicts``: how many layers after the last predict tokens further on. ``interleaves``: it is
    one of several parts on its stage. ``latent``: what attention has latents of: "none", "keys"
    (and values), "all" (queries too). ``experts``: what the layers have for a feed-forward layer,
    if a mixture. ``recompute`` is "none", "selective" (the attention core) or "full"; ``loss``
    "full" or "fused". ``style`` is whose code it is: "megatron" or "nanotron".
    """

    split: bool
    shares_tokens: bool
    first: bool
    last: bool
    tied: bool
    grouped: bool
    one_sequence: bool
    qkv_bias: bool
    recompute: str
    loss: str
    context: str = "none"
    style: str = "megatron"
    normed: bool = False
    learned: bool = False
    shifted: bool = False
    biased: bool = False
    gated: bool = True
    drops: bool = False
    predicts: int = 0
    interleaves: bool = False
    latent: str = "none"
    experts: ExpertStructure | None = None

    @property
    def together(self) -> bool:
        """Whether attention reads queries, keys and values where one product wrote them."""
        return self.learned and not self.grouped and not self.normed

    @property
    def own_tokens(self) -> Formula:
        """The residual stream on one GPU."""
        return OWN_TOKENS if self.shares_tokens else TOKENS

    @property
    def own_rows(self) -> Formula:
        """One number for each of the same tokens."""
        return OWN_ROWS if self.shares_tokens else ROWS
