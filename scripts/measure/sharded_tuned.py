"""Which steps on several GPUs are traced beside the first ones: adapters, and what makes room."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from .case import Case
from .sharded_case import ShardedCase


def _case(model: str, **more: Any) -> Case:
    """A few layers, and a head of few rows, so that a layer's peak is higher than the logits'."""
    values: dict[str, Any] = {
        "shape": (("layers", 4), ("vocabulary", 4096)),
        "micro_batch": 2,
        "sequence": 512,
        "precision": "autocast",
        "optimizer": "adamw-fused",
        "adapter_targets": "all-linear",
    }
    return Case(model=model, **{**values, **more})


def cases() -> tuple[ShardedCase, ...]:
    """Every case of the table, in order."""
    return tuple(
        dict.fromkeys(
            (
                *_whole_models(),
                *_ddp(),
                *_fsdp2(),
                *_of_families(),
                *_roomy(),
                *_tensor(),
                *_synced(),
                *_first(),
                *_away(),
                *_adapters_away(),
                *_more_families(),
                *_tied(),
                *_uneven(),
                *_clipped(),
                *_split_and_roomy(),
                *_split_and_adapted(),
            )
        )
    )


def _whole_models() -> Iterator[ShardedCase]:
    """Models as people tune them: every layer adapted and run again; of the 70B some layers."""
    for adapter, rank in (("lora", 16), ("qlora", 8)):
        for model, data in (("llama-3-8b", 8), ("llama-3-70b", 8), ("llama-3-70b", 64)):
            step = Case(
                model=model,
                shape=(("layers", 8),) if model == "llama-3-70b" else (),
                micro_batch=1,
                sequence=2048,
                precision="autocast",
                recompute="full",
                optimizer="adamw-fused",
                clip=True,
                adapter=adapter,
                adapter_rank=rank,
                adapter_targets="all-linear",
                adapter_dropout=True,
            )
            yield ShardedCase(step=step, data=data, sharding="fsdp2", wrap="ends")
        yield ShardedCase(step=step, data=8, sharding="ddp")


def _ddp() -> Iterator[ShardedCase]:
    for adapter, recompute in product(("lora", "qlora"), ("none", "full")):
        step = _case("llama-3.2-1b", adapter=adapter, recompute=recompute)
        for data, views in ((8, False), (64, True)):
            yield ShardedCase(step=step, data=data, sharding="ddp", bucket_views=views)
        sixteen = step.with_(precision="bf16", adapter_dtype="bf16", adapter_targets="query-value")
        yield ShardedCase(step=sixteen, data=8, sharding="ddp")
    step = _case("qwen2.5-0.5b", adapter="lora", micro_batches=3, clip=True)
    yield ShardedCase(step=step, data=8, sharding="ddp")


def _fsdp2() -> Iterator[ShardedCase]:
    for adapter, recompute in product(("lora", "qlora"), ("none", "full")):
        step = _case("llama-3.2-1b", adapter=adapter, recompute=recompute)
        base = ShardedCase(step=step, data=8, sharding="fsdp2", wrap="ends")
        yield base
        yield base.with_(wrap="layers")
        yield base.with_(data=64)
        yield base.with_(reshard=False)
        yield base.with_(reduce_dtype="bf16", prefetch="explicit")
        yield base.with_(replicas=4)
        yield base.with_(step=step.with_(adapter_targets="query-value", adapter_rank=8))
        yield base.with_(step=step.with_(precision="bf16", adapter_dtype="bf16"))
        # Numbers of two dtypes are gathered as bytes.
        yield base.with_(step=step.with_(precision="bf16", adapter_dtype="fp32"))
        yield base.with_(step=step.with_(frozen_dtype="fp32"))
        yield base.with_(step=step.with_(micro_batches=3, clip=True), synced=False)
        if adapter == "qlora":
            yield base.with_(quant_storage="uint8")


#: Families beside Llama; GPT-2's matrices are not in 4 bits here.
FAMILIES = ("qwen2.5-0.5b", "qwen3-0.6b", "gemma-3-1b", "phi-3-mini", "mistral-7b", "gpt2")


def _of_families() -> Iterator[ShardedCase]:
    for model in FAMILIES:
        layers = 7 if model == "gemma-3-1b" else 4
        shape = (("layers", layers), ("vocabulary", 4096))
        plain = _case(model, shape=shape, adapter="lora")
        yield ShardedCase(step=plain, data=8, sharding="fsdp2", wrap="ends")
        again = plain.with_(recompute="full", adapter="lora" if model == "gpt2" else "qlora")
        yield ShardedCase(step=again, data=8, sharding="fsdp2", wrap="ends")
    # Biases of 4-bit products in 32 bits.
    step = _case("qwen2.5-0.5b", adapter="qlora", frozen_dtype="fp32")
    yield ShardedCase(step=step, data=8, sharding="fsdp2", wrap="ends")


#: What makes room on one of several GPUs: (sharding, what of the step).
ROOMY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fsdp2", {"in_backward": True}),
    ("fsdp2", {"in_backward": True, "recompute": "full", "precision": "bf16"}),
    ("fsdp2", {"recompute": "full", "offload": "checkpoints"}),
    ("fsdp2", {"offload": "saved"}),
    ("fsdp2", {"loss": "fused-linear"}),
    ("fsdp2", {"loss": "fused-linear", "recompute": "full", "precision": "fp32"}),
    ("ddp", {"recompute": "full", "offload": "checkpoints"}),
    ("ddp", {"offload": "saved", "loss": "fused-linear"}),
    ("ddp", {"loss": "chunked", "optimizer": "adamw-8bit"}),
    ("ddp", {"optimizer": "muon", "precision": "bf16"}),
    ("ddp", {"optimizer": "paged-adamw"}),
    ("ddp", {"optimizer": "adafactor", "recompute": "full"}),
)


def _roomy() -> Iterator[ShardedCase]:
    for sharding, more in ROOMY:
        for model in ("llama-3.2-1b", "qwen3-0.6b", "mistral-7b"):
            wrap = "layers" if model == "qwen3-0.6b" or sharding == "ddp" else "ends"
            step = _case(model, **{"adapter_targets": "query-value", **more})
            yield ShardedCase(step=step, data=8, sharding=sharding, wrap=wrap)
    lora = _case("llama-3.2-1b", adapter="lora", recompute="full")
    base = ShardedCase(step=lora, data=8, sharding="fsdp2", wrap="ends")
    yield base.with_(step=lora.with_(offload="checkpoints"))
    yield base.with_(step=lora.with_(in_backward=True))
    eight = lora.with_(adapter="qlora", optimizer="paged-adamw-8bit")
    yield ShardedCase(step=eight, data=8, sharding="ddp")


def _tensor() -> Iterator[ShardedCase]:
    """The plans of transformers, and torchtitan's with what recomputation keeps."""
    for model, tensor in (("llama-3-8b", 4), ("mistral-7b", 2), ("qwen2.5-7b", 4), ("qwen3-8b", 8)):
        for recompute in ("none", "full"):
            step = _case(model, recompute=recompute)
            yield ShardedCase(step=step, tensor=tensor)
    step = _case("llama-3-8b")
    for recompute in ("none", "selective", "matmuls", "full"):
        sixteen = step.with_(recompute=recompute, precision="bf16", optimizer="adamw-foreach")
        yield ShardedCase(step=sixteen, tensor=2)
    for recompute in ("none", "full"):
        sharded = step.with_(recompute=recompute)
        base = ShardedCase(step=sharded, tensor=4, data=8, sharding="fsdp2", wrap="ends")
        yield base
        yield base.with_(wrap="layers")
    plain = _case("llama-3-8b", implementation="torchtitan")
    for recompute, sequence in product(("selective", "matmuls"), (False, True)):
        base = ShardedCase(
            step=plain.with_(recompute=recompute), tensor=4, sequence_parallel=sequence
        )
        yield base
        yield base.with_(data=8, sharding="fsdp2", wrap="ends")


