"""FSDP as transformers, accelerate and axolotl write it."""

from __future__ import annotations

from ..errors import InputError
from ..units import parse_count
from .table import Row, Taken, flag, is_on, lost, taken, word_of, words

OFFLOADED = "weights, gradients and states moved to the host were counted as staying on the GPU"
_ON_THE_HOST: dict[str, object] = {"offload_param": "cpu"}
#: FSDP's sharding strategies by name and number (torch.distributed.fsdp.ShardingStrategy).
_FULL: dict[str, object] = {"zero": 3}
_GRADIENTS: dict[str, object] = {"zero": 3, "reshard_after_forward": False}
_NONE: dict[str, object] = {"zero": 0, "no_shard": True}
_STRATEGIES: dict[str, dict[str, object]] = {
    "full_shard": _FULL,
    "1": _FULL,
    "shard_grad_op": _GRADIENTS,
    "2": _GRADIENTS,
    "no_shard": _NONE,
    "3": _NONE,
    "hybrid_shard": {**_FULL, "hybrid": True},
    "4": {**_FULL, "hybrid": True},
    "hybrid_shard_zero2": {**_GRADIENTS, "hybrid": True},
    "hybrid_shard_zero_2": {**_GRADIENTS, "hybrid": True},
    "5": {**_GRADIENTS, "hybrid": True},
    "_hybrid_shard_zero2": {**_GRADIENTS, "hybrid": True},
}
#: accelerate trains FSDP's shards in FP32 under mixed precision, whatever dtype was loaded; it
#: wraps a model's layers, so that embedding, last norm and head are one unit with the model.
_SHARDED: dict[str, object] = {"shards": -1, "fsdp_units": "layers"}


def _strategy(name: str, value: object) -> Taken:
    word = word_of(value)
    if word not in _STRATEGIES:
        raise InputError.unknown_name(name, word, tuple(_STRATEGIES))
    return Taken(settings={**_SHARDED, **_STRATEGIES[word]})


_SHARES = ("zero", "shards", "hybrid", "no_shard", "reshard_after_forward")


@taken("fsdp", (*_SHARES, "offload_param"))
def _words(name: str, value: object) -> Taken:
    """``full_shard auto_wrap``, a list of such words, or, since transformers 5, on or off."""
    if isinstance(value, bool):
        return Taken(settings={**_FULL, **_SHARDED} if value else {})
    words = value if isinstance(value, list) else str(value).replace(",", " ").split()
    settings: dict[str, object] = {}
    for word in map(word_of, words):
        if word in _STRATEGIES:
            settings |= {**_SHARDED, **_STRATEGIES[word]}
        elif word == "offload":
            settings |= _ON_THE_HOST
        elif word not in ("auto_wrap", ""):
            raise InputError.unknown_name(name, word, (*_STRATEGIES, "offload", "auto_wrap"))
    return Taken(settings=settings)


@taken(
    "fsdp_config.reshard_after_forward",
    ("zero", "shards", "reshard_after_forward"),
    "fsdp_config.fsdp_reshard_after_forward",
)
def _reshards(name: str, value: object) -> Taken:
    """In FSDP 2 whether weights are spread again after forward; in FSDP 1's files a strategy."""
    if word_of(value) in _STRATEGIES:
        return _strategy(name, value)
    return Taken(settings={**(_FULL if is_on(name, value) else _GRADIENTS), **_SHARDED})


@taken(
    "fsdp_config.activation_checkpointing",
    ("recompute",),
    "fsdp_config.fsdp_activation_checkpointing",
)
def _recomputes(name: str, value: object) -> Taken:
    return Taken(settings={"recompute": "full"} if is_on(name, value) else {})


def on_the_host(key: str, *spellings: str) -> Row:
    """Whether shards, gradients and the optimizer are in the CPU's memory."""

    @taken(key, ("offload_param",), *spellings)
    def row(name: str, value: object) -> Taken:
        return Taken(settings=_ON_THE_HOST if is_on(name, value) else {})

    return row


def shards(key: str, *spellings: str) -> Row:
    """GPUs among which the weights are spread; all that are left (-1) where nothing is said."""

    @taken(key, ("shards",), *spellings, usual=-1)
    def row(name: str, value: object) -> Taken:
        if value in (-1, "-1"):
            return Taken(settings={"shards": -1})
        return Taken(settings={"shards": parse_count(name, value)})

    return row


