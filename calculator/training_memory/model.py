"""A model's shape: the numbers that its tensors' sizes follow from, each of them checked here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from .errors import InputError, InputErrors, nearest
from .parameters import Parameters, ParameterTensor, ledger, summed
from .records import dataclass
from .units import parse_count


class Norm(StrEnum):
    """Which normalisation: LayerNorm (a scale, usually a bias) or RMSNorm (a scale alone)."""

    LAYERNORM = "layernorm"
    RMSNORM = "rmsnorm"


class QkNorm(StrEnum):
    """How queries and keys are normalised: not at all, each head by itself, all heads together."""

    NONE = "none"
    HEAD = "head"
    FULL = "full"


class Activation(StrEnum):
    """The feed-forward layer's non-linearity; with ``gated`` it acts on the gate."""

    GELU = "gelu"
    GELU_TANH = "gelu-tanh"
    SILU = "silu"
    RELU = "relu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder-only transformer's shape.

    Counts are whole numbers: of layers, of features (``hidden``, ``ffn``, ``head_dim``), of heads,
    of rows (``vocabulary``, ``positions``), of experts. Text as people write it ("4,096", "4k",
    "true") is taken and stored as a number or flag. Raises :class:`InputError` for one field that
    cannot be, :class:`InputErrors` for several; each names its field, the value and what would do.
    """

    id: str = "custom"
    name: str = "Custom"
    family: str = "gpt"

    layers: int
    hidden: int
    heads: int
    # Heads of keys and values: fewer than `heads` is grouped-query attention, 1 multi-query.
    kv_heads: int
    # A head's width. Most models have hidden / heads; some (Gemma, Qwen3) chose another.
    head_dim: int
    # A dense layer's feed-forward width; in a layer of experts `expert_ffn` is used instead.
    ffn: int
    vocabulary: int
    # Rows of a learned position embedding; 0 where positions are rotary and cost no parameter.
    positions: int = 0

    gated: bool = False
    activation: str = Activation.GELU_TANH
    norm: Norm = Norm.LAYERNORM
    norm_bias: bool = True
    # 2, or 4 where what attention and the feed-forward layer give is normalised too (Gemma 2, 3).
    norms_per_layer: int = 2
    # Of two norms a layer: that they follow attention and the feed-forward layer (OLMo 2).
    post_norm: bool = False
    qk_norm: QkNorm = QkNorm.NONE
    final_norm: bool = True
    # The output head is the token embedding itself, so it holds no parameters of its own.
    tied: bool = True

    qkv_bias: bool = True
    output_bias: bool = True
    mlp_bias: bool = True
    head_bias: bool = False

    # Mixture of experts: 0 experts is a dense model.
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    shared_expert_ffn: int = 0
    # A learned gate, one number a token, on the shared expert's output (Qwen2 MoE).
    shared_expert_gate: bool = False
    # How many of the first layers have a dense feed-forward layer although the rest have experts.
    dense_layers: int = 0

    # Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): used where
    # kv_lora_rank > 0. A q_lora_rank of 0 projects the queries directly.
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0

    # The longest published sequence, in tokens; told to the reader, never computed with.
    context: int = 0
    # Where this shape is published.
    source: str = ""

    def __post_init__(self) -> None:
        errors: list[InputError] = []
        for field in _RULES:
            given = getattr(self, field)
            try:
                value = checked(field, given)
            except InputError as error:
                errors.append(error)
                continue
            if value is not given:
                object.__setattr__(self, field, value)
        # Relations between fields mean something only once each field is what it should be.
        raise_if_any(errors or _contradictions(self))

    @property
    def latent(self) -> bool:
        """Whether attention is multi-head latent attention."""
        return self.kv_lora_rank > 0

    @property
    def query_width(self) -> int:
        """Features of all heads' queries."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Features of all heads' keys (as many as of their values, but for latent attention)."""
        return self.kv_heads * self.head_dim

    @property
    def context_width(self) -> int:
        """Features of all heads' outputs, before the output projection."""
        return self.heads * (self.v_head_dim if self.latent else self.head_dim)

    @property
    def layer_kinds(self) -> tuple[tuple[str, int], ...]:
        """The layers from first to last as (kind, how many); kind is "dense" or "expert"."""
        dense = self.dense_layers if self.experts else self.layers
        kinds = (("dense", dense), ("expert", self.layers - dense))
        return tuple(kind for kind in kinds if kind[1])

    @property
    def head_parameters(self) -> int:
        """Parameters that the output head multiplies by, its own or the embedding's."""
        return self.vocabulary * self.hidden + (self.vocabulary if self.head_bias else 0)

    @property
    def parameters(self) -> Parameters:
        """The parameters by component, their sum, and how many one token uses."""
        return summed(self)

    def tensors(self) -> tuple[ParameterTensor, ...]:
        """The parameter ledger: a row for each tensor, in the order in which a token meets them."""
        return ledger(self)