def _synced() -> Iterator[ShardedCase]:
    """Gradients that are reduced after every micro-batch (accelerate's sync_each_batch)."""
    for adapter, recompute in product(("none", "lora"), ("none", "full")):
        step = _case("llama-3.2-1b", adapter=adapter, recompute=recompute, micro_batches=3)
        yield ShardedCase(step=step, data=8, sharding="fsdp2", wrap="ends")


def _first() -> Iterator[ShardedCase]:
    """DDP's first step, in which the optimizer makes its states."""
    for optimizer, more in (
        ("adamw-fused", {"clip": True}),
        ("adamw-foreach", {"clip": True, "micro_batches": 3}),
        ("adamw-forloop", {"recompute": "full", "precision": "bf16"}),
        ("sgd-momentum", {"precision": "fp32"}),
        ("adafactor", {"recompute": "full"}),
        ("adamw-8bit", {"precision": "bf16"}),
        ("adamw-fused", {"adapter": "lora", "clip": True}),
    ):
        step = _case("llama-3.2-1b", optimizer=optimizer, **more)
        yield ShardedCase(step=step, data=8, sharding="ddp", turn=1)


def _away() -> Iterator[ShardedCase]:
    """Shards, gradients and states in the CPU's memory (FSDP2's CPUOffloadPolicy)."""
    for recompute, precision in product(("none", "full"), ("autocast", "bf16")):
        step = _case("llama-3.2-1b", recompute=recompute, precision=precision)
        base = ShardedCase(step=step, data=8, sharding="fsdp2", wrap="ends", offload_params=True)
        yield base
        yield base.with_(step=step.with_(micro_batches=3, clip=True), synced=False)
    yield base.with_(data=64, wrap="layers")
    step = _case("qwen2.5-0.5b", optimizer="adamw-foreach")
    yield base.with_(step=step, reshard=False, reduce_dtype="bf16", prefetch="explicit")
    yield base.with_(step=step, replicas=4)
    plain = _case("llama-3-8b", implementation="torchtitan", micro_batches=2, clip=True)
    yield base.with_(step=plain)
    yield base.with_(step=plain.with_(micro_batches=1, recompute="selective"), wrap="layers")


