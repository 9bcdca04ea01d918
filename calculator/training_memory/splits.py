"""Every way to spread a run over so many GPUs with the same sequences in every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .cost import MACHINE
from .implementations import Implementation
from .run import Run
from .sharding import Way, left_out
from .switches import OptimizerKernel

#: A shorter sequence is not shared among GPUs: there are simpler ways to make it fit.
SHARED_FROM = 16_384
#: Degrees in which GPUs share a sequence, and parts of a model on a stage, that are tried.
CONTEXTS = (1, 2, 4, 8)
PARTS = (1, 2)


def splits(run: Run, *, gpus: int, batch: int) -> Iterator[Mapping[str, object]]:
    """The fields of every split of ``run`` over ``gpus`` GPUs with ``batch`` sequences a step.

    Tensor parallelism stays within a machine, and all else is tried: what the run or its
    implementation cannot do, :meth:`.run.Run.from_json` refuses.
    """
    for degrees in _degrees(run, gpus):
        data = degrees["data"]
        if batch % data:
            continue
        for fields in _within(run, degrees):
            for micro_batch in divisors(batch // data):
                yield {
                    **degrees,
                    "micro_batch": micro_batch,
                    "micro_batches": batch // data // micro_batch,
                    # How stages are cut is the run's own only while there are as many.
                    **({} if degrees["pipeline"] == run.layout.pipeline else _EVEN),
                    **fields,
                }


_EVEN: Mapping[str, object] = {"layers_per_stage": None}


def _degrees(run: Run, gpus: int) -> Iterator[dict[str, int]]:
    """Every way to multiply degrees to so many GPUs."""
    long = run.sequence >= SHARED_FROM or run.layout.context > 1
    for tensor in divisors(gpus):
        if tensor > MACHINE:
            return
        for context in CONTEXTS if long else (1,):
            rest, uneven = divmod(gpus, tensor * context)
            for pipeline in () if uneven else divisors(rest):
                if pipeline > run.model.layers:
                    break
                yield {
                    "tensor": tensor,
                    "context": context,
                    "pipeline": pipeline,
                    "data": rest // pipeline,
                }


def _within(run: Run, degrees: Mapping[str, int]) -> Iterator[dict[str, object]]:
    """Everything about a split but its degrees."""
    tensor, pipeline = degrees["tensor"], degrees["pipeline"]
    stages: tuple[int, ...] = (0, 1, 2, 3)
    if degrees["data"] * degrees["context"] == 1:
        stages = stages[:1]
    elif pipeline > 1 and run.implementation is not Implementation.TORCHTITAN:
        # Megatron's distributed optimizer is stage 1, and DeepSpeed's pipeline takes no more
        # (deepspeed/runtime/pipe/engine.py: "ZeRO-2 and ZeRO-3 are incompatible with pipeline").
        stages = stages[:2]
    for zero in stages:
        for sequence_parallel in (False, True) if tensor > 1 else (False,):
            for more in _turns_and_experts(run, degrees):
                split: dict[str, object] = {
                    "zero": zero,
                    "sequence_parallel": sequence_parallel,
                    **more,
                }
                yield from _sharded(run, split) if zero == 3 else ({**split, **_shared(run, zero)},)


def _turns_and_experts(run: Run, degrees: Mapping[str, int]) -> Iterator[dict[str, object]]:
    """Parts of the model on a stage, and GPUs that each hold experts of their own."""
    stage = degrees["data"] * degrees["context"] * degrees["tensor"]
    possible = [one for one in divisors(run.model.experts or 1) if not stage % one]
    # All GPUs that can have experts of their own, none, or as many as the run says.
    experts = sorted({1, possible[-1], *({run.layout.expert} & {*possible})})
    for parts in PARTS if degrees["pipeline"] > 1 else (1,):
        for expert in experts:
            split: dict[str, object] = {"interleave": parts, "schedule": None}
            if run.model.experts:
                # Experts are whole where there are enough of them to go round.
                split |= {"expert": expert, "expert_tensor": 1 if expert > 1 else None}
            yield split


def _sharded(run: Run, split: dict[str, object]) -> Iterator[dict[str, object]]:
    """ZeRO's stage 3 in the way of the run's framework: the textbook has one."""
    if run.implementation is Implementation.PAPER:
        yield split
        return
    for reshards in (True, False):
        yield {**split, **in_fsdp(run), "reshard_after_forward": reshards}
        if run.sharding.sharding is Way.FSDP1:
            # Which goes with tensor parallelism.
            yield {**split, **in_fsdp2(run), "reshard_after_forward": reshards}


def _shared(run: Run, zero: int) -> Mapping[str, object]:
    """What a stage but the third is under Hugging Face, whatever way the run has now."""
    if run.implementation is not Implementation.HUGGINGFACE:
        return {}
    own = left_out(run.sharding)
    if not zero:
        # Stage 0 of a run that has another is DDP.
        leaves = run.layout.zero and run.sharding.sharding in (Way.DEEPSPEED, Way.FSDP1)
        return {**own, "sharding": None, **with_a_kernel_of_its_own(run)} if leaves else {}
    # FSDP2's 32-bit shards are the copy that DeepSpeed keeps of 16-bit weights.
    shards = run.layout.zero == 3 and run.recipe.precision == "autocast"
    return {**own, "sharding": None, **({"recipe": "mixed-adam"} if shards else {})}


def in_fsdp(run: Run) -> Mapping[str, object]:
    """What a run must say otherwise for FSDP to share it out: the version it has, or the second.

    It keeps 32-bit shards and gathers them in 16 bits: the same numbers as 16-bit weights with a
    32-bit copy, in one.
    """
    if run.implementation is Implementation.PAPER:
        return {}
    master = run.recipe.precision.startswith("master")
    first = run.sharding.sharding is Way.FSDP1
    return {
        "sharding": str(Way.FSDP1) if first else None,
        **({"recipe": "autocast-adam"} if master else {}),
        **with_a_kernel_of_its_own(run),
    }


def with_a_kernel_of_its_own(run: Run) -> Mapping[str, object]:
    """What a run must say otherwise where DeepSpeed no longer runs it."""
    deepspeeds = run.switches.optimizer_kernel is OptimizerKernel.DEEPSPEED
    return {"optimizer_kernel": None} if deepspeeds else {}


def in_fsdp2(run: Run) -> Mapping[str, object]:
    """The same for the second version."""
    own = left_out(run.sharding, second=True)
    return {**in_fsdp(run), **own, **({"sharding": None} if own else {})}


def divisors(number: int) -> list[int]:
    """Every divisor, in order."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return small + [number // one for one in reversed(small) if one * one != number]
