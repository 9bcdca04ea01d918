"""A model of the catalogue as PyTorch builds it: transformers' own classes, or the plain Llama."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from training_memory.model import Model, QkNorm

from .backend import torch


def class_names(model: Model) -> tuple[str, str]:
    """The configuration and the causal language model class of transformers for a shape."""
    match model.family:
        case "gpt":
            stem = "GPT2"
            return "GPT2Config", "GPT2LMHeadModel"
        case "llama" | "mistral" | "mixtral" | "phi":
            stem = {"llama": "Llama", "mistral": "Mistral", "mixtral": "Mixtral", "phi": "Phi3"}[
                model.family
            ]
        case "qwen":
            stem = "Qwen3" if model.qk_norm is QkNorm.HEAD else "Qwen2"
        case "gemma":
            if model.qk_norm is QkNorm.HEAD:
                return "Gemma3TextConfig", "Gemma3ForCausalLM"
            stem = "Gemma2"
        case _:
            raise ValueError(f"family {model.family!r} is not traced")
    return f"{stem}Config", f"{stem}ForCausalLM"


#: The names of a configuration's dropouts, where it has others than attention's.
_DROPOUTS = {
    "gpt": ("attn_pdrop", "resid_pdrop", "embd_pdrop"),
    "phi": ("attention_dropout", "resid_pdrop"),
}


def config_values(model: Model, *, attention: str, dropout: str = "own") -> dict[str, Any]:
    """The keys of transformers' configuration that a case decides; the rest are its defaults."""
    rate = {"own": None, "on": 0.1, "off": 0.0}[dropout]
    names = _DROPOUTS.get(model.family, ("attention_dropout",))
    dropouts = {} if rate is None else dict.fromkeys(names, rate)
    if model.family == "gpt":
        return {
            **dropouts,
            "vocab_size": model.vocabulary,
            "n_embd": model.hidden,
            "n_layer": model.layers,
            "n_head": model.heads,
            "n_inner": model.ffn,
            "n_positions": model.positions,
            "tie_word_embeddings": model.tied,
            "use_cache": False,
        }
    values = {
        **dropouts,
        "vocab_size": model.vocabulary,
        "hidden_size": model.hidden,
        "intermediate_size": model.expert_ffn if model.experts else model.ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "tie_word_embeddings": model.tied,
        "max_position_embeddings": model.context or 8192,
        # Token numbers that need not fit a small vocabulary.
        "pad_token_id": None,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "use_cache": False,
    }
    if model.family == "phi":
        del values["head_dim"]
    if model.family in ("mistral", "mixtral", "phi"):
        # A window shorter than the sequence means a mask, and a mask means no flash kernel.
        values["sliding_window"] = None
    if model.experts:
        values |= {
            "num_local_experts": model.experts,
            "num_experts_per_tok": model.experts_per_token,
        }
    if model.family == "gemma" and model.qk_norm is QkNorm.NONE and attention != "eager":
        # transformers refuses Gemma 2's capped scores with PyTorch's attention kernels.
        values["attn_logit_softcapping"] = None
    return values


def build(
    model: Model,
    *,
    implementation: str,
    attention: str,
    dtype: Any,
    device: str,
    mlp: str = "own",
    norm: str = "own",
    dropout: str = "own",
) -> Any:
    """The model in training mode, its weights in ``dtype``."""
    with default_dtype(dtype), torch.device(device):
        if implementation == "torchtitan":
            built = import_module(".plain_llama", __package__).PlainLlama(model, attention)
        elif implementation == "paper":
            built = import_module(".classic_gpt", __package__).ClassicGpt(model, attention)
        else:
            transformers = import_module("transformers")
            config_class, model_class = class_names(model)
            config = getattr(transformers, config_class)(
                **config_values(model, attention=attention, dropout=dropout)
            )
            config._attn_implementation = "eager" if attention == "eager" else "sdpa"
            _ask_no_values()
            built = getattr(transformers, model_class)(config)
        if (mlp, norm) != ("own", "own"):
            import_module(".kernels", __package__).apply(built, norm=norm, mlp=mlp)
    return built.train()


def _ask_no_values() -> None:
    """Keep transformers from building a mask that real batches never get.

    It looks into the position numbers for several documents packed in one row. Fake tensors have no
    values, and for fear of what it cannot see it would build a whole mask, which rules flash out.
    """
    masks: Any = import_module("transformers.masking_utils")
    masks.find_packed_sequence_indices = lambda position_ids: None


@contextmanager
def default_dtype(dtype: Any) -> Iterator[None]:
    """New parameters in this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
