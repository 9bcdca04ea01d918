"""Which layers are taken apart: each family, attention and precision, at sizes that tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .case import Case

PRECISIONS = ("fp32", "autocast", "bf16")

#: Sizes whose numbers differ enough that a tensor's shape says what it is made of. In the third,
#: each query head has keys and values of its own: nothing is repeated, so less is copied.
SIZES: dict[str, dict[str, int]] = {
    "grouped": {
        "micro_batch": 2,
        "sequence": 384,
        "hidden": 512,
        "heads": 8,
        "kv_heads": 2,
        "head_dim": 64,
        "ffn": 1376,
    },
    "grouped, wider": {
        "micro_batch": 3,
        "sequence": 320,
        "hidden": 768,
        "heads": 12,
        "kv_heads": 4,
        "head_dim": 64,
        "ffn": 2112,
    },
    "one each": {
        "micro_batch": 2,
        "sequence": 448,
        "hidden": 640,
        "heads": 10,
        "kv_heads": 10,
        "head_dim": 64,
        "ffn": 1760,
    },
}
VOCABULARY = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A layer's implementation, and the catalogue's model that it is built like."""

    name: str
    implementation: str = "huggingface"
    model: str
    #: What the family has beside the common sizes.
    extra: tuple[tuple[str, int], ...] = ()
    #: Keys and values of its own for each query head, always.
    grouped: bool = True
    #: A head's width is not the hidden size over the heads.
    wide_heads: bool = False
    attentions: tuple[str, ...] = ("eager", "flash")


FAMILIES = (
    Family(name="classic-gpt", implementation="paper", model="gpt2", grouped=False),
    Family(name="gpt2", model="gpt2", grouped=False),
    Family(name="llama", model="llama-3-8b"),
    Family(name="plain-llama", implementation="torchtitan", model="llama-3-8b"),
    Family(name="mistral", model="mistral-7b"),
    Family(name="qwen2", model="qwen2.5-0.5b"),
    Family(name="qwen3", model="qwen3-0.6b", wide_heads=True),
    # transformers gives Gemma 2 eager attention alone: PyTorch's kernels cannot cap the scores.
    Family(name="gemma2", model="gemma-2-2b", wide_heads=True, attentions=("eager",)),
    Family(name="gemma3", model="gemma-3-1b", wide_heads=True),
    Family(name="mixtral", model="mixtral-8x7b", extra=(("experts", 4), ("experts_per_token", 2))),
    Family(name="phi3", model="phi-3-mini"),
)


def block_cases() -> Iterator[tuple[str, str, Case]]:
    """Every (family, size, case), in the order of the tables."""
    for family in FAMILIES:
        for size_name, size in SIZES.items():
            if not family.grouped and size_name == "one each":
                continue  # the other two are that already
            for precision in PRECISIONS:
                for attention in family.attentions:
                    case = Case(
                        implementation=family.implementation,
                        model=family.model,
                        shape=tuple(_shape(family, size).items()),
                        micro_batch=size["micro_batch"],
                        sequence=size["sequence"],
                        precision=precision,
                        attention=attention,
                        # No state of the optimizer belongs to a layer; this one is made fastest.
                        optimizer="sgd-momentum",
                    )
                    yield family.name, size_name, case


def _shape(family: Family, size: dict[str, int]) -> dict[str, int]:
    shape = {k: v for k, v in size.items() if k not in ("micro_batch", "sequence")}
    shape["vocabulary"] = VOCABULARY
    if not family.grouped:
        # A GPT's shape follows from its heads.
        del shape["kv_heads"], shape["head_dim"]
    if family.wide_heads:
        shape["head_dim"] = 96
    if dict(family.extra).get("experts"):
        shape["expert_ffn"] = shape.pop("ffn")
    return {**shape, **dict(family.extra)}
