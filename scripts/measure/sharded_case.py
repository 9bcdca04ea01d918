"""A training step of one of several GPUs: a :class:`Case`, and how it is split among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .case import Case

SHARDINGS = ("none", "ddp", "fsdp2")
WRAPS = ("layers", "ends")
PREFETCHES = ("implicit", "explicit")

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "sharding": SHARDINGS,
    "reshard": (False, True),
    "wrap": WRAPS,
    "prefetch": PREFETCHES,
    "reduce_dtype": ("fp32", "bf16"),
    "bucket_views": (False, True),
    "sequence_parallel": (False, True),
    "offload_params": (False, True),
    "rotate": ("allgather", "alltoall"),
    "quant_storage": ("bf16", "uint8"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedCase:
    """``step`` on one of ``data`` × ``replicas`` × ``context`` × ``tensor`` GPUs, usually rank 0.

    ``sharding`` is among ``data`` GPUs; with ``replicas`` over 1 each shard is on so many of them
    (hybrid sharding). ``reshard`` is FSDP2's ``reshard_after_forward``; ``wrap`` says which modules
    it shards by themselves: "layers" each layer, and the rest with the whole model; "ends" the
    embedding, and the last norm with the head, as well (accelerate 1.15, torchtitan of late 2025).
    With ``prefetch`` "explicit" each layer gathers the next one itself. Under FSDP2 autocast's
    place is taken by a policy of mixed precision: 16-bit parameters, ``reduce_dtype`` gradients.
    """

    step: Case
    data: int = 1
    replicas: int = 1
    tensor: int = 1
    sequence_parallel: bool = False
    sharding: str = "none"
    reshard: bool = True
    wrap: str = "layers"
    prefetch: str = "implicit"
    reduce_dtype: str = "fp32"
    bucket_views: bool = False
    #: Whether FSDP2 reduces gradients after every micro-batch, and not after the last alone.
    synced: bool = True
    #: Whether FSDP2 has shards, gradients and states in the CPU's memory (CPUOffloadPolicy).
    offload_params: bool = False
    #: The dtype in which bitsandbytes has 4-bit weights: accelerate shards no whole numbers.
    quant_storage: str = "bf16"
    #: Which step is looked at, from 1: DDP's first one still has other buckets.
    turn: int = 2
    #: GPUs that share each sequence (torch's context_parallel), how they exchange keys and values,
    #: and which of all GPUs is looked at.
    context: int = 1
    rotate: str = "allgather"
    rank: int = 0

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} {value!r}: allowed: {', '.join(map(str, allowed))}")
        if (self.sharding == "none") != (self.data * self.replicas * self.context == 1):
            raise ValueError("sharding: over 2 or more GPUs, and none over one")

    @property
    def world(self) -> int:
        """How many GPUs there are."""
        return self.data * self.replicas * self.context * self.tensor

    def to_row(self) -> dict[str, str]:
        """The case as the first columns of a table."""
        row = self.step.to_row()
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "step":
                row[field.name] = ("no", "yes")[value] if isinstance(value, bool) else str(value)
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> ShardedCase:
        """The case that a table's row names."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            if field.name == "step":
                values["step"] = Case.from_row(row)
            elif field.name in ("data", "replicas", "tensor", "turn", "context", "rank"):
                values[field.name] = int(row[field.name])
            elif isinstance(field.default, bool):
                values[field.name] = row[field.name] == "yes"
            else:
                values[field.name] = row[field.name]
        return cls(**values)

    def with_(self, **changes: Any) -> ShardedCase:
        """The case with other choices."""
        return replace(self, **changes)
