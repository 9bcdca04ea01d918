"""One training step under DeepSpeed on fake tensors, DeepSpeed's own code on a GPU not there."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

# Before DeepSpeed is imported: it asks which accelerator there is, and builds kernels for it.
os.environ |= {"DS_ACCELERATOR": "cuda", "LOCAL_RANK": "0"}

from . import models, optimizers, recompute
from .backend import Tensor, fake_mode, torch
from .fake_group import fake_group
from .modules import Modules
from .step import PHASES, Trace, shape_of
from .storages import ALLOCATION_BYTES, Category, Classifier, Log, Tracker
from .zero_case import ZeroCase


class ZeroStep:
    """A model under DeepSpeed's engine, and its batch."""

    def __init__(self, case: ZeroCase) -> None:
        step = case.step
        self.case, self.model = step, shape_of(step)
        dtype = torch.bfloat16 if step.precision == "master" else torch.float32
        self.built = models.build(
            self.model,
            implementation=step.implementation,
            attention=step.attention,
            dtype=dtype,
            device="cuda",
        )
        recompute.apply(self.built, step.recompute)
        size = (step.micro_batch, step.sequence)
        self.tokens = torch.randint(0, self.model.vocabulary, size, device="cuda")
        self.labels = self.tokens.clone()
        # It has the dtype and the device that it shall have: fake parameters cannot be moved.
        self.built.to = self.built.bfloat16 = lambda *_, **__: self.built
        self.engine = self._engine(case)

    def _engine(self, case: ZeroCase) -> Any:
        config = {
            "train_micro_batch_size_per_gpu": case.step.micro_batch,
            "gradient_accumulation_steps": case.step.micro_batches,
            "bf16": {"enabled": case.step.precision == "master"},
            "zero_optimization": case.zero_optimization(),
            "zero_force_ds_cpu_optimizer": False,
            "zero_allow_untested_optimizer": True,
            "gradient_clipping": 1.0 if case.step.clip else 0.0,
        }
        named = list(self.built.named_parameters())
        groups = [
            {"params": [one for _, one in named if (one.ndim > 1) is decays]}
            # As transformers' Trainer groups parameters: norms and biases do not decay.
            for decays in (True, False)
        ]
        (optimizer,) = optimizers.make(case.step.optimizer, named)
        made = type(optimizer)(
            [one for one in groups if one["params"]],
            **{key: optimizer.defaults[key] for key in _KEPT if key in optimizer.defaults},
        )
        return import_module("deepspeed").initialize(
            model=self.built, optimizer=made, config=config, dist_init_required=False
        )[0]

    def take(self, begin: Any = lambda _phase: None) -> None:
        """One step; ``begin`` hears of each phase as it begins."""
        for _ in range(self.case.micro_batches):
            begin("forward")
            output = self.engine(input_ids=self.tokens, labels=self.labels)
            loss = output.loss
            del output
            begin("backward")
            self.engine.backward(loss)
            del loss
            if self.engine.is_gradient_accumulation_boundary():
                begin("step")
            self.engine.step()
        begin("end")


@contextmanager
def _pretended() -> Iterator[None]:
    """DeepSpeed's accelerator answers what a GPU would, and no gradient is infinite."""
    gpu = import_module("deepspeed.accelerator").get_accelerator()
    import_module("deepspeed.utils").logger.setLevel(logging.CRITICAL)
    for name in ("range_push", "range_pop", "empty_cache", "reset_peak_memory_stats"):
        setattr(gpu, name, _nothing)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        setattr(gpu, name, lambda *_: 0)
    gpu.is_available = lambda: True
    gpu.available_memory = gpu.total_memory = lambda *_: 80 << 30
    gpu.pin_memory = lambda tensor, *_, **__: tensor
    for name in ("DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3"):
        module: Any = import_module(f"deepspeed.runtime.zero.{_MODULES[name]}")
        module.is_invalid_grad_norm = lambda _norm: False
        kind = getattr(module, name)
        kind.has_overflow = _finite(kind.has_overflow)
    coordinator: Any = import_module("deepspeed.runtime.zero.partitioned_param_coordinator")
    # There are no other ranks whose order of modules could differ.
    coordinator.assert_ints_same_as_other_ranks = _nothing
    yield


_MODULES = {
    "DeepSpeedZeroOptimizer": "stage_1_and_2",
    "DeepSpeedZeroOptimizer_Stage3": "stage3",
}


def _nothing(*_: Any, **__: Any) -> None: ...


def _finite(check: Any) -> Any:
    """Looks at the gradients as it would, and finds nothing."""

    def checked(self: Any, *arguments: Any, **options: Any) -> bool:
        check(self, *arguments, **options)
        return False

    return checked


def trace(case: ZeroCase, *, rounding: int = ALLOCATION_BYTES, log: Log | None = None) -> Trace:
    """Run the case's third step, and count what its GPU holds.

    ZeRO-3 fetches ahead only once it has seen a whole step, and the first makes the states.
    """
    with fake_group(case.data, rank=case.rank), _pretended(), fake_mode():
        torch.Tensor.record_stream = _nothing
        step = ZeroStep(case)
        for _ in range(STEPS_BEFORE):
            step.take()
        gc.collect()
        modules = Modules.of(step.built.named_modules())
        vocabulary, rows = step.model.vocabulary, case.step.micro_batch * case.step.sequence
        tracker = Tracker(
            device="cuda",
            modules=modules,
            classify=Classifier(vocabulary=vocabulary, rows=frozenset({rows})),
            rounding=rounding,
            log=log,
        )
        tracker.hold((step.tokens, step.labels), Category.INPUTS)
        tracker.hold(step.built.parameters(), Category.WEIGHTS)
        tracker.hold(step.built.buffers(), Category.BUFFERS)
        tracker.hold(_everything(), Category.OPTIMIZER)
        return _counted(case, step, tracker, modules)


STEPS_BEFORE = 2
_KEPT = ("lr", "foreach", "fused", "momentum")


def _everything() -> list[Tensor]:
    """Every tensor of the GPU that is there."""
    return [one for one in gc.get_objects() if isinstance(one, torch.Tensor) and one.is_cuda]


def _counted(case: ZeroCase, step: ZeroStep, tracker: Tracker, modules: Modules) -> Trace:
    held: dict[str, int] = {}
    persistent = tracker.total

    def begin(phase: str) -> None:
        if phase != "step":
            held[phase] = max(tracker.total, held.get(phase, 0))
        held.setdefault(phase, tracker.total)
        tracker.begin(phase)

    with tracker:
        step.take(begin)
    modules.remove()
    return Trace(
        case=case.step,
        parameters=sum(getattr(p, "ds_numel", p.numel()) for p in step.built.parameters()),
        trainable=0,
        persistent=persistent,
        after_forward=held["backward"],
        after_backward=held["step"],
        peaks={phase: tracker.peaks[phase] for phase in PHASES if phase in tracker.peaks},
        with_workspace=tracker.with_workspace,
        modules={phase: peak.module for phase, peak in tracker.peaks.items()},
    )