def _adapters_away() -> Iterator[ShardedCase]:
    """The same beside frozen weights, which are in the CPU's memory too, but for 4 bits' scales."""
    for adapter, recompute in product(("lora", "qlora"), ("none", "full")):
        step = _case("llama-3.2-1b", adapter=adapter, recompute=recompute)
        base = ShardedCase(step=step, data=8, sharding="fsdp2", wrap="ends", offload_params=True)
        yield base
        yield base.with_(step=step.with_(micro_batches=3, clip=True), synced=False)
    for adapter in ("lora", "qlora"):
        step = _case("llama-3.2-1b", adapter=adapter, recompute="full")
        base = ShardedCase(step=step, data=8, sharding="fsdp2", wrap="ends", offload_params=True)
        yield base.with_(step=step.with_(precision="bf16", adapter_dtype="bf16"), wrap="layers")
        yield base.with_(step=step.with_(precision="bf16", adapter_dtype="fp32"))
        yield base.with_(step=step.with_(frozen_dtype="fp32"))
        yield base.with_(replicas=4, reduce_dtype="bf16", prefetch="explicit")
    yield base.with_(quant_storage="uint8")


def _more_families() -> Iterator[ShardedCase]:
    """Families whose layers are another code's under FSDP2, all weights trained."""
    for model, more in (
        ("gemma-2-2b", {"attention": "eager"}),
        ("phi-3-mini", {}),
        ("qwen2.5-7b", {}),
        ("mixtral-8x7b", {"shape": (("layers", 2), ("vocabulary", 4096))}),
    ):
        for recompute in ("none", "full"):
            step = _case(model, recompute=recompute, **more)
            yield ShardedCase(step=step, data=8, sharding="fsdp2", wrap="ends")


def _with_fsdp2(step: Case, tensor: int, **more: Any) -> Iterator[ShardedCase]:
    """Tensor parallelism alone, and beside FSDP2."""
    base = ShardedCase(step=step, tensor=tensor, **more)
    yield base
    yield base.with_(data=4, sharding="fsdp2", wrap="ends")


#: Families whose head is their embedding, and of which transformers has a plan like Llama's.
TIED: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("qwen2.5-0.5b", 2, {}),
    ("llama-3.2-1b", 4, {}),
    ("qwen3-0.6b", 8, {}),
    ("gemma-2-2b", 2, {"attention": "eager"}),
    ("gemma-3-4b", 4, {"sequence": 256}),
)


