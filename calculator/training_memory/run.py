"""A run: everything that decides how much memory one training step takes. JSON in and out.

Fields that belong together are a small record of their own, which says how each is read and what
it usually is: :mod:`.switches`, :mod:`.tuning`, :mod:`.layout`, :mod:`.sharding`. In JSON all are
of one level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property

from . import catalog, gpus, layout, parallel, recipe, ring, sharding, switches, tuning
from .blocks.ledger import Recompute
from .errors import InputError, InputErrors, nearest
from .gpus import Gpu
from .implementations import BY_STAGES, FAMILIES, Implementation
from .layout import Layout
from .model import SHAPE_FIELDS, Model
from .reading import Reading, a_choice, a_count, a_name, one_of, remembered
from .recipe import Recipe
from .records import dataclass, field, fields
from .sharding import Sharding, Way
from .structure import family_of
from .switches import Compile, Offload, Switches
from .tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run, checked.

    ``sequence`` tokens in each of ``micro_batch`` sequences; ``micro_batches`` of these make one
    optimizer step on each replica. ``shape`` holds what was changed in the catalog's model, so that
    the run can be written down again. Made by :meth:`from_json`, which checks every field.
    """

    model: Model
    sequence: int
    micro_batch: int
    micro_batches: int
    recipe: Recipe
    recompute: Recompute
    implementation: Implementation
    switches: Switches
    tuning: Tuning
    layout: Layout
    sharding: Sharding
    gpu: Gpu | None
    shape: Mapping[str, object] = field(default_factory=dict, compare=False)

    @classmethod
    def from_json(cls, request: Mapping[str, object]) -> Run:
        """The run that a JSON object describes; whatever it leaves out is as in :data:`DEFAULTS`.

        Raises :class:`InputErrors` with every field that cannot be.
        """
        return _read(request)

    def to_json(self) -> dict[str, object]:
        """The same run as plain values, every field written out; reads back as an equal run."""
        return {**self._values, "shape": dict(self.shape)}

    @cached_property
    def _values(self) -> dict[str, object]:
        textbook = self.implementation is Implementation.PAPER
        by_stages = self.implementation in BY_STAGES
        return {
            "model": self.model.id,
            "shape": None,
            **self._own(),
            "sequence": self.sequence,
            "micro_batch": self.micro_batch,
            "micro_batches": self.micro_batches,
            "recipe": self.recipe.id,
            "recompute": str(self.recompute),
            "implementation": str(self.implementation),
            # The textbook has no switches.
            **(switches.USUAL if textbook else _plain(self.switches)),
            **(tuning.USUAL if self.tuning.trains_all else _plain(self.tuning)),
            **_plain(self.layout),
            **(sharding.USUAL if textbook or by_stages else _plain(self.sharding)),
            **sharding.of_others(self.sharding, self.layout),
            **self._own_way(),
            # Left out where they follow from other fields.
            "schedule": None if self.layout.is_usual_schedule else str(self.layout.schedule),
            "expert_tensor": None
            if self.layout.expert_tensor == self.layout.tensor
            else self.layout.expert_tensor,
            "gpu": self.gpu.id if self.gpu else None,
        }

    def _own_way(self) -> dict[str, object]:
        """The implementation's own way of sharding is left to it: it follows ZeRO's stage."""
        own = sharding.own_way(self.implementation, self.layout.zero)
        return {"sharding": None} if self.sharding.sharding is own else {}

    def _own(self) -> dict[str, object]:
        """What a model of one's own is called and belongs to; of the catalog's, None."""
        custom = self.model.id == "custom"
        values = {name: getattr(self.model, name) for name in catalog.CUSTOM}
        return {
            name: value if custom and value != catalog.CUSTOM[name] else None
            for name, value in values.items()
        }


def _plain(record: Switches | Tuning | Layout | Sharding) -> dict[str, object]:
    """A record's fields as JSON has them."""
    return {item.name: _as_json(getattr(record, item.name)) for item in fields(type(record))}


def _as_json(value: object) -> object:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, StrEnum) else value


#: The run that an empty request means: the chapter's example on one GPU.
DEFAULTS: Mapping[str, object] = {
    "model": "llama-7b",
    "shape": {},
    "name": None,
    "family": None,
    "sequence": 4096,
    "micro_batch": 1,
    "micro_batches": 1,
    "recipe": "mixed-adam",
    "recompute": "none",
    "implementation": "paper",
    **switches.USUAL,
    **tuning.USUAL,
    **layout.USUAL,
    **sharding.USUAL,
    "gpu": gpus.DEFAULT,
}

