"""Which steps of fine-tuning are traced: PEFT's LoRA and QLoRA, and what else makes room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .case import Case

#: (precision, frozen weights, adapters): as Trainer runs 16-bit weights by autocast; all in 16
#: bits; 32-bit adapters without autocast; what prepare_model_for_kbit_training makes.
FORMATS = (
    ("autocast", "bf16", "fp32"),
    ("bf16", "bf16", "bf16"),
    ("bf16", "bf16", "fp32"),
    ("autocast", "fp32", "fp32"),
)
RECOMPUTES = ("none", "full", "selective", "matmuls")

#: Families beside Llama; GPT-2's matrices are not in 4 bits here. A head's rows are few, so that a
#: layer's own peak is not lost under the logits'.
OTHERS = (
    "qwen2.5-0.5b",
    "qwen3-0.6b",
    "gemma-3-1b",
    "gemma-2-2b",
    "phi-3-mini",
    "mistral-7b",
    "gpt2",
)


def cases() -> Iterator[Case]:
    """Every step, in the order of the table."""
    for adapter in ("lora", "qlora"):
        yield from _known(adapter)
        for number, (precision, frozen, dtype) in enumerate(FORMATS):
            for place, recompute in enumerate(RECOMPUTES):
                yield _small(
                    adapter,
                    model="llama-3.2-1b",
                    precision=precision,
                    frozen_dtype=frozen,
                    adapter_dtype=dtype,
                    recompute=recompute,
                    adapter_targets="all-linear" if (number + place) % 2 else "query-value",
                    adapter_dropout=place > 1,
                    adapter_rank=8 << number,
                )
        for model in OTHERS:
            if adapter == "lora" or model != "gpt2":
                yield from _of_family(adapter, model)

    yield from _roomy()


#: What makes room: paged states, an optimizer in backward, tensors that wait on the CPU.
ROOMY: tuple[dict[str, Any], ...] = (
    {"precision": "bf16", "in_backward": True, "optimizer": "adamw-fused"},
    {"precision": "bf16", "in_backward": True, "optimizer": "paged-adamw-8bit"},
    {"precision": "autocast", "in_backward": True, "optimizer": "sgd-momentum"},
    {"precision": "autocast", "optimizer": "paged-adamw"},
    {"precision": "bf16", "recompute": "full", "offload": "checkpoints"},
    {"precision": "autocast", "recompute": "full", "offload": "checkpoints", "loss": "chunked"},
    {"precision": "bf16", "offload": "saved"},
    {"precision": "fp32", "offload": "saved", "attention": "eager"},
    {"precision": "autocast", "recompute": "full", "offload": "saved", "loss": "fused-linear"},
    {"precision": "autocast", "recompute": "full", "offload": "checkpoints", "adapter": "lora"},
)


def _roomy() -> Iterator[Case]:
    for model in ("llama-3.2-1b", "qwen3-0.6b", "phi-3-mini", "gpt2"):
        for more in ROOMY:
            yield _small(more.get("adapter", "none"), model=model, **_but_adapter(more))


def _but_adapter(more: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in more.items() if name != "adapter"}


def _known(adapter: str) -> Iterator[Case]:
    """Whole models as people tune them: Llama 2 7B and Llama 3 8B, layers run again."""
    frozen = "fp32" if adapter == "qlora" else "bf16"
    for model, targets in (("llama-2-7b", "query-value"), ("llama-3-8b", "all-linear")):
        yield Case(
            model=model,
            micro_batch=2,
            sequence=2048,
            precision="autocast",
            recompute="full",
            optimizer="adamw-8bit" if adapter == "qlora" else "adamw-fused",
            clip=True,
            adapter=adapter,
            adapter_targets=targets,
            adapter_dropout=True,
            frozen_dtype=frozen,
        )


def _of_family(adapter: str, model: str) -> Iterator[Case]:
    # Gemma 2 has eager attention alone.
    flash = "eager" if model == "gemma-2-2b" else "flash"
    first: dict[str, Any] = {"precision": "autocast", "attention": flash, "hold_logits": True}
    second = {"precision": "bf16", "adapter_dtype": "bf16", "attention": "eager", "clip": True}
    if adapter == "qlora":
        first |= {"frozen_dtype": "fp32", "recompute": "full"}
        second |= {"loss": "fused-linear"}
    else:
        second |= {"recompute": "full", "loss": "chunked", "micro_batches": 3}
    for more in (first, second):
        yield _small(adapter, model=model, adapter_targets="all-linear", **more)


def _small(adapter: str, *, model: str, **more: Any) -> Case:
    layers = 7 if model == "gemma-3-1b" else 4
    return Case(
        model=model,
        shape=(("layers", layers), ("vocabulary", 4096)),
        micro_batch=2,
        sequence=512,
        adapter=adapter,
        **more,
    )
