"""Which steps under PyTorch's first FSDP are traced: each strategy by what it can be told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .case import Case
from .fsdp1_case import Fsdp1Case

LLAMA_1B = Case(
    model="llama-3.2-1b",
    shape=(("layers", 4),),
    micro_batch=2,
    sequence=1024,
    precision="autocast",
    optimizer="adamw-fused",
)
#: A head of few rows, so that a layer's peak is higher than the whole model's unit's.
SMALL_HEAD = LLAMA_1B.with_(shape=(("layers", 4), ("vocabulary", 4096)))
LLAMA_7B = LLAMA_1B.with_(model="llama-7b", shape=(), micro_batch=1, sequence=4096)
LLAMA_8B = LLAMA_7B.with_(model="llama-3-8b", shape=(("layers", 8),), sequence=2048)
QWEN = LLAMA_1B.with_(model="qwen2.5-0.5b", shape=())
GPT2 = LLAMA_1B.with_(model="gpt2", shape=(), micro_batch=8)
MISTRAL = LLAMA_1B.with_(model="mistral-7b", shape=(("layers", 4),))


def cases() -> tuple[Fsdp1Case, ...]:
    """Every case of the table, in order."""
    return tuple(
        dict.fromkeys(
            (
                *_strategies(),
                *_told(),
                *_models(),
                *_precisions(),
                *_waiting(),
                *_away(),
                *_roomy(),
                *_families(),
                *_adapted(),
                *_adapted_otherwise(),
                *_adapted_families(),
                *_adapted_and_roomy(),
            )
        )
    )


def _both(step: Case) -> Iterator[Case]:
    """Everything kept, and whole layers computed again."""
    for recompute in ("none", "full"):
        yield step.with_(recompute=recompute)


def _strategies() -> Iterator[Fsdp1Case]:
    for step, data in product(_both(SMALL_HEAD), (8, 64)):
        base = Fsdp1Case(step=step, data=data)
        yield base
        yield base.with_(strategy="shard_grad_op")
        yield base.with_(strategy="no_shard")
    for step in _both(SMALL_HEAD):
        base = Fsdp1Case(step=step, data=8, replicas=8, strategy="hybrid_shard")
        yield base
        yield base.with_(strategy="hybrid_shard_zero2", reduce_dtype="fp32")


def _told() -> Iterator[Fsdp1Case]:
    for step in _both(SMALL_HEAD):
        base = Fsdp1Case(step=step, data=8)
        yield base.with_(use_orig_params=False)
        yield base.with_(reduce_dtype="fp32")
        for prefetch in ("pre", "post"):
            yield base.with_(backward_prefetch=prefetch)
        yield base.with_(forward_prefetch=True)
        yield base.with_(forward_prefetch=True, backward_prefetch="pre", limit_all_gathers=False)
        yield base.with_(data=64, use_orig_params=False, reduce_dtype="fp32")
        yield base.with_(strategy="shard_grad_op", forward_prefetch=True, backward_prefetch="pre")


def _models() -> Iterator[Fsdp1Case]:
    for recompute in ("none", "full"):
        whole = LLAMA_7B.with_(recompute=recompute, clip=True)
        yield Fsdp1Case(step=whole, data=8, backward_prefetch="pre")
    for model, orig in product((LLAMA_8B, QWEN, GPT2, MISTRAL), (True, False)):
        step = model.with_(recompute="none" if orig else "full")
        # 7 GPUs divide no weight: everything is padded.
        yield Fsdp1Case(step=step, data=64 if orig else 7, use_orig_params=orig)


def _precisions() -> Iterator[Fsdp1Case]:
    for precision, optimizer in (("fp32", "adamw-foreach"), ("bf16", "adamw-forloop")):
        for step in _both(SMALL_HEAD.with_(precision=precision, optimizer=optimizer, clip=True)):
            base = Fsdp1Case(step=step, data=8, backward_prefetch="pre")
            yield base
            yield base.with_(strategy="shard_grad_op", use_orig_params=False)
            yield base.with_(strategy="no_shard")
    for orig in (True, False):
        step = SMALL_HEAD.with_(optimizer="adamw-foreach", clip=True)
        yield Fsdp1Case(step=step, data=8, use_orig_params=orig)
        yield Fsdp1Case(step=step.with_(optimizer="sgd-momentum"), data=8, use_orig_params=orig)


def _waiting() -> Iterator[Fsdp1Case]:
    for step, synced in product(_both(SMALL_HEAD.with_(micro_batches=3, clip=True)), (False, True)):
        base = Fsdp1Case(step=step, data=8, synced=synced)
        yield base
        yield base.with_(strategy="shard_grad_op", reduce_dtype="fp32", backward_prefetch="pre")
        yield base.with_(strategy="no_shard", use_orig_params=False)
        yield base.with_(use_orig_params=False, step=step.with_(precision="fp32"))
    yield base.with_(synced=False, step=step.with_(micro_batches=2, precision="bf16"))


def _away() -> Iterator[Fsdp1Case]:
    for step in _both(SMALL_HEAD):
        base = Fsdp1Case(step=step, data=8, offload_params=True)
        yield base
        yield base.with_(backward_prefetch="pre", reduce_dtype="fp32", use_orig_params=False)
        yield base.with_(strategy="shard_grad_op", step=step.with_(precision="bf16"))
        yield base.with_(step=step.with_(micro_batches=3, clip=True))
    for precision, orig in product(("bf16", "fp32"), (True, False)):
        step = SMALL_HEAD.with_(precision=precision, clip=True, recompute="full")
        base = Fsdp1Case(step=step, data=8, offload_params=True, use_orig_params=orig)
        yield base
        yield base.with_(strategy="shard_grad_op", backward_prefetch="pre", forward_prefetch=True)
        yield base.with_(strategy="hybrid_shard", replicas=4)


def _roomy() -> Iterator[Fsdp1Case]:
    """What makes room, and what takes it: each with one layout of the weights or the other."""
    told: tuple[dict[str, object], ...] = (
        {"loss": "fused-linear"},
        {"loss": "chunked"},
        {"loss": "fused-linear", "precision": "bf16", "recompute": "full"},
        {"recompute": "full", "offload": "checkpoints"},
        {"offload": "saved"},
        {"recompute": "selective"},
        {"recompute": "matmuls"},
        {"attention": "eager"},
        {"hold_logits": True, "micro_batches": 2},
        {"optimizer": "adafactor"},
        {"optimizer": "adafactor-hf", "precision": "bf16"},
        {"optimizer": "adamw-8bit"},
        {"optimizer": "paged-adamw"},
        {"optimizer": "paged-adamw-8bit", "precision": "bf16"},
    )
    for number, more in enumerate(told):
        step = SMALL_HEAD.with_(**more)
        yield Fsdp1Case(step=step, data=8, use_orig_params=number % 2 == 0)
    for optimizer in ("adafactor", "adamw-8bit"):
        step = SMALL_HEAD.with_(optimizer=optimizer, clip=True)
        yield Fsdp1Case(step=step, data=8, use_orig_params=optimizer != "adafactor")
        yield Fsdp1Case(step=step, data=8, strategy="no_shard")


#: Families beside the first ones.
FAMILIES = ("qwen3-0.6b", "gemma-3-1b", "gemma-2-2b", "phi-3-mini", "mixtral-8x7b")


def _families() -> Iterator[Fsdp1Case]:
    for model in FAMILIES:
        shape = (("layers", 7 if model == "gemma-3-1b" else 3), ("vocabulary", 4096))
        # Gemma 2 caps its scores, which no kernel of PyTorch's does.
        attention = "eager" if model == "gemma-2-2b" else "flash"
        step = SMALL_HEAD.with_(model=model, shape=shape, attention=attention)
        for recompute, precision in (("none", "autocast"), ("full", "bf16")):
            one = step.with_(recompute=recompute, precision=precision)
            yield Fsdp1Case(step=one, data=8, backward_prefetch="pre")


#: A head of few rows and every product adapted, few tokens: gathered layers count for much.
ADAPTED = SMALL_HEAD.with_(sequence=512, adapter_targets="all-linear")
QUERY_VALUE = {"adapter_targets": "query-value", "adapter_rank": 8, "adapter_dropout": True}


def _adapted() -> Iterator[Fsdp1Case]:
    """Adapters, each of whose matrices is a unit (PEFT's fsdp_auto_wrap_policy)."""
    for adapter, recompute in product(("lora", "qlora"), ("none", "full")):
        step = ADAPTED.with_(adapter=adapter, recompute=recompute)
        base = Fsdp1Case(step=step, data=8)
        # bitsandbytes puts a weight of its own in a gathered one's place, at which FSDP stops
        # where it stays gathered and the optimizer has views of it.
        stays = base.with_(strategy="shard_grad_op", use_orig_params=adapter == "lora")
        waits = step.with_(micro_batches=3, clip=True)
        yield base
        yield base.with_(use_orig_params=False)
        yield stays
        yield base.with_(backward_prefetch="pre")
        yield base.with_(backward_prefetch="post", use_orig_params=False)
        yield base.with_(forward_prefetch=True, backward_prefetch="pre")
        yield base.with_(step=waits)
        yield stays.with_(step=waits)
        yield base.with_(offload_params=True)
        yield base.with_(offload_params=True, use_orig_params=False, backward_prefetch="pre")
        yield base.with_(data=64, step=step.with_(**QUERY_VALUE))
        yield base.with_(step=waits, synced=True, use_orig_params=False)


def _adapted_otherwise() -> Iterator[Fsdp1Case]:
    for recompute in ("none", "full"):
        step = ADAPTED.with_(adapter="lora", recompute=recompute)
        base = Fsdp1Case(step=step, data=8)
        yield base.with_(reduce_dtype="fp32", step=step.with_(**QUERY_VALUE))
        yield base.with_(step=step.with_(frozen_dtype="fp32"), backward_prefetch="pre")
        yield base.with_(step=step.with_(precision="bf16", adapter_dtype="bf16"))
        yield base.with_(step=step.with_(precision="bf16", adapter_dtype="fp32"))
        whole = step.with_(precision="fp32", frozen_dtype="fp32", optimizer="adamw-foreach")
        yield base.with_(step=whole, use_orig_params=False)
        yield base.with_(strategy="hybrid_shard", replicas=4)
        sixteen = step.with_(adapter="qlora", precision="bf16", adapter_dtype="bf16")
        yield base.with_(step=sixteen, backward_prefetch="pre")
        # 7 GPUs divide no matrix: everything is padded.
        yield base.with_(data=7, use_orig_params=recompute == "full")


def _adapted_families() -> Iterator[Fsdp1Case]:
    """Models as people tune them, and families whose layers are another code's."""
    for adapter in ("lora", "qlora"):
        step = ADAPTED.with_(
            model="llama-3-8b",
            shape=(),
            micro_batch=1,
            sequence=2048,
            adapter=adapter,
            adapter_dropout=True,
            recompute="full",
            clip=True,
        )
        yield Fsdp1Case(step=step, data=8, backward_prefetch="pre")
    large = step.with_(model="llama-3-70b", shape=(("layers", 8),))
    yield Fsdp1Case(step=large, data=8, offload_params=True, use_orig_params=False)
    for model in ("qwen2.5-0.5b", "qwen3-0.6b", "gemma-3-1b", "phi-3-mini", "mistral-7b", "gpt2"):
        shape = (("layers", 7 if model == "gemma-3-1b" else 4), ("vocabulary", 4096))
        step = ADAPTED.with_(model=model, shape=shape, adapter="lora")
        yield Fsdp1Case(step=step, data=8, backward_prefetch="pre")
        # GPT-2's matrices are not in 4 bits here.
        four = step.with_(adapter="lora" if model == "gpt2" else "qlora", recompute="full")
        yield Fsdp1Case(step=four, data=8, use_orig_params=False)


def _adapted_and_roomy() -> Iterator[Fsdp1Case]:
    told: tuple[dict[str, object], ...] = (
        {"recompute": "full", "offload": "checkpoints"},
        {"offload": "saved"},
        {"recompute": "selective"},
        {"recompute": "matmuls"},
        {"loss": "fused-linear"},
        {"loss": "chunked", "recompute": "full"},
        {"optimizer": "adamw-8bit", "recompute": "full", "clip": True},
        {"optimizer": "paged-adamw-8bit"},
        {"optimizer": "adafactor"},
    )
    for number, more in enumerate(told):
        step = ADAPTED.with_(adapter="qlora" if number % 2 else "lora", **more)
        yield Fsdp1Case(step=step, data=8, use_orig_params=number % 3 > 0)
