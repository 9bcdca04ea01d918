"""A training step of one of several GPUs that share a model by DeepSpeed's ZeRO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .case import Case

_WORDS = ("offload_optimizer", "offload_param", "grad_accum_dtype", "quant_storage")
PLACES = ("none", "cpu", "nvme")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroCase:
    """``step`` on the GPU ``rank`` of ``data``, by ``stage`` of ZeRO.

    Precision "master" is DeepSpeed's ``bf16``, "fp32" its default. The others are keys of its
    ``zero_optimization``, in numbers, not bytes; None leaves one out. ``grad_accum_dtype`` is that
    of its ``data_types``, "" where nothing is said; ``quant_storage`` holds the codes of weights
    in 4 bits.
    """

    step: Case
    data: int
    stage: int
    rank: int = 0
    reduce_bucket_size: int | None = None
    overlap_comm: bool | None = None
    prefetch_bucket_size: int | None = None
    param_persistence_threshold: int | None = None
    sub_group_size: int | None = None
    offload_optimizer: str = "none"
    offload_param: str = "none"
    grad_accum_dtype: str = ""
    quant_storage: str = "bf16"

    def __post_init__(self) -> None:
        for name in ("offload_optimizer", "offload_param"):
            if getattr(self, name) not in PLACES:
                raise ValueError(f"{name}: allowed: {', '.join(PLACES)}")

    def zero_optimization(self, folder: str) -> dict[str, object]:
        """The case as DeepSpeed's configuration has it, with a folder for what is swapped out."""
        found: dict[str, object] = {"stage": self.stage}
        for name in ("reduce_bucket_size", "overlap_comm", "sub_group_size"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        for name in ("prefetch_bucket_size", "param_persistence_threshold"):
            if getattr(self, name) is not None:
                found[f"stage3_{name}"] = getattr(self, name)
        for name in ("offload_optimizer", "offload_param"):
            if getattr(self, name) != "none":
                found[name] = {"device": getattr(self, name)}
            if getattr(self, name) == "nvme":
                found[name] = {"device": "nvme", "nvme_path": folder, "pin_memory": True}
        return found

    def to_row(self) -> dict[str, str]:
        """The case as the first columns of a table."""
        row = self.step.to_row()
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "step":
                row[field.name] = "" if value is None else str(value)
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> ZeroCase:
        """The case that a table's row names."""
        values: dict[str, Any] = {"step": Case.from_row(row)}
        for field in fields(cls):
            text = row.get(field.name, "")
            if field.name == "step" or not text:
                continue
            if field.name in _WORDS:
                values[field.name] = text
            else:
                values[field.name] = text == "True" if field.name == "overlap_comm" else int(text)
        return cls(**values)

    def with_(self, **changes: Any) -> ZeroCase:
        """The case with other choices."""
        return replace(self, **changes)