def _tied() -> Iterator[ShardedCase]:
    """One weight of head and embedding, its rows shared."""
    for model, tensor, more in TIED:
        step = _case(model, **more)
        yield from _with_fsdp2(step, tensor)
        yield ShardedCase(step=step, tensor=tensor, data=4, sharding="fsdp2", wrap="layers")
        again = step.with_(recompute="full", micro_batches=3, clip=True)
        for base in _with_fsdp2(again, tensor):
            yield base.with_(synced=base.data == 1)
    # Few tokens, and all of a vocabulary: two gradients of one weight come together at the peak.
    large = _case("qwen2.5-0.5b", shape=(("layers", 2),), micro_batch=1, sequence=64)
    yield from _with_fsdp2(large, 2)
    yield ShardedCase(step=large.with_(precision="bf16", in_backward=True), tensor=2)


def _uneven() -> Iterator[ShardedCase]:
    """Vocabularies and feed-forward layers that do not divide: the first GPUs have more."""
    for shape in ({"vocabulary": 4098}, {"vocabulary": 4096, "ffn": 14338}):
        step = _case("llama-3-8b", shape=(("layers", 2), *shape.items()))
        yield from _with_fsdp2(step, 4)
        yield ShardedCase(step=step.with_(recompute="full"), tensor=4)
    large = _case("llama-3-8b", shape=(("layers", 2), ("vocabulary", 128255)), sequence=128)
    yield ShardedCase(step=large.with_(precision="bf16", clip=True), tensor=4)


def _clipped() -> Iterator[ShardedCase]:
    """Clipping: a norm for each mesh, sums of norms that are parts."""
    for implementation, sequence in product(("huggingface", "torchtitan"), (False, True)):
        if sequence and implementation == "huggingface":
            continue
        for optimizer in ("adamw-fused", "adamw-foreach"):
            step = _case(
                "llama-3-8b",
                shape=(("layers", 2), ("vocabulary", 4096)),
                implementation=implementation,
                clip=True,
                optimizer=optimizer,
            )
            yield from _with_fsdp2(step, 2, sequence_parallel=sequence)
        waits = step.with_(micro_batches=3)
        base = ShardedCase(step=waits, tensor=2, data=4, sharding="fsdp2", wrap="ends")
        yield base.with_(sequence_parallel=sequence, synced=implementation == "torchtitan")
    yield base.with_(step=waits.with_(precision="bf16"), wrap="layers")


def _split_and_roomy() -> Iterator[ShardedCase]:
    """What makes room, beside tensor parallelism."""
    for model in ("llama-3-8b", "qwen3-0.6b"):
        step = _case(model, recompute="full", offload="checkpoints")
        yield from _with_fsdp2(step, 4)
    for implementation in ("huggingface", "torchtitan"):
        step = _case("llama-3-8b", implementation=implementation)
        sequence = implementation == "torchtitan"
        yield from _with_fsdp2(step.with_(offload="saved"), 4, sequence_parallel=sequence)
        yield from _with_fsdp2(step.with_(in_backward=True), 4, sequence_parallel=sequence)
        away = ShardedCase(step=step, tensor=4, data=4, sharding="fsdp2", wrap="ends")
        away = away.with_(offload_params=True, sequence_parallel=sequence)
        yield away
        again = step.with_(recompute="full", micro_batches=3, clip=True)
        yield away.with_(step=again, wrap="layers", synced=sequence)


def _split_and_adapted() -> Iterator[ShardedCase]:
    """LoRA beside queries and values that are split; beside more of a layer PEFT's stops."""
    for model, tensor in (("llama-3-8b", 4), ("qwen2.5-0.5b", 2)):
        step = _case(
            model,
            shape=(("layers", 3), ("vocabulary", 4096)),
            adapter="lora",
            adapter_targets="query-value",
        )
        for recompute in ("none", "full"):
            again = step.with_(recompute=recompute)
            yield ShardedCase(step=again, tensor=tensor)
            sixteen = again.with_(precision="bf16", adapter_dtype="bf16")
            yield ShardedCase(step=sixteen, tensor=tensor)
            waits = again.with_(clip=True, micro_batches=3, adapter_dropout=True)
            yield ShardedCase(step=waits, tensor=tensor)
            yield ShardedCase(step=again.with_(frozen_dtype="fp32"), tensor=tensor)
        yield ShardedCase(step=step, tensor=tensor, data=4, sharding="fsdp2", wrap="ends")
