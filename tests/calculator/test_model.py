"""A model's shape: what it accepts, and the ledger of parameters that follows from it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_memory import catalog
from training_memory.errors import InputError, InputErrors
from training_memory.model import SHAPE_FIELDS, Activation, Model, Norm, QkNorm
from training_memory.parameters import COMPONENTS, Split

GPT: dict[str, Any] = {
    "layers": 3,
    "hidden": 24,
    "heads": 4,
    "kv_heads": 4,
    "head_dim": 6,
    "ffn": 96,
    "vocabulary": 50,
    "positions": 10,
}
PLAIN: dict[str, Any] = {
    **GPT,
    "positions": 0,
    "norm": "rmsnorm",
    "norm_bias": False,
    "qkv_bias": False,
    "output_bias": False,
    "mlp_bias": False,
    "tied": False,
}
EXPERTS: dict[str, Any] = {**PLAIN, "experts": 6, "experts_per_token": 2, "expert_ffn": 20}
LATENT: dict[str, Any] = {
    **PLAIN,
    "head_dim": 11,
    "q_lora_rank": 9,
    "kv_lora_rank": 5,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 3,
    "v_head_dim": 7,
}


def rows(model: Model) -> dict[str, tuple[tuple[int, ...], int, str, Split]]:
    return {row.name: (row.shape, row.repeats, row.where, row.split) for row in model.tensors()}


def test_the_decoders_ledger_row_by_row() -> None:
    column, row, kv, whole = Split.COLUMN, Split.ROW, Split.KV, Split.REPLICATED
    assert rows(catalog.get("decoder")) == {
        "token embedding": ((64, 16), 1, "first", Split.VOCABULARY),
        "position embedding": ((8, 16), 1, "first", whole),
        "query": ((16, 16), 2, "layer", column),
        "key": ((16, 16), 2, "layer", kv),
        "value": ((16, 16), 2, "layer", kv),
        "attention output": ((16, 16), 2, "layer", row),
        "up": ((32, 16), 2, "layer", column),
        "down": ((16, 32), 2, "layer", row),
        "attention norm": ((16,), 2, "layer", whole),
        "attention norm bias": ((16,), 2, "layer", whole),
        "mlp norm": ((16,), 2, "layer", whole),
        "mlp norm bias": ((16,), 2, "layer", whole),
    }


def test_biases_are_divided_as_what_they_are_added_to() -> None:
    ledger = rows(Model(**{**GPT, "kv_heads": 2, "tied": False, "head_bias": True}))
    assert ledger["query bias"] == ((24,), 3, "layer", Split.COLUMN)
    assert ledger["key bias"] == ((12,), 3, "layer", Split.KV)
    assert ledger["value bias"] == ((12,), 3, "layer", Split.KV)
    # A row-split product is summed over ranks first, so each rank adds the whole bias.
    assert ledger["attention output bias"] == ((24,), 3, "layer", Split.REPLICATED)
    assert ledger["up bias"] == ((96,), 3, "layer", Split.COLUMN)
    assert ledger["down bias"] == ((24,), 3, "layer", Split.REPLICATED)
    assert ledger["final norm bias"] == ((24,), 1, "last", Split.REPLICATED)
    assert ledger["head"] == ((50, 24), 1, "last", Split.VOCABULARY)
    assert ledger["head bias"] == ((50,), 1, "last", Split.VOCABULARY)


def test_experts_and_dense_layers() -> None:
    shared: dict[str, Any] = {
        "shared_experts": 2,
        "shared_expert_ffn": 8,
        "shared_expert_gate": True,
    }
    model = Model(**{**EXPERTS, **shared, "gated": True, "dense_layers": 1})
    assert model.layer_kinds == (("dense", 1), ("expert", 2))
    ledger = {row.name: row for row in model.tensors()}
    assert (ledger["gate"].shape, ledger["gate"].repeats) == ((96, 24), 1)
    assert (ledger["expert down"].shape, ledger["expert down"].repeats) == ((6, 24, 20), 2)
    assert ledger["router"].shape == (6, 24)
    assert ledger["shared expert up"].shape == (16, 24)
    assert ledger["shared expert gate"].shape == (16, 24)
    assert ledger["shared expert router"].shape == (1, 24)
    assert {name for name, row in ledger.items() if row.expert} == {
        "expert gate",
        "expert up",
        "expert down",
    }
    assert {row.kind for name, row in ledger.items() if "expert" in name} == {"expert"}
    assert ledger["gate"].kind == "dense"
    assert ledger["query"].kind == ""
    # Four of the six experts of each of two layers are idle for a token.
    assert model.parameters.total - model.parameters.active == 2 * 4 * 3 * 20 * 24


def test_latent_attention() -> None:
    ledger = rows(Model(**LATENT))
    whole = Split.REPLICATED
    assert ledger["query latent"] == ((9, 24), 3, "layer", whole)
    assert ledger["query"] == ((4 * 11, 9), 3, "layer", Split.COLUMN)
    assert ledger["key-value latent"] == ((5 + 3, 24), 3, "layer", whole)
    assert ledger["key and value"] == ((4 * (8 + 7), 5), 3, "layer", Split.COLUMN)
    assert ledger["attention output"] == ((24, 4 * 7), 3, "layer", Split.ROW)
    assert ledger["query latent norm"] == ((9,), 3, "layer", whole)
    assert ledger["key-value latent norm"] == ((5,), 3, "layer", whole)
    direct = rows(Model(**{**LATENT, "q_lora_rank": 0}))
    assert direct["query"] == ((4 * 11, 24), 3, "layer", Split.COLUMN)
    assert "query latent" not in direct
    assert "query latent norm" not in direct


@pytest.mark.parametrize(
    ("qk_norm", "shapes"),
    [("none", None), ("head", ((6,), (6,))), ("full", ((24,), (12,)))],
)
def test_query_and_key_norms(qk_norm: str, shapes: tuple[tuple[int, ...], ...] | None) -> None:
    ledger = rows(Model(**{**PLAIN, "kv_heads": 2, "qk_norm": qk_norm}))
    if shapes is None:
        assert "query norm" not in ledger
    else:
        assert (ledger["query norm"][0], ledger["key norm"][0]) == shapes


def test_four_norms_a_layer() -> None:
    names = rows(Model(**{**PLAIN, "norms_per_layer": 4}))
    assert [name for name in names if name.endswith("norm")] == [
        "attention norm",
        "attention output norm",
        "mlp norm",
        "mlp output norm",
        "final norm",
    ]


def test_a_tied_head_is_counted_once_and_multiplied_by_all_the_same() -> None:
    tied, untied = Model(**{**PLAIN, "tied": True}), Model(**PLAIN)
    assert tied.parameters.by_component["head"] == 0
    assert untied.parameters.total - tied.parameters.total == 50 * 24
    assert tied.head_parameters == untied.head_parameters == 50 * 24
    assert Model(**{**PLAIN, "head_bias": True}).head_parameters == 50 * 24 + 50


def gpt_parameters(model: Model) -> int:
    """12Lh²(1 + 13/12h + (V + s)/12Lh): Narayanan et al. 2021, arXiv:2104.04473, equation 2.

    The paper leaves out the final layer norm, of a scale and a bias: 2h.
    """
    layers, hidden = model.layers, model.hidden
    rows = model.vocabulary + model.positions
    return 12 * layers * hidden**2 + 13 * layers * hidden + rows * hidden + 2 * hidden


@pytest.mark.parametrize(
    "model_id",
    ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt3-175b"]
    + [f"korthikanti-{size}" for size in ("22b", "175b", "530b", "1t")],
)
def test_gpt_models_have_the_papers_closed_form(model_id: str) -> None:
    model = catalog.get(model_id)
    assert model.parameters.total == gpt_parameters(model)


def test_totals_are_sums_of_ledger_rows() -> None:
    for model in catalog.models().values():
        ledger = model.tensors()
        parameters = model.parameters
        assert parameters.total == sum(row.count for row in ledger), model.id
        assert parameters.total == sum(parameters.by_component.values()), model.id
        assert tuple(parameters.by_component) == COMPONENTS, model.id
        assert all(row.count == row.count_each * row.repeats for row in ledger), model.id
        assert len({row.name for row in ledger}) == len(ledger), model.id
        in_layers = {"dense": 0, "expert": 0} | dict(model.layer_kinds)
        for row in ledger:
            repeats = in_layers[row.kind] if row.kind else model.layers
            assert row.repeats == (repeats if row.where == "layer" else 1), (model.id, row.name)
        assert sum(in_layers.values()) == model.layers, model.id


@given(
    layers=st.integers(1, 6),
    heads=st.integers(1, 6),
    width=st.integers(1, 8),
    experts=st.integers(0, 5),
    shared=st.integers(0, 2),
    tied=st.booleans(),
    gated=st.booleans(),
)
def test_any_shape_adds_up(
    layers: int, heads: int, width: int, experts: int, shared: int, tied: bool, gated: bool
) -> None:
    model = catalog.custom(
        {
            "layers": layers,
            "hidden": heads * width,
            "heads": heads,
            "vocabulary": 30,
            "tied": tied,
            "gated": gated,
            "experts": experts,
            "shared_experts": shared if experts else 0,
            "shared_expert_ffn": 3,
        }
    )
    parameters = model.parameters
    assert parameters.total == sum(row.count for row in model.tensors())
    assert 0 < parameters.active <= parameters.total
    # One more layer adds just what each layer holds.
    taller = catalog.with_shape(model, {"layers": layers + 1}).parameters.total
    each = sum(row.count_each for row in model.tensors() if row.where == "layer")
    assert taller - parameters.total == each


COUNTS = [field for field in SHAPE_FIELDS if type(getattr(Model(**GPT), field)) is int]
FLAGS = [field for field in SHAPE_FIELDS if type(getattr(Model(**GPT), field)) is bool]
CHOICES = {"norm": Norm, "qk_norm": QkNorm, "activation": Activation}


def test_every_shape_field_is_a_count_a_flag_or_a_choice() -> None:
    assert {*COUNTS, *FLAGS, *CHOICES} == set(SHAPE_FIELDS)


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize("value", [-1, 2**40, 1.5, "many", "", None, True, [4], "9" * 400])
def test_a_count_that_cannot_be_names_field_value_and_allowed(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Model(**{**GPT, field: value})
    assert caught.value.field == field
    assert caught.value.value == value
    assert re.match(r"a whole number, \d", caught.value.allowed)
    assert str(caught.value).startswith(f"{field}: {value!r} cannot be used; ")


@pytest.mark.parametrize(
    "field", ["layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocabulary"]
)
def test_sizes_are_at_least_one(field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: 0 cannot be used; a whole number, 1 to "):
        Model(**{**GPT, field: 0})


@pytest.mark.parametrize("field", FLAGS)
@pytest.mark.parametrize("value", [1, 0, "yes", None])
def test_a_flag_that_cannot_be(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Model(**{**GPT, field: value})
    assert caught.value.field == field
    assert caught.value.value == value
    assert caught.value.allowed == "allowed: true, false"


@pytest.mark.parametrize("field", CHOICES)
@pytest.mark.parametrize("value", ["", "batch", 3, None])
def test_a_choice_that_cannot_be(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Model(**{**GPT, field: value})
    assert caught.value.field == field
    assert caught.value.value == value
    assert caught.value.allowed == "allowed: " + ", ".join(CHOICES[field])


def test_a_near_choice_is_suggested() -> None:
    with pytest.raises(InputError, match="Did you mean 'rmsnorm'") as caught:
        Model(**{**GPT, "norm": "rms_norm"})
    assert caught.value.suggestion == "rmsnorm"


@pytest.mark.parametrize("field", ["id", "name", "family", "source"])
def test_texts_are_texts(field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: 5 cannot be used; text"):
        Model(**{**GPT, field: 5})


def test_text_as_people_write_it_is_stored_as_what_it_means() -> None:
    model = Model(
        **{**GPT, "hidden": "4,096", "layers": "1k", "tied": "False", "norm": "layernorm"}
    )
    assert (model.hidden, model.layers, model.tied) == (4096, 1024, False)
    assert model.norm is Norm.LAYERNORM
    assert model == Model(**{**GPT, "hidden": 4096, "layers": 1024, "tied": False})


@pytest.mark.parametrize(
    ("shape", "field", "allowed"),
    [
        ({**GPT, "kv_heads": 3}, "kv_heads", "a divisor of heads (4)"),
        ({**GPT, "kv_heads": 8}, "kv_heads", "a divisor of heads (4)"),
        ({**GPT, "norm": "rmsnorm"}, "norm_bias", "false where norm is rmsnorm"),
        ({**GPT, "norms_per_layer": 3}, "norms_per_layer", "allowed: 2, 4"),
        (
            {**PLAIN, "norms_per_layer": 4, "post_norm": True},
            "post_norm",
            "false where norms_per_layer is 4",
        ),
        ({**GPT, "shared_experts": 1}, "shared_experts", "0 where experts is 0"),
        ({**GPT, "dense_layers": 1}, "dense_layers", "0 where experts is 0"),
        ({**GPT, "shared_expert_gate": True}, "shared_expert_gate", "false where experts is 0"),
        ({**EXPERTS, "experts_per_token": 7}, "experts_per_token", "1 to experts (6)"),
        ({**EXPERTS, "experts_per_token": 0}, "experts_per_token", "1 to experts (6)"),
        ({**EXPERTS, "expert_ffn": 0}, "expert_ffn", "1 or more where experts is not 0"),
        ({**EXPERTS, "dense_layers": 4}, "dense_layers", "0 to layers (3)"),
        (
            {**EXPERTS, "shared_experts": 1},
            "shared_expert_ffn",
            "1 or more where shared_experts is not 0",
        ),
        (
            {**EXPERTS, "shared_expert_gate": True},
            "shared_expert_gate",
            "false where shared_experts is 0",
        ),
        ({**GPT, "q_lora_rank": 4}, "q_lora_rank", "0 where kv_lora_rank is 0"),
        (
            {**LATENT, "head_dim": 6},
            "head_dim",
            "qk_nope_head_dim + qk_rope_head_dim (11) where kv_lora_rank is not 0",
        ),
        (
            {**LATENT, "qk_nope_head_dim": 0},
            "qk_nope_head_dim",
            "1 or more where kv_lora_rank is not 0",
        ),
        (
            {**LATENT, "qk_rope_head_dim": 0},
            "qk_rope_head_dim",
            "1 or more where kv_lora_rank is not 0",
        ),
        ({**LATENT, "v_head_dim": 0}, "v_head_dim", "1 or more where kv_lora_rank is not 0"),
        ({**LATENT, "kv_heads": 2}, "kv_heads", "heads (4) where kv_lora_rank is not 0"),
        ({**LATENT, "qk_norm": "head"}, "qk_norm", "none where kv_lora_rank is not 0"),
        ({**LATENT, "qkv_bias": True}, "qkv_bias", "false where kv_lora_rank is not 0"),
    ],
)
def test_fields_that_contradict_one_another(
    shape: dict[str, Any], field: str, allowed: str
) -> None:
    with pytest.raises(InputError) as caught:
        Model(**shape)
    assert (caught.value.field, caught.value.allowed) == (field, allowed)
    assert caught.value.value == shape.get(field, getattr(Model(**GPT), field))


def test_all_bad_fields_are_told_together() -> None:
    with pytest.raises(InputErrors) as caught:
        Model(**{**GPT, "layers": 0, "norm": "x", "tied": 3})
    assert [error.field for error in caught.value.errors] == ["layers", "norm", "tied"]
