"""A Hugging Face config.json, read into a model's shape.

What a key means, and what it is where it is missing, follows the configuration and model classes of
transformers; scripts/parameters/record.py builds those classes, and the tests hold this reading to
their parameter counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..catalog import build
from ..errors import InputError, nearest
from ..model import Model, Norm, QkNorm, raise_if_any
from .config_keys import Keys


def model_from_config(config: Mapping[str, object]) -> Model:
    """The shape that a config.json describes.

    Of a model that also sees or hears, this is the language model (its ``text_config``). Keys that
    have no part in the shape are passed over. Raises :class:`InputError` for a ``model_type`` that
    is not supported and for the keys that are missing or cannot be, each by its own name;
    :class:`InputErrors` for several.
    """
    return model_and_keys(config)[0]


def model_and_keys(config: Mapping[str, object]) -> tuple[Model, frozenset[str]]:
    """The same, and the keys that it was read from."""
    if not isinstance(config, Mapping):
        raise InputError("config", config, "a JSON object, as in a config.json")
    model_type = config.get("model_type")
    text = config.get("text_config")
    if isinstance(text, Mapping) and model_type not in _READERS:
        inner = {"model_type": f"{model_type}_text", **text}
        inner = {"_name_or_path": config.get("_name_or_path"), **inner}
        model, keys = model_and_keys(inner)
        return model, frozenset(f"text_config.{key}" for key in keys)
    if not isinstance(model_type, str) or model_type not in _READERS:
        allowed = "supported: " + ", ".join(SUPPORTED)
        raise InputError(
            "model_type", model_type, allowed, suggestion=nearest(model_type, SUPPORTED)
        )
    reading = Keys(config, model_type)
    fields = _READERS[model_type](reading)
    raise_if_any([*reading.errors.values()])
    name = config.get("_name_or_path")
    fields["name"] = name if isinstance(name, str) and name else f"config.json ({model_type})"
    fields["source"] = "config.json"
    return build(fields), frozenset(reading.seen)


def _gpt2(keys: Keys) -> dict[str, object]:
    keys.only("add_cross_attention", False)
    hidden = keys.count("n_embd")
    return {
        "family": "gpt",
        "layers": keys.count("n_layer"),
        "hidden": hidden,
        "heads": keys.count("n_head"),
        "ffn": keys.count("n_inner", 4 * hidden),
        "vocabulary": keys.count("vocab_size"),
        "positions": keys.count("n_positions", 1024),
        "context": keys.count("n_positions", 1024),
        "activation": keys.activation("activation_function", "gelu_new"),
        "tied": keys.flag("tie_word_embeddings", True),
    }


def _gpt_neox(keys: Keys) -> dict[str, object]:
    bias = keys.flag("attention_bias", True)
    return {
        "family": "gpt-neox",
        **_sizes(keys, kv_heads=keys.count("num_attention_heads")),
        "activation": keys.activation("hidden_act", "gelu"),
        "tied": keys.flag("tie_word_embeddings", False),
        "qkv_bias": bias,
        "output_bias": bias,
    }


def _sizes(keys: Keys, *, kv_heads: int, head_dim: int | None = None) -> dict[str, object]:
    """The sizes, under the names that most families have; the defaults differ between families."""
    fields: dict[str, object] = {
        "layers": keys.count("num_hidden_layers"),
        "hidden": keys.count("hidden_size"),
        "heads": keys.count("num_attention_heads"),
        "kv_heads": kv_heads,
        "ffn": keys.count("intermediate_size"),
        "vocabulary": keys.count("vocab_size"),
        "context": keys.count("max_position_embeddings", 0),
    }
    # Null means hidden / heads also where the class has a width of its own for a missing key.
    own_width = keys.config.get("head_dim", head_dim)
    if own_width is not None:
        fields["head_dim"] = keys.count("head_dim", head_dim)
    return fields


def _modern(
    keys: Keys,
    family: str,
    *,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    tied: bool = False,
    act_key: str = "hidden_act",
    act: str = "silu",
) -> dict[str, object]:
    """A decoder with RMSNorm and a gated feed-forward layer; keywords are its class's defaults.

    ``kv_heads`` is for a missing key; None, and null in the file, mean as many as heads.
    """
    heads = keys.count("num_attention_heads")
    if kv_heads is None or "num_key_value_heads" in keys.config:
        kv_heads = keys.count("num_key_value_heads", heads)
    return {
        "family": family,
        **_sizes(keys, kv_heads=kv_heads, head_dim=head_dim),
        "gated": True,
        "activation": keys.activation(act_key, act),
        "norm": Norm.RMSNORM,
        "tied": keys.flag("tie_word_embeddings", tied),
        "qkv_bias": False,
        "output_bias": False,
        "mlp_bias": False,
    }


def _attention_bias(keys: Keys) -> dict[str, object]:
    bias = keys.flag("attention_bias", False)
    return {"qkv_bias": bias, "output_bias": bias}


def _llama(keys: Keys) -> dict[str, object]:
    mlp_bias = keys.flag("mlp_bias", False)
    return {**_modern(keys, "llama"), **_attention_bias(keys), "mlp_bias": mlp_bias}


def _mistral(keys: Keys) -> dict[str, object]:
    return _modern(keys, "mistral", kv_heads=8)


def _mixtral(keys: Keys) -> dict[str, object]:
    return {
        **_modern(keys, "mixtral", kv_heads=8),
        "experts": keys.count("num_local_experts", 8),
        "experts_per_token": keys.count("num_experts_per_tok", 2),
    }


def _qwen2(keys: Keys) -> dict[str, object]:
    return {**_modern(keys, "qwen", kv_heads=32), "qkv_bias": True}


def _qwen2_moe(keys: Keys) -> dict[str, object]:
    return {
        **_modern(keys, "qwen", kv_heads=16),
        **_qwen_experts(keys),
        "qkv_bias": keys.flag("qkv_bias", True),
        "shared_experts": 1,
        "shared_expert_ffn": keys.count("shared_expert_intermediate_size", 5632),
        "shared_expert_gate": True,
    }


def _qwen3(keys: Keys) -> dict[str, object]:
    fields = _modern(keys, "qwen", kv_heads=32, head_dim=128)
    return {**fields, **_attention_bias(keys), "qk_norm": QkNorm.HEAD}


def _qwen3_moe(keys: Keys) -> dict[str, object]:
    fields = _modern(keys, "qwen", kv_heads=4)
    return {**fields, **_qwen_experts(keys), **_attention_bias(keys), "qk_norm": QkNorm.HEAD}


def _qwen_experts(keys: Keys) -> dict[str, object]:
    keys.only("decoder_sparse_step", 1)
    dense = keys.config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        allowed = "only layers that come before all others, such as [] or [0, 1], can be read"
        keys.errors["mlp_only_layers"] = InputError("mlp_only_layers", dense, allowed)
        dense = []
    # transformers writes the number of experts under either name.
    name = "num_local_experts" if "num_local_experts" in keys.config else "num_experts"
    return {
        "experts": keys.count(name),
        "experts_per_token": keys.count("num_experts_per_tok"),
        "expert_ffn": keys.count("moe_intermediate_size"),
        "dense_layers": len(dense),
    }


def _gemma(keys: Keys) -> dict[str, object]:
    fields = _modern(keys, "gemma", kv_heads=16, head_dim=256, tied=True, act="gelu_pytorch_tanh")
    return {**fields, **_attention_bias(keys)}


def _gemma2(keys: Keys) -> dict[str, object]:
    fields = _modern(
        keys,
        "gemma",
        kv_heads=4,
        head_dim=256,
        tied=True,
        act_key="hidden_activation",
        act="gelu_pytorch_tanh",
    )
    return {**fields, **_attention_bias(keys), "norms_per_layer": 4}


def _gemma3(keys: Keys) -> dict[str, object]:
    # Published files of the larger models give only what differs from the class's defaults.
    usual = {
        "num_attention_heads": 8,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
    }
    for key, value in usual.items():
        if keys.config.get(key) is None:
            keys.config[key] = value
    return {**_gemma2(keys), "qk_norm": QkNorm.HEAD}


def _phi3(keys: Keys) -> dict[str, object]:
    return _modern(keys, "phi")


def _olmo2(keys: Keys) -> dict[str, object]:
    fields = {**_modern(keys, "olmo"), **_attention_bias(keys)}
    return {**fields, "qk_norm": QkNorm.FULL, "post_norm": True}


def _deepseek_v2(keys: Keys) -> dict[str, object]:
    return _deepseek(keys, shared_experts=2, dense_layers=0)


def _deepseek_v3(keys: Keys) -> dict[str, object]:
    return _deepseek(keys, shared_experts=1, dense_layers=3)


def _deepseek(keys: Keys, *, shared_experts: int, dense_layers: int) -> dict[str, object]:
    """Multi-head latent attention and experts; the multi-token prediction module is left out."""
    keys.only("moe_layer_freq", 1)
    keys.only("attention_bias", False)
    fields = _modern(keys, "deepseek")
    # With latent attention every head has keys and values of its own, whatever the file says, and
    # `head_dim` is not a head's whole width.
    del fields["kv_heads"]
    fields.pop("head_dim", None)
    expert_ffn = keys.count("moe_intermediate_size")
    # A null rank projects the queries directly; a missing one is the class's.
    q_lora_rank = 1536
    if "q_lora_rank" in keys.config:
        q_lora_rank = keys.count("q_lora_rank", 0)
    return {
        **fields,
        "experts": keys.count("n_routed_experts"),
        "experts_per_token": keys.count("num_experts_per_tok"),
        "expert_ffn": expert_ffn,
        "shared_experts": keys.count("n_shared_experts", shared_experts),
        "shared_expert_ffn": expert_ffn,
        "dense_layers": keys.count("first_k_dense_replace", dense_layers, least=0),
        "q_lora_rank": q_lora_rank,
        "kv_lora_rank": keys.count("kv_lora_rank", 512),
        "qk_nope_head_dim": keys.count("qk_nope_head_dim", 128),
        "qk_rope_head_dim": keys.count("qk_rope_head_dim", 64),
        "v_head_dim": keys.count("v_head_dim", 128),
    }


_READERS: dict[str, Callable[[Keys], dict[str, object]]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}

#: The values of ``model_type`` that can be read; also a gemma3, by its ``text_config``.
SUPPORTED = tuple(_READERS)
