"""Every live storage of a device, counted as the allocator counts: the running total and its peak.

A storage is counted when an operation first returns it and until PyTorch frees it; views add
nothing. What a CUDA kernel allocates inside itself is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from .backend import Tensor, dtype_name, python_dispatch, torch
from .modules import Modules, Node
from .workspaces import workspace_bytes

ALLOCATION_BYTES = 512
"""What PyTorch's CUDA allocator rounds every request up to (c10/cuda/CUDACachingAllocator.h)."""


_NO_KERNEL = frozenset({"prim.device.default"})
_WAIT = "_c10d_functional.wait_tensor.default"
_unseen: list[None] = []


@contextmanager
def unseen() -> Iterator[None]:
    """Count nothing within: work on shapes that a GPU has no part in."""
    _unseen.append(None)
    try:
        yield
    finally:
        _unseen.pop()


class Category(StrEnum):
    """What a storage is for."""

    WEIGHTS = "weights"
    MASTER = "master"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    #: Positions, masks and rotary tables that belong to the model.
    BUFFERS = "buffers"
    #: The batch: tokens and labels.
    INPUTS = "inputs"
    #: 16-bit copies of weights that autocast makes.
    WEIGHT_COPIES = "weight_copies"
    #: Made in the forward pass, whether backward needs it or not.
    ACTIVATIONS = "activations"
    #: One value for each token and each word, in forward or backward, of any dtype.
    LOGITS = "logits"
    #: Made in the backward pass by running part of the forward pass again.
    RECOMPUTED = "recomputed"
    #: Made in the backward pass: gradients that flow, gradients of weights before they are stored.
    BACKWARD = "backward"
    #: Made by clipping or by the optimizer's step.
    STEP = "step"


