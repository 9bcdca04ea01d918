"""What of a model is trained: every weight, or adapters beside weights that are frozen.

LoRA: Hu et al. 2021, arXiv:2106.09685. QLoRA: Dettmers et al. 2023, arXiv:2305.14314. As Hugging
Face's PEFT 0.21 and bitsandbytes 0.50 run them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from .errors import InputError
from .formula import LINEAR
from .model import Model
from .reading import Reading, a_choice, a_count, a_flag
from .recipe import Recipe
from .records import dataclass


class Adapter(StrEnum):
    """What is trained: all weights (none), or low-rank adapters beside 16-bit or 4-bit weights."""

    NONE = "none"
    LORA = "lora"
    QLORA = "qlora"


class Targets(StrEnum):
    """Which products get an adapter: queries and values, or all of a layer's."""

    QUERY_VALUE = "query-value"
    ALL_LINEAR = "all-linear"


class Dtype(StrEnum):
    """The dtype of weights."""

    BF16 = "bf16"
    FP32 = "fp32"


class QuantStorage(StrEnum):
    """The dtype of the tensors in which bitsandbytes keeps 4-bit codes."""

    BF16 = "bf16"
    UINT8 = "uint8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What is trained.

    An adapter of rank ``adapter_rank`` is two matrices in ``adapter_dtype`` beside each product of
    ``adapter_targets``, with a dropout before them where ``adapter_dropout``. Everything else is
    frozen, in ``frozen_dtype``; with QLoRA the layers' products are in 4 bits (nf4, their scales
    quantised as well), in tensors of ``quant_storage``, and ``frozen_dtype`` is that of norms,
    embedding and head.
    """

    adapter: Adapter = Adapter.NONE
    adapter_rank: int = 16
    adapter_targets: Targets = Targets.ALL_LINEAR
    adapter_dtype: Dtype = Dtype.FP32
    adapter_dropout: bool = False
    frozen_dtype: Dtype = Dtype.BF16
    quant_storage: QuantStorage = QuantStorage.BF16

    @property
    def trains_all(self) -> bool:
        """Whether every weight is trained."""
        return self.adapter is Adapter.NONE


FULL = Tuning()

#: Those of queries and values; some families have them in one.
QUERY_VALUE = ("query", "value", "query, key and value")


def targeted(name: str, targets: str) -> bool:
    """Whether a weight has an adapter beside it."""
    return name in (QUERY_VALUE if targets == "query-value" else LINEAR)


#: As a request has them that says nothing; None is what the recipe means.
USUAL: Mapping[str, object] = {
    "adapter": "none",
    "adapter_rank": FULL.adapter_rank,
    "adapter_targets": None,
    "adapter_dtype": None,
    "adapter_dropout": False,
    "frozen_dtype": None,
    "quant_storage": None,
}

_MOST_RANK = 2**16


def read(reading: Reading, recipe: Recipe) -> Tuning:
    """What a request trains.

    Adapters are in 32 bits where the recipe has any 32-bit weights (autocast), as PEFT has them;
    what is frozen is in 16 bits but where all is in 32. DeepSpeed's engine turns both into 16 bits.
    """
    adapter = reading.field("adapter", a_choice(Adapter), Adapter.NONE)
    narrow = recipe.precision == "bf16"
    if adapter is not Adapter.NONE:
        narrow = narrow or recipe.precision == "master"
    dtype = Dtype.BF16 if narrow else Dtype.FP32
    frozen = Dtype.FP32 if recipe.precision == "fp32" else Dtype.BF16
    return Tuning(
        adapter=adapter,
        adapter_rank=reading.field("adapter_rank", a_count(most=_MOST_RANK), FULL.adapter_rank),
        adapter_targets=reading.switch("adapter_targets", a_choice(Targets), FULL.adapter_targets),
        adapter_dtype=reading.switch("adapter_dtype", a_choice(Dtype), dtype),
        adapter_dropout=reading.field("adapter_dropout", a_flag, False),
        frozen_dtype=reading.switch("frozen_dtype", a_choice(Dtype), frozen),
        quant_storage=reading.switch("quant_storage", a_choice(QuantStorage), QuantStorage.BF16),
    )


def idle(reading: Reading) -> Iterator[InputError]:
    """Whatever is said of adapters although there are none."""
    for name, usual in USUAL.items():
        value = reading.value(name)
        if (
            value != usual
            and name != "adapter"
            and str(value).lower() not in (str(usual).lower(), "off", "no")
        ):
            allowed = "every weight is trained, so this says nothing; set adapter to lora or qlora"
            yield InputError(name, value, allowed)


def refused(
    tuning: Tuning, recipe: Recipe, model: Model, implementation: str, *, copies: bool
) -> Iterator[InputError]:
    """What adapters do not go with; ``copies``: somebody keeps 32-bit copies of 16-bit ones."""
    adapter = str(tuning.adapter)
    if implementation != "huggingface":
        own = ""
        if implementation == "torchtitan":
            own = ", and torchtitan 0.3's own LoRA, beside the head as well, is not followed"
        allowed = (
            f"none with the implementation {implementation}; the adapters here are PEFT's{own}, "
        )
        yield InputError("adapter", adapter, allowed + "so set implementation to huggingface")
        return
    if model.experts:
        allowed = "none for a mixture of experts: what PEFT does with its experts is not followed"
        yield InputError("adapter", adapter, allowed)
    elif model.family == "gpt" and tuning.adapter is Adapter.QLORA:
        allowed = "none or lora for GPT-2, whose matrices lie the other way: that is not followed"
        yield InputError("adapter", adapter, allowed)
    if tuning.adapter is Adapter.LORA and tuning.quant_storage is QuantStorage.UINT8:
        allowed = "nothing is in 4 bits; leave it out, or set adapter to qlora"
        yield InputError("quant_storage", str(tuning.quant_storage), allowed)
    if recipe.precision.startswith("master") and not copies:
        allowed = (
            "with adapters autocast-adam, bf16-adam or fp32-adam: PEFT keeps no second copy of "
            "what it trains"
        )
        yield InputError("recipe", recipe.id, allowed)
