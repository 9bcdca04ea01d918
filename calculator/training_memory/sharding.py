"""How replicas share a model, in the way of the framework that a run names: a run's fields.

Data parallelism is always there with ``data`` over 1; the textbook counts ZeRO's shares alone, the
other implementations what a framework's own buffers take as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from .errors import InputError
from .implementations import Implementation
from .layout import Layout
from .reading import Reading, a_choice, a_count, a_flag
from .recipe import Recipe
from .records import dataclass
from .switches import Optimizer, OptimizerKernel, Switches
from .tuning import Tuning
from .units import parse_count


class Way(StrEnum):
    """Who shares the model out among the replicas."""

    DDP = "ddp"
    FSDP2 = "fsdp2"
    FSDP1 = "fsdp1"
    DEEPSPEED = "deepspeed"


class Host(StrEnum):
    """Where what could be on the GPU is kept: there, in the CPU's memory, or on disks."""

    NONE = "none"
    CPU = "cpu"
    NVME = "nvme"


class FsdpUnits(StrEnum):
    """What FSDP gathers at a time: each layer, and the embedding and the head with the last norm.

    With ``LAYERS`` what is around the layers is one unit, the model's own, which all of the forward
    pass holds gathered.
    """

    ENDS = "ends"
    LAYERS = "layers"


class Prefetch(StrEnum):
    """Who asks for the next unit: PyTorch as one ends, or the layer before it as it begins."""

    IMPLICIT = "implicit"
    EXPLICIT = "explicit"


class BackwardPrefetch(StrEnum):
    """When FSDP's first version gathers the layer before in a backward pass.

    ``PRE``: before a layer's own (BACKWARD_PRE), ``POST``: after it (BACKWARD_POST).
    """

    NONE = "none"
    PRE = "pre"
    POST = "post"


