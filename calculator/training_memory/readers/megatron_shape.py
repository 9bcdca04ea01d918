"""Megatron-LM's arguments that say a model's shape, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InputError
from ..units import parse_count
from .table import Row, Taken, count, is_on, lost, taken, word_of


def shape(key: str, field: str, *, least: int = 1) -> Row:
    """A number of the shape."""
    return count(key, f"shape.{field}", least=least)


def shape_flag(key: str, field: str, means: object = True) -> Row:
    """A flag that gives a field of the shape a value."""

    @taken(key, (f"shape.{field}",))
    def row(name: str, value: object) -> Taken:
        on = is_on(name, value)
        if means is False:
            return Taken(settings={f"shape.{field}": False} if on else {})
        return Taken(settings={f"shape.{field}": means} if on else {})

    return row


@taken("position_embedding_type", ("shape.rotary",))
def _positions(name: str, value: object) -> Taken:
    word = word_of(value)
    known = ("learned_absolute", "rope", "mrope", "yarn", "relative", "none")
    if word not in known:
        raise InputError.unknown_name(name, word, known)
    return Taken(settings={"shape.rotary": word != "learned_absolute"})


@taken("normalization", ("shape.norm",))
def _normalization(name: str, value: object) -> Taken:
    word = word_of(value)
    if word not in ("layernorm", "rmsnorm"):
        raise InputError.unknown_name(name, value, ("LayerNorm", "RMSNorm"))
    return Taken(settings={"shape.norm": word})


def finish(values: Mapping[str, object], settings: dict[str, object]) -> None:
    """Make a shape of the arguments that say one, with what follows from them."""
    fused = (
        v for k, v in values.items() if k.replace("-", "_").endswith("cross_entropy_fusion_impl")
    )
    if word_of(next(fused, "native")) != "te":
        settings.pop("loss", None)
    each = settings.pop("virtual_layers", None)
    if each is not None and "shape.layers" in settings:
        # Layers of a stage in parts of so many.
        on_stage = int(str(settings["shape.layers"])) // int(str(settings.get("pipeline", 1)))
        settings["interleave"] = max(1, on_stage // int(str(each)))
    settings.setdefault("shape.rotary", False)
    shape = {
        name.removeprefix("shape."): settings.pop(name)
        for name in [*settings]
        if name.startswith("shape.")
    }
    rotary, grouped = shape.pop("rotary"), shape.pop("grouped", False)
    positions = shape.pop("max_positions", settings.get("sequence"))
    if not {"layers", "hidden", "heads"} <= shape.keys():
        return
    hidden = int(str(shape["hidden"]))
    gated = bool(shape.get("gated"))
    # Megatron's width of a gated layer: two thirds of four times hidden, in steps of 64.
    shape.setdefault("ffn", int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden)
    if "experts" not in shape:
        settings.pop("permutation", None)
    else:
        settings.setdefault("permutation", "unfused")
        shape.setdefault("expert_ffn", shape["ffn"])
        shape.setdefault("experts_per_token", 2)
    _latents(shape)
    if not rotary:
        shape["positions"] = positions or 0
    if not grouped:
        shape.pop("kv_heads", None)
    if shape.pop("no_bias", False):
        shape |= {"output_bias": False, "mlp_bias": False}
        shape.setdefault("qkv_bias", False)
    if "vocabulary" in shape and not shape.pop("padded", False):
        step = int(str(shape.pop("vocabulary_step", 128))) * int(str(settings.get("tensor", 1)))
        shape["vocabulary"] = -(-int(str(shape["vocabulary"])) // step) * step
    shape.pop("vocabulary_step", None)
    shape.pop("padded", None)
    settings["shape"] = shape


def _latents(shape: dict[str, object]) -> None:
    """Latent attention's sizes, as Megatron has them where nothing is said; or none."""
    latent = shape.pop("latent", False)
    for name, usual in _LATENT.items():
        if latent:
            shape.setdefault(name, usual)
        else:
            shape.pop(name, None)
    if latent:
        parts = (shape["qk_nope_head_dim"], shape["qk_rope_head_dim"])
        shape["head_dim"] = sum(int(str(part)) for part in parts)
        # --qk-layernorm norms the latents here, which they always are.
        shape.pop("qk_norm", None)


_LATENT = {
    "q_lora_rank": 0,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


@taken("padded_vocab_size", ("shape.vocabulary", "shape.padded"))
def _padded(name: str, value: object) -> Taken:
    number = parse_count(name, value)
    return Taken(settings={"shape.vocabulary": number, "shape.padded": True})


ROWS = (
    shape("num_layers", "layers"),
    shape("hidden_size", "hidden"),
    shape("num_attention_heads", "heads"),
    shape("ffn_hidden_size", "ffn"),
    shape("kv_channels", "head_dim"),
    shape("num_query_groups", "kv_heads"),
    shape_flag("group_query_attention", "grouped"),
    shape("vocab_size", "vocabulary"),
    _padded,
    shape("make_vocab_size_divisible_by", "vocabulary_step"),
    shape("max_position_embeddings", "max_positions"),
    _positions,
    shape_flag("use_rotary_position_embeddings", "rotary"),
    _normalization,
    taken("swiglu", ("shape.gated", "shape.activation"))(
        lambda name, value: Taken(
            settings={"shape.gated": True, "shape.activation": "silu"} if is_on(name, value) else {}
        )
    ),
    lost(
        "squared_relu",
        "its feed-forward layer was counted with GELU",
        "openai_gelu",
        "onnx_safe",
    ),
    shape_flag("untie_embeddings_and_output_weights", "tied", False),
    shape_flag("disable_bias_linear", "no_bias"),
    shape_flag("add_qkv_bias", "qkv_bias"),
    taken("qk_layernorm", ("shape.qk_norm",))(
        lambda name, value: Taken(settings={"shape.qk_norm": "head"} if is_on(name, value) else {})
    ),
    shape_flag("multi_latent_attention", "latent"),
    shape("q_lora_rank", "q_lora_rank"),
    shape("kv_lora_rank", "kv_lora_rank"),
    shape("qk_head_dim", "qk_nope_head_dim"),
    shape("qk_pos_emb_head_dim", "qk_rope_head_dim"),
    shape("v_head_dim", "v_head_dim"),
)
