"""Which GPU holds what: the degrees of splitting, and what is impossible for a model."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import InputError
from .model import Model
from .reading import Reading, a_count, a_flag
from .records import dataclass

_MOST_GPUS = 1_048_576
ZERO_STAGES = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one training run is spread over GPUs.

    ``data`` replicas of the model, ZeRO stage ``zero`` over them; within a replica ``tensor``
    GPUs share every layer, with the tokens between them split too if ``sequence_parallel``;
    ``pipeline`` stages share the stack of layers.
    """

    data: int = 1
    zero: int = 0
    tensor: int = 1
    sequence_parallel: bool = False
    pipeline: int = 1

    @property
    def gpus(self) -> int:
        """All GPUs of the run."""
        return self.data * self.tensor * self.pipeline

    def stage_layers(self, layers: int) -> tuple[int, ...]:
        """Layers on each pipeline stage: as even as can be, the first stages one more."""
        each, more = divmod(layers, self.pipeline)
        return tuple(each + (stage < more) for stage in range(self.pipeline))


#: A run on one GPU.
USUAL: Mapping[str, object] = {
    "data": 1,
    "zero": 0,
    "tensor": 1,
    "sequence_parallel": False,
    "pipeline": 1,
}


def read(reading: Reading) -> Layout:
    """The layout of a request."""
    degree = a_count(most=_MOST_GPUS)
    return Layout(
        data=reading.field("data", degree, 1),
        zero=reading.field("zero", _zero, 0),
        tensor=reading.field("tensor", degree, 1),
        sequence_parallel=reading.field("sequence_parallel", a_flag, False),
        pipeline=reading.field("pipeline", degree, 1),
    )


def _zero(name: str, value: object) -> int:
    """A ZeRO stage: 0 (off) to 3."""
    stage: object = value
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 9:
        stage = int(value)
    if isinstance(stage, float) and stage.is_integer():
        stage = int(stage)  # JSON may write a whole number as 1.0
    if isinstance(stage, bool) or not isinstance(stage, int) or stage not in ZERO_STAGES:
        raise InputError(name, value, "allowed: 0 (off), 1, 2, 3")
    return stage


def impossible(layout: Layout, model: Model, sequence: int) -> list[InputError]:
    """Every reason why this model cannot be split so; none if it can."""
    errors = []
    tensor = layout.tensor
    if tensor > 1:
        divided: Mapping[str, int] = {
            "attention heads": model.heads,
            "hidden size": model.hidden,
        }
        for what, size in divided.items():
            if size % tensor:
                allowed = (
                    f"tensor parallelism gives each GPU whole {what}, and {model.name} has "
                    f"{size:,}, so use a divisor of {size:,}"
                )
                errors.append(InputError("tensor", tensor, allowed))
                break
        if layout.sequence_parallel and sequence % tensor:
            allowed = (
                f"sequence parallelism gives each of the {tensor} tensor-parallel GPUs the same "
                f"number of tokens, so use a multiple of {tensor}"
            )
            errors.append(InputError("sequence", sequence, allowed))
    elif layout.sequence_parallel:
        allowed = (
            "sequence parallelism splits tokens among tensor-parallel GPUs, so set tensor to 2 or "
            "more, or leave it off"
        )
        errors.append(InputError("sequence_parallel", True, allowed))
    if layout.pipeline > model.layers:
        allowed = (
            f"every pipeline stage holds at least one layer, and {model.name} has "
            f"{model.layers:,}, so use 1 to {model.layers:,}"
        )
        errors.append(InputError("pipeline", layout.pipeline, allowed))
    if layout.gpus > _MOST_GPUS:
        allowed = f"data × tensor × pipeline may come to at most {_MOST_GPUS:,} GPUs"
        errors.append(InputError("data", layout.data, allowed))
    return errors
