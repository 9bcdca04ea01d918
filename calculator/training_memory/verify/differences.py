"""Where a run and its prediction must part: what is known beforehand, with its size."""

from __future__ import annotations

from collections.abc import Iterator

from ..blocks.ledger import Recompute
from ..blocks.paper import LAYER
from ..categories import Category
from ..model import Model, Norm, QkNorm
from ..records import dataclass
from ..run import Run
from ..step import values
from .plan import dropout_of


def departures(model: Model) -> tuple[str, ...]:
    """How the model that is run differs from the layer that the textbook counts; none for GPT's."""
    return tuple(_departures(model))


def _departures(model: Model) -> Iterator[str]:
    if model.norm is Norm.RMSNORM:
        yield "RMSNorm instead of layer norm"
    if model.norms_per_layer == 4:
        yield "norms after attention and the feed-forward layer as well"
    elif model.post_norm:
        yield "norms after attention and the feed-forward layer instead of before"
    if model.qk_norm is not QkNorm.NONE:
        yield "norms on queries and keys"
    if not model.positions:
        yield "rotary positions, which keep turned copies of queries and keys"
    if model.latent:
        yield "latent attention, with its compressed queries, keys and values"
    elif model.kv_heads != model.heads:
        yield f"{model.kv_heads:,} key-value heads, repeated for {model.heads:,} query heads"
    if model.experts:
        yield (
            f"{model.experts:,} experts, {model.experts_per_token:,} for each token, "
            "as the untrained router chooses"
        )
    if model.gated:
        yield "a gated feed-forward layer, which keeps gate, activation, up and their product"
    elif model.ffn != 4 * model.hidden:
        yield f"a feed-forward layer of {model.ffn:,} features instead of {4 * model.hidden:,}"
    if not dropout_of(model):
        yield "no dropout, so no masks and no dropped-out copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One known difference: ``bytes`` more in the run than in the prediction (fewer if < 0)."""

    what: str
    bytes: int


def known(run: Run) -> tuple[Known, ...]:
    """What sets a GPT's run apart from its prediction, largest first; :func:`departures` add more.

    After the forward pass this is all: the tests hold PyTorch to it, byte by byte.
    """
    found = [*_around_the_layers(run), *_in_the_layers(run), *_in_the_states(run)]
    return tuple(sorted(found, key=lambda one: -abs(one.bytes)))


def _around_the_layers(run: Run) -> Iterator[Known]:
    model, tokens = run.model, run.sequence * run.micro_batch
    yield Known(
        what="after the forward pass: the 16-bit logits have gone, which the textbook holds "
        "until the backward pass has begun",
        bytes=-2 * tokens * model.vocabulary,
    )
    yield Known(
        what="as the backward pass begins: the head's gradient is written when the 32-bit logits "
        "have gone; the textbook holds both",
        bytes=-run.recipe.by_category[Category.GRADIENTS] * model.head_parameters,
    )
    yield Known(
        what="until the backward pass reaches them: the embedding's dropout mask and the inputs "
        "of the final norm and of the head",
        bytes=end_bytes(run),
    )
    yield Known(
        what="always: the causal mask, and the tokens with those to predict",
        bytes=2 * run.sequence**2 + 2 * 8 * tokens,
    )


def end_bytes(run: Run) -> int:
    """What is kept between embedding and first layer, and between last layer and logits."""
    model, tokens = run.model, run.sequence * run.micro_batch
    mask = 1 if dropout_of(model) else 0
    return tokens * model.hidden * (mask + 2 * model.final_norm + 2)


def norm_bytes(run: Run) -> int:
    """Means and inverse deviations of the layer norms that outlive the forward pass, in 32-bit."""
    model, tokens = run.model, run.sequence * run.micro_batch
    if model.norm is Norm.RMSNORM:
        return 0
    in_layers = 0 if run.recompute is Recompute.FULL else model.norms_per_layer * model.layers
    return (in_layers + model.final_norm) * 2 * 4 * tokens


def _in_the_layers(run: Run) -> Iterator[Known]:
    if size := norm_bytes(run):
        yield Known(
            what="until the backward pass reaches them: means and inverse deviations of the layer "
            "norms, in 32-bit",
            bytes=size,
        )
    if run.recompute is not Recompute.NONE:
        kept = LAYER.kept_bytes(run.recompute).evaluate(values(run))
        yield Known(
            what="while a layer is made again: what was kept of it is not made twice; the "
            "textbook counts it on top",
            bytes=-kept,
        )


def _in_the_states(run: Run) -> Iterator[Known]:
    model = run.model
    yield Known(
        what="in the optimizer's step: a 32-bit copy of the largest gradient",
        bytes=4 * max(tensor.count_each for tensor in model.tensors() if not tensor.expert),
    )
    if model.tied:
        yield Known(
            what="as the backward pass ends: the embedding's own gradient, before it joins the "
            "head's",
            bytes=run.recipe.by_category[Category.GRADIENTS] * model.vocabulary * model.hidden,
        )