class ReduceDtype(StrEnum):
    """The numbers in which FSDP's mixed precision sums gradients."""

    FP32 = "fp32"
    BF16 = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How the replicas of a run share its model.

    ``replicate`` copies of the sharded model (hybrid sharding; under FSDP1, as many copies as GPUs
    are NO_SHARD); the others are FSDP's ``reshard_after_forward`` (without which FSDP1 is
    SHARD_GRAD_OP), FSDP2's units and its prefetch, their ``reduce_dtype`` and accelerate's
    ``sync_each_batch``, which has gradients reduced after every micro-batch; FSDP1's
    ``backward_prefetch``, ``forward_prefetch`` and ``use_orig_params``; DDP's
    ``gradient_as_bucket_view``; with ``first_step`` the step is DDP's first, which finds no states
    of the optimizer and makes them. Of DeepSpeed's ``zero_optimization``: ``reduce_bucket_size`` in
    numbers, or "auto", of which transformers makes the hidden size's square, and ``overlap_comm``,
    which takes two buckets; of its stage 3 ``prefetch_bucket_size``,
    ``param_persistence_threshold`` and ``max_live_parameters``, likewise in numbers. With
    ``offload_optimizer`` the 32-bit weights and all that the optimizer keeps are in the CPU's
    memory, and it steps there; with ``offload_param`` so are the shares of the 16-bit weights, and
    under FSDP2 all three: shards, their gradients and the optimizer (CPUOffloadPolicy).
    """

    sharding: Way = Way.DDP
    replicate: int = 1
    reshard_after_forward: bool = True
    fsdp_units: FsdpUnits = FsdpUnits.ENDS
    prefetch: Prefetch = Prefetch.IMPLICIT
    reduce_dtype: ReduceDtype = ReduceDtype.FP32
    sync_each_batch: bool = False
    backward_prefetch: BackwardPrefetch = BackwardPrefetch.NONE
    forward_prefetch: bool = False
    use_orig_params: bool = True
    bucket_views: bool = False
    first_step: bool = False
    reduce_bucket_size: int | str = 500_000_000
    overlap_comm: bool = False
    prefetch_bucket_size: int | str = 50_000_000
    param_persistence_threshold: int | str = 100_000
    max_live_parameters: int = 1_000_000_000
    offload_optimizer: Host = Host.NONE
    offload_param: Host = Host.NONE


#: As a request has them that says nothing; None is the implementation's own way.
USUAL: Mapping[str, object] = {
    "sharding": None,
    "replicate": 1,
    "reshard_after_forward": True,
    "fsdp_units": None,
    "prefetch": None,
    "reduce_dtype": None,
    "sync_each_batch": False,
    "backward_prefetch": None,
    "forward_prefetch": False,
    "use_orig_params": True,
    "bucket_views": False,
    "first_step": False,
    "reduce_bucket_size": None,
    "overlap_comm": False,
    "prefetch_bucket_size": None,
    "param_persistence_threshold": None,
    "max_live_parameters": None,
    "offload_optimizer": "none",
    "offload_param": "none",
}

_OF_FSDP = ("replicate", "reshard_after_forward", "reduce_dtype", "sync_each_batch")
#: transformers' word for what it works out from the model (integrations/deepspeed.py).
AUTO = "auto"
OF_STAGE_3 = ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters")
#: What DeepSpeed's stages of ZeRO have, and it alone; stage 0 has none of it.
_OF_ZERO = ("reduce_bucket_size", "overlap_comm", "offload_optimizer")
#: The fields that not every way has, and what each way is called.
_OWN: Mapping[Way, tuple[str, ...]] = {
    Way.FSDP1: (*_OF_FSDP, "backward_prefetch", "forward_prefetch", "use_orig_params"),
    Way.FSDP2: (*_OF_FSDP, "fsdp_units", "prefetch"),
    Way.DDP: ("bucket_views", "first_step"),
    Way.DEEPSPEED: (*_OF_ZERO, *OF_STAGE_3),
}
_NAMES: Mapping[Way, str] = {
    Way.FSDP1: "FSDP1",
    Way.FSDP2: "FSDP2",
    Way.DDP: "DDP",
    Way.DEEPSPEED: "DeepSpeed",
}
_MOST_REPLICAS = 1_048_576
_MOST_NUMBERS = 10**12


def own_way(implementation: Implementation, zero: int) -> Way:
    """Who shares if a run does not say.

    torchtitan always uses FSDP2; Hugging Face's Trainer DDP, FSDP where weights are shared, and
    DeepSpeed for the stages of ZeRO that nobody else has.
    """
    if implementation is Implementation.HUGGINGFACE and zero in (1, 2):
        return Way.DEEPSPEED
    fsdp = implementation is Implementation.TORCHTITAN or zero == 3
    return Way.FSDP2 if fsdp else Way.DDP


def read(reading: Reading, implementation: Implementation, layout: Layout) -> Sharding:
    """The sharding of a request; where it says nothing, the implementation's own."""
    own = own_way(implementation, layout.zero)
    usual = Sharding()
    way = reading.switch("sharding", a_choice(Way), own)
    # accelerate has gradients reduced in what is computed with (set_mixed_precision), torchtitan in
    # 32 bits (mixed_precision_reduce).
    accelerate = implementation is Implementation.HUGGINGFACE and way in (Way.FSDP1, Way.FSDP2)
    reduce = ReduceDtype.BF16 if accelerate else usual.reduce_dtype
    ahead = usual.backward_prefetch
    return Sharding(
        sharding=way,
        replicate=reading.field("replicate", a_count(most=_MOST_REPLICAS), 1),
        reshard_after_forward=reading.field("reshard_after_forward", a_flag, True),
        fsdp_units=reading.switch("fsdp_units", a_choice(FsdpUnits), usual.fsdp_units),
        prefetch=reading.switch("prefetch", a_choice(Prefetch), usual.prefetch),
        reduce_dtype=reading.switch("reduce_dtype", a_choice(ReduceDtype), reduce),
        sync_each_batch=reading.field("sync_each_batch", a_flag, False),
        backward_prefetch=reading.switch("backward_prefetch", a_choice(BackwardPrefetch), ahead),
        forward_prefetch=reading.field("forward_prefetch", a_flag, False),
        use_orig_params=reading.field("use_orig_params", a_flag, True),
        bucket_views=reading.field("bucket_views", a_flag, False),
        first_step=reading.field("first_step", a_flag, False),
        reduce_bucket_size=reading.switch("reduce_bucket_size", _numbers, usual.reduce_bucket_size),
        overlap_comm=reading.field("overlap_comm", a_flag, False),
        offload_optimizer=reading.field("offload_optimizer", a_choice(Host), Host.NONE),
        offload_param=reading.field("offload_param", a_choice(Host), Host.NONE),
        **{name: reading.switch(name, _from_none, getattr(usual, name)) for name in OF_STAGE_3},
    )


