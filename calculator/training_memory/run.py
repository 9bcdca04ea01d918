"""A run: everything that decides how much memory one training step takes. JSON in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

from . import catalog, gpus, recipe
from .blocks.ledger import Recompute
from .errors import InputError, InputErrors, nearest
from .gpus import Gpu
from .layout import Layout, impossible, parse_degree, parse_flag, parse_zero
from .model import SHAPE_FIELDS, Model
from .recipe import Recipe
from .records import dataclass, field, fields
from .structure import family_of
from .units import parse_count

# For type checkers alone: typing takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")
    E = TypeVar("E", bound=StrEnum)


class Implementation(StrEnum):
    """Whose accounting of a layer is used."""

    PAPER = "paper"
    HUGGINGFACE = "huggingface"
    TORCHTITAN = "torchtitan"


class Attention(StrEnum):
    """What computes attention: a fused kernel, or operations that keep every score."""

    FLASH = "flash"
    EAGER = "eager"


class Loss(StrEnum):
    """How the loss comes from the last layer's output."""

    FULL = "full"
    CHUNKED = "chunked"
    FUSED_LINEAR = "fused-linear"


class Optimizer(StrEnum):
    """What the recipe's Adam can be exchanged for."""

    ADAMW = "adamw"
    SGD_MOMENTUM = "sgd-momentum"
    ADAFACTOR = "adafactor"
    ADAFACTOR_HF = "adafactor-hf"
    MUON = "muon"
    ADAMW_8BIT = "adamw-8bit"


class OptimizerKernel(StrEnum):
    """How AdamW's step goes over the parameters."""

    FUSED = "fused"
    FOREACH = "foreach"
    FORLOOP = "forloop"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    attention: Attention
    loss: Loss
    optimizer: Optimizer
    optimizer_kernel: OptimizerKernel
    hold_logits: bool
    clip: bool
    layout: Layout
    gpu: Gpu | None
    shape: Mapping[str, object] = field(default_factory=dict, compare=False)

    @classmethod
    def from_json(cls, request: Mapping[str, object]) -> Run:
        """The run that a JSON object describes; whatever it leaves out is as in :data:`DEFAULTS`.

        Raises :class:`InputErrors` with every field that cannot be.
        """
        return _Reader(request).run()

    def to_json(self) -> dict[str, object]:
        """The same run as plain values, every field written out; reads back as an equal run."""
        layout = {item.name: getattr(self.layout, item.name) for item in fields(Layout)}
        return {
            "model": self.model.id,
            "shape": dict(self.shape),
            "sequence": self.sequence,
            "micro_batch": self.micro_batch,
            "micro_batches": self.micro_batches,
            "recipe": self.recipe.id,
            "recompute": str(self.recompute),
            "implementation": str(self.implementation),
            **self._switches(),
            **layout,
            "gpu": self.gpu.id if self.gpu else None,
        }

    def _switches(self) -> dict[str, object]:
        """The implementation's switches; the textbook has none."""
        if self.implementation is Implementation.PAPER:
            return {name: DEFAULTS[name] for name in SWITCHES}
        return {
            "attention": str(self.attention),
            "loss": str(self.loss),
            "optimizer": str(self.optimizer),
            "optimizer_kernel": str(self.optimizer_kernel),
            "hold_logits": self.hold_logits,
            "clip": self.clip,
        }


#: The run that an empty request means: the chapter's example on one GPU.
DEFAULTS: Mapping[str, object] = {
    "model": "llama-7b",
    "shape": {},
    "sequence": 4096,
    "micro_batch": 1,
    "micro_batches": 1,
    "recipe": "mixed-adam",
    "recompute": "none",
    "implementation": "paper",
    "attention": None,
    "loss": None,
    "optimizer": None,
    "optimizer_kernel": None,
    "hold_logits": False,
    "clip": False,
    "data": 1,
    "zero": 0,
    "tensor": 1,
    "sequence_parallel": False,
    "pipeline": 1,
    "gpu": gpus.DEFAULT,
}

#: What an implementation other than the textbook lets one choose; the default is its own way.
SWITCHES = ("attention", "loss", "optimizer", "optimizer_kernel", "hold_logits", "clip")

_DEGREES = ("data", "tensor", "pipeline")
_MOST_TOKENS = 2**30
_MOST_BATCH = 2**20