@dataclass(slots=True)
class Live:
    """A storage that has not been freed."""

    number: int
    bytes: int
    category: Category


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest total of a phase, the first time it was reached."""

    bytes: int
    by_category: Mapping[Category, int]
    operation: str
    module: str
    node: Node | None
    recomputing: bool


class Log(Protocol):
    """What hears of every operation, allocation and free, in order."""

    def operation(self, tracker: Tracker, name: str, inputs: Iterable[Live]) -> None:
        """An operation ran; its allocations follow."""

    def allocated(self, tracker: Tracker, live: Live, tensor: Tensor) -> None:
        """A storage was made."""

    def freed(self, tracker: Tracker, live: Live) -> None:
        """A storage was freed."""

    def renamed(self, tracker: Tracker, live: Live) -> None:
        """A storage serves another purpose from here on."""

    def resized(self, tracker: Tracker, live: Live, change: int) -> None:
        """A storage takes so many bytes more, or fewer."""


Classify = Callable[["Tracker", str, Tensor, Any], Category]


class Tracker(python_dispatch.TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Sees every operation that PyTorch's dispatcher hands to a kernel."""

    def __init__(
        self,
        *,
        device: str,
        modules: Modules,
        classify: Classify,
        rounding: int = ALLOCATION_BYTES,
        log: Log | None = None,
    ) -> None:
        super().__init__()
        self.device, self.modules, self.classify = device, modules, classify
        self.rounding, self.log = rounding, log
        self.phase = ""
        self.total = 0
        self.by_category: dict[Category, int] = dict.fromkeys(Category, 0)
        self.peaks: dict[str, Peak] = {}
        #: The highest total of each phase when kernels' known scratch memory counts too.
        self.with_workspace: dict[str, int] = {}
        self.operations = 0
        self._live: dict[int, Live] = {}
        self._made = 0

    def hold(self, tensors: Iterable[Tensor | None], category: Category) -> None:
        """Count tensors that were made before tracking began, or name what they are for."""
        for tensor in tensors:
            if tensor is not None:
                self._add(getattr(tensor, "_local_tensor", tensor), category, "", None)

    def begin(self, phase: str) -> None:
        """Enter a phase; what is held as it begins counts towards its peak."""
        self.phase = phase
        self._compare(f"start of {phase}")

    @property
    def recomputing(self) -> bool:
        """Whether a backward node is running part of the forward pass again."""
        # Unpacking a saved tensor of a checkpoint turns gradients back on; no other backward does.
        return torch.is_grad_enabled() and torch._C._current_autograd_node() is not None

    def holds(self, tensor: Tensor) -> Live | None:
        """What is known of the tensor's storage."""
        return self._live.get(id(tensor.untyped_storage()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            # A tensor of several GPUs: this one's part of the work comes here by itself.
            return NotImplemented
        name = str(func)
        if name == _WAIT:
            return args[0]  # the same tensor; a fake one would be made anew
        out = func(*args, **(kwargs or {}))
        if name in _NO_KERNEL or _unseen:
            return out
        self.operations += 1
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if self.log:
            given = (self.holds(t) for t in tensors_in((args, kwargs or {})) if self._here(t))
            self.log.operation(self, name, (live for live in given if live))
        for tensor in tensors_in(out):
            self._add(tensor, None, name, first)
        self._compare(name, workspace_bytes(name, args, self.rounding))
        return out

    def __enter__(self) -> Tracker:
        resize = torch.UntypedStorage.resize_

        def resized(storage: Any, size: int) -> Any:
            found = resize(storage, size)
            self._resized(storage)
            return found

        self._resize, torch.UntypedStorage.resize_ = resize, resized
        entered: Tracker = super().__enter__()
        return entered

    def __exit__(self, *exception: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize
        super().__exit__(*exception)

    def _resized(self, storage: Any) -> None:
        """FSDP2 frees and takes the memory of a gathered weight by resizing its storage."""
        live = self._live.get(id(storage))
        if live is None:
            return
        size = -(-storage.nbytes() // self.rounding) * self.rounding
        change, live.bytes = size - live.bytes, size
        self._count(live, change)
        if self.log and change:
            self.log.resized(self, live, change)
        self._compare("resize_")

    def _here(self, tensor: Tensor) -> bool:
        return bool(tensor.device.type == self.device)

    def _add(self, tensor: Tensor, category: Category | None, name: str, first: Any) -> None:
        if not self._here(tensor):
            return
        storage = tensor.untyped_storage()
        key = id(storage)
        live = self._live.get(key)
        if live is not None:
            if category is not None and category is not live.category:
                self.by_category[live.category] -= live.bytes
                self.by_category[category] += live.bytes
                live.category = category
                if self.log:
                    self.log.renamed(self, live)
            return
        size = -(-storage.nbytes() // self.rounding) * self.rounding
        live = Live(self._made, size, category or self.classify(self, name, tensor, first))
        self._made += 1
        self._live[key] = live
        self._count(live, size)
        # PyTorch keeps one Python object for a storage as long as the storage itself lives.
        weakref.finalize(storage, self._free, key)
        if self.log:
            self.log.allocated(self, live, tensor)

    def _free(self, key: int) -> None:
        live = self._live.pop(key)
        self._count(live, -live.bytes)
        if self.log:
            self.log.freed(self, live)

    def _count(self, live: Live, size: int) -> None:
        self.total += size
        self.by_category[live.category] += size

    def _compare(self, operation: str, workspace: int = 0) -> None:
        most = self.with_workspace.get(self.phase, 0)
        self.with_workspace[self.phase] = max(most, self.total + workspace)
        peak = self.peaks.get(self.phase)
        if peak is None or self.total > peak.bytes:
            self.peaks[self.phase] = Peak(
                bytes=self.total,
                by_category={c: size for c, size in self.by_category.items() if size},
                operation=operation,
                module=self.modules.current,
                node=self.modules.node(),
                recomputing=self.recomputing,
            )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))


@dataclass(slots=True)
class Classifier:
    """Says what a new storage is for, by the phase and the operation."""

    vocabulary: int
    #: How many tokens the head may see at once: of a batch, or of a chunk.
    rows: frozenset[int]

    def __call__(self, tracker: Tracker, operation: str, tensor: Tensor, first: Any) -> Category:
        """The category of a storage that ``operation`` made from ``first`` and more."""
        shape = tensor.shape
        if len(shape) > 1 and shape[-1] == self.vocabulary and self._rows(tensor) in self.rows:
            return Category.LOGITS
        if tracker.phase in ("clip", "step"):
            return Category.STEP
        if operation.startswith("aten._to_copy") and first is not None:
            live = tracker.holds(first)
            if live is not None and live.category is Category.WEIGHTS:
                return Category.WEIGHT_COPIES
        if tracker.phase == "forward":
            return Category.ACTIVATIONS
        return Category.RECOMPUTED if tracker.recomputing else Category.BACKWARD

    def _rows(self, tensor: Tensor) -> int:
        return int(tensor.numel()) // self.vocabulary


__all__ = ["Category", "Classifier", "Live", "Log", "Peak", "Tracker", "dtype_name", "tensors_in"]