def _numbers(name: str, value: object) -> int | str:
    """How many numbers a buffer has, or "auto"."""
    return AUTO if value == AUTO else parse_count(name, value, most=_MOST_NUMBERS)


def _from_none(name: str, value: object) -> int | str:
    """The same, where none at all may be."""
    if value == AUTO and name != "max_live_parameters":
        return AUTO
    return parse_count(name, value, least=0, most=_MOST_NUMBERS)


def with_zero(layout: Layout, sharding: Sharding, implementation: Implementation) -> Layout:
    """The layout with the stage of ZeRO that FSDP is, where none is named."""
    if implementation is Implementation.PAPER or sharding.sharding not in (Way.FSDP1, Way.FSDP2):
        return layout
    if layout.zero or layout.replicas == 1:
        return layout
    from dataclasses import replace

    return replace(layout, zero=3)


def no_second_copy(way: Way, recipe: Recipe) -> Iterator[InputError]:
    """Why a recipe with a master copy is none of FSDP's."""
    if recipe.precision.startswith("master"):
        allowed = (
            f"{_NAMES[way]} keeps no second copy: its shards are in fp32 and are gathered in 16 "
            "bits; set the recipe to autocast-adam, which is that here, or to fp32-adam or "
            "bf16-adam"
        )
        yield InputError("sharding", str(way), allowed)


def of_none(reading: Reading, allowed: str) -> Iterator[InputError]:
    """Every field of these that is set although the implementation has one way of sharing."""
    for name, usual in USUAL.items():
        value = reading.value(name)
        if value not in (None, usual) and str(value).lower() not in (str(usual).lower(), ""):
            yield InputError(name, value, allowed)


def of_others(sharding: Sharding, layout: Layout) -> dict[str, object]:
    """The fields that this way or stage does not have, as a request leaves them out."""
    own = _OWN[sharding.sharding]
    names = [name for others in _OWN.values() for name in others if name not in own]
    if layout.zero != 3:
        names += OF_STAGE_3
    if not layout.zero:
        names += _OF_ZERO
    return {name: USUAL[name] for name in names}


def left_out(sharding: Sharding, *, second: bool = False) -> dict[str, object]:
    """What FSDP's first version was told that another way, or the ``second`` one, has not.

    As that one's run leaves it out.
    """
    if sharding.sharding is not Way.FSDP1:
        return {}
    both = _OF_FSDP if second else ()
    return {name: USUAL[name] for name in _OWN[Way.FSDP1] if name not in both}


def refused(
    sharding: Sharding,
    layout: Layout,
    recipe: Recipe,
    switches: Switches,
    tuning: Tuning,
    implementation: Implementation,
    parameters: int,
) -> Iterator[InputError]:
    """What a framework does not do, or what is not followed of it yet, with so many parameters."""
    usual = Sharding()
    own = _OWN[sharding.sharding]
    for name in dict.fromkeys(name for others in _OWN.values() for name in others):
        if name not in own and getattr(sharding, name) != getattr(usual, name):
            ways = [way for way, others in _OWN.items() if name in others]
            whose = " and ".join(_NAMES[way] for way in ways)
            have = "has" if len(ways) == 1 else "have"
            allowed = f"only {whose} {have} this; set sharding to {' or '.join(ways)}"
            yield InputError(name, getattr(sharding, name), allowed)
    deepspeeds = switches.optimizer_kernel is OptimizerKernel.DEEPSPEED
    if deepspeeds and sharding.sharding is not Way.DEEPSPEED:
        allowed = "fused, foreach or forloop: this one is DeepSpeed's; or set sharding to deepspeed"
        yield InputError("optimizer_kernel", str(switches.optimizer_kernel), allowed)
    if sharding.offload_param is not Host.NONE and sharding.sharding is not Way.DEEPSPEED:
        yield from _away(sharding, layout, switches)
    if sharding.sharding is Way.DEEPSPEED:
        from .deepspeed.allowed import refused as refused_by_deepspeed

        offloads = sharding.offload_optimizer is not Host.NONE
        yield from refused_by_deepspeed(
            layout, recipe, switches, tuning, implementation, offloads=offloads
        )
        yield from _on_disks(sharding, layout, parameters)
        if not layout.zero:
            for name in _OF_ZERO:
                if getattr(sharding, name) != getattr(usual, name):
                    allowed = "ZeRO's stages have this; set zero to 1, 2 or 3"
                    yield InputError(name, getattr(sharding, name), allowed)
        of_third = (*OF_STAGE_3, "offload_param")
        for name in of_third if layout.zero != 3 else ("overlap_comm",):
            if getattr(sharding, name) != getattr(usual, name):
                of = "stage 3 has this; set zero to 3" if layout.zero != 3 else "stages 1 and 2"
                allowed = f"of DeepSpeed's only {of}"
                yield InputError(name, getattr(sharding, name), allowed)
    if sharding.first_step:
        yield from _first_step(layout, switches)
    if layout.replicas == 1:
        return
    if sharding.sharding is Way.DDP:
        yield from _of_ddp(layout, recipe, switches)
    elif sharding.sharding is Way.DEEPSPEED:
        return
    elif sharding.sharding is Way.FSDP1:
        from .fsdp1 import refused as refused_by_fsdp1

        yield from refused_by_fsdp1(sharding, layout, recipe, switches, tuning, implementation)
    else:
        from .fsdp2 import refused as refused_by_fsdp2

        yield from refused_by_fsdp2(sharding, layout, recipe, switches, tuning, implementation)


