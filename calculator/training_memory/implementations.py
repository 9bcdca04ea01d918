"""The implementations: which models each has, and which of its classes builds one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from .errors import InputError
from .model import Model, Norm


class Implementation(StrEnum):
    """Whose accounting of a layer is used."""

    PAPER = "paper"
    HUGGINGFACE = "huggingface"
    TORCHTITAN = "torchtitan"
    MEGATRON = "megatron"
    NANOTRON = "nanotron"


#: Those whose runs are followed on every GPU of a split model, stage by stage.
BY_STAGES = (Implementation.MEGATRON, Implementation.NANOTRON)


#: The families of models; a model of one's own may belong to one.
FAMILIES = (
    *("gpt", "gpt-neox", "llama", "mistral", "mixtral", "qwen", "gemma", "phi", "olmo"),
    "deepseek",
)

#: Hugging Face's class for each family of the catalog; Gemma has two.
_HUGGING_FACE: Mapping[str, str] = {
    "gpt": "gpt2",
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen": "llama",
    "gemma": "gemma2",
    "phi": "phi3",
    "olmo": "olmo2",
}

_CLASSIC = {
    "norm": "layernorm",
    "norm_bias": True,
    "norms_per_layer": 2,
    "post_norm": False,
    "qk_norm": "none",
    "gated": False,
    "experts": 0,
    "qkv_bias": True,
    "output_bias": True,
    "mlp_bias": True,
    "head_bias": False,
    "final_norm": True,
}
_MODERN = {
    "norm": "rmsnorm",
    "norms_per_layer": 2,
    "post_norm": False,
    "gated": True,
    "experts": 0,
    "head_bias": False,
    "final_norm": True,
    "positions": 0,
}
_NO_BIAS = {"qkv_bias": False, "output_bias": False, "mlp_bias": False}
#: What each class has, whatever a shape says.
_HAS: Mapping[str, Mapping[str, object]] = {
    "gpt2": _CLASSIC,
    "classic-gpt": {**_CLASSIC, "tied": True},
    "llama": {key: value for key, value in _MODERN.items() if key != "experts"},
    "olmo2": {**_MODERN, **_NO_BIAS, "post_norm": True, "qk_norm": "full"},
    "gemma2": {**_MODERN, **_NO_BIAS, "norms_per_layer": 4, "qk_norm": "none"},
    "gemma3": {**_MODERN, **_NO_BIAS, "norms_per_layer": 4, "qk_norm": "head"},
    "phi3": {**_MODERN, **_NO_BIAS, "qk_norm": "none"},
    "plain-llama": {**_MODERN, **_NO_BIAS, "qk_norm": "none"},
    "nanotron-llama": {**_MODERN, **_NO_BIAS, "qk_norm": "none", "activation": "silu"},
    "megatron-gpt": {
        "norms_per_layer": 2,
        "post_norm": False,
        "head_bias": False,
        "final_norm": True,
    },
}


def family_of(model: Model, implementation: str) -> str:
    """Which of an implementation's classes builds the model.

    Raises :class:`InputError` where none of those that are followed does, with the first thing
    that none of them has.
    """
    family = _class_for(model, implementation)
    if family is None:
        known = ", ".join(_HUGGING_FACE)
        allowed = f"paper for {model.name}; of Hugging Face's models those of the families {known}"
        raise InputError("implementation", implementation, allowed)
    for field, wanted in _misfits(model, family):
        value = str(getattr(model, field)).lower()
        allowed = f"paper for {model.name}, which has {field} {value}; a {family} has {wanted}"
        raise InputError("implementation", implementation, allowed)
    return family


def _class_for(model: Model, implementation: str) -> str | None:
    if implementation == "paper":
        return "classic-gpt"
    if implementation == "torchtitan":
        return "plain-llama"
    if implementation in BY_STAGES:
        return "megatron-gpt" if implementation == "megatron" else "nanotron-llama"
    if model.latent:
        return None
    if model.family == "gemma" and model.qk_norm == "head":
        return "gemma3"
    return _HUGGING_FACE.get(model.family)


def _misfits(model: Model, family: str) -> Iterator[tuple[str, str]]:
    """Fields in which a model is not what its class would build, with what that has."""
    for field, wanted in _HAS[family].items():
        if getattr(model, field) != wanted:
            yield field, str(wanted).lower()
    if family in ("gpt2", "classic-gpt"):
        if model.kv_heads != model.heads:
            yield "kv_heads", f"heads ({model.heads})"
        if model.query_width != model.hidden:
            yield "head_dim", f"hidden / heads, and {model.hidden} features in all heads"
        if not model.positions:
            yield "positions", "1 or more"
        return
    if model.head_dim % 2 and not model.positions:
        yield "head_dim", "an even number, since it rotates pairs"
    if family == "llama":
        # Mixtral alone of the mixtures is followed; Qwen3 alone has norms of heads.
        if model.experts and (model.family != "mixtral" or model.shared_experts):
            yield "experts", "0 in this family"
        if model.experts and model.dense_layers:
            yield "dense_layers", "0"
    if family in ("llama", "megatron-gpt") and model.qk_norm not in ("none", "head"):
        yield "qk_norm", "none or head"
    if family == "megatron-gpt":
        yield from _misfits_of_megatron(model)


def _misfits_of_megatron(model: Model) -> Iterator[tuple[str, str]]:
    """What Megatron's arguments cannot say, or what is not followed of it."""
    if model.family == "gpt-neox":
        yield "family", "attention before the feed-forward layer, and not beside it"
    shifted = model.norm is Norm.LAYERNORM
    if model.family == "phi" and shifted:
        yield "norm", "rmsnorm: Phi-3-small's sparse attention is not Megatron's"
    if model.norm_bias is not shifted:
        yield "norm_bias", f"{str(shifted).lower()} with {model.norm}"
    if model.output_bias is not model.mlp_bias:
        yield "output_bias", f"mlp_bias ({str(model.mlp_bias).lower()}), all or none"
    if model.mlp_bias and not model.qkv_bias:
        yield "qkv_bias", "true where the other products have biases"
    activations = ("silu", "gelu", "gelu-tanh") if model.gated else ("gelu", "gelu-tanh")
    if model.activation not in activations:
        yield "activation", " or ".join(activations)
    for name, has in (("experts", model.experts > 0), ("latent attention", model.latent)):
        for field, wanted in _BESIDE_EXPERTS.items() if has else ():
            if getattr(model, field) != wanted:
                yield field, f"{str(wanted).lower()} beside {name}"


#: What mixtures and latent attention have in the steps that are followed.
_BESIDE_EXPERTS = {
    "norm": "rmsnorm",
    "gated": True,
    "activation": "silu",
    "mlp_bias": False,
    "positions": 0,
}
