"""Count the parameters that transformers builds from each published configuration, without weights.

Run by hand, in an environment with torch and transformers (see README.md beside this file):

    python scripts/parameters/record.py           # writes tests/calculator/data/parameters.json
    python scripts/parameters/record.py --check   # says what would change, and changes nothing

Nothing here imports the calculator: the record is what its counts are held against.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "tests" / "calculator" / "data"
RECORD = DATA / "parameters.json"

# What a parameter is part of, by a piece of its name; the first that fits. Norms come first because
# they sit inside the modules that they serve (self_attn.q_norm), and so do routers (mlp.gate).
COMPONENTS = (
    ("norms", ("norm", ".ln_1.", ".ln_2.", ".ln_f.")),
    ("router", (".gate.weight", "shared_expert_gate.", ".router.")),
    ("embedding", ("embed_tokens.", ".wte.", "embed_in.")),
    ("positions", (".wpe.",)),
    ("head", ("lm_head.", "embed_out.")),
    ("attention", ("attn.", "attention.")),
    ("mlp", (".mlp.", ".experts.", ".shared_experts.")),
)
SHOWN = ("embedding", "positions", "attention", "mlp", "router", "norms", "head")

# Small configurations that no one published, for what a published one does not show: which keys may
# be missing and what then holds, what null means, and what each flag adds in each class.
SIZES = {
    "hidden_size": 512,
    "intermediate_size": 320,
    "num_attention_heads": 32,
    "num_hidden_layers": 5,
    "vocab_size": 40_000,
}
EXPERTS = {"moe_intermediate_size": 96, "num_experts_per_tok": 2}
LEAST: dict[str, dict[str, Any]] = {
    "deepseek_v2": {**SIZES, **EXPERTS, "n_routed_experts": 6},
    "deepseek_v3": {**SIZES, **EXPERTS, "n_routed_experts": 8},
    "gemma": SIZES,
    "gemma2": SIZES,
    "gemma3_text": {"hidden_size": 512, "intermediate_size": 320, "num_hidden_layers": 5},
    "gpt2": {"n_embd": 512, "n_head": 8, "n_layer": 5, "vocab_size": 40_000},
    "gpt_neox": SIZES,
    "llama": SIZES,
    "mistral": SIZES,
    "mixtral": SIZES,
    "olmo2": SIZES,
    "phi3": SIZES,
    "qwen2": SIZES,
    "qwen2_moe": {**SIZES, **EXPERTS, "num_experts": 6},
    "qwen3": SIZES,
    "qwen3_moe": {**SIZES, **EXPERTS, "num_experts": 6},
}
FLAGS: dict[str, Any] = {"attention_bias": True, "mlp_bias": True, "qkv_bias": False}
USUAL: tuple[dict[str, Any], ...] = (
    FLAGS,
    {"tie_word_embeddings": True},
    {"tie_word_embeddings": False, "num_key_value_heads": 2, "head_dim": 48},
)
NULL_HEADS: dict[str, Any] = {"num_key_value_heads": None}
CHANGES: dict[str, tuple[dict[str, Any], ...]] = {
    "deepseek_v2": ({"q_lora_rank": None}, {"n_shared_experts": 3, "head_dim": 7}),
    "deepseek_v3": ({"q_lora_rank": None}, {"first_k_dense_replace": 0, "num_key_value_heads": 4}),
    "gpt2": ({"n_inner": 100, "n_positions": 64}, {"tie_word_embeddings": False}),
    "gpt_neox": ({"attention_bias": False, "tie_word_embeddings": True},),
    "llama": (*USUAL, NULL_HEADS),
    "olmo2": (*USUAL, NULL_HEADS),
    "phi3": (*USUAL, NULL_HEADS),
    "qwen3_moe": (*USUAL, {"mlp_only_layers": [0, 1]}),
}


def variants() -> list[dict[str, Any]]:
    """Each supported model type with no more keys than it needs, then with some changed."""
    return [
        {"model_type": model_type, **least, **change}
        for model_type, least in LEAST.items()
        for change in ({}, *CHANGES.get(model_type, USUAL))
    ]


def component(name: str) -> str:
    """Which component a parameter belongs to; a name that fits none is an error, not a guess."""
    for found, pieces in COMPONENTS:
        if any(piece in f".{name}" for piece in pieces):
            return found
    raise SystemExit(f"record.py: no component for the parameter {name!r}; add one to COMPONENTS")


def text_config(published: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a configuration, where it also describes a vision tower."""
    part: dict[str, Any] = published.get("text_config", published)
    return part


def count(published: dict[str, Any]) -> dict[str, Any]:
    """Build the causal language model on the meta device, where tensors have shapes and no data."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    values = text_config(published)
    config = transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    by_component = dict.fromkeys(SHOWN, 0)
    # A tied head is the embedding's own tensor, which named_parameters gives once.
    for name, parameter in model.named_parameters():
        by_component[component(name)] += parameter.numel()
    return {
        "class": type(model).__name__,
        "model_type": values["model_type"],
        "total": sum(by_component.values()),
        "by_component": by_component,
    }


def record() -> str:
    """The whole record as JSON text."""
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    models = {
        path.stem: count(json.loads(path.read_text(encoding="utf-8")))
        for path in sorted((DATA / "configs").glob("*.json"))
    }
    document = {
        "written_by": "scripts/parameters/record.py",
        "versions": {
            "torch": import_module("torch").__version__,
            "transformers": transformers.__version__,
        },
        "models": models,
        "variants": [{"config": config, **count(config)} for config in variants()],
    }
    return json.dumps(document, indent=2) + "\n"


def main() -> int:
    """Write the record, or compare it. Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    arguments = parser.parse_args()
    text = record()
    if not arguments.check:
        RECORD.write_text(text, encoding="utf-8")
        return 0
    before = RECORD.read_text(encoding="utf-8") if RECORD.exists() else ""
    difference = difflib.unified_diff(before.splitlines(), text.splitlines(), "recorded", "built")
    lines = list(difference)
    print("\n".join(lines[:60]) or "The record is what transformers builds.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
