"""Every way to spread a run over so many GPUs with the same sequences in every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .cost import MACHINE
from .implementations import Implementation
from .run import Run

#: Fields of a run that a split sets.
FIELDS = (
    "data",
    "zero",
    "tensor",
    "sequence_parallel",
    "pipeline",
    "micro_batch",
    "micro_batches",
)


def splits(run: Run, *, gpus: int, batch: int) -> Iterator[Mapping[str, object]]:
    """The fields of every split of ``run`` over ``gpus`` GPUs with ``batch`` sequences a step.

    Tensor parallelism stays within a machine, and all else is tried: what the run or its
    implementation cannot do, :meth:`.run.Run.from_json` refuses.
    """
    for tensor in divisors(gpus):
        if tensor > MACHINE:
            break
        for pipeline in divisors(gpus // tensor):
            if pipeline > run.model.layers:
                break
            data = gpus // tensor // pipeline
            if batch % data:
                continue
            for fields in _within(run, tensor, pipeline, data):
                for micro_batch in divisors(batch // data):
                    yield {
                        "data": data,
                        "tensor": tensor,
                        "pipeline": pipeline,
                        "micro_batch": micro_batch,
                        "micro_batches": batch // data // micro_batch,
                        **fields,
                    }


def _within(run: Run, tensor: int, pipeline: int, data: int) -> Iterator[dict[str, object]]:
    """The stages of ZeRO over the replicas, tokens split between tensor-parallel GPUs or not."""
    stages: tuple[int, ...] = (0, 1, 2, 3)
    if data == 1:
        stages = stages[:1]
    elif pipeline > 1 and run.implementation is not Implementation.TORCHTITAN:
        # Megatron's distributed optimizer is stage 1, and DeepSpeed's pipeline takes no more
        # (deepspeed/runtime/pipe/engine.py: "ZeRO-2 and ZeRO-3 are incompatible with pipeline").
        stages = stages[:2]
    for zero in stages:
        for sequence_parallel in (False, True) if tensor > 1 else (False,):
            split: dict[str, object] = {"zero": zero, "sequence_parallel": sequence_parallel}
            yield from _sharded(run, split) if zero == 3 else (split,)


def _sharded(run: Run, split: dict[str, object]) -> Iterator[dict[str, object]]:
    """ZeRO's stage 3 in the way of the run's framework: the textbook has one."""
    if run.implementation is Implementation.PAPER:
        yield split
        return
    for reshards in (True, False):
        yield {**split, **in_fsdp2(run), "reshard_after_forward": reshards}


def in_fsdp2(run: Run) -> Mapping[str, object]:
    """What a run must say otherwise for FSDP2 to share it out.

    It keeps 32-bit shards and gathers them in 16 bits: the same numbers as 16-bit weights with a
    32-bit copy, in one.
    """
    if run.implementation is Implementation.PAPER:
        return {}
    master = run.recipe.precision.startswith("master")
    return {"sharding": None, **({"recipe": "autocast-adam"} if master else {})}


def divisors(number: int) -> list[int]:
    """Every divisor, in order."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return small + [number // one for one in reversed(small) if one * one != number]