_MOST_TOKENS = 2**30
_MOST_BATCH = 2**20


def _read(request: Mapping[str, object]) -> Run:
    reading = Reading(request, DEFAULTS)
    reading.errors += _unknown(request)
    model, shape = _model(reading)
    sequence = reading.field("sequence", a_count(most=_MOST_TOKENS), 1)
    the_layout = remembered(layout.read, layout.USUAL, reading)
    a_batch = a_count(most=_MOST_BATCH)
    micro_batch = reading.field("micro_batch", a_batch, 1)
    micro_batches = reading.field("micro_batches", a_batch, 1)
    recompute = reading.field("recompute", a_choice(Recompute), Recompute.NONE)
    a_way = a_choice(Implementation)
    implementation = reading.field("implementation", a_way, Implementation.PAPER)
    the_switches = remembered(switches.read, switches.USUAL, reading, implementation)
    the_sharding = remembered(sharding.read, sharding.USUAL, reading, implementation, the_layout)
    the_recipe = reading.field("recipe", lambda _, value: recipe.get(value), recipe.MIXED_ADAM)
    if "recipe" not in request:
        adapts = reading.value("adapter") != tuning.USUAL["adapter"]
        the_recipe = _usual_recipe(implementation, the_sharding, adapts)
    the_tuning = remembered(tuning.read, tuning.USUAL, reading, the_recipe)
    gpu = reading.field("gpu", _gpu, None)
    if model is None or reading.errors:
        raise InputErrors(reading.errors)
    run = Run(
        model=model,
        sequence=sequence,
        micro_batch=micro_batch,
        micro_batches=micro_batches,
        recipe=the_recipe,
        recompute=recompute,
        implementation=implementation,
        switches=the_switches,
        tuning=the_tuning,
        layout=sharding.with_zero(the_layout, the_sharding, implementation),
        sharding=the_sharding,
        gpu=gpu,
        shape=shape,
    )
    reading.errors += _impossible(run, reading)
    if reading.errors:
        raise InputErrors(reading.errors)
    return run


def _usual_recipe(implementation: Implementation, sharding: Sharding, adapts: bool) -> Recipe:
    """The recipe where none is named: the textbook's, or the way's own that has no such copies."""
    if implementation in BY_STAGES:
        return recipe.MIXED_ADAM_FP32_GRAD
    if implementation is Implementation.PAPER:
        return recipe.MIXED_ADAM
    if (adapts and sharding.sharding is not Way.DEEPSPEED) or sharding.sharding in (
        Way.FSDP1,
        Way.FSDP2,
    ):
        return recipe.AUTOCAST_ADAM
    return recipe.MIXED_ADAM


def _unknown(request: Mapping[str, object]) -> Iterator[InputError]:
    for name in request:
        if name not in DEFAULTS:
            allowed = f"a run has no such field; its fields: {', '.join(DEFAULTS)}"
            yield InputError(name, request[name], allowed, suggestion=nearest(name, DEFAULTS))


def _gpu(_: str, value: object) -> Gpu | None:
    return None if value is None else gpus.get(value)


def _impossible(run: Run, reading: Reading) -> Iterator[InputError]:
    """What cannot go together in a run whose every field could be."""
    yield from _too_long(run.model, run.sequence)
    yield from layout.impossible(run.layout, run.model, run.sequence)
    if run.layout.interleave > 1 and run.micro_batches % run.layout.pipeline:
        stages = run.layout.pipeline
        allowed = f"interleaved parts take their turns by {stages} micro-batches: a multiple of it"
        yield InputError("micro_batches", run.micro_batches, allowed)
    if run.tuning.trains_all:
        yield from tuning.idle(reading)
    else:
        yield from tuning.refused(
            run.tuning,
            run.recipe,
            run.model,
            str(run.implementation),
            copies=run.sharding.sharding is Way.DEEPSPEED,
        )
    if run.layout.routing is layout.Routing.WORST and (
        run.implementation is not Implementation.MEGATRON
    ):
        allowed = "balanced: only Megatron's exchange of tokens between experts is followed"
        yield InputError("routing", str(run.layout.routing), allowed)
    if run.implementation is Implementation.PAPER:
        if run.layout.context_exchange is not layout.Exchange.RING:
            allowed = "the textbook counts what is kept, however it is exchanged; leave it out"
            yield InputError("context_exchange", str(run.layout.context_exchange), allowed)
        yield from switches.of_the_textbook(reading)
        allowed = "the textbook shares by ZeRO's stage alone; choose another implementation"
        yield from sharding.of_none(reading, allowed)
        if run.recompute is Recompute.MATMULS:
            allowed = "the textbook knows none, selective, full; choose another implementation"
            yield InputError("recompute", str(run.recompute), allowed)
        return
    try:
        family_of(run.model, str(run.implementation))
    except InputError as error:
        yield error
    if run.implementation in BY_STAGES:
        from .megatron.allowed import refused

        yield from refused(run)
        allowed = f"{run.implementation} shares its optimizer's states alone (zero 1); leave it out"
        yield from sharding.of_none(reading, allowed)
        yield from switches.refused(run.switches, run.model, run.implementation)
        return
    yield from _not_followed(run)
    yield from switches.refused(run.switches, run.model, run.implementation)
    yield from sharding.refused(
        run.sharding,
        run.layout,
        run.recipe,
        run.switches,
        run.tuning,
        run.implementation,
        run.model.parameters.total,
    )
    yield from _at_the_wrong_time(run)


