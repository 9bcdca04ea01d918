"""A training step of one of several GPUs that share a model by PyTorch's first FSDP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .case import Case
from .rows import as_row, values_of

STRATEGIES = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "strategy": STRATEGIES,
    "backward_prefetch": ("none", "pre", "post"),
    "reduce_dtype": ("fp32", "bf16"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp1Case:
    """``step`` on the GPU ``rank`` of ``data`` × ``replicas``, wrapped as accelerate does.

    The others are ``FullyShardedDataParallel``'s own, but ``reduce_dtype``, which is its mixed
    precision's: that has 16-bit parameters under autocast, and there is none otherwise. Without
    ``synced`` gradients are reduced after the last micro-batch alone (``no_sync``).
    """

    step: Case
    data: int
    replicas: int = 1
    rank: int = 0
    strategy: str = "full_shard"
    backward_prefetch: str = "none"
    forward_prefetch: bool = False
    limit_all_gathers: bool = True
    use_orig_params: bool = True
    reduce_dtype: str = "bf16"
    offload_params: bool = False
    synced: bool = False
    #: In which numbers 4-bit codes lie; only floating-point ones can be flattened.
    quant_storage: str = "bf16"

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} {value!r}: allowed: {', '.join(allowed)}")
        if self.strategy.startswith("hybrid") != (self.replicas > 1):
            raise ValueError("replicas: over 1 with hybrid sharding, and only then")

    @property
    def world(self) -> int:
        """How many GPUs there are."""
        return self.data * self.replicas

    def to_row(self) -> dict[str, str]:
        """The case as the first columns of a table."""
        own = as_row(self)
        del own["step"]
        return {**self.step.to_row(), **own}

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> Fsdp1Case:
        """The case that a table's row names."""
        own = {name: text for name, text in row.items() if name != "step"}
        return cls(step=Case.from_row(row), **values_of(cls, own))

    def with_(self, **changes: Any) -> Fsdp1Case:
        """The case with other choices."""
        return replace(self, **changes)