_UNITS = "units of another size than a layer are not modelled; a layer each was counted"


@taken("fsdp_config.auto_wrap_policy", (), "fsdp_config.fsdp_auto_wrap_policy")
def _wraps(name: str, value: object) -> Taken:
    """What FSDP gathers at a time: each layer, or nothing but the whole model."""
    word = word_of(value)
    if word not in ("transformer_based_wrap", "size_based_wrap", "no_wrap"):
        raise InputError.unknown_name(
            name, word, ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
        )
    return Taken(settings={}, lost="" if word.startswith("transformer") else _UNITS)


@taken(
    "fsdp_config.transformer_layer_cls_to_wrap",
    (),
    "fsdp_config.fsdp_transformer_layer_cls_to_wrap",
    "fsdp_config.transformer_cls_names_to_wrap",
    "fsdp_config.fsdp_transformer_cls_names_to_wrap",
    "fsdp_transformer_layer_cls_to_wrap",
)
def _wrapped(name: str, value: object) -> Taken:
    """The class of what is gathered at a time, where it is not the model's layer."""
    names = value if isinstance(value, list) else str(value).split(",")
    layers = [one for one in map(str.strip, map(str, names)) if one]
    whole = all(one.endswith(("Layer", "Block")) for one in layers)
    return Taken(settings={}, lost="" if whole and len(layers) < 2 else _UNITS)


@taken(
    "fsdp_config.fsdp_version",
    ("fsdp_version",),
    "fsdp_config.version",
    "fsdp_version",
)
def _version(name: str, value: object) -> Taken:
    """FullyShardedDataParallel, or fully_shard."""
    if word_of(value) not in ("1", "2"):
        raise InputError(name, value, "allowed: 1, 2")
    return Taken(settings={"fsdp_version": int(word_of(value))})


#: torch.distributed.fsdp.BackwardPrefetch, and accelerate's word for none, by name and number.
_PREFETCHES = {
    **dict.fromkeys(("backward_pre", "1"), "pre"),
    **dict.fromkeys(("backward_post", "2"), "post"),
    **dict.fromkeys(("no_prefetch", "3", "none", ""), "none"),
}


@taken(
    "fsdp_config.backward_prefetch",
    ("backward_prefetch",),
    "fsdp_config.fsdp_backward_prefetch",
)
def _prefetches(name: str, value: object) -> Taken:
    word = word_of(value)
    if word not in _PREFETCHES:
        raise InputError.unknown_name(name, word, ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"))
    return Taken(settings={"backward_prefetch": _PREFETCHES[word]})


def _inner(name: str) -> tuple[str, str]:
    return f"fsdp_config.{name}", f"fsdp_config.fsdp_{name}"


ROWS: tuple[Row, ...] = (
    _words,
    taken(
        "fsdp_config.fsdp_sharding_strategy",
        _SHARES,
        "fsdp_config.sharding_strategy",
    )(_strategy),
    _reshards,
    _recomputes,
    _version,
    _prefetches,
    flag("fsdp_config.forward_prefetch", "forward_prefetch", "fsdp_config.fsdp_forward_prefetch"),
    flag("fsdp_config.use_orig_params", "use_orig_params", "fsdp_config.fsdp_use_orig_params"),
    on_the_host(*_inner("offload_params")),
    _wraps,
    _wrapped,
    lost(_inner("min_num_params")[0], _UNITS, _inner("min_num_params")[1], off=(None, 0, "0")),
    lost(
        _inner("mixed_precision_policy")[0],
        "a dtype policy of FSDP's own is not read; say --recipe",
        _inner("mixed_precision_policy")[1],
    ),
)

#: FSDP's keys that do not bear on what a GPU holds at the peak of a step.
_BESIDE = """
    cpu_ram_efficient_loading state_dict_type backward_prefetch_policy
    final_state_dict_type sync_module_states limit_all_gathers
    cpu_offload_pin_memory xla* fsdp_xla*
    """
BESIDE = (*words(_BESIDE, under="fsdp_config."), *words(_BESIDE, under="fsdp_config.fsdp_"))
