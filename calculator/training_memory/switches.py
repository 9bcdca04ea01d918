"""The switches of an implementation: what a library lets one choose about how a step runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from .errors import InputError
from .implementations import BY_STAGES, Implementation
from .model import Model, Norm
from .reading import Reading, a_choice, a_count, a_flag
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
    FUSED = "fused"


class Optimizer(StrEnum):
    """What the recipe's Adam can be exchanged for."""

    ADAMW = "adamw"
    SGD_MOMENTUM = "sgd-momentum"
    ADAFACTOR = "adafactor"
    ADAFACTOR_HF = "adafactor-hf"
    MUON = "muon"
    ADAMW_8BIT = "adamw-8bit"
    PAGED_ADAMW = "paged-adamw"
    PAGED_ADAMW_8BIT = "paged-adamw-8bit"


class OptimizerKernel(StrEnum):
    """How AdamW's step goes over the parameters; the last is DeepSpeed's FusedAdam."""

    FUSED = "fused"
    FOREACH = "foreach"
    FORLOOP = "forloop"
    DEEPSPEED = "deepspeed"


class Offload(StrEnum):
    """What waits in the CPU's memory until backward: nothing, layers' inputs, all that is saved."""

    NONE = "none"
    CHECKPOINTS = "checkpoints"
    SAVED = "saved"


class Compile(StrEnum):
    """What ``torch.compile`` is given: nothing, each layer by itself, the loss as well."""

    NONE = "none"
    LAYERS = "layers"
    LAYERS_AND_LOSS = "layers-and-loss"


