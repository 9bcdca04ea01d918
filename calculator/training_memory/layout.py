"""Which GPU holds what: the degrees of splitting, and what is impossible for a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from math import lcm

from .errors import InputError
from .model import Model
from .pipeline import Schedule
from .reading import Reading, a_choice, a_count, a_flag
from .records import dataclass
from .units import parse_count

_MOST_GPUS = 1_048_576
ZERO_STAGES = (0, 1, 2, 3)


class Exchange(StrEnum):
    """How GPUs that share a sequence come to see each other's keys and values.

    Passed round in a ring (Liu et al. 2023, arXiv:2310.01889), gathered by all at once (Llama Team
    2024, arXiv:2407.21783, §3.3.2), or heads exchanged for tokens (DeepSpeed-Ulysses,
    arXiv:2309.14509).
    """

    RING = "ring"
    ALL_GATHER = "all-gather"
    ULYSSES = "ulysses"


class Routing(StrEnum):
    """How many tokens reach a GPU's experts: as many as any other's, or as many as ever can."""

    BALANCED = "balanced"
    WORST = "worst"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one training run is spread over GPUs.

    ``data`` replicas of the model, ZeRO stage ``zero`` over them; within a replica ``tensor``
    GPUs share every layer, with the tokens between them split too if ``sequence_parallel``;
    ``context`` GPUs share each sequence, with ``context_exchange`` between them; ``pipeline``
    stages share the stack of layers, their turns by ``schedule``, with ``interleave`` parts of the
    model on each and ``layers_per_stage`` layers where they are not spread evenly. Of ``expert``
    GPUs each holds its own experts, of which ``expert_tensor`` GPUs share every one, usually as
    many as share the layers; both are among a stage's GPUs, whatever these share of the other
    layers. ``routing``: how evenly tokens choose their experts.
    """

    data: int = 1
    zero: int = 0
    tensor: int = 1
    sequence_parallel: bool = False
    context: int = 1
    context_exchange: Exchange = Exchange.RING
    pipeline: int = 1
    schedule: Schedule = Schedule.ONE_F_ONE_B
    interleave: int = 1
    layers_per_stage: tuple[int, ...] | None = None
    expert: int = 1
    expert_tensor: int = 1
    routing: Routing = Routing.BALANCED

    @property
    def gpus(self) -> int:
        """All GPUs of the run."""
        return self.data * self.tensor * self.context * self.pipeline

    @property
    def replicas(self) -> int:
        """GPUs that hold the same parameters of a dense layer: data × context."""
        return self.data * self.context

    @property
    def expert_replicas(self) -> int:
        """GPUs that hold the same experts' parameters."""
        return self.data * self.context * self.tensor // (self.expert * self.expert_tensor)

    @property
    def token_multiple(self) -> int:
        """What a sequence's tokens must divide by.

        Of the GPUs that share it each gets a piece from either end, so that causal attention is
        shared fairly; then those that share a layer's tokens get as many each.
        """
        pieces = 2 * self.context if self.context > 1 else 1
        return lcm(pieces, self.context * self.tensor if self.sequence_parallel else 1)

    @property
    def is_usual_schedule(self) -> bool:
        """Whether the schedule is what a run has that names none."""
        return self.schedule is _usual_schedule(self.interleave)

    def stage_layers(self, layers: int) -> tuple[int, ...]:
        """Layers on each pipeline stage: as even as can be, the first stages one more."""
        if self.layers_per_stage is not None:
            return self.layers_per_stage
        each, more = divmod(layers, self.pipeline)
        return tuple(each + (stage < more) for stage in range(self.pipeline))


#: A run on one GPU.
USUAL: Mapping[str, object] = {
    "data": 1,
    "zero": 0,
    "tensor": 1,
    "sequence_parallel": False,
    "context": 1,
    "context_exchange": "ring",
    "pipeline": 1,
    "schedule": None,
    "interleave": 1,
    "layers_per_stage": None,
    "expert": 1,
    "expert_tensor": None,
    "routing": "balanced",
}


def _usual_schedule(interleave: int) -> Schedule:
    return Schedule.INTERLEAVED if interleave > 1 else Schedule.ONE_F_ONE_B


def read(reading: Reading) -> Layout:
    """The layout of a request."""
    degree = a_count(most=_MOST_GPUS)
    interleave = reading.field("interleave", degree, 1)
    tensor = reading.field("tensor", degree, 1)
    return Layout(
        data=reading.field("data", degree, 1),
        zero=reading.field("zero", _zero, 0),
        tensor=tensor,
        sequence_parallel=reading.field("sequence_parallel", a_flag, False),
        context=reading.field("context", degree, 1),
        context_exchange=reading.field("context_exchange", a_choice(Exchange), Exchange.RING),
        pipeline=reading.field("pipeline", degree, 1),
        schedule=reading.switch("schedule", a_choice(Schedule), _usual_schedule(interleave)),
        interleave=interleave,
        layers_per_stage=reading.switch("layers_per_stage", _layers, None),
        expert=reading.field("expert", degree, 1),
        expert_tensor=reading.switch("expert_tensor", degree, tensor),
        routing=reading.field("routing", a_choice(Routing), Routing.BALANCED),
    )