def _at_the_wrong_time(run: Run) -> Iterator[InputError]:
    """Switches that other fields leave nothing to do for, or contradict."""
    if run.switches.optimizer_in_backward:
        if run.micro_batches > 1:
            allowed = "1 where each gradient is used up as it comes"
            yield InputError("micro_batches", run.micro_batches, allowed)
        if run.recipe.precision.startswith("master"):
            allowed = "autocast-adam, bf16-adam or fp32-adam where weights are updated in backward"
            yield InputError("recipe", run.recipe.id, allowed)
    if run.switches.compile is not Compile.NONE:
        if run.layout.tensor > 1:
            allowed = "none with tensor parallelism: compiled collectives are not followed"
            yield InputError("compile", str(run.switches.compile), allowed)
        if run.recompute is Recompute.SELECTIVE:
            allowed = "none, full or matmuls where layers are compiled"
            yield InputError("recompute", str(run.recompute), allowed)
    if run.switches.offload is Offload.CHECKPOINTS and run.recompute is not Recompute.FULL:
        allowed = "none or saved: only full recomputation begins its layers with checkpoints"
        yield InputError("offload", str(run.switches.offload), allowed)


def _not_followed(run: Run) -> Iterator[InputError]:
    """Ways to split a model that no recording follows yet."""
    if run.layout.tensor > 1:
        yield from parallel.refused(
            run.layout,
            run.sharding,
            run.model,
            run.implementation,
            run.switches,
            run.tuning,
        )
    if run.layout.context > 1:
        yield from ring.refused(
            run.layout,
            run.sharding,
            run.recipe,
            run.recompute,
            run.implementation,
            run.switches,
            run.tuning,
        )
    if run.layout.pipeline > 1:
        allowed = (
            "pipeline parallelism is counted in the textbook's way and Megatron's so far; use "
            "1, or the implementation paper or megatron"
        )
        yield InputError("pipeline", run.layout.pipeline, allowed)


def _model(reading: Reading) -> tuple[Model | None, dict[str, object]]:
    """The model with its shape changes, and those of them that do change it."""
    shape = reading.value("shape")
    if not isinstance(shape, Mapping):
        allowed = 'allowed: an object of shape fields, such as {"layers": 8}'
        reading.errors.append(InputError("shape", shape, allowed))
        shape = {}
    model_id = reading.value("model")
    name = reading.switch("name", a_name, None)
    family = reading.switch("family", one_of(FAMILIES), None)
    for own, said in (("name", name), ("family", family)):
        if said is not None and model_id != "custom":
            allowed = "a model of the catalog has its own; leave it out, or set model to custom"
            reading.errors.append(InputError(own, said, allowed))
    try:
        if model_id == "custom":
            model = catalog.custom(shape, name=name, family=family)
            return model, {name: getattr(model, name) for name in SHAPE_FIELDS}
        base = catalog.get(model_id)
        if not shape:
            return base, {}
        model = catalog.with_shape(base, shape)
    except InputErrors as errors:
        reading.errors += errors.errors
    except InputError as error:
        reading.errors.append(error)
    else:
        changed = {
            name: getattr(model, name)
            for name in SHAPE_FIELDS
            if getattr(model, name) != getattr(base, name)
        }
        return model, changed
    return None, {}


def _too_long(model: Model, sequence: int) -> Iterator[InputError]:
    if model.positions and sequence > model.positions:
        allowed = (
            f"{model.name} has learned positions for 1 to {model.positions:,} tokens; "
            "change the shape's positions to go beyond"
        )
        yield InputError("sequence", sequence, allowed)
