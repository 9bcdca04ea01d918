"""Checkpointed regions: run once keeping only their arguments, and again when backward needs them.

As ``torch.utils.checkpoint`` does it without re-entering autograd (``use_reentrant=False``): what
an operation of the region saves is replaced by a placeholder; the first placeholder that the
backward pass opens runs the whole region again, up to the last tensor that it saved.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from ..formula import Formula
from .tensors import Tensor

#: Whether a selective policy keeps what an operation ("product", "attention") gives.
Keeps = Callable[[str], bool]


def keep_products() -> Keeps:
    """Every product with a weight."""
    return lambda operation: operation == "product"


def keep_every_other_product() -> Keeps:
    """Torchtitan's rule: every second product with a weight, and what attention gives.

    torchtitan/distributed/activation_checkpoint.py, mode "selective", option "op", as of 2025.
    """
    products = count()

    def keeps(operation: str) -> bool:
        return operation == "attention" or next(products) % 2 == 0

    return keeps


class Frame:
    """One checkpointed region: how to run it again, and what a second run brought back."""

    def __init__(self, again: Callable[[], object], keeps: Keeps | None) -> None:
        self.again = again
        self.keeps = keeps
        self.saved = 0
        #: Of each operation that a policy was asked about, in order: its outputs, if kept.
        self.cached: list[list[Tensor] | None] = []
        self.recomputed: list[Tensor | None] | None = None

    def placeholder(self) -> Holder:
        """What a node saves in the first run."""
        self.saved += 1
        return Holder(self, self.saved - 1)

    def bring_back(self, tensor: Tensor | None) -> None:
        """Take what the second run saves; raises once that is all that the first run saved."""
        assert self.recomputed is not None
        self.recomputed.append(tensor)
        if len(self.recomputed) == self.saved:
            raise Enough


class Holder:
    """Stands in a node for a tensor that a checkpoint did not keep."""

    def __init__(self, frame: Frame, index: int) -> None:
        self.frame = frame
        self.index = index


class Away:
    """Stands in a node or a checkpoint for a tensor that was copied to the CPU's memory."""

    def __init__(self, name: str, numel: Formula, dtype: str, order: str, *, wants: bool) -> None:
        self.name = name
        self.numel = numel
        self.dtype = dtype
        self.order = order
        #: Whether a gradient of it is wanted, where it goes into a region that runs again.
        self.wants = wants


class Enough(Exception):  # noqa: N818  # not an error: all that was needed is there again
    """Stops a second run once the last saved tensor is there."""
