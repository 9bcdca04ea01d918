"""What each stage of a pipeline does in which order, by PyTorch's and Megatron-Core's schedules.

``python -m measure.pipelines`` writes it, where ``megatron-core`` is installed beside PyTorch. No
process and no GPU is needed: PyTorch's schedules of one stage a rank run with a stage that notes
what it is told to do, those of several stages have their whole order as a list, and Megatron-Core's
functions say how many forward passes come first and which part and micro-batch each turn takes.

In an order ``F``, ``B``, ``I`` and ``W`` are a forward pass, a backward pass, and one of inputs or
of weights alone; behind it the micro-batch, from 0, and the rank's part of the model as a letter.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from . import tables
from .versions import write_versions

PACKAGES = ("torch", "megatron-core")
_TORCH, _PARTS = "torch.distributed.pipelining.schedules", "abcdefgh"
#: Stages and micro-batches: fewer than stages, as many, more, many.
SIZES = ((2, 2), (2, 5), (4, 2), (4, 4), (4, 7), (4, 12), (8, 3), (8, 8), (8, 24))
#: PyTorch's schedules that give each rank one part, and those for several, with how many.
SINGLE = ("GPipe", "1F1B")
MULTI = (
    ("Interleaved1F1B", 2),
    ("Interleaved1F1B", 3),
    ("LoopedBFS", 2),
    ("InterleavedZeroBubble", 1),
    ("InterleavedZeroBubble", 2),
    ("ZBVZeroBubble", 2),
    ("DualPipeV", 2),
)
Pass = tuple[str, int, int]
"""Its kind, the micro-batch and the rank's part of the model, from 0."""


class _Noting:
    """A stage that notes what a schedule tells it to do, and does nothing."""

    has_backward, is_first, is_last = True, False, False

    def __init__(self, stages: int, stage: int) -> None:
        self.num_stages, self.stage_index = stages, stage
        self.group_size, self.group_rank = stages, stage
        self.done: list[Pass] = []

    def forward_one_chunk(self, micro_batch: int, *_: Any, **__: Any) -> None:
        self.done.append(("F", micro_batch, 0))

    def backward_one_chunk(self, micro_batch: int, **_: Any) -> None:
        self.done.append(("B", micro_batch, 0))

    def perform_reduce_grad(self, _: int) -> None:
        """Between replicas, after the last."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("get_") and name.endswith("_ops"):
            return lambda _: []  # what it sends and receives
        raise AttributeError(name)


def of_single(name: str, stages: int, stage: int, micro_batches: int) -> list[Pass]:
    """What a rank does by a schedule of PyTorch's that gives it one part.

    Raises ValueError where PyTorch refuses so few micro-batches.
    """
    schedules = import_module(_TORCH)
    noting = _Noting(stages, stage)
    schedule = schedules.get_schedule_class(name)(noting, micro_batches)
    schedule._initialize_stage = lambda *_: None
    schedule._step_microbatches()
    return noting.done


def of_multi(name: str, stages: int, parts: int, micro_batches: int) -> list[list[Pass]]:
    """What every rank does by a schedule of PyTorch's that can give it several parts.

    Raises ValueError where PyTorch does not know such a schedule.
    """
    schedules = import_module(_TORCH)
    every = stages * parts
    own = [
        SimpleNamespace(
            num_stages=every,
            stage_index=stage,
            group_size=stages,
            group_rank=0,
            is_first=stage == 0,
            is_last=stage == every - 1,
            submod=None,
        )
        for stage in range(0, every, stages)
    ]
    schedule = schedules.get_schedule_class(name)(own, micro_batches)
    return [list(_flat(schedule.pipeline_order[rank], stages)) for rank in range(stages)]


def _flat(actions: list[Any], stages: int) -> Iterator[Pass]:
    for action in actions:
        if action is None:
            continue
        if action.sub_actions:
            yield from _flat(action.sub_actions, stages)
        elif (kind := action.computation_type.value) in "FBIW":
            yield kind, action.microbatch_index, action.stage_index // stages


def of_megatron(stages: int, stage: int, parts: int, micro_batches: int) -> list[Pass]:
    """What a rank does by Megatron-Core: forward passes ahead, then in turn, then backward passes.

    Of a turn's part and micro-batch its table tells; backward passes take the parts from the last.
    """
    schedules = import_module("megatron.core.pipeline_parallel.schedules")
    group = SimpleNamespace(size=lambda: stages, rank=lambda: stage)
    told = SimpleNamespace(
        pp_group=group, virtual_pipeline_model_parallel_size=parts if parts > 1 else None
    )
    every, _, ahead, _ = schedules.get_pp_rank_microbatches(
        micro_batches, parts, stages, p2p_communicator=told
    )
    table = schedules.get_schedule_table(micro_batches, parts, stages)
    forward = [("F", micro_batch, part) for micro_batch, part in table]
    backward = [("B", micro_batch, parts - 1 - part) for micro_batch, part in table]
    both = zip(forward[ahead:], backward[: every - ahead], strict=True)
    return [*forward[:ahead], *(one for turn in both for one in turn), *backward[every - ahead :]]


def held(order: list[Pass], *, until: str) -> tuple[int, Counter[int]]:
    """The most passes that wait at once for one of the kinds ``until``, and of each part alone."""
    most, by_part, now = 0, Counter[int](), Counter[int]()
    for kind, _, part in order:
        now[part] += (kind == "F") - (kind in until)
        most, by_part[part] = max(most, now.total()), max(by_part[part], now[part])
    return most, by_part


def _rows() -> Iterator[dict[str, object]]:
    for stages, micro_batches in SIZES:
        for name, parts in (*((one, 1) for one in SINGLE), *MULTI):
            try:
                if name in SINGLE:
                    orders = [of_single(name, stages, at, micro_batches) for at in range(stages)]
                else:
                    orders = of_multi(name, stages, parts, micro_batches)
            except ValueError:
                continue  # PyTorch wants more micro-batches, or rounds of as many each
            for stage, order in enumerate(orders):
                yield _row("torch", name, stages, stage, parts, micro_batches, order)
        for parts in (1, 2, 3):
            if parts == 1 or micro_batches % stages == 0:
                for stage in range(stages):
                    order = of_megatron(stages, stage, parts, micro_batches)
                    name = "interleaving" if parts > 1 else "without_interleaving"
                    yield _row("megatron-core", name, stages, stage, parts, micro_batches, order)


def _row(
    source: str,
    schedule: str,
    stages: int,
    stage: int,
    parts: int,
    micro_batches: int,
    order: list[Pass],
) -> dict[str, object]:
    most, by_part = held(order, until="BI")
    return {
        "source": source,
        "schedule": schedule,
        "stages": stages,
        "stage": stage,
        "parts": parts,
        "micro_batches": micro_batches,
        "held": most,
        "held_by_part": " ".join(str(by_part[part]) for part in range(parts)),
        "held_until_weights": held(order, until="BW")[0],
        "order": " ".join(
            f"{kind}{micro_batch}{_PARTS[part] if parts > 1 else ''}"
            for kind, micro_batch, part in order
        ),
    }


def main() -> int:
    """Record every schedule. Returns the exit status."""
    tables.write(tables.PIPELINES, _rows())
    write_versions(["pipelines"], PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
