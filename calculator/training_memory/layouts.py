"""The parameter tensors that an implementation makes of a model, in the order in which it has them.

The catalog counts a model's parameters by what they are for. An implementation may fuse some of
them (one matrix for queries, keys and values), and the allocator rounds each tensor by itself, so
the bytes follow from these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod

from .implementations import family_of
from .model import Model
from .records import dataclass
from .tuning import Tuning, targeted

#: PyTorch's allocator hands out memory in units of this many bytes (kMinBlockSize in
#: c10/cuda/CUDACachingAllocator.h).
UNIT_BYTES = 512


def rounded(size_bytes: int) -> int:
    """What the allocator takes for a tensor of that size."""
    return -(-size_bytes // UNIT_BYTES) * UNIT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One tensor of parameters. ``vocabulary`` marks embeddings and the head."""

    name: str
    shape: tuple[int, ...]
    vocabulary: bool = False

    @property
    def numel(self) -> int:
        """How many parameters it holds."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A model's tensors: before the layers, in each of them, after them.

    ``transposed`` matrices have the features that go in first.
    """

    first: tuple[Weight, ...]
    layer: tuple[Weight, ...]
    last: tuple[Weight, ...]
    layers: int
    transposed: bool = False

    @property
    def tensors(self) -> int:
        """How many tensors there are."""
        return len(self.first) + self.layers * len(self.layer) + len(self.last)

    def count(self, wanted: Callable[[Weight], bool]) -> int:
        """How many tensors there are of a kind."""
        once = sum(map(wanted, (*self.first, *self.last)))
        return once + self.layers * sum(map(wanted, self.layer))

    def where(self, wanted: Callable[[Weight], bool]) -> Layout:
        """The tensors of a kind alone."""
        return Layout(
            first=tuple(filter(wanted, self.first)),
            layer=tuple(filter(wanted, self.layer)),
            last=tuple(filter(wanted, self.last)),
            layers=self.layers,
        )

    @property
    def parameters(self) -> int:
        """How many parameters they hold."""
        once = sum(weight.numel for weight in (*self.first, *self.last))
        return once + self.layers * sum(weight.numel for weight in self.layer)


@lru_cache(maxsize=64)
def layout_of(model: Model, implementation: str) -> Layout:
    """The layout of a model. Raises :class:`InputError` where the implementation has no such."""
    family = family_of(model, implementation)
    m = model
    table = Weight(name="embedding", shape=(m.vocabulary, m.hidden), vocabulary=True)
    head = Weight(name="head", shape=(m.vocabulary, m.hidden), vocabulary=True)
    placed = Weight(name="positions", shape=(m.positions, m.hidden), vocabulary=True)
    positioned = family in ("gpt2", "classic-gpt")
    last = _norm("final norm", m.hidden, bias=positioned)
    # In a classic GPT the head is always the embedding.
    own_head = not m.tied and family != "classic-gpt"
    return Layout(
        first=(table, placed) if positioned else (table,),
        layer=tuple(_LAYERS[family](model)),
        last=(*last, head) if own_head else last,
        layers=m.layers,
        transposed=family == "gpt2",
    )


def bytes_of(layout: Layout, item_bytes: int) -> int:
    """The bytes of every tensor at so many a number."""
    sizes = {
        where: sum(rounded(weight.numel * item_bytes) for weight in getattr(layout, where))
        for where in ("first", "layer", "last")
    }
    return sizes["first"] + layout.layers * sizes["layer"] + sizes["last"]


def trained(layout: Layout, tuning: Tuning) -> Layout:
    """The tensors that are trained: all, or two matrices beside each product with an adapter."""
    if tuning.trains_all:
        return layout
    adapters = (
        one
        for weight in layout.layer
        if targeted(weight.name, tuning.adapter_targets)
        for one in adapter_of(weight, tuning.adapter_rank, transposed=layout.transposed)
    )
    return Layout(first=(), layer=tuple(adapters), last=(), layers=layout.layers)


def adapter_of(weight: Weight, rank: int, *, transposed: bool) -> tuple[Weight, Weight]:
    """PEFT's lora_A and lora_B beside a weight."""
    into, out = weight.shape if transposed else reversed(weight.shape)
    return (
        Weight(name=f"{weight.name}'s adapter, down", shape=(rank, into)),
        Weight(name=f"{weight.name}'s adapter, up", shape=(out, rank)),
    )


def _norm(name: str, width: int, *, bias: bool = False) -> tuple[Weight, ...]:
    scale = Weight(name=name, shape=(width,))
    return (scale, Weight(name=f"{name} bias", shape=(width,))) if bias else (scale,)


def _matrix(name: str, *shape: int, bias: int = 0) -> tuple[Weight, ...]:
    """A matrix, and its bias of so many features, if any."""
    matrix = Weight(name=name, shape=shape)
    return (matrix, Weight(name=f"{name} bias", shape=(bias,))) if bias else (matrix,)


def _llama(m: Model) -> tuple[Weight, ...]:
    """Hugging Face's Llama and its siblings."""
    return (
        *_projections(m),
        *_norms_of_heads(m),
        *(_mixture(m) if m.experts else _gated(m)),
        *_norm("attention norm", m.hidden),
        *_norm("mlp norm", m.hidden),
    )


