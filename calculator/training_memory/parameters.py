"""The parameter ledger: a row for each tensor of a model, and the sums of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from math import prod

from .records import dataclass

# typing.TYPE_CHECKING would import typing; every type checker knows the bare name as well.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .model import Model

#: The components, in the order in which they are shown.
COMPONENTS = ("embedding", "positions", "attention", "mlp", "router", "norms", "head")


class Split(StrEnum):
    """What tensor parallelism of degree t divides (Megatron-LM, arXiv:1909.08053, section 3)."""

    COLUMN = "column"  # the output features, by t
    ROW = "row"  # the input features, by t
    VOCABULARY = "vocabulary"  # the vocabulary's rows, by t
    KV = "kv"  # the key and value heads, by t but into no more parts than there are heads
    REPLICATED = "replicated"  # nothing: every rank holds the whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterTensor:
    """One tensor of parameters, or one in each of ``repeats`` layers.

    ``shape`` is (output features, input features) for a matrix and (experts, output, input) for
    the experts of a layer. ``where`` is "first" (before the layers), "layer" or "last" (after
    them); ``kind`` says which layers have it: "dense", "expert", or "" for all. ``expert`` marks
    the routed experts, which expert parallelism divides.
    """

    component: str
    name: str
    shape: tuple[int, ...]
    where: str = "layer"
    repeats: int = 1
    split: Split = Split.REPLICATED
    expert: bool = False
    kind: str = ""

    @property
    def count_each(self) -> int:
        """Parameters of one of its repeats."""
        return prod(self.shape)

    @property
    def count(self) -> int:
        """Parameters of all its repeats."""
        return prod(self.shape) * self.repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How many parameters a model has.

    ``by_component`` follows the order of ``COMPONENTS``, ``total`` is its sum, and ``active`` how
    many of them one token passes through: all but the routed experts not chosen for it.
    """

    by_component: dict[str, int]
    total: int
    active: int


@lru_cache(maxsize=256)
def summed(model: Model) -> Parameters:
    """The sums of the ledger's rows."""
    by_component = dict.fromkeys(COMPONENTS, 0)
    idle = 0
    for tensor in ledger(model):
        by_component[tensor.component] += tensor.count
        if tensor.expert:
            idle += tensor.count // model.experts * (model.experts - model.experts_per_token)
    total = sum(by_component.values())
    return Parameters(by_component=by_component, total=total, active=total - idle)


@lru_cache(maxsize=256)
def ledger(model: Model) -> tuple[ParameterTensor, ...]:
    """Every tensor of parameters of ``model``, in the order in which a token meets them."""
    return (
        *_before_layers(model),
        *_attention(model),
        *_feed_forward(model),
        *_norms(model),
        *_after_layers(model),
    )


def _before_layers(m: Model) -> Iterator[ParameterTensor]:
    yield ParameterTensor(
        component="embedding",
        name="token embedding",
        shape=(m.vocabulary, m.hidden),
        where="first",
        split=Split.VOCABULARY,
    )
    if m.positions:
        yield ParameterTensor(
            component="positions",
            name="position embedding",
            shape=(m.positions, m.hidden),
            where="first",
        )


def _attention(m: Model) -> Iterator[ParameterTensor]:
    projections = _latent_projections(m) if m.latent else _projections(m)
    for name, out, into, split in projections:
        row = split is Split.ROW
        yield ParameterTensor(
            component="attention", name=name, shape=(out, into), repeats=m.layers, split=split
        )
        if m.output_bias if row else m.qkv_bias:
            # A row-split product is summed over ranks before its bias is added, once, whole.
            yield ParameterTensor(
                component="attention",
                name=f"{name} bias",
                shape=(out,),
                repeats=m.layers,
                split=Split.REPLICATED if row else split,
            )


def _projections(m: Model) -> Iterator[tuple[str, int, int, Split]]:
    """(name, output features, input features, split) of ordinary and grouped-query attention."""
    yield "query", m.query_width, m.hidden, Split.COLUMN
    yield "key", m.kv_width, m.hidden, Split.KV
    yield "value", m.kv_width, m.hidden, Split.KV
    yield "attention output", m.hidden, m.context_width, Split.ROW