def _layers(name: str, value: object) -> tuple[int, ...]:
    """Layers of each stage: a list, or as text "8, 8, 7"."""
    items: object = value
    if isinstance(value, str):
        items = [item for item in value.replace("+", ",").split(",") if item.strip()]
    if not isinstance(items, list | tuple) or not items:
        raise InputError(name, value, "allowed: each stage's layers, such as 8,8,8,7")
    return tuple(parse_count(name, item, most=_MOST_GPUS) for item in items)


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
    elif layout.sequence_parallel:
        allowed = (
            "sequence parallelism splits tokens among tensor-parallel GPUs, so set tensor to 2 or "
            "more, or leave it off"
        )
        errors.append(InputError("sequence_parallel", True, allowed))
    errors += _of_a_sequence(layout, sequence)
    errors += _of_stages(layout, model)
    errors += _of_experts(layout, model)
    if layout.gpus > _MOST_GPUS:
        allowed = f"data × tensor × context × pipeline may come to at most {_MOST_GPUS:,} GPUs"
        errors.append(InputError("data", layout.data, allowed))
    return errors


def _of_a_sequence(layout: Layout, sequence: int) -> Iterator[InputError]:
    if layout.context == 1 and layout.context_exchange is not Exchange.RING:
        allowed = "no GPUs share a sequence; set context to 2 or more, or leave it out"
        yield InputError("context_exchange", str(layout.context_exchange), allowed)
    multiple = layout.token_multiple
    if not sequence % multiple:
        return
    if layout.context > 1:
        allowed = (
            f"context parallelism gives each of the {layout.context} GPUs of a sequence two equal "
            f"pieces of it, so use a multiple of {multiple}"
        )
    else:
        allowed = (
            f"sequence parallelism gives each of the {layout.tensor} tensor-parallel GPUs the same "
            f"number of tokens, so use a multiple of {multiple}"
        )
    yield InputError("sequence", sequence, allowed)


def _of_stages(layout: Layout, model: Model) -> Iterator[InputError]:
    if layout.pipeline > model.layers:
        allowed = (
            f"every pipeline stage holds at least one layer, and {model.name} has "
            f"{model.layers:,}, so use 1 to {model.layers:,}"
        )
        yield InputError("pipeline", layout.pipeline, allowed)
    given = layout.layers_per_stage
    if given is not None and (len(given), sum(given)) != (layout.pipeline, model.layers):
        allowed = f"give each of the {layout.pipeline:,} stages its layers, {model.layers:,} in all"
        yield InputError("layers_per_stage", ", ".join(map(str, given)), allowed)
    interleaved = layout.schedule is Schedule.INTERLEAVED
    if interleaved and layout.interleave == 1:
        allowed = "interleaving gives each stage several parts of the model, so use 2 or more"
        yield InputError("interleave", layout.interleave, allowed)
    if layout.interleave > 1:
        yield from _of_parts(layout, model)


def _of_parts(layout: Layout, model: Model) -> Iterator[InputError]:
    parts = layout.interleave * layout.pipeline
    if layout.schedule is not Schedule.INTERLEAVED:
        allowed = "only the schedule interleaved has several parts of the model on a stage; use 1"
        yield InputError("interleave", layout.interleave, allowed)
    elif layout.pipeline == 1:
        allowed = "there is nothing to take turns with on one stage; set pipeline to 2 or more"
        yield InputError("interleave", layout.interleave, allowed)
    elif model.layers % parts or layout.layers_per_stage is not None:
        allowed = (
            f"interleaving spreads the layers evenly over pipeline × interleave parts, and "
            f"{model.name} has {model.layers:,}"
        )
        yield InputError("interleave", layout.interleave, allowed)


def _of_experts(layout: Layout, model: Model) -> Iterator[InputError]:
    if not model.experts:
        for name, usual in (
            ("expert", 1),
            ("expert_tensor", layout.tensor),
            ("routing", Routing.BALANCED),
        ):
            value = getattr(layout, name)
            if value != usual:
                allowed = f"{model.name} has no experts; leave it out"
                yield InputError(name, value if isinstance(value, int) else str(value), allowed)
        return
    if model.experts % layout.expert:
        allowed = (
            f"each GPU holds as many experts as the next, and {model.name} has {model.experts:,} "
            f"in a layer, so use a divisor of {model.experts:,}"
        )
        yield InputError("expert", layout.expert, allowed)
    stage = layout.data * layout.context * layout.tensor
    if stage % (layout.expert * layout.expert_tensor):
        allowed = (
            f"expert × expert_tensor must divide a stage's GPUs, data × context × tensor: {stage:,}"
        )
        yield InputError("expert", layout.expert, allowed)
