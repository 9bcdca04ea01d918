"""Runs to start from: the chapter's example, and others that readers come with."""

from __future__ import annotations

from collections.abc import Mapping

from .records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A whole run under a name; ``run`` is JSON for :meth:`Run.from_json`."""

    id: str
    name: str
    run: Mapping[str, object]


_ALL = (
    Preset(
        id="llama-7b",
        name="LLaMA 7B",
        run={"model": "llama-7b", "sequence": 4096, "micro_batch": 1},
    ),
    Preset(
        id="gpt2-xl",
        name="GPT-2 XL",
        run={"model": "gpt2-xl", "sequence": 1024, "micro_batch": 4, "gpu": "v100-32gb"},
    ),
    Preset(
        id="llama-3.1-8b-zero",
        name="Llama 3.1 8B on 8 GPUs",
        run={
            "model": "llama-3.1-8b",
            "sequence": 8192,
            "micro_batch": 1,
            "recompute": "full",
            "data": 8,
            "zero": 3,
            "gpu": "h100-80gb",
        },
    ),
    # Korthikanti et al. 2022, Table 3: 8-way tensor, 8 pipeline stages, a batch of 64 in ones.
    Preset(
        id="gpt3-megatron",
        name="GPT-3 size on 64 GPUs",
        run={
            "model": "korthikanti-175b",
            "sequence": 2048,
            "micro_batch": 1,
            "micro_batches": 64,
            "recompute": "selective",
            "tensor": 8,
            "sequence_parallel": True,
            "pipeline": 8,
            "gpu": "a100-80gb",
        },
    ),
    # As Dettmers et al. 2023 (arXiv:2305.14314) tune: every product adapted, all else put into 32
    # bits by PEFT, layers run again, states paged.
    Preset(
        id="qlora-7b",
        name="QLoRA of a 7B on 24 GB",
        run={
            "model": "llama-2-7b",
            "sequence": 2048,
            "micro_batch": 4,
            "recipe": "autocast-adam",
            "recompute": "full",
            "implementation": "huggingface",
            "optimizer": "paged-adamw",
            "adapter": "qlora",
            "adapter_rank": 64,
            "frozen_dtype": "fp32",
            "gpu": "rtx-4090-24gb",
        },
    ),
    Preset(
        id="lora-70b",
        name="LoRA of a 70B on 8 × 80 GB",
        run={
            "model": "llama-3.1-70b",
            "sequence": 8192,
            "recipe": "autocast-adam",
            "recompute": "full",
            "implementation": "huggingface",
            "adapter": "lora",
            "data": 8,
            "zero": 3,
            "gpu": "h100-80gb",
        },
    ),
    # Answer.AI, "You can now train a 70b language model at home", 2024: FSDP and QLoRA.
    Preset(
        id="qlora-70b",
        name="QLoRA of a 70B on 2 × 24 GB",
        run={
            "model": "llama-2-70b",
            "sequence": 512,
            "recipe": "autocast-adam",
            "recompute": "full",
            "implementation": "huggingface",
            "adapter": "qlora",
            "data": 2,
            "zero": 3,
            "gpu": "rtx-4090-24gb",
        },
    ),
    Preset(
        id="decoder",
        name="The tiny Decoder",
        run={"model": "decoder", "sequence": 8, "micro_batch": 16},
    ),
)

#: Every preset by its id, in the order in which they are offered.
PRESETS: Mapping[str, Preset] = {preset.id: preset for preset in _ALL}

#: The preset that an untouched calculator shows.
FIRST = "llama-7b"