#: So many numbers of its shares a GPU's process keeps in the CPU's memory (max_in_cpu of
#: DeepSpeed's zero/offload_config.py); only what is beyond is on disks.
MOST_IN_CPU = 1_000_000_000


def _on_disks(sharding: Sharding, layout: Layout, parameters: int) -> Iterator[InputError]:
    """What DeepSpeed does not keep on disks, or what is not followed."""
    if sharding.offload_optimizer is Host.NVME and layout.zero in (1, 2):
        allowed = "stages 1 and 2 keep it in the CPU's memory whatever they are told; set it to cpu"
        yield InputError("offload_optimizer", str(Host.NVME), allowed)
    if sharding.offload_param is Host.NVME and parameters > MOST_IN_CPU * layout.data:
        allowed = (
            "DeepSpeed keeps a thousand million numbers of a GPU's shares in the CPU's memory, and "
            "how it fetches those beyond from disks is not followed; set data higher, or cpu"
        )
        yield InputError("offload_param", str(Host.NVME), allowed)


def _first_step(layout: Layout, switches: Switches) -> Iterator[InputError]:
    """Where DDP's first step is not followed."""
    if layout.data == 1:
        allowed = "it is followed under DDP, over replicas; set data to 2 or more"
        yield InputError("first_step", "true", allowed)
    if switches.optimizer in (Optimizer.ADAFACTOR_HF, Optimizer.MUON):
        allowed = f"{switches.optimizer} makes its states as it goes, which is not followed"
        yield InputError("first_step", "true", f"{allowed}; leave it out")


def _away(sharding: Sharding, layout: Layout, switches: Switches) -> Iterator[InputError]:
    """Where weights cannot be in the CPU's memory, or are not followed there."""
    if sharding.offload_param is Host.NVME:
        allowed = "none or cpu: only DeepSpeed keeps anything on disks"
    elif sharding.sharding is Way.DDP:
        allowed = "only FSDP2 and DeepSpeed have this; set sharding to fsdp2 or deepspeed"
    elif layout.replicas == 1:
        allowed = "it is of weights that replicas share; set data to 2 or more"
    elif switches.optimizer_in_backward:
        allowed = "gradients go to the CPU as they come; set optimizer_in_backward to false"
    else:
        return
    yield InputError("offload_param", str(sharding.offload_param), allowed)


def _of_ddp(layout: Layout, recipe: Recipe, switches: Switches) -> Iterator[InputError]:
    if layout.zero:
        allowed = "DDP shares nothing out: use 0, or 3 with sharding fsdp2"
        yield InputError("zero", layout.zero, allowed)
    if recipe.precision == "master-fp32-grad":
        allowed = (
            "DDP reduces the gradients that autograd makes, and keeps no sums of them in fp32; set "
            "the recipe to mixed-adam or autocast-adam"
        )
        yield InputError("sharding", str(Way.DDP), allowed)
    if switches.optimizer_in_backward:
        allowed = (
            "DDP sums a bucket of gradients once all of them are there, after a weight that is "
            "updated as its own arrives; set sharding to fsdp2"
        )
        yield InputError("optimizer_in_backward", "true", allowed)
