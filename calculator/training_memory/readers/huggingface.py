"""A Hugging Face config.json, read into a model's shape.

What a key means, and what it is where it is missing, follows the configuration and model classes of
transformers; scripts/parameters/record.py builds those classes, and the tests hold this reading to
their parameter counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..catalog import build
from ..errors import InputError, nearest
from ..model import Activation, Model, Norm, QkNorm, raise_if_any
from ..units import parse_count

_ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_fast": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
}
_MOST = 2**30


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
    reading = _Keys(config, model_type)
    fields = _READERS[model_type](reading)
    raise_if_any([*reading.errors.values()])
    name = config.get("_name_or_path")
    fields["name"] = name if isinstance(name, str) and name else f"config.json ({model_type})"
    fields["source"] = "config.json"
    return build(fields), frozenset(reading.seen)


class _Seen(dict[str, object]):
    """A configuration that remembers which of its keys were asked for."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        self.seen: set[str] = set()

    def get(self, key: str, default: object = None) -> object:
        if key in self:
            self.seen.add(key)
        return super().get(key, default)


class _Keys:
    """A configuration's keys, and what was wrong with those read so far."""

    def __init__(self, config: Mapping[str, object], model_type: str) -> None:
        self.config = _Seen(config)
        self.model_type = model_type
        self.errors: dict[str, InputError] = {}

    @property
    def seen(self) -> set[str]:
        """The keys that were asked for and are there."""
        return {"model_type", *self.config.seen}

    def count(self, key: str, missing: int | None = None, *, least: int = 1) -> int:
        """A whole number; ``missing`` where there is no such key or it is null."""
        value = self.config.get(key)
        if value is None and missing is not None:
            return missing
        if value is None:
            allowed = f"needed in the config.json of a {self.model_type}"
            self.errors[key] = InputError(key, value, allowed)
            return 1  # only so that the keys after this one are read as well
        try:
            return parse_count(key, value, least=least, most=_MOST)
        except InputError as error:
            self.errors[key] = error
            return 1

    def flag(self, key: str, missing: bool) -> bool:
        """A true or false; ``missing`` where there is no such key or it is null."""
        value = self.config.get(key)
        if value is None:
            return missing
        if not isinstance(value, bool):
            self.errors[key] = InputError(key, value, "allowed: true, false")
        return bool(value)

    def activation(self, key: str, missing: str) -> str:
        """An activation by transformers' name for it."""
        value = self.config.get(key) or missing
        if not isinstance(value, str) or value not in _ACTIVATIONS:
            self.errors[key] = InputError.unknown_name(key, value, [*_ACTIVATIONS])
            return Activation.SILU
        return _ACTIVATIONS[value]

    def only(self, key: str, value: object) -> None:
        """An error where the key is there with any value but this one."""
        given = self.config.get(key, value)
        if given != value:
            self.errors[key] = InputError(key, given, f"only {value!r} can be read")


def _gpt2(keys: _Keys) -> dict[str, object]:
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


def _gpt_neox(keys: _Keys) -> dict[str, object]:
    bias = keys.flag("attention_bias", True)
    return {
        "family": "gpt-neox",
        **_sizes(keys, kv_heads=keys.count("num_attention_heads")),
        "activation": keys.activation("hidden_act", "gelu"),
        "tied": keys.flag("tie_word_embeddings", False),
        "qkv_bias": bias,
        "output_bias": bias,
    }


def _sizes(keys: _Keys, *, kv_heads: int, head_dim: int | None = None) -> dict[str, object]:
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
    keys: _Keys,
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


def _attention_bias(keys: _Keys) -> dict[str, object]:
    bias = keys.flag("attention_bias", False)
    return {"qkv_bias": bias, "output_bias": bias}


def _llama(keys: _Keys) -> dict[str, object]:
    mlp_bias = keys.flag("mlp_bias", False)
    return {**_modern(keys, "llama"), **_attention_bias(keys), "mlp_bias": mlp_bias}


def _mistral(keys: _Keys) -> dict[str, object]:
    return _modern(keys, "mistral", kv_heads=8)


def _mixtral(keys: _Keys) -> dict[str, object]:
    return {
        **_modern(keys, "mixtral", kv_heads=8),
        "experts": keys.count("num_local_experts", 8),
        "experts_per_token": keys.count("num_experts_per_tok", 2),
    }


def _qwen2(keys: _Keys) -> dict[str, object]:
    return {**_modern(keys, "qwen", kv_heads=32), "qkv_bias": True}


def _qwen2_moe(keys: _Keys) -> dict[str, object]:
    return {
        **_modern(keys, "qwen", kv_heads=16),
        **_qwen_experts(keys),
        "qkv_bias": keys.flag("qkv_bias", True),
        "shared_experts": 1,
        "shared_expert_ffn": keys.count("shared_expert_intermediate_size", 5632),
        "shared_expert_gate": True,
    }


def _qwen3(keys: _Keys) -> dict[str, object]:
    fields = _modern(keys, "qwen", kv_heads=32, head_dim=128)
    return {**fields, **_attention_bias(keys), "qk_norm": QkNorm.HEAD}


def _qwen3_moe(keys: _Keys) -> dict[str, object]:
    fields = _modern(keys, "qwen", kv_heads=4)
    return {**fields, **_qwen_experts(keys), **_attention_bias(keys), "qk_norm": QkNorm.HEAD}


def _qwen_experts(keys: _Keys) -> dict[str, object]:
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


def _gemma(keys: _Keys) -> dict[str, object]:
    fields = _modern(keys, "gemma", kv_heads=16, head_dim=256, tied=True, act="gelu_pytorch_tanh")
    return {**fields, **_attention_bias(keys)}


def _gemma2(keys: _Keys) -> dict[str, object]:
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


def _gemma3(keys: _Keys) -> dict[str, object]:
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


def _phi3(keys: _Keys) -> dict[str, object]:
    return _modern(keys, "phi")


def _olmo2(keys: _Keys) -> dict[str, object]:
    fields = {**_modern(keys, "olmo"), **_attention_bias(keys)}
    return {**fields, "qk_norm": QkNorm.FULL, "post_norm": True}


def _deepseek_v2(keys: _Keys) -> dict[str, object]:
    return _deepseek(keys, shared_experts=2, dense_layers=0)


def _deepseek_v3(keys: _Keys) -> dict[str, object]:
    return _deepseek(keys, shared_experts=1, dense_layers=3)


def _deepseek(keys: _Keys, *, shared_experts: int, dense_layers: int) -> dict[str, object]:
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


_READERS: dict[str, Callable[[_Keys], dict[str, object]]] = {
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
