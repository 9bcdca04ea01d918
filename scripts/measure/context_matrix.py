"""Which steps are traced of GPUs that share each sequence (torch's ``context_parallel``)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .sharded_case import ShardedCase
from .sharded_matrix import LLAMA_8B

_GROUPED = (("heads", 8), ("kv_heads", 2), ("head_dim", 64))
_SMALL = (("layers", 3), ("hidden", 512), ("ffn", 1408), ("vocabulary", 1024), *_GROUPED)
SMALL = LLAMA_8B.with_(shape=_SMALL, micro_batch=2, sequence=4096)
MANY_HEADS = SMALL.with_(shape=(*_SMALL[:4], ("heads", 8), ("kv_heads", 8), ("head_dim", 64)))
LONG = LLAMA_8B.with_(sequence=8192)


def cases() -> tuple[ShardedCase, ...]:
    """Every case of the table, in order."""
    return tuple(dict.fromkeys((*_plain(), *_small(), *_others())))


def fullest(context: int) -> int:
    """The GPU that holds most: it has others before it and after it."""
    return min(1, context - 2)


def _shared(context: int, **more: object) -> ShardedCase:
    base = ShardedCase(
        step=LONG, context=context, rank=fullest(context), sharding="fsdp2", wrap="ends"
    )
    return base.with_(**more)


def _plain() -> Iterator[ShardedCase]:
    """An eighth of Llama 3 8B, and two of its layers alone, where attention decides."""
    for context, rotate, again in product((2, 4, 8), ("allgather", "alltoall"), ("none", "full")):
        yield _shared(context, rotate=rotate, step=LONG.with_(recompute=again))
    # The ranks of a sequence's GPUs are neighbours.
    yield _shared(2, data=4, reduce_dtype="bf16")
    yield _shared(4, data=2, reshard=False, prefetch="explicit")
    yield _shared(2, data=2, replicas=2, wrap="layers")


def _small() -> Iterator[ShardedCase]:
    """Where attention decides: each phase's peak is in it."""
    for step, again in product((SMALL, MANY_HEADS), ("none", "full")):
        for context, rotate in ((2, "alltoall"), (4, "allgather"), (8, "alltoall")):
            yield _shared(context, rotate=rotate, step=step.with_(recompute=again))
    yield _shared(4, step=SMALL.with_(micro_batches=2))
    yield _shared(4, step=SMALL.with_(micro_batch=1, recompute="full"))
    yield _shared(4, step=SMALL.with_(precision="bf16", clip=True))


def _others() -> Iterator[ShardedCase]:
    """The other GPUs of a sequence, which hold no more."""
    for again, rank in product(("none", "full"), (0, 2, 3)):
        yield _shared(4, step=SMALL.with_(recompute=again), rank=rank)
