"""What is measured: one training step's every choice, as a row of the tables names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .rows import as_row, values_of

PRECISIONS = ("fp32", "autocast", "bf16", "master", "master-fp32-grad")
"""fp32: all of it. autocast: 32-bit weights, operations in bfloat16. bf16: weights, gradients and
states. master: 16-bit weights and gradients, and the optimizer's own 32-bit copy of the weights,
with 16-bit or 32-bit gradients."""

ATTENTIONS = ("eager", "flash")
RECOMPUTES = ("none", "full", "selective", "matmuls")
OPTIMIZERS = (
    "adamw-forloop",
    "adamw-foreach",
    "adamw-fused",
    "sgd-momentum",
    "adafactor",
    "adafactor-hf",
    "muon",
    "adamw-8bit",
)
PAGED = ("paged-adamw", "paged-adamw-8bit")
#: DeepSpeed's own kernel.
DEEPSPEEDS = ("adamw-deepspeed",)
LOSSES = ("full", "chunked", "fused-linear")
IMPLEMENTATIONS = ("huggingface", "torchtitan", "paper")
ADAPTERS = ("none", "lora", "qlora")
TARGETS = ("query-value", "all-linear")
DTYPES = ("bf16", "fp32")

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "implementation": IMPLEMENTATIONS,
    "precision": PRECISIONS,
    "attention": ATTENTIONS,
    "recompute": RECOMPUTES,
    "optimizer": (*OPTIMIZERS, *PAGED, *DEEPSPEEDS),
    "loss": LOSSES,
    "hold_logits": (False, True),
    "clip": (False, True),
    "mlp": ("own", "fused", "unfused"),
    "norm": ("own", "fused", "unfused"),
    "dropout": ("own", "on", "off"),
    "in_backward": (False, True),
    "offload": ("none", "checkpoints", "saved"),
    "adapter": ADAPTERS,
    "adapter_targets": TARGETS,
    "adapter_dtype": DTYPES,
    "adapter_dropout": (False, True),
    "frozen_dtype": DTYPES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One training step. ``shape`` overrides fields of the catalogue's model."""

    implementation: str = "huggingface"
    model: str
    shape: tuple[tuple[str, int], ...] = ()
    micro_batch: int
    sequence: int
    precision: str = "bf16"
    attention: str = "flash"
    recompute: str = "none"
    optimizer: str = "adamw-foreach"
    loss: str = "full"
    #: Whether the model's output, logits included, is kept until the step ends.
    hold_logits: bool = False
    micro_batches: int = 1
    clip: bool = False
    #: Activation and gate, and RMSNorm: by one kernel or several; "own" is as the model's code is.
    mlp: str = "own"
    norm: str = "own"
    dropout: str = "own"
    #: Each weight is updated as its gradient arrives; what goes to the CPU until then.
    in_backward: bool = False
    offload: str = "none"
    #: What is trained in place of all weights; ``frozen_dtype`` is what those then have, or in
    #: QLoRA those that are not in 4 bits.
    adapter: str = "none"
    adapter_rank: int = 16
    adapter_targets: str = "query-value"
    adapter_dtype: str = "fp32"
    adapter_dropout: bool = False
    frozen_dtype: str = "bf16"

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} {value!r}: allowed: {', '.join(map(str, allowed))}")
        if self.hold_logits and self.loss != "full":
            raise ValueError("hold_logits: only the full loss makes all logits")

    def to_row(self) -> dict[str, str]:
        """The case as the first columns of a table."""
        return as_row(self)

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> Case:
        """The case that a table's row names."""
        return cls(**values_of(cls, row))

    def with_(self, **changes: Any) -> Case:
        """The case with other choices."""
        return replace(self, **changes)