def _latent_projections(m: Model) -> Iterator[tuple[str, int, int, Split]]:
    """The same of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1.2).

    Down to the latents is computed whole on every rank; up from them is divided by heads.
    """
    if m.q_lora_rank:
        yield "query latent", m.q_lora_rank, m.hidden, Split.REPLICATED
    yield "query", m.query_width, m.q_lora_rank or m.hidden, Split.COLUMN
    rope = m.qk_rope_head_dim
    yield "key-value latent", m.kv_lora_rank + rope, m.hidden, Split.REPLICATED
    up = m.heads * (m.qk_nope_head_dim + m.v_head_dim)
    yield "key and value", up, m.kv_lora_rank, Split.COLUMN
    yield "attention output", m.hidden, m.context_width, Split.ROW


def _feed_forward(m: Model) -> Iterator[ParameterTensor]:
    for kind, layers in m.layer_kinds:
        if kind == "dense":
            yield from _mlp(m, "", m.ffn, layers, kind)
            continue
        yield ParameterTensor(
            component="router",
            name="router",
            shape=(m.experts, m.hidden),
            repeats=layers,
            kind=kind,
        )
        yield from _mlp(m, "expert ", m.expert_ffn, layers, kind, experts=m.experts)
        if m.shared_experts:
            # Several shared experts are one feed-forward layer as wide as all of them together.
            width = m.shared_experts * m.shared_expert_ffn
            yield from _mlp(m, "shared expert ", width, layers, kind)
        if m.shared_expert_gate:
            yield ParameterTensor(
                component="router",
                name="shared expert router",
                shape=(1, m.hidden),
                repeats=layers,
                kind=kind,
            )


def _mlp(
    m: Model, prefix: str, width: int, layers: int, kind: str, experts: int = 0
) -> Iterator[ParameterTensor]:
    matrices = [("up", width, m.hidden, Split.COLUMN), ("down", m.hidden, width, Split.ROW)]
    if m.gated:
        matrices.insert(0, ("gate", width, m.hidden, Split.COLUMN))
    leading = (experts,) if experts else ()
    for name, out, into, split in matrices:
        row = split is Split.ROW
        shapes = [(name, (*leading, out, into), split)]
        if m.mlp_bias:
            shapes.append((f"{name} bias", (*leading, out), Split.REPLICATED if row else split))
        for tensor_name, shape, tensor_split in shapes:
            yield ParameterTensor(
                component="mlp",
                name=prefix + tensor_name,
                shape=shape,
                repeats=layers,
                split=tensor_split,
                expert=bool(experts),
                kind=kind,
            )


def _norms(m: Model) -> Iterator[ParameterTensor]:
    names = ["attention norm", "mlp norm"]
    if m.norms_per_layer == 4:
        names = ["attention norm", "attention output norm", "mlp norm", "mlp output norm"]
    for name in names:
        yield from _norm(m, name, m.hidden, "layer", m.layers)
    if m.qk_norm == "head":
        yield from _norm(m, "query norm", m.head_dim, "layer", m.layers)
        yield from _norm(m, "key norm", m.head_dim, "layer", m.layers)
    elif m.qk_norm == "full":
        yield from _norm(m, "query norm", m.query_width, "layer", m.layers)
        yield from _norm(m, "key norm", m.kv_width, "layer", m.layers)
    if m.latent:
        if m.q_lora_rank:
            yield from _norm(m, "query latent norm", m.q_lora_rank, "layer", m.layers)
        yield from _norm(m, "key-value latent norm", m.kv_lora_rank, "layer", m.layers)
    if m.final_norm:
        yield from _norm(m, "final norm", m.hidden, "last", 1)


def _norm(m: Model, name: str, width: int, where: str, repeats: int) -> Iterator[ParameterTensor]:
    for suffix in ("", " bias") if m.norm_bias else ("",):
        yield ParameterTensor(
            component="norms", name=name + suffix, shape=(width,), where=where, repeats=repeats
        )


def _after_layers(m: Model) -> Iterator[ParameterTensor]:
    if not m.tied:
        yield ParameterTensor(
            component="head",
            name="head",
            shape=(m.vocabulary, m.hidden),
            where="last",
            split=Split.VOCABULARY,
        )
    if m.head_bias:
        yield ParameterTensor(
            component="head",
            name="head bias",
            shape=(m.vocabulary,),
            where="last",
            split=Split.VOCABULARY,
        )
