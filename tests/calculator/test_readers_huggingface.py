"""config.json files: the catalog's shapes, transformers' parameter counts, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training_memory import catalog
from training_memory.errors import InputError, InputErrors
from training_memory.model import SHAPE_FIELDS
from training_memory.readers.huggingface import SUPPORTED, model_from_config

DATA = Path(__file__).parent / "data"
RECORD = json.loads((DATA / "parameters.json").read_text(encoding="utf-8"))
CONFIGS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((DATA / "configs").glob("*.json"))
}
VARIANTS: list[dict[str, Any]] = RECORD["variants"]
LLAMA = CONFIGS["llama-2-7b"]


def test_every_recorded_model_has_its_file() -> None:
    assert set(CONFIGS) == set(RECORD["models"])


def test_every_supported_type_is_recorded() -> None:
    assert {variant["model_type"] for variant in VARIANTS} == set(SUPPORTED)


@pytest.mark.parametrize("model_id", CONFIGS)
def test_a_published_file_gives_the_catalogs_shape_and_the_recorded_count(model_id: str) -> None:
    model, known = model_from_config(CONFIGS[model_id]), catalog.get(model_id)
    for field in (*SHAPE_FIELDS, "family"):
        assert getattr(model, field) == getattr(known, field), field
    assert model.parameters.total == RECORD["models"][model_id]["total"]
    # Published files without a longest sequence are those whose class gives one.
    assert model.context == known.context


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: json.dumps(variant["config"]))
def test_missing_and_changed_keys_mean_what_they_do_to_transformers(
    variant: dict[str, Any],
) -> None:
    parameters = model_from_config(variant["config"]).parameters
    assert parameters.by_component == variant["by_component"]
    assert parameters.total == variant["total"]


@pytest.mark.parametrize("model_type", ["lama", "bert", "", None, 3, ["bert"]])
def test_an_unsupported_type_is_told_what_is_supported(model_type: object) -> None:
    with pytest.raises(InputError) as caught:
        model_from_config({**LLAMA, "model_type": model_type})
    assert caught.value.field == "model_type"
    assert caught.value.value == model_type
    assert all(name in caught.value.allowed for name in SUPPORTED)
    assert caught.value.suggestion == ("llama" if model_type == "lama" else None)


@pytest.mark.parametrize("config", [[], "llama", None])
def test_what_is_no_object_is_refused(config: Any) -> None:
    with pytest.raises(InputError, match="a JSON object"):
        model_from_config(config)


@pytest.mark.parametrize(
    ("model_id", "key"),
    [
        (model_id, key)
        for model_id, keys in {
            "gpt2": ("n_embd", "n_layer", "n_head", "vocab_size"),
            "llama-2-7b": (
                "hidden_size",
                "intermediate_size",
                "num_attention_heads",
                "num_hidden_layers",
                "vocab_size",
            ),
            "qwen3-30b-a3b": ("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
            "deepseek-v3": ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"),
        }.items()
        for key in keys
    ],
)
def test_a_missing_key_is_named(model_id: str, key: str) -> None:
    config = {name: value for name, value in CONFIGS[model_id].items() if name != key}
    with pytest.raises(InputError) as caught:
        model_from_config(config)
    assert caught.value.field == key
    assert caught.value.value is None
    assert config["model_type"] in caught.value.allowed


def test_all_missing_keys_are_named_together_and_once() -> None:
    with pytest.raises(InputErrors) as caught:
        model_from_config({"model_type": "llama", "hidden_size": "wide"})
    assert sorted(error.field for error in caught.value.errors) == [
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
    ]


@pytest.mark.parametrize(
    ("model_id", "key", "value"),
    [
        ("llama-2-7b", "hidden_size", 0),
        ("llama-2-7b", "hidden_size", True),
        ("llama-2-7b", "num_key_value_heads", -8),
        ("llama-2-7b", "head_dim", 0),
        ("llama-2-7b", "tie_word_embeddings", "no"),
        ("llama-2-7b", "attention_bias", 1),
        ("llama-2-7b", "hidden_act", "tanh"),
        ("gpt2", "activation_function", 4),
        ("gpt2", "add_cross_attention", True),
        ("gemma-2-2b", "hidden_activation", "glu"),
        ("qwen3-30b-a3b", "decoder_sparse_step", 2),
        ("qwen3-30b-a3b", "mlp_only_layers", [3]),
        ("qwen3-30b-a3b", "mlp_only_layers", 2),
        ("deepseek-v3", "moe_layer_freq", 2),
        ("deepseek-v3", "attention_bias", True),
        ("deepseek-v3", "first_k_dense_replace", -1),
    ],
)
def test_a_key_that_cannot_be_read_is_named_with_its_value(
    model_id: str, key: str, value: object
) -> None:
    with pytest.raises(InputError) as caught:
        model_from_config({**CONFIGS[model_id], key: value})
    assert (caught.value.field, caught.value.value) == (key, value)
    assert caught.value.allowed


def test_a_shape_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        model_from_config({**LLAMA, "num_key_value_heads": 5})
    assert (caught.value.field, caught.value.allowed) == ("kv_heads", "a divisor of heads (32)")


def test_a_model_that_sees_is_read_by_its_language_model() -> None:
    seeing = {"model_type": "mllama", "text_config": LLAMA, "vision_config": {"hidden_size": 1}}
    assert model_from_config(seeing).parameters == model_from_config(LLAMA).parameters
    with pytest.raises(InputError, match="'mllama_text' cannot be used"):
        model_from_config({"model_type": "mllama", "text_config": {"hidden_size": 1}})


def test_the_name_is_the_files_own_where_it_has_one() -> None:
    assert model_from_config(LLAMA).name == "config.json (llama)"
    assert model_from_config({**LLAMA, "_name_or_path": "mine/7b"}).name == "mine/7b"
    assert model_from_config(LLAMA).id == "custom"
