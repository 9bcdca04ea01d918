"""Which steps under DeepSpeed are traced: each stage by what it can be told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .case import Case
from .zero_case import ZeroCase

LLAMA_1B = Case(
    model="llama-3.2-1b",
    micro_batch=1,
    sequence=2048,
    precision="master",
    optimizer="adamw-fused",
)
LLAMA_7B = LLAMA_1B.with_(model="llama-7b", sequence=4096)
GPT2 = LLAMA_1B.with_(model="gpt2", sequence=1024, micro_batch=4)
QWEN = LLAMA_1B.with_(model="qwen2.5-0.5b", sequence=1024)
#: Of a head with few rows, so that the layers and the optimizer are not lost under the logits.
SMALL = QWEN.with_(shape=(("layers", 3), ("vocabulary", 8192)), sequence=512)
#: What transformers makes of "auto": the square of the hidden size.
AUTO_1B = 2048 * 2048


def cases() -> tuple[ZeroCase, ...]:
    """Every case of the table, in order."""
    return tuple(
        dict.fromkeys((*_first_two(), *_third(), *_zeroth(), *_others(), *_nvme(), *_adapters()))
    )


def _first_two() -> Iterator[ZeroCase]:
    for stage in (1, 2):
        base = ZeroCase(step=LLAMA_1B, data=8, stage=stage)
        yield base
        yield base.with_(rank=7)
        yield base.with_(data=64, reduce_bucket_size=AUTO_1B)
        in_fp32 = LLAMA_1B.with_(precision="fp32", optimizer="adamw-foreach", clip=True)
        yield base.with_(step=in_fp32)
        full = LLAMA_1B.with_(recompute="full")
        yield base.with_(step=full)
        yield base.with_(step=full, data=64, reduce_bucket_size=AUTO_1B)
        yield base.with_(step=full, overlap_comm=True)
        yield base.with_(step=full.with_(micro_batches=3), rank=7)
        yield ZeroCase(step=GPT2, data=4, stage=stage, reduce_bucket_size=10_000_000)
        sgd = QWEN.with_(optimizer="sgd-momentum", micro_batches=2)
        yield ZeroCase(step=sgd, data=64, stage=stage, rank=63, reduce_bucket_size=10_000_000)
    yield ZeroCase(step=LLAMA_7B.with_(recompute="full"), data=8, stage=2)


def _third() -> Iterator[ZeroCase]:
    base = ZeroCase(step=LLAMA_1B, data=8, stage=3)
    full = base.with_(step=LLAMA_1B.with_(recompute="full"))
    # What transformers makes of "auto": 0.9 of the hidden size's square, ten times the hidden size.
    auto = {
        "reduce_bucket_size": AUTO_1B,
        "prefetch_bucket_size": int(0.9 * AUTO_1B),
        "param_persistence_threshold": 20480,
    }
    # Of so many layers that weights are given back, and so few that a trace takes no quarter hour.
    part = LLAMA_7B.with_(shape=(("layers", 8),), sequence=1024)
    yield ZeroCase(step=part.with_(recompute="full"), data=8, stage=3)
    yield full.with_(data=64, **auto)
    yield ZeroCase(step=GPT2, data=4, stage=3, reduce_bucket_size=10_000_000)
    small = QWEN.with_(shape=(("layers", 3),), sequence=512)
    for stage in (2, 3):
        step = small.with_(recompute="full", micro_batches=stage - 1)
        yield ZeroCase(step=step, data=4, stage=stage, offload_optimizer="cpu")
    away = ZeroCase(step=step, data=4, stage=3, offload_optimizer="cpu")
    yield away.with_(offload_param="cpu")
    yield ZeroCase(step=small, data=64, stage=3, prefetch_bucket_size=0)
    yield ZeroCase(step=small.with_(precision="fp32", optimizer="adamw-foreach"), data=4, stage=3)
    yield base


def _zeroth() -> Iterator[ZeroCase]:
    """Without ZeRO."""
    base = ZeroCase(step=LLAMA_1B, data=8, stage=0)
    yield base
    yield base.with_(step=LLAMA_1B.with_(optimizer="adamw-deepspeed", recompute="full"))
    fp32 = LLAMA_1B.with_(precision="fp32", clip=True, micro_batches=2)
    for optimizer in ("adamw-foreach", "adamw-deepspeed"):
        yield base.with_(step=fp32.with_(optimizer=optimizer))
    gpt2 = GPT2.with_(micro_batches=3, clip=True)
    for optimizer in ("adamw-forloop", "adamw-deepspeed"):
        yield ZeroCase(step=gpt2.with_(optimizer=optimizer), data=4, stage=0)
    for optimizer in (*OPTIMIZERS, "adamw-foreach"):
        step = SMALL.with_(optimizer=optimizer, loss="chunked" if "8bit" in optimizer else "full")
        yield ZeroCase(step=step, data=2, stage=0)


#: Those that are not AdamW in 32 bits.
OPTIMIZERS = ("sgd-momentum", "adafactor", "adafactor-hf", "adamw-8bit", "paged-adamw-8bit")


def _others() -> Iterator[ZeroCase]:
    """Other optimizers and losses."""
    for number, optimizer in enumerate((*OPTIMIZERS, "adamw-deepspeed", "adamw-forloop")):
        for stage in (1, 2, 3):
            more: dict[str, Any] = {"micro_batches": 1 + (number + stage) % 2}
            if stage < 3:
                more["loss"] = ("full", "chunked", "fused-linear")[(number + stage) % 3]
            if optimizer == "adafactor":
                more["precision"] = "fp32"
            step = SMALL.with_(optimizer=optimizer, **more)
            # So large a bucket that gradients go in several.
            size = 3_000_000
            yield ZeroCase(step=step, data=4, stage=stage, reduce_bucket_size=size, rank=stage - 1)
    untied = LLAMA_7B.with_(
        shape=(("layers", 3), ("hidden", 1024), ("heads", 8), ("ffn", 2816)), sequence=2560
    )
    for loss in ("chunked", "fused-linear"):
        for step in (SMALL.with_(sequence=2560, micro_batches=2), untied):
            recompute = "full" if step is untied else "none"
            losing = step.with_(loss=loss, recompute=recompute)
            yield ZeroCase(step=losing, data=4, stage=3, reduce_bucket_size=3_000_000)


def _nvme() -> Iterator[ZeroCase]:
    """States and weights on disks: gradients that are written, and such as are too small for it."""
    step = SMALL.with_(recompute="full")
    base = ZeroCase(step=step, data=4, stage=3, offload_optimizer="nvme")
    yield base
    yield base.with_(step=step.with_(micro_batches=2), reduce_bucket_size=5_000_000)
    yield base.with_(step=step.with_(precision="fp32"), data=2, reduce_bucket_size=9_000_000)
    yield base.with_(data=64, offload_param="nvme")
    # Shares that are no multiple of what is written at a time.
    yield base.with_(step=GPT2.with_(shape=(("layers", 2),)), data=9, offload_param="cpu")
    yield base.with_(offload_optimizer="none", offload_param="cpu")
    yield base.with_(offload_optimizer="cpu", offload_param="nvme", reduce_bucket_size=5_000_000)


def _adapters() -> Iterator[ZeroCase]:
    """PEFT's adapters beside frozen weights, which DeepSpeed's engine turns into 16 bits too."""
    for adapter in ("lora", "qlora"):
        step = SMALL.with_(adapter=adapter, adapter_dtype="bf16", adapter_targets="all-linear")
        for stage in (0, 1, 2):
            more: dict[str, Any] = {"micro_batches": 1 + stage % 2, "adapter_dropout": stage > 1}
            yield ZeroCase(step=step.with_(recompute="full", **more), data=4, stage=stage)
        part = LLAMA_7B.with_(
            shape=(("layers", 8),),
            sequence=1024,
            recompute="full",
            adapter=adapter,
            adapter_dtype="bf16",
        )
        yield ZeroCase(step=part, data=8, stage=2, reduce_bucket_size=AUTO_1B)
    fp32 = SMALL.with_(precision="fp32", adapter="lora", adapter_dtype="fp32", frozen_dtype="fp32")
    yield ZeroCase(step=fp32, data=4, stage=2)
    fused = SMALL.with_(adapter="lora", adapter_dtype="bf16", optimizer="adamw-deepspeed")
    yield ZeroCase(step=fused, data=4, stage=0)