class Fusion(StrEnum):
    """Whether a few operations are one kernel, or each by itself, which keeps more."""

    FUSED = "fused"
    UNFUSED = "unfused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """How a step runs, as far as the implementation leaves it open.

    ``hold_logits``: the outputs are held until the step ends; ``clip``: gradients are clipped by
    their norm before the optimizer steps; ``optimizer_in_backward``: each weight is updated as its
    gradient arrives, which then goes. ``mlp``: the activation with its gate; ``norm_kernel``:
    RMSNorm; ``dropout``: whether the model's dropouts drop anything. Of these three, None is as the
    library has it, which differs by model. ``mtp_layers``: after the last layer so
    many more, each of which predicts a token further on (multi-token prediction).
    ``permutation``: tokens are put in the order of their experts by one kernel, or by several.
    """

    attention: Attention = Attention.FLASH
    loss: Loss = Loss.FULL
    optimizer: Optimizer = Optimizer.ADAMW
    optimizer_kernel: OptimizerKernel = OptimizerKernel.FUSED
    hold_logits: bool = False
    clip: bool = False
    optimizer_in_backward: bool = False
    offload: Offload = Offload.NONE
    mlp: Fusion | None = None
    norm_kernel: Fusion | None = None
    dropout: bool | None = None
    compile: Compile = Compile.NONE
    mtp_layers: int = 0
    permutation: Fusion | None = None


#: As a request has them that says nothing; None is the implementation's own way.
USUAL: Mapping[str, object] = {
    "attention": None,
    "loss": None,
    "optimizer": None,
    "optimizer_kernel": None,
    "hold_logits": False,
    "clip": False,
    "optimizer_in_backward": False,
    "offload": None,
    "mlp": None,
    "norm_kernel": None,
    "dropout": None,
    "compile": None,
    "mtp_layers": 0,
    "permutation": None,
}

#: Where an implementation's own way is another than that of :class:`Switches`.
OWN: Mapping[Implementation, Switches] = {}


_MOST_FURTHER = 64


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
        optimizer_in_backward=reading.field("optimizer_in_backward", a_flag, False),
        offload=reading.switch("offload", a_choice(Offload), own.offload),
        mlp=reading.switch("mlp", a_choice(Fusion), None),
        norm_kernel=reading.switch("norm_kernel", a_choice(Fusion), None),
        dropout=reading.switch("dropout", a_flag, None),
        compile=reading.switch("compile", a_choice(Compile), own.compile),
        permutation=reading.switch("permutation", a_choice(Fusion), None),
        mtp_layers=reading.field("mtp_layers", a_count(most=_MOST_FURTHER, least=0), 0),
    )


def of_the_textbook(reading: Reading) -> Iterator[InputError]:
    """Every switch that is set although the textbook has none."""
    for name, usual in USUAL.items():
        value = reading.value(name)
        if value is not None and value != usual and not (usual is False and value in _OFF):
            allowed = "the textbook has one way only; choose another implementation first"
            yield InputError(name, value, allowed)


#: The ways a request may write that a switch is not set.
_OFF = (False, "false", "off", "no")


#: Optimizers that can take each gradient as it comes, and take no memory of their own.
_ONE_BY_ONE = (
    Optimizer.ADAMW,
    Optimizer.SGD_MOMENTUM,
    Optimizer.ADAMW_8BIT,
    Optimizer.PAGED_ADAMW,
    Optimizer.PAGED_ADAMW_8BIT,
)


def refused(
    switches: Switches, model: Model, implementation: Implementation
) -> Iterator[InputError]:
    """Switches that contradict each other, or that this model has not."""
    if switches.hold_logits and switches.loss is not Loss.FULL:
        allowed = "only the full loss makes all logits, so there is nothing to hold; use false"
        yield InputError("hold_logits", True, allowed)
    if switches.compile is not Compile.NONE:
        yield from _compiled(switches, implementation)
    if switches.mtp_layers and implementation not in BY_STAGES:
        allowed = f"0 with {implementation}: multi-token prediction is followed in Megatron alone"
        yield InputError("mtp_layers", switches.mtp_layers, allowed)
    if switches.permutation and (
        implementation is not Implementation.MEGATRON or not model.experts
    ):
        allowed = (
            "only Megatron's experts put tokens in order by kernels of two kinds; leave it out"
        )
        yield InputError("permutation", str(switches.permutation), allowed)
    if implementation in BY_STAGES:
        yield from _of_megatron(switches)
        return
    if switches.loss is Loss.FUSED:
        allowed = (
            f"the loss by Transformer Engine's kernel is Megatron's; of {implementation} full, "
        )
        yield InputError("loss", str(switches.loss), allowed + "chunked, fused-linear")
    if switches.optimizer_in_backward and (
        switches.optimizer not in _ONE_BY_ONE
        or (switches.optimizer is Optimizer.ADAMW and switches.optimizer_kernel != "fused")
    ):
        allowed = (
            "false but with optimizers that take nothing for a moment: AdamW's fused kernel, "
            "momentum SGD, 8-bit and paged AdamW"
        )
        yield InputError("optimizer_in_backward", True, allowed)
    if switches.optimizer_in_backward and switches.clip:
        allowed = "false where weights are updated before the norm of all gradients is known"
        yield InputError("clip", True, allowed)
    kernel = switches.optimizer_kernel
    if switches.optimizer is not Optimizer.ADAMW and kernel is not OptimizerKernel.FUSED:
        allowed = f"kernels are chosen for adamw alone; leave it out with {switches.optimizer}"
        yield InputError("optimizer_kernel", str(kernel), allowed)
    if switches.mlp is Fusion.FUSED and model.experts:
        allowed = f"{model.name}'s experts run as grouped products; use unfused"
        yield InputError("mlp", str(switches.mlp), allowed)
    if switches.norm_kernel is Fusion.FUSED and (model.family, model.qk_norm) == ("gemma", "head"):
        allowed = (
            f"{model.name} normalises heads that no kernel here takes as they lie; use unfused"
        )
        yield InputError("norm_kernel", str(switches.norm_kernel), allowed)
    if switches.norm_kernel is Fusion.UNFUSED and model.norm is Norm.LAYERNORM:
        allowed = f"{model.name} has LayerNorms, and PyTorch's is one kernel; use fused"
        yield InputError("norm_kernel", str(switches.norm_kernel), allowed)
    if switches.dropout and implementation is Implementation.TORCHTITAN:
        yield InputError("dropout", True, "torchtitan's models drop nothing; use false")


def _compiled(switches: Switches, implementation: Implementation) -> Iterator[InputError]:
    """What is followed with ``torch.compile``: torchtitan's layers, and its own loss."""
    if implementation is not Implementation.TORCHTITAN:
        allowed = f"torch.compile is followed in torchtitan alone; use none with {implementation}"
        yield InputError("compile", str(switches.compile), allowed)
        return
    for name, way in (
        ("attention", Attention.FLASH),
        ("offload", Offload.NONE),
        ("mlp", None),
        *([("loss", Loss.FULL)] if switches.compile is Compile.LAYERS_AND_LOSS else []),
    ):
        value = getattr(switches, name)
        if value not in (way, Fusion.UNFUSED):
            allowed = f"{way or Fusion.UNFUSED} where it is compiled"
            yield InputError(name, str(value), allowed)


def _of_megatron(switches: Switches) -> Iterator[InputError]:
    """Switches that Megatron with Transformer Engine has another way, or one way, for."""
    one_way = {
        "attention": (Attention.FLASH, "attends by Transformer Engine's fused kernels"),
        "optimizer": (Optimizer.ADAMW, "is followed with Adam alone"),
        "optimizer_kernel": (OptimizerKernel.FUSED, "steps by Transformer Engine's FusedAdam"),
        "hold_logits": (False, "drops the logits with the loss"),
        "optimizer_in_backward": (False, "sums gradients before it steps"),
        "offload": (Offload.NONE, "is followed with all activations on the GPU"),
    }
    for name, (way, said) in one_way.items():
        value = getattr(switches, name)
        if value is not way:
            allowed = f"Megatron {said}; use {str(way).lower()}"
            yield InputError(name, value if isinstance(value, bool) else str(value), allowed)
    if switches.loss not in (Loss.FULL, Loss.FUSED):
        allowed = "Megatron's losses: full (32-bit softmax), fused (Transformer Engine's, in place)"
        yield InputError("loss", str(switches.loss), allowed)
    for name in ("mlp", "norm_kernel"):
        if getattr(switches, name) is Fusion.UNFUSED:
            yield InputError(name, "unfused", "Megatron's is one kernel; use fused")
