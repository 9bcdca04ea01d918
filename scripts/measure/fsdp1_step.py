"""One training step under PyTorch's first FSDP, its own code on fake tensors.

The model is wrapped as accelerate 1.15 does it (``Accelerator.prepare_model``): its forward pass
under autocast, what that returns in 32 bits, each layer a unit, the rest with the whole model.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import MethodType
from typing import Any

from . import adapters, losses, models, optimizers, recompute
from .backend import Tensor, fake_mode, fake_tensor, torch
from .fake_group import fake_group
from .fsdp1_case import Fsdp1Case
from .modules import Modules
from .step import Step, Trace, run, shape_of, traced_step
from .storages import ALLOCATION_BYTES, Log

fsdp: Any = import_module("torch.distributed.fsdp")
wrapping: Any = import_module("torch.distributed.fsdp.wrap")
meshes: Any = import_module("torch.distributed.device_mesh")

_PREFETCH = {
    "none": None,
    "pre": fsdp.BackwardPrefetch.BACKWARD_PRE,
    "post": fsdp.BackwardPrefetch.BACKWARD_POST,
}
_STRATEGIES = {
    "full_shard": fsdp.ShardingStrategy.FULL_SHARD,
    "shard_grad_op": fsdp.ShardingStrategy.SHARD_GRAD_OP,
    "no_shard": fsdp.ShardingStrategy.NO_SHARD,
    "hybrid_shard": fsdp.ShardingStrategy.HYBRID_SHARD,
    "hybrid_shard_zero2": fsdp.ShardingStrategy._HYBRID_SHARD_ZERO2,
}


class Fsdp1Step(Step):
    """A model under FullyShardedDataParallel, its optimizer and one GPU's batch."""

    def __init__(self, case: Fsdp1Case, mesh: Any, *, device: str = "cuda") -> None:
        self.case, self.device = case.step, device
        self.sharded = case
        self.model = shape_of(case.step)
        mixed = case.step.precision == "autocast"
        adapted = case.step.adapter != "none"
        weights = torch.bfloat16 if case.step.precision == "bf16" else torch.float32
        if adapted:
            weights = adapters.DTYPES[case.step.frozen_dtype]
        built = models.build(
            self.model,
            implementation=case.step.implementation,
            attention=case.step.attention,
            dtype=weights,
            device=device,
            dropout=case.step.dropout,
        )
        recompute.apply(built, case.step.recompute, offload=case.step.offload == "checkpoints")
        if case.step.adapter == "qlora":
            adapters.quantise(built, case.quant_storage, sharded=True, replaces=True)
        self.built = built
        self.loss = self._own_loss()
        if self.loss is not None:
            losses.within(built, self.loss)
        if adapted:
            self.built = built = adapters.apply(built, case.step, device=device)
        if mixed:
            _under_autocast(built)
        size = (case.step.micro_batch, case.step.sequence)
        self.tokens = torch.randint(0, self.model.vocabulary, size, device=device)
        self.labels = self.tokens.clone()
        self.built = self.called = _wrapped(built, case, mesh)
        del built
        self.updater = optimizers.updater(
            case.step.optimizer, self.built, precision=case.step.precision
        )
        self.updater = _Clipping(
            self.updater.optimizers, self.updater.weights, self.updater.owned, self.built
        )
        gc.collect()

    def micro_batch(self, *, last: bool) -> None:
        """``no_sync``, as accelerate has it: gradients wait whole for the last micro-batch."""
        for module in fsdp.FullyShardedDataParallel.fsdp_modules(self.built):
            module._sync_gradients = last or self.sharded.synced

    def buckets(self) -> Iterator[Tensor]:
        """What is empty between steps (16-bit shards, gathered weights), and clipping's zero."""
        if (zero := self.built._zero_scalar) is not None:
            yield zero
        for module in fsdp.FullyShardedDataParallel.fsdp_modules(self.built):
            for name in ("_mp_shard", "_full_param_padded", "_full_prec_full_param_padded"):
                if (tensor := getattr(module._flat_param, name, None)) is not None:
                    yield tensor

    def forward(self) -> tuple[Tensor, Tensor | None]:
        """The loss and the logits; autocast is in what is wrapped."""
        output = self.called(input_ids=self.tokens, labels=self.labels)
        return self._share(output["loss"]), output.get("logits")


class _Clipping(optimizers.Updater):
    """Clips over what the GPUs share, by FSDP's own method."""

    __slots__ = ("whole",)

    def __init__(self, made: Any, weights: Any, owned: Any, whole: Any) -> None:
        super().__init__(made, weights, owned)
        self.whole = whole

    def clip(self) -> None:
        """Scale the gradients to a norm of at most 1."""
        self.whole.clip_grad_norm_(1.0)


def _under_autocast(built: Any) -> None:
    """As accelerate's ``prepare_model`` does it where the mixed precision is bf16."""
    operations: Any = import_module("accelerate.utils.operations")
    context = torch.autocast("cuda", dtype=torch.bfloat16)
    if not hasattr(built.forward, "__func__"):
        built.forward = operations.convert_outputs_to_fp32(context(built.forward))
        return
    built.forward = MethodType(context(built.forward.__func__), built)
    whole = operations.convert_outputs_to_fp32(built.forward.__func__)
    built.forward = MethodType(whole, built)


