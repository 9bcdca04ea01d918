"""Which steps of one of several GPUs are traced: each way of sharding by what it can be told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .case import Case
from .sharded_case import ShardedCase


def _shaped(name: str, micro_batch: int, sequence: int, *, layers: int = 0, **more: str) -> Case:
    shape = (("layers", layers),) if layers else ()
    return Case(
        model=name,
        shape=shape,
        micro_batch=micro_batch,
        sequence=sequence,
        **{"precision": "autocast", "optimizer": "adamw-fused", **more},  # type: ignore[arg-type]
    )


LLAMA_7B = _shaped("llama-7b", 1, 4096)
LLAMA_8B = _shaped("llama-3-8b", 1, 4096, layers=8, implementation="torchtitan")
LLAMA_1B = _shaped("llama-3.2-1b", 2, 2048)
PLAIN_1B = _shaped("llama-3.2-1b", 1, 4096, implementation="torchtitan")
GPT2 = _shaped("gpt2", 8, 1024)
QWEN = _shaped("qwen2.5-0.5b", 4, 1024)
GEMMA = _shaped("gemma-3-1b", 1, 2048)


def cases() -> tuple[ShardedCase, ...]:
    """Every case of the table, in order."""
    return tuple(dict.fromkeys((*_fsdp2(), *_ddp(), *_tensor(), *_waiting())))


def _waiting() -> Iterator[ShardedCase]:
    """Gradients that wait whole for the last micro-batch, as transformers' Trainer has it."""
    for step in _both(LLAMA_1B.with_(micro_batches=3)):
        base = ShardedCase(step=step, data=8, sharding="fsdp2", wrap="ends", synced=False)
        yield base
        yield base.with_(reduce_dtype="bf16")
    step = LLAMA_1B.with_(micro_batches=2, precision="fp32")
    yield ShardedCase(step=step, data=8, sharding="fsdp2", wrap="layers", synced=False)


def _both(step: Case) -> Iterator[Case]:
    """Everything kept, and whole layers computed again."""
    for recompute in ("none", "full"):
        yield step.with_(recompute=recompute)


def _fsdp2() -> Iterator[ShardedCase]:
    for step in _both(LLAMA_7B):
        base = ShardedCase(step=step, data=8, sharding="fsdp2")
        yield base
        yield base.with_(reshard=False)
        yield base.with_(reduce_dtype="bf16")
        yield base.with_(prefetch="explicit")
        yield base.with_(wrap="ends")
        yield base.with_(data=64)
        yield base.with_(step=step.with_(precision="fp32"))
        yield base.with_(step=step.with_(precision="bf16", optimizer="adamw-foreach"))
    for recompute, data in product(("none", "selective", "full", "matmuls"), (8, 64)):
        step = LLAMA_8B.with_(recompute=recompute)
        yield ShardedCase(step=step, data=data, sharding="fsdp2", wrap="ends")
    for step in _both(LLAMA_8B):
        base = ShardedCase(step=step, data=8, sharding="fsdp2", wrap="ends")
        yield base.with_(wrap="layers")
        yield base.with_(reshard=False, data=64)
        yield base.with_(prefetch="explicit")
        yield base.with_(replicas=4)
        yield base.with_(replicas=4, reduce_dtype="bf16")
        yield base.with_(step=step.with_(micro_batches=3, clip=True))
        yield base.with_(step=step.with_(precision="bf16", optimizer="adamw-forloop"))
    for step, wrap in product(_both(LLAMA_1B), ("layers", "ends")):
        base = ShardedCase(step=step, data=8, sharding="fsdp2", wrap=wrap)
        yield base
        yield base.with_(step=step.with_(precision="fp32", optimizer="adamw-foreach"))
    for step, wrap in product((GPT2, QWEN, GEMMA), ("layers", "ends")):
        yield ShardedCase(step=step, data=8, sharding="fsdp2", wrap=wrap)
    yield ShardedCase(step=GPT2.with_(attention="eager"), data=64, sharding="fsdp2")


def _ddp() -> Iterator[ShardedCase]:
    for step, views in product(_both(LLAMA_1B), (False, True)):
        base = ShardedCase(step=step, data=8, sharding="ddp", bucket_views=views)
        yield base
        yield base.with_(step=step.with_(precision="fp32"))
        yield base.with_(step=step.with_(precision="bf16", optimizer="adamw-foreach"))
        yield base.with_(turn=1)
    for step, views in product((GPT2, QWEN, PLAIN_1B), (False, True)):
        yield ShardedCase(step=step, data=64, sharding="ddp", bucket_views=views)
    yield ShardedCase(step=LLAMA_1B.with_(micro_batches=3, clip=True), data=8, sharding="ddp")
    yield ShardedCase(
        step=LLAMA_8B.with_(recompute="full"), data=8, sharding="ddp", bucket_views=True
    )


def _tensor() -> Iterator[ShardedCase]:
    for step, sequence in product(_both(LLAMA_8B), (False, True)):
        base = ShardedCase(step=step, tensor=8, sequence_parallel=sequence)
        yield base
        yield base.with_(step=step.with_(precision="bf16"), tensor=2)
        yield base.with_(data=8, sharding="fsdp2", wrap="ends")
    for step in _both(LLAMA_8B.with_(micro_batch=2)):
        base = ShardedCase(step=step, tensor=4, sequence_parallel=True)
        yield base.with_(data=16, sharding="fsdp2", wrap="ends")
        yield base.with_(data=2, sharding="fsdp2", wrap="ends", reshard=False)
