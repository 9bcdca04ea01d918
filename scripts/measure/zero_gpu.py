"""What DeepSpeed finds where there is no GPU, no disk to swap to and no kernel of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

# Before DeepSpeed is imported: it asks which accelerator there is, and builds kernels for it.
os.environ |= {"DS_ACCELERATOR": "cuda", "LOCAL_RANK": "0"}

from .backend import Tensor, torch


class _Disk:
    """DeepSpeed's ``aio_handle``: whatever is read or written is so at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.waiting = 0
        self.pinned: list[Tensor] = []

    def _move(self, _buffer: Tensor, _path: str, _offset: int) -> int:
        self.waiting += 1
        return 0

    async_pread = async_pwrite = _move

    def wait(self) -> int:
        """How many reads and writes have ended."""
        ended, self.waiting = self.waiting, 0
        return ended

    def new_cpu_locked_tensor(self, numel: int, like: Tensor) -> Tensor:
        """Pinned memory of the CPU."""
        _PINNED.append(torch.empty(numel, dtype=like.dtype, device="cpu"))
        return _PINNED[-1]

    def is_pinned(self, tensor: Tensor) -> bool:
        """Whether it, or what it is a part of, is pinned."""
        storage = tensor.untyped_storage()
        return any(storage is one.untyped_storage() for one in _PINNED)


_PINNED: list[Tensor] = []


class _Kernels:
    """What DeepSpeed builds with a compiler: its disk, and FusedAdam's kernel."""

    aio_handle = _Disk

    def load(self, **_: Any) -> _Kernels:
        """The built operations."""
        return self

    @staticmethod
    def multi_tensor_adam(*_: Any) -> None:
        """Updates every tensor, and takes no memory."""


def _pinned(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    _PINNED.append(tensor)
    return tensor


@contextmanager
def pretended() -> Iterator[None]:
    """DeepSpeed's accelerator answers what a GPU would, and no gradient is infinite."""
    gpu = import_module("deepspeed.accelerator").get_accelerator()
    import_module("deepspeed.utils").logger.setLevel(logging.CRITICAL)
    torch.Tensor.record_stream = _nothing
    for name in ("range_push", "range_pop", "empty_cache", "reset_peak_memory_stats"):
        setattr(gpu, name, _nothing)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        setattr(gpu, name, lambda *_: 0)
    gpu.is_available = lambda: True
    gpu.available_memory = gpu.total_memory = lambda *_: 80 << 30
    gpu.pin_memory = _pinned
    for name, module in _FINITE.items():
        found: Any = import_module(f"deepspeed.runtime.{module}")
        found.is_invalid_grad_norm = lambda _norm: False
        kind = getattr(found, name)
        if hasattr(kind, "has_overflow"):
            kind.has_overflow = _finite(kind.has_overflow)
    for module, builder in (
        ("deepspeed.runtime.swap_tensor.partitioned_param_swapper", "AsyncIOBuilder"),
        ("deepspeed.runtime.swap_tensor.partitioned_optimizer_swapper", "AsyncIOBuilder"),
        ("deepspeed.runtime.swap_tensor.pipelined_optimizer_swapper", "AsyncIOBuilder"),
        ("deepspeed.ops.adam.fused_adam", "FusedAdamBuilder"),
    ):
        setattr(import_module(module), builder, _Kernels)
    coordinator: Any = import_module("deepspeed.runtime.zero.partitioned_param_coordinator")
    # There are no other ranks whose order of modules could differ.
    coordinator.assert_ints_same_as_other_ranks = _nothing
    yield


#: Whose look at the gradients finds nothing, and where each is.
_FINITE = {
    "DeepSpeedZeroOptimizer": "zero.stage_1_and_2",
    "DeepSpeedZeroOptimizer_Stage3": "zero.stage3",
    "CheckOverflow": "utils",
    "FP16_Optimizer": "fp16.fused_optimizer",
    "FP16_UnfusedOptimizer": "fp16.unfused_optimizer",
    "BF16_Optimizer": "bf16_optimizer",
}


def _nothing(*_: Any, **__: Any) -> None: ...


def _finite(check: Any) -> Any:
    """Looks at the gradients as it would, and finds nothing."""

    def checked(self: Any, *arguments: Any, **options: Any) -> bool:
        check(self, *arguments, **options)
        return False

    return checked