def _projections(m: Model) -> tuple[Weight, ...]:
    biased = m.qkv_bias
    return (
        *_matrix("query", m.query_width, m.hidden, bias=m.query_width * biased),
        *_matrix("key", m.kv_width, m.hidden, bias=m.kv_width * biased),
        *_matrix("value", m.kv_width, m.hidden, bias=m.kv_width * biased),
        *_matrix("attention output", m.hidden, m.query_width, bias=m.hidden * m.output_bias),
    )


def _norms_of_heads(m: Model) -> tuple[Weight, ...]:
    if m.qk_norm == "head":
        return (*_norm("query norm", m.head_dim), *_norm("key norm", m.head_dim))
    if m.qk_norm == "full":
        return (*_norm("query norm", m.query_width), *_norm("key norm", m.kv_width))
    return ()


def _gated(m: Model) -> tuple[Weight, ...]:
    biased = m.mlp_bias
    return (
        *_matrix("gate", m.ffn, m.hidden, bias=m.ffn * biased),
        *_matrix("up", m.ffn, m.hidden, bias=m.ffn * biased),
        *_matrix("down", m.hidden, m.ffn, bias=m.hidden * biased),
    )


def _mixture(m: Model) -> tuple[Weight, ...]:
    return (
        *_matrix("router", m.experts, m.hidden),
        *_matrix("experts' gate and up", m.experts, 2 * m.expert_ffn, m.hidden),
        *_matrix("experts' down", m.experts, m.hidden, m.expert_ffn),
    )


def _gemma(m: Model) -> tuple[Weight, ...]:
    """Hugging Face's Gemma 2 and 3: four norms."""
    names = ("attention norm", "attention output norm", "mlp norm", "mlp output norm")
    norms = (one for name in names for one in _norm(name, m.hidden))
    return (*_projections(m), *_norms_of_heads(m), *_gated(m), *norms)


def _phi3(m: Model) -> tuple[Weight, ...]:
    """Hugging Face's Phi-3: fused projections."""
    return (
        *_matrix("attention output", m.hidden, m.query_width),
        *_matrix("query, key and value", m.query_width + 2 * m.kv_width, m.hidden),
        *_matrix("gate and up", 2 * m.ffn, m.hidden),
        *_matrix("down", m.hidden, m.ffn),
        *_norm("attention norm", m.hidden),
        *_norm("mlp norm", m.hidden),
    )


def _gpt2(m: Model) -> tuple[Weight, ...]:
    """Hugging Face's GPT-2: one projection for queries, keys and values, matrices the other way."""
    h = m.hidden
    return (
        *_norm("attention norm", h, bias=True),
        *_matrix("query, key and value", h, 3 * h, bias=3 * h),
        *_matrix("attention output", h, h, bias=h),
        *_norm("mlp norm", h, bias=True),
        *_matrix("up", h, m.ffn, bias=m.ffn),
        *_matrix("down", m.ffn, h, bias=h),
    )


def _classic_gpt(m: Model) -> tuple[Weight, ...]:
    h = m.hidden
    return (
        *_norm("attention norm", h, bias=True),
        *_norm("mlp norm", h, bias=True),
        *_matrix("query, key and value", 3 * h, h, bias=3 * h),
        *_matrix("attention output", h, h, bias=h),
        *_matrix("up", m.ffn, h, bias=m.ffn),
        *_matrix("down", h, m.ffn, bias=h),
    )


def _plain_llama(m: Model) -> tuple[Weight, ...]:
    return (
        *_matrix("query", m.query_width, m.hidden),
        *_matrix("key", m.kv_width, m.hidden),
        *_matrix("value", m.kv_width, m.hidden),
        *_matrix("attention output", m.hidden, m.query_width),
        *_matrix("gate", m.ffn, m.hidden),
        *_matrix("down", m.hidden, m.ffn),
        *_matrix("up", m.ffn, m.hidden),
        *_norm("attention norm", m.hidden),
        *_norm("mlp norm", m.hidden),
    )


_LAYERS = {
    "llama": _llama,
    "olmo2": _llama,
    "gemma2": _gemma,
    "gemma3": _gemma,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "classic-gpt": _classic_gpt,
    "plain-llama": _plain_llama,
}


def buffers_of(model: Model, implementation: str) -> tuple[tuple[str, int], ...]:
    """What a model holds beside its parameters: (name, bytes) of every tensor."""
    family = family_of(model, implementation)
    if family in ("gpt2", "classic-gpt"):
        return ()
    if family == "plain-llama":
        # A complex number for each position of the longest sequence and pair of features.
        positions = model.context or DEFAULT_POSITIONS
        return (("rotations", positions * (model.head_dim // 2) * 8),)
    # The inverse frequencies and a second copy of them, for each kind of layer in Gemma 3.
    kinds = 2 if family == "gemma3" and model.layers >= GEMMA3_PERIOD else 1
    frequencies = (("inverse frequencies", model.head_dim // 2 * 4),) * (2 * kinds)
    if family in ("gemma2", "gemma3"):
        return (*frequencies, ("embedding scale", 4))
    return frequencies


#: The positions of a model whose longest sequence is not known.
DEFAULT_POSITIONS = 8192
#: Of so many layers of Gemma 3 the last looks at all tokens.
GEMMA3_PERIOD = 6
