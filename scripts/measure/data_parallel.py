"""PyTorch's DDP on fake tensors: its reducer is C++ and looks at numbers in three places."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from .backend import Tensor, python_dispatch, torch
from .sharded_case import ShardedCase

distributed: Any = import_module("torch.distributed")

#: torch/csrc/distributed/c10d/reducer.hpp, kDefaultFirstBucketBytes, kDefaultBucketBytesCap.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


def wrapped(model: Any, case: ShardedCase, arrived: list[Any] | None = None) -> Any:
    """The model under DDP.

    ``arrived`` are its parameters in the order in which their gradients are complete, by which DDP
    makes its buckets anew before the second step; None for the first step's one bucket.
    """
    buckets = _Made()
    with _buckets_of(arrived) if arrived else nullcontext(), buckets:
        made = torch.nn.parallel.DistributedDataParallel(
            model,
            gradient_as_bucket_view=case.bucket_views,
            # It would compare values among the GPUs, of which there are none.
            init_sync=False,
        )
    # As the built-in one: the sum is made in place. A fake group's own answer is nothing.
    made.register_comm_hook(None, _reduced)
    # Its log asks for times, which a fake GPU does not measure.
    made.logger = SimpleNamespace(set_runtime_stats_and_log=lambda: None)
    made.reducer = _Reducer(made.reducer, buckets.tensors)
    return made


class _Made(python_dispatch.TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """The buckets that are made while it listens."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if str(func).startswith("aten.empty") and out.device.type == "cuda":
            self.tensors.append(out)
        return out


def arrival(model: Any, run: Any) -> list[Any]:
    """The parameters in the order in which a backward pass of ``run`` completes their gradients."""
    found: list[Any] = []
    handles = [
        parameter.register_post_accumulate_grad_hook(found.append)
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    run()
    for handle in handles:
        handle.remove()
    for parameter in found:
        parameter.grad = None
    return found


def _reduced(_state: Any, bucket: Any) -> Any:
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


# DDP looks at the annotation itself, and not at its text.
_reduced.__annotations__ = {"bucket": distributed.GradBucket}


class _Reducer:
    """DDP's reducer, whose buckets have been made anew already."""

    def __init__(self, reducer: Any, buckets: list[Tensor]) -> None:
        self._reducer, self.buckets = reducer, buckets

    def _rebuild_buckets(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)


@contextmanager
def _buckets_of(arrived: list[Any]) -> Iterator[None]:
    assign = distributed._compute_bucket_assignment_by_size

    def assigned(parameters: Any, *_: Any) -> Any:
        """Reducer::rebuild_buckets; DDP turns around what it is given."""
        place = {id(parameter): number for number, parameter in enumerate(parameters)}
        order = [place[id(parameter)] for parameter in arrived]
        limits = [FIRST_BUCKET_BYTES, BUCKET_BYTES]
        buckets, sizes = assign(arrived, limits, [False] * len(arrived), order)
        return list(reversed(buckets)), list(reversed(sizes))

    distributed._compute_bucket_assignment_by_size = assigned
    try:
        yield
    finally:
        distributed._compute_bucket_assignment_by_size = assign
