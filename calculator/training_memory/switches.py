"""The switches of an implementation: what a library lets one choose about how a step runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from .errors import InputError
from .implementations import Implementation
from .reading import Reading, a_choice, a_flag
from .records import dataclass


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
class Switches:
    """How a step runs, as far as the implementation leaves it open.

    ``hold_logits``: the outputs are held until the step ends; ``clip``: gradients are clipped by
    their norm before the optimizer steps.
    """

    attention: Attention = Attention.FLASH
    loss: Loss = Loss.FULL
    optimizer: Optimizer = Optimizer.ADAMW
    optimizer_kernel: OptimizerKernel = OptimizerKernel.FUSED
    hold_logits: bool = False
    clip: bool = False


#: As a request has them that says nothing; None is the implementation's own way.
USUAL: Mapping[str, object] = {
    "attention": None,
    "loss": None,
    "optimizer": None,
    "optimizer_kernel": None,
    "hold_logits": False,
    "clip": False,
}

#: Where an implementation's own way is another than that of :class:`Switches`.
OWN: Mapping[Implementation, Switches] = {}


def read(reading: Reading, implementation: Implementation) -> Switches:
    """The switches of a request; those it leaves out are the implementation's own."""
    own = OWN.get(implementation, Switches())
    return Switches(
        attention=reading.switch("attention", a_choice(Attention), own.attention),
        loss=reading.switch("loss", a_choice(Loss), own.loss),
        optimizer=reading.switch("optimizer", a_choice(Optimizer), own.optimizer),
        optimizer_kernel=reading.switch(
            "optimizer_kernel", a_choice(OptimizerKernel), own.optimizer_kernel
        ),
        hold_logits=reading.field("hold_logits", a_flag, False),
        clip=reading.field("clip", a_flag, False),
    )


def of_the_textbook(reading: Reading) -> Iterator[InputError]:
    """Every switch that is set although the textbook has none."""
    for name, usual in USUAL.items():
        value = reading.value(name)
        if value is not None and value is not usual and value not in _OFF:
            allowed = "the textbook has one way only; choose another implementation first"
            yield InputError(name, value, allowed)


#: The ways a request may write that a switch is not set.
_OFF = (False, "false", "off", "no")


def refused(switches: Switches) -> Iterator[InputError]:
    """Switches that contradict each other."""
    if switches.hold_logits and switches.loss is not Loss.FULL:
        allowed = "only the full loss makes all logits, so there is nothing to hold; use false"
        yield InputError("hold_logits", True, allowed)
