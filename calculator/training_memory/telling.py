"""A recorded event in words: where in the step it is, what happens, and what for."""

from __future__ import annotations

from .autograd.memory import Facts
from .events import Phase
from .recording import Section
from .records import dataclass

FREED = "Nothing reads it any more."
COMPLETE = "The whole gradient of a weight is there; it waits for the optimizer."
PASSING = "Only what comes next reads it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an event is called, and why it happens."""

    name: str
    label: str
    why: str


def tell(facts: Facts, *, leaving: bool, moved: bool) -> Told:
    """A storage is taken, changes its category, or is released."""
    name = f"{facts.name} ({facts.module})" if facts.module else facts.name
    if leaving:
        verb, why = ("is complete", COMPLETE) if moved else ("is freed", FREED)
    elif moved:
        verb, why = "is kept for the optimizer", COMPLETE
    elif facts.uses:
        # An operation that keeps several tensors gives one reason for all of them.
        verb, why = "is made and kept", " ".join(dict.fromkeys(use.why for use in facts.uses))
    else:
        verb, why = "is made", facts.why or PASSING
    return Told(name=name, label=f"{name} {verb}", why=why)


def moment(section: Section, *, several: bool) -> str:
    """A part of the step, with counters that tell layers and micro-batches apart."""
    name = _MOMENTS[section.phase, section.part[0]]
    once = section.phase in ("clip", "step")
    return f"{name} of micro-batch {{{section.phase}}}" if several and not once else name


def phase(section: Section) -> Phase:
    """The phase of the step, as the pictures label it."""
    if section.phase == "backward":
        return Phase.BACKWARD
    if section.phase in ("clip", "step"):
        return Phase.OPTIMIZER
    return Phase.LOSS if section.part[0] in ("loss", "chunk", "further loss") else Phase.FORWARD


_MOMENTS = {
    ("forward", "inputs"): "the inputs",
    ("forward", "input"): "what the stage before sends",
    ("forward", "output"): "what the next stage is sent",
    ("backward", "output"): "what the next stage sends back",
    ("backward", "input"): "what the stage before is sent back",
    ("forward", "embedding"): "the embedding",
    ("forward", "layer"): "the forward pass of layer {layer}",
    ("forward", "dense"): "the forward pass of layer {dense}",
    ("backward", "dense"): "the backward pass of layer {dense}",
    ("forward", "norm"): "the final norm",
    ("forward", "head"): "the head's forward pass",
    ("forward", "loss"): "the loss",
    ("forward", "chunk"): "chunk {chunk} of the loss",
    ("backward", "loss"): "the loss's backward pass",
    ("backward", "chunk"): "the backward pass of the loss's chunk {chunk}",
    ("backward", "head"): "the head's backward pass",
    ("backward", "norm"): "the final norm's backward pass",
    ("backward", "layer"): "the backward pass of layer {layer}",
    ("backward", "embedding"): "the embedding's backward pass",
    ("backward", "rest"): "the end of the backward pass",
    ("step", "all"): "the optimizer's step",
    ("step", "first"): "the optimizer's step, at the embedding",
    ("step", "layer"): "the optimizer's step, at layer {layer}",
    ("step", "last"): "the optimizer's step, after the layers",
    ("clip", "all"): "clipping",
    ("forward", "further layer"): "a layer that predicts further on",
    ("backward", "further layer"): "the backward pass of a layer that predicts further on",
    ("forward", "further head"): "the head for tokens further on",
    ("backward", "further head"): "the backward pass of the head for tokens further on",
    ("forward", "further loss"): "the loss of tokens further on",
    ("backward", "further loss"): "the backward pass of the loss of tokens further on",
}
