"""The catalog: every model's parameters against what transformers builds, or the paper's figure."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from training_memory import catalog
from training_memory.errors import InputError, InputErrors
from training_memory.model import Model

DATA = Path(__file__).parent / "data"
PACKAGE = Path(catalog.__file__).parent
RECORD = json.loads((DATA / "parameters.json").read_text(encoding="utf-8"))
RECORDED: dict[str, dict[str, Any]] = RECORD["models"]

# Models that no class of transformers builds: the figure as the source prints it, its unit, and
# how far the shape's count may be from it: half of the last digit printed.
PRINTED = {
    # A text of this site: 64·16 + 8·16 + 2·(4·16² + 2·16·32 + 2·2·16).
    "decoder": (5_376, 1),
    # Brown et al. 2020, arXiv:2005.14165, by its name. Its Table 2.1 prints 175.0B, which its own
    # shape does not give: 12·96·12,288² and the embeddings are 174.6 billion.
    "gpt3-175b": (175, 10**9),
    # Korthikanti et al. 2022, arXiv:2205.05198, Table 3, with a vocabulary of 51,200.
    "korthikanti-22b": (22, 10**9),
    "korthikanti-175b": (175, 10**9),
    "korthikanti-530b": (530, 10**9),
    "korthikanti-1t": (1, 10**12),
    # Abdin et al. 2024, arXiv:2404.14219: "phi-3-small (7B)"; its class comes with its weights.
    "phi-3-small": (7, 10**9),
}


def test_every_model_has_something_to_be_held_against() -> None:
    assert set(RECORDED) | set(PRINTED) == set(catalog.models())
    assert not set(RECORDED) & set(PRINTED)
    assert set(RECORD["versions"]) == {"torch", "transformers"}


@pytest.mark.parametrize("model_id", RECORDED)
def test_parameters_are_what_transformers_builds(model_id: str) -> None:
    parameters = catalog.get(model_id).parameters
    assert parameters.by_component == RECORDED[model_id]["by_component"]
    assert parameters.total == RECORDED[model_id]["total"]


@pytest.mark.parametrize(
    ("model_id", "total"),
    [
        ("llama-7b", 6_738_415_616),
        ("llama-3-8b", 8_030_261_248),
        ("mixtral-8x7b", 46_702_792_704),
        ("decoder", 5_376),
    ],
)
def test_well_known_counts(model_id: str, total: int) -> None:
    assert catalog.get(model_id).parameters.total == total


@pytest.mark.parametrize("model_id", PRINTED)
def test_parameters_are_the_papers_figure_to_its_last_digit(model_id: str) -> None:
    figure, unit = PRINTED[model_id]
    assert abs(catalog.get(model_id).parameters.total - figure * unit) <= unit // 2


@pytest.mark.parametrize(
    ("model_id", "billions", "source"),
    [
        ("mixtral-8x7b", 13, "arXiv:2401.04088, section 2.2: 13B active"),
        ("qwen3-30b-a3b", 3, "its name, A3B"),
        ("qwen3-235b-a22b", 22, "its name, A22B"),
        ("deepseek-v2", 21, "arXiv:2405.04434, abstract: 21B activated"),
        ("deepseek-v3", 37, "arXiv:2412.19437, abstract: 37B activated"),
    ],
)
def test_active_parameters(model_id: str, billions: int, source: str) -> None:
    # DeepSeek counts neither its embedding nor, in V3's 37B, rounds up: a billion either way.
    active = catalog.get(model_id).parameters.active
    assert abs(active - billions * 10**9) < 10**9, source


def test_a_dense_models_parameters_are_all_active() -> None:
    parameters = catalog.get("llama-7b").parameters
    assert parameters.active == parameters.total


def test_every_model_cites_its_source() -> None:
    for model_id, model in catalog.models().items():
        assert model.id == model_id
        assert model.source, model_id
        assert ("config.json of " in model.source) == (
            model_id in RECORDED or model_id == "phi-3-small"
        ), model_id


def test_the_files_are_read_as_tomllib_reads_them() -> None:
    document = tomllib.loads((PACKAGE / "models.toml").read_text(encoding="utf-8"))
    assert list(document["models"]) == list(catalog.models())
    for model_id, own in document["models"].items():
        values: dict[str, Any] = dict(own)
        while "base" in values:
            values = {**document["base"][values.pop("base")], **values}
        config = values.pop("config", None)
        if config:
            values["source"] += f"; config.json of {config}"
        model = catalog.get(model_id)
        assert {field: getattr(model, field) for field in values} == values, model_id


def test_one_model_is_built_at_a_time() -> None:
    fresh = catalog._Catalog()
    assert len(fresh) == len(catalog.models()) > 60
    assert not fresh._built
    assert fresh["llama-7b"] == catalog.get("llama-7b")
    assert list(fresh._built) == ["llama-7b"]
    assert fresh["llama-7b"] is fresh["llama-7b"]


def test_the_catalog_starts_without_slow_imports() -> None:
    # Each of these takes milliseconds, in a command line that has tens of them to start.
    slow = ["tomllib", "pathlib", "dataclasses", "inspect", "typing", "difflib", "json"]
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from training_memory import catalog\n"
        "assert catalog.get('llama-7b').parameters.total\n"
        f"print([name for name in {slow} if name in set(sys.modules) - before])\n"
    )
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.append({str(PACKAGE.parent)!r})\n{program}",
    ]
    assert subprocess.check_output(command, text=True).strip() == "[]"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("lama-7b", "llama-7b"),
        ("LLaMA-7B", "llama-7b"),
        ("llama3-8b", "llama-3-8b"),
        ("gpt-2", "gpt2"),
        ("mixtral8x7b", "mixtral-8x7b"),
        ("qwen2.5-7B", "qwen2.5-7b"),
    ],
)
def test_an_unknown_model_is_told_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        catalog.get(given)
    assert caught.value.field == "model"
    assert caught.value.value == given
    assert caught.value.suggestion == meant


@pytest.mark.parametrize("given", [None, 7, ["zzzz"], "", "zzzz"])
def test_what_is_no_name_at_all_has_no_suggestion(given: object) -> None:
    with pytest.raises(InputError) as caught:
        catalog.get(given)
    assert (caught.value.value, caught.value.suggestion) == (given, None)


def changed(model_id: str, **overrides: object) -> Model:
    return catalog.with_shape(catalog.get(model_id), overrides)


def test_no_overrides_change_nothing() -> None:
    model = catalog.get("llama-7b")
    assert catalog.with_shape(model, {}) is model


@pytest.mark.parametrize("model_id", list(catalog.models()))
def test_an_override_with_the_models_own_value_changes_nothing(model_id: str) -> None:
    model = catalog.get(model_id)
    for field in ("layers", "heads", "hidden", "vocabulary"):
        assert catalog.with_shape(model, {field: getattr(model, field)}) == model


@pytest.mark.parametrize(
    ("model_id", "overrides", "follows"),
    [
        # A head's width follows the hidden size and the heads where it was their quotient …
        ("llama-7b", {"hidden": 8192}, {"head_dim": 256, "kv_heads": 32, "ffn": 11008}),
        ("llama-7b", {"hidden": "8k", "heads": "64"}, {"head_dim": 128, "kv_heads": 64}),
        # … and not where it was chosen apart, as in Qwen3, or is given.
        ("qwen3-32b", {"hidden": 6144}, {"head_dim": 128, "kv_heads": 8}),
        ("llama-7b", {"hidden": 8192, "head_dim": 64}, {"head_dim": 64}),
        # Grouped heads stay as many as they were.
        ("llama-3-8b", {"heads": 64}, {"head_dim": 64, "kv_heads": 8}),
        ("llama-7b", {"kv_heads": 8}, {"heads": 32, "head_dim": 128}),
        # Mixtral's experts are as wide as its feed-forward layer; DeepSeek's are not.
        ("mixtral-8x7b", {"ffn": 1000}, {"expert_ffn": 1000}),
        ("mixtral-8x7b", {"ffn": 1000, "expert_ffn": 10}, {"expert_ffn": 10}),
        ("deepseek-v3", {"ffn": 1000}, {"expert_ffn": 2048}),
        # A dense model given experts, and a mixture deprived of them.
        ("llama-7b", {"experts": 8}, {"expert_ffn": 11008, "experts_per_token": 2}),
        ("llama-7b", {"experts": 1}, {"expert_ffn": 11008, "experts_per_token": 1}),
        ("deepseek-v3", {"experts": "0"}, {"shared_experts": 0, "dense_layers": 0}),
        # Latent attention's parts make up a head's width; without it the usual rule holds.
        ("deepseek-v3", {"qk_nope_head_dim": 64}, {"head_dim": 128}),
        ("deepseek-v3", {"heads": 64}, {"kv_heads": 64, "head_dim": 192}),
        ("deepseek-v3", {"kv_lora_rank": 0}, {"q_lora_rank": 0, "head_dim": 56}),
        ("gpt2", {"norm": "rmsnorm"}, {"norm_bias": False}),
        ("gpt2", {"tied": "false"}, {"tied": False}),
    ],
)
def test_fields_that_follow(
    model_id: str, overrides: dict[str, object], follows: dict[str, object]
) -> None:
    model = changed(model_id, **overrides)
    assert {field: getattr(model, field) for field in follows} == follows
    assert model.id == model_id
    assert model.parameters.total == sum(row.count for row in model.tensors())


def test_layers_and_vocabulary_count_where_they_should() -> None:
    two = changed("llama-7b", layers=2).parameters.by_component
    one = changed("llama-7b", layers=1).parameters.by_component
    assert two["attention"] == 2 * one["attention"] == 2 * 4 * 4096**2
    assert two["mlp"] == 2 * one["mlp"] == 2 * 3 * 4096 * 11008
    assert changed("llama-7b", vocabulary=1).parameters.by_component["head"] == 4096


@pytest.mark.parametrize(
    ("overrides", "field", "allowed"),
    [
        ({"heads": 5}, "heads", "a divisor of hidden (4096) where head_dim is not given"),
        ({"hidden": 4097}, "heads", "a divisor of hidden (4097) where head_dim is not given"),
        ({"kv_heads": 5}, "kv_heads", "a divisor of heads (32)"),
        ({"layers": 0}, "layers", "a whole number, 1 to 100,000, such as 4096, 4,096 or 4k"),
        ({"norm_bias": True}, "norm_bias", "false where norm is rmsnorm"),
    ],
)
def test_overrides_that_cannot_be(overrides: dict[str, object], field: str, allowed: str) -> None:
    with pytest.raises(InputError) as caught:
        changed("llama-7b", **overrides)
    assert (caught.value.field, caught.value.allowed) == (field, allowed)


def test_an_odd_number_of_heads_can_be_where_their_width_is_given() -> None:
    assert changed("llama-7b", heads=5, head_dim=100).query_width == 500


@pytest.mark.parametrize(
    ("field", "meant"), [("layer", "layers"), ("vocab", "vocabulary"), ("d_model", None)]
)
def test_a_field_that_does_not_exist(field: str, meant: str | None) -> None:
    with pytest.raises(InputError) as caught:
        changed("llama-7b", **{field: 3})
    assert (caught.value.field, caught.value.value) == (field, 3)
    assert caught.value.suggestion == meant
    assert "layers, hidden, heads" in caught.value.allowed


@pytest.mark.parametrize("field", ["id", "name", "family", "source", "context"])
def test_what_is_not_shape_cannot_be_overridden(field: str) -> None:
    with pytest.raises(InputError, match="a shape has no such field"):
        changed("llama-7b", **{field: "4"})


def test_all_bad_overrides_are_told_together() -> None:
    with pytest.raises(InputErrors) as caught:
        changed("llama-7b", layer=3, heads=-1, tied="maybe", hidden=64)
    assert [error.field for error in caught.value.errors] == ["layer", "heads", "tied"]


def test_a_custom_model_needs_four_sizes() -> None:
    with pytest.raises(InputErrors) as caught:
        catalog.custom({"ffn": 8})
    errors = caught.value.errors
    assert [error.field for error in errors] == ["layers", "hidden", "heads", "vocabulary"]
    assert {error.allowed for error in errors} == {"needed: no value is usual"}
    model = catalog.custom({"layers": 2, "hidden": 16, "heads": 2, "vocabulary": 64})
    assert (model.id, model.kv_heads, model.head_dim, model.ffn) == ("custom", 2, 8, 64)


def test_a_feed_forward_layer_of_four_times_the_width_stays_so():
    assert catalog.with_shape(catalog.get("gpt2"), {"hidden": 1536}).ffn == 4 * 1536
    # LLaMA's is no multiple that could be followed.
    assert catalog.with_shape(catalog.get("llama-7b"), {"hidden": 8192}).ffn == 11_008
