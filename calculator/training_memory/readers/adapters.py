"""Adapters as PEFT's users write them: what is beside which weights, and how the rest is kept."""

from __future__ import annotations

from ..errors import InputError
from .table import Row, Taken, choice, count, is_on, taken, word_of

_QUERY_VALUE = frozenset({"q_proj", "v_proj"})
_LINEAR = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
_OWN = (
    "products of one's own choice are not modelled: queries and values, or all of a layer's; "
    "{} were counted"
)
_EIGHT = "weights of 8 bits are not modelled; they were counted in 16"


def rank(key: str, *spellings: str, usual: int | None = None) -> Row:
    """The rank of the adapters."""
    return count(key, "adapter_rank", *spellings, usual=usual)


def targets(key: str, *spellings: str, usual: str | None = None) -> Row:
    """The products that have adapters, by name; ``all`` are a layer's."""

    @taken(key, ("adapter_targets",), *spellings, usual=usual)
    def row(name: str, value: object) -> Taken:
        given = value if isinstance(value, list) else str(value).replace(",", " ").split()
        return of_names(name, {word_of(word) for word in given})

    return row


def of_names(name: str, words: set[str]) -> Taken:
    """What a set of products' names comes to."""
    if not words:
        raise InputError(name, None, "names of products are needed, such as q_proj, or all-linear")
    if words & {"all", "all-linear"} or words == _LINEAR:
        return Taken(settings={"adapter_targets": "all-linear"})
    if words in (_QUERY_VALUE, {"c_attn"}):
        return Taken(settings={"adapter_targets": "query-value"})
    means = "query-value" if words < _QUERY_VALUE else "all-linear"
    return Taken(settings={"adapter_targets": means}, lost=_OWN.format(means))


def dropout(key: str) -> Row:
    """A share of the adapters' inputs that is dropped."""

    @taken(key, ("adapter_dropout",))
    def row(name: str, value: object) -> Taken:
        try:
            return Taken(settings={"adapter_dropout": float(str(value)) > 0})
        except ValueError:
            raise InputError(name, value, "a number is needed, such as 0.05, or 0") from None

    return row


def bits(key: str, number: int) -> Row:
    """Whether frozen weights are held in so many bits."""

    @taken(key, ("base_bits",))
    def row(name: str, value: object) -> Taken:
        if not is_on(name, value):
            return Taken(settings={})
        return Taken(settings={"base_bits": number}, lost=_EIGHT if number == 8 else "")

    return row


#: bitsandbytes' tensors of 4-bit codes; those of 16-bit numbers are all of one size.
storage = choice(
    "bnb_4bit_quant_storage",
    {
        "bfloat16": {"quant_storage": "bf16"},
        "float16": {"quant_storage": "bf16"},
        "uint8": {"quant_storage": "uint8"},
    },
    unknown="4-bit weights stored in this dtype are not modelled; bfloat16 was counted",
)


@taken("quantization_bit", ("base_bits",))
def quantization(name: str, value: object) -> Taken:
    """Bits of a frozen weight, as a number."""
    word = word_of(value)
    if word not in ("4", "8"):
        return Taken(settings={}, lost="weights of so few bits are not modelled; counted in 16")
    return Taken(settings={"base_bits": int(word)}, lost=_EIGHT if word == "8" else "")