def raise_if_any(errors: list[InputError]) -> None:
    """Raise the one error there is, or all of them together."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise InputErrors(errors)


def checked(field: str, value: object) -> int | bool | str:
    """``value`` as the named field holds it. Raises :class:`InputError`."""
    return _RULES[field](field, value)


def _count(least: int, most: int) -> Callable[[str, object], int]:
    def rule(field: str, value: object) -> int:
        if type(value) is int and least <= value <= most:
            return value
        return parse_count(field, value, least=least, most=most)

    return rule


def _flag(field: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise InputError(field, value, "allowed: true, false")


def _choice(kind: type[StrEnum]) -> Callable[[str, object], str]:
    def rule(field: str, value: object) -> str:
        try:
            return kind(value)  # type: ignore[arg-type]  # any other type of value raises as well
        except ValueError:
            raise InputError.unknown_name(field, value, [str(name) for name in kind]) from None

    return rule


def _text(field: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise InputError(field, value, "text")


# Upper limits are far above any model; they keep a slip of the finger from looking like an answer.
_WIDTH = 2**24
_ROWS = 2**30
_RULES: dict[str, Callable[[str, object], int | bool | str]] = {
    "id": _text,
    "name": _text,
    "family": _text,
    "layers": _count(1, 100_000),
    "hidden": _count(1, _WIDTH),
    "heads": _count(1, 2**16),
    "kv_heads": _count(1, 2**16),
    "head_dim": _count(1, _WIDTH),
    "ffn": _count(1, _WIDTH),
    "vocabulary": _count(1, _ROWS),
    "positions": _count(0, _ROWS),
    "gated": _flag,
    "activation": _choice(Activation),
    "norm": _choice(Norm),
    "norm_bias": _flag,
    "norms_per_layer": _count(2, 4),
    "post_norm": _flag,
    "qk_norm": _choice(QkNorm),
    "final_norm": _flag,
    "tied": _flag,
    "qkv_bias": _flag,
    "output_bias": _flag,
    "mlp_bias": _flag,
    "head_bias": _flag,
    "experts": _count(0, 2**16),
    "experts_per_token": _count(0, 2**16),
    "expert_ffn": _count(0, _WIDTH),
    "shared_experts": _count(0, 2**16),
    "shared_expert_ffn": _count(0, _WIDTH),
    "shared_expert_gate": _flag,
    "dense_layers": _count(0, 100_000),
    "q_lora_rank": _count(0, _WIDTH),
    "kv_lora_rank": _count(0, _WIDTH),
    "qk_nope_head_dim": _count(0, _WIDTH),
    "qk_rope_head_dim": _count(0, _WIDTH),
    "v_head_dim": _count(0, _WIDTH),
    "context": _count(0, _ROWS),
    "source": _text,
}
_NOT_SHAPE = ("id", "name", "family", "context", "source")

#: The fields that make up a shape: those a reader may change.
SHAPE_FIELDS = tuple(field for field in _RULES if field not in _NOT_SHAPE)


def unknown_field(field: str, value: object) -> InputError:
    """The error for a shape field that does not exist."""
    allowed = "a shape has no such field; its fields: " + ", ".join(SHAPE_FIELDS)
    return InputError(field, value, allowed, suggestion=nearest(field, SHAPE_FIELDS))


def _contradictions(model: Model) -> list[InputError]:
    """What one field forbids another, every field by itself being allowed."""
    relations = (*_norm_relations(model), *_expert_relations(model), *_attention_relations(model))
    return [
        InputError(field, getattr(model, field), allowed)
        for holds, field, allowed in relations
        if not holds
    ]


# A relation is whether it holds, the field to blame where it does not, and what would do instead.
_Relations = Iterator[tuple[bool, str, str]]


def _norm_relations(m: Model) -> _Relations:
    scale_only = m.norm is Norm.RMSNORM
    yield not (scale_only and m.norm_bias), "norm_bias", "false where norm is rmsnorm"
    yield m.norms_per_layer != 3, "norms_per_layer", "allowed: 2, 4"
    both = m.norms_per_layer == 4
    yield not (both and m.post_norm), "post_norm", "false where norms_per_layer is 4"


def _expert_relations(m: Model) -> _Relations:
    if not m.experts:
        without = "where experts is 0"
        yield not m.shared_experts, "shared_experts", f"0 {without}"
        yield not m.shared_expert_gate, "shared_expert_gate", f"false {without}"
        yield not m.dense_layers, "dense_layers", f"0 {without}"
        return
    chosen = 1 <= m.experts_per_token <= m.experts
    yield chosen, "experts_per_token", f"1 to experts ({m.experts})"
    yield m.expert_ffn >= 1, "expert_ffn", "1 or more where experts is not 0"
    yield m.dense_layers <= m.layers, "dense_layers", f"0 to layers ({m.layers})"
    if m.shared_experts:
        width = m.shared_expert_ffn >= 1
        yield width, "shared_expert_ffn", "1 or more where shared_experts is not 0"
    else:
        yield not m.shared_expert_gate, "shared_expert_gate", "false where shared_experts is 0"


def _attention_relations(m: Model) -> _Relations:
    if not m.latent:
        yield m.heads % m.kv_heads == 0, "kv_heads", f"a divisor of heads ({m.heads})"
        yield not m.q_lora_rank, "q_lora_rank", "0 where kv_lora_rank is 0"
        return
    latent = "where kv_lora_rank is not 0"
    parts = m.qk_nope_head_dim, m.qk_rope_head_dim
    for field in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        yield getattr(m, field) >= 1, field, f"1 or more {latent}"
    whole = f"qk_nope_head_dim + qk_rope_head_dim ({sum(parts)}) {latent}"
    yield m.head_dim == sum(parts) or 0 in parts, "head_dim", whole
    yield m.kv_heads == m.heads, "kv_heads", f"heads ({m.heads}) {latent}"
    yield m.qk_norm is QkNorm.NONE, "qk_norm", f"none {latent}"
    yield not m.qkv_bias, "qkv_bias", f"false {latent}"