def _wrapped(built: Any, case: Fsdp1Case, mesh: Any) -> Any:
    policy = None
    quantised = case.step.adapter == "qlora"
    if case.step.precision == "autocast" or quantised:
        reduce = {"fp32": torch.float32, "bf16": torch.bfloat16}[case.reduce_dtype]
        policy = fsdp.MixedPrecision(torch.bfloat16, reduce, torch.bfloat16)
    if case.step.adapter == "none":
        kinds = {
            type(one) for one in built.modules() if type(one).__name__ in built._no_split_modules
        }
        units = partial(wrapping.transformer_auto_wrap_policy, transformer_layer_cls=kinds)
    else:
        # transformers 5.24, distributed/fsdp.py, update_fsdp_plugin_peft.
        units = import_module("peft.utils.other").fsdp_auto_wrap_policy(built)
    whole = fsdp.FullyShardedDataParallel(
        built,
        device_mesh=mesh,
        sharding_strategy=_STRATEGIES[case.strategy],
        cpu_offload=fsdp.CPUOffload(offload_params=case.offload_params),
        auto_wrap_policy=units,
        mixed_precision=policy,
        backward_prefetch=_PREFETCH[case.backward_prefetch],
        forward_prefetch=case.forward_prefetch,
        limit_all_gathers=case.limit_all_gathers,
        use_orig_params=case.use_orig_params,
        device_id=torch.device("cuda", 0),
    )
    if case.step.precision == "autocast":
        _in_32_bits(whole)
    return whole


def _in_32_bits(whole: Any) -> None:
    """What is trained, as accelerate has it in mixed precision (``prepare_model``)."""
    for module in fsdp.FullyShardedDataParallel.fsdp_modules(whole):
        if not module._has_params:
            continue
        flat = module._flat_param
        if flat.requires_grad and flat.dtype != torch.float32:
            flat.data = flat.data.to(torch.float32)
            module._handle._orig_param_dtype = torch.float32


@contextmanager
def _pretended() -> Iterator[None]:
    """A fake tensor has no address and cannot be pinned: a storage is told by itself."""
    flat: Any = import_module("torch.distributed.fsdp._flat_param")
    running: Any = import_module("torch.distributed.fsdp._runtime_utils")
    outer: Any = import_module("torch.distributed.fsdp.fully_sharded_data_parallel")
    stand_ins: tuple[tuple[Any, str, Any], ...] = (
        (flat, "_same_storage", _is_same),
        (flat, "_data_ptr_allocated", lambda one: one.untyped_storage().size() > 0),
        (running, "_lazy_init", _where_a_gpu_is(running._lazy_init)),
        (outer, "_lazy_init", _where_a_gpu_is(running._lazy_init)),
        (torch.Tensor, "record_stream", lambda *_: None),
        (torch.Tensor, "pin_memory", lambda one, *_, **__: one),
    )
    before = [(place, name, getattr(place, name)) for place, name, _ in stand_ins]
    whole = torch._C.TensorBase.data

    def given(one: Tensor, data: Tensor) -> None:
        whole.__set__(one, data)
        one.fake_device = data.device

    # Flat weights go to the CPU and come back; a fake tensor has its device beside its data.
    fake_tensor.FakeTensor.data = property(whole.__get__, given)
    # By which FSDP sees at the end of a backward pass what is still gathered (_catch_all_reshard).
    fake_tensor.FakeTensor.data_ptr = lambda one: one.untyped_storage()._cdata
    for place, name, stand_in in stand_ins:
        setattr(place, name, stand_in)
    try:
        yield
    finally:
        del fake_tensor.FakeTensor.data, fake_tensor.FakeTensor.data_ptr
        for place, name, original in before:
            setattr(place, name, original)


def _is_same(one: Tensor, other: Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def _where_a_gpu_is(begin: Any) -> Any:
    """FSDP begins only where there is a GPU; a model is built as where there is none."""

    def begun(*arguments: Any) -> Any:
        found, torch.cuda.is_available = torch.cuda.is_available, lambda: True
        try:
            return begin(*arguments)
        finally:
            torch.cuda.is_available = found

    return begun


def trace(case: Fsdp1Case, *, rounding: int = ALLOCATION_BYTES, log: Log | None = None) -> Trace:
    """Run the case's third step and count what its GPU holds.

    The first finds the order of units by which the others prefetch, and makes the states.
    """
    with fake_group(case.world, rank=case.rank), _pretended():
        shape = (case.replicas, case.data) if case.replicas > 1 else (case.data,)
        names = ("replicas", "data")[-len(shape) :]
        mesh = meshes.init_device_mesh("cuda", shape, mesh_dim_names=names)
        with fake_mode():
            torch.manual_seed(0)
            step = Fsdp1Step(case, mesh)
            for _ in range(2):
                run(step, lambda _phase: None)
                step.updater.zero()
            gc.collect()
            modules = Modules.of(step.named_modules())
            return traced_step(step, modules, device="cuda", rounding=rounding, log=log)