class _Reader:
    """Reads one request field by field and collects what is wrong with it."""

    def __init__(self, request: Mapping[str, object]) -> None:
        self.errors: list[InputError] = []
        self.request = request
        for name in request:
            if name not in DEFAULTS:
                near = nearest(name, DEFAULTS)
                allowed = f"a run has no such field; its fields: {', '.join(DEFAULTS)}"
                self.errors.append(InputError(name, request[name], allowed, suggestion=near))

    def run(self) -> Run:
        model, shape = self._model()
        sequence = self._read("sequence", _count("sequence", _MOST_TOKENS), 1)
        layout = Layout(
            data=self._read("data", _degree("data"), 1),
            zero=self._read("zero", parse_zero, 0),
            tensor=self._read("tensor", _degree("tensor"), 1),
            sequence_parallel=self._read(
                "sequence_parallel", lambda value: parse_flag("sequence_parallel", value), False
            ),
            pipeline=self._read("pipeline", _degree("pipeline"), 1),
        )
        batch = {
            name: self._read(name, _count(name, _MOST_BATCH), 1)
            for name in ("micro_batch", "micro_batches")
        }
        the_recipe = self._read("recipe", recipe.get, recipe.MIXED_ADAM)
        recompute = self._read("recompute", _choice("recompute", Recompute), Recompute.NONE)
        implementation = self._read(
            "implementation", _choice("implementation", Implementation), Implementation.PAPER
        )
        attention = self._switch("attention", Attention, Attention.FLASH)
        loss = self._switch("loss", Loss, Loss.FULL)
        optimizer = self._switch("optimizer", Optimizer, Optimizer.ADAMW)
        kernel = self._switch("optimizer_kernel", OptimizerKernel, OptimizerKernel.FUSED)
        held = self._read("hold_logits", partial(parse_flag, "hold_logits"), False)
        clip = self._read("clip", partial(parse_flag, "clip"), False)
        gpu = self._read("gpu", lambda value: gpus.get(value) if value is not None else None, None)
        if model is not None and not self.errors:
            self.errors += _too_long(model, sequence) + impossible(layout, model, sequence)
            self.errors += self._not_of(implementation, model, layout, recompute, loss, held, clip)
        if model is None or self.errors:
            raise InputErrors(self.errors)
        return Run(
            model=model,
            sequence=sequence,
            micro_batch=batch["micro_batch"],
            micro_batches=batch["micro_batches"],
            recipe=the_recipe,
            recompute=recompute,
            implementation=implementation,
            attention=attention,
            loss=loss,
            optimizer=optimizer,
            optimizer_kernel=kernel,
            hold_logits=held,
            clip=clip,
            layout=layout,
            gpu=gpu,
            shape=shape,
        )

    def _switch(self, name: str, kind: type[E], usual: E) -> E:
        """One of an implementation's switches; None means the usual."""
        choose = _choice(name, kind)
        return self._read(name, lambda value: usual if value is None else choose(value), usual)

    def _not_of(
        self,
        implementation: Implementation,
        model: Model,
        layout: Layout,
        recompute: Recompute,
        loss: Loss,
        held: bool,
        clip: bool,
    ) -> list[InputError]:
        """What the implementation chosen does not have."""
        if implementation is Implementation.PAPER:
            found = [
                InputError(
                    name,
                    value,
                    "the textbook has one way only; choose another implementation first",
                )
                for name, value in (
                    ("attention", self.request.get("attention")),
                    ("loss", self.request.get("loss")),
                    ("optimizer", self.request.get("optimizer")),
                    ("optimizer_kernel", self.request.get("optimizer_kernel")),
                    ("hold_logits", held or None),
                    ("clip", clip or None),
                )
                if value is not None
            ]
            if recompute is Recompute.MATMULS:
                allowed = "the textbook knows none, selective, full; choose another implementation"
                found.append(InputError("recompute", str(recompute), allowed))
            return found
        found = []
        try:
            family_of(model, str(implementation))
        except InputError as error:
            found.append(error)
        if layout.gpus > 1:
            field = next(name for name in _DEGREES if getattr(layout, name) > 1)
            allowed = (
                "splitting over GPUs is counted in the textbook's way so far; use 1, or the "
                "implementation paper"
            )
            found.append(InputError(field, getattr(layout, field), allowed))
        if held and loss is not Loss.FULL:
            allowed = "only the full loss makes all logits, so there is nothing to hold; use false"
            found.append(InputError("hold_logits", True, allowed))
        return found

    def _read(self, name: str, parse: Callable[[object], T], otherwise: T) -> T:
        """One field, parsed; ``otherwise`` stands in for a bad one so that reading can go on."""
        try:
            return parse(self.request.get(name, DEFAULTS[name]))
        except InputError as error:
            self.errors.append(error)
            return otherwise

    def _model(self) -> tuple[Model | None, dict[str, object]]:
        """The model with its shape changes, and those of them that do change it."""
        shape = self.request.get("shape", {})
        if not isinstance(shape, Mapping):
            allowed = 'allowed: an object of shape fields, such as {"layers": 8}'
            self.errors.append(InputError("shape", shape, allowed))
            shape = {}
        model_id = self.request.get("model", DEFAULTS["model"])
        try:
            if model_id == "custom":
                model = catalog.custom(shape)
                return model, {name: getattr(model, name) for name in SHAPE_FIELDS}
            base = catalog.get(model_id)
            model = catalog.with_shape(base, shape)
        except InputErrors as errors:
            self.errors += errors.errors
        except InputError as error:
            self.errors.append(error)
        else:
            changed = {
                name: getattr(model, name)
                for name in SHAPE_FIELDS
                if getattr(model, name) != getattr(base, name)
            }
            return model, changed
        return None, {}


def _count(name: str, most: int) -> Callable[[object], int]:
    return lambda value: parse_count(name, value, most=most)


def _degree(name: str) -> Callable[[object], int]:
    return lambda value: parse_degree(name, value)


def _choice(name: str, kind: type[E]) -> Callable[[object], E]:
    def parse(value: object) -> E:
        names = tuple(str(member) for member in kind)
        if isinstance(value, str) and value in names:
            return kind(value)
        raise InputError.unknown_name(name, value, names)

    return parse


def _too_long(model: Model, sequence: int) -> list[InputError]:
    if not model.positions or sequence <= model.positions:
        return []
    allowed = (
        f"{model.name} has learned positions for 1 to {model.positions:,} tokens; "
        "change the shape's positions to go beyond"
    )
    return [InputError("sequence", sequence, allowed)]
