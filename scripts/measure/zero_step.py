"""One training step under DeepSpeed on fake tensors, DeepSpeed's own code on a GPU not there."""

from __future__ import annotations

import gc
import sys
import tempfile
from importlib import import_module
from typing import Any

from . import adapters, fused_linear, losses, models, optimizers, recompute, zero_gpu
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
        self.loss = self._own_loss()
        if self.loss is not None:
            losses.within(self.built, self.loss)
        if step.adapter == "qlora":
            adapters.quantise(self.built, case.quant_storage, sharded=case.stage == 3)
        called = self.built
        if step.adapter != "none":
            called = adapters.apply(self.built, step, device="cuda")
        size = (step.micro_batch, step.sequence)
        self.tokens = torch.randint(0, self.model.vocabulary, size, device="cuda")
        self.labels = self.tokens.clone()
        # It has the dtype and the device that it shall have: fake parameters cannot be moved.
        called.to = called.bfloat16 = lambda *_, **__: called
        self.engine = self._engine(case, called)

    def _own_loss(self) -> Any:
        kinds = {"chunked": losses.ChunkedLoss, "fused-linear": fused_linear.FusedLinearLoss}
        return kinds[self.case.loss]() if self.case.loss in kinds else None

    def _engine(self, case: ZeroCase, called: Any) -> Any:
        config = {
            "train_micro_batch_size_per_gpu": case.step.micro_batch,
            "gradient_accumulation_steps": case.step.micro_batches,
            "bf16": {"enabled": case.step.precision == "master"},
            "zero_optimization": case.zero_optimization(tempfile.gettempdir()),
            "zero_force_ds_cpu_optimizer": False,
            "zero_allow_untested_optimizer": True,
            "gradient_clipping": 1.0 if case.step.clip else 0.0,
        }
        if case.grad_accum_dtype:
            config["data_types"] = {"grad_accum_dtype": case.grad_accum_dtype}
        named = [(name, one) for name, one in called.named_parameters() if one.requires_grad]
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
            model=called, optimizer=made, config=config, dist_init_required=False
        )[0]

    def take(self, begin: Any = lambda _phase: None) -> None:
        """One step; ``begin`` hears of each phase as it begins."""
        for _ in range(self.case.micro_batches):
            begin("forward")
            output = self.engine(input_ids=self.tokens, labels=self.labels)
            loss = output["loss"]
            del output
            begin("backward")
            self.engine.backward(loss)
            del loss
            if self.engine.is_gradient_accumulation_boundary():
                begin("step")
            self.engine.step()
        begin("end")


def trace(case: ZeroCase, *, rounding: int = ALLOCATION_BYTES, log: Log | None = None) -> Trace:
    """Run the case's third step, and count what its GPU holds.

    ZeRO-3 fetches ahead only once it has seen a whole step, and the first makes the states.
    """
    with fake_group(case.data, rank=case.rank), zero_gpu.pretended(), fake_mode():
        step = ZeroStep(case)
        for _ in range(STEPS_BEFORE):
            step.take()
        gc.collect()
        modules = Modules.of(step.engine.module.named_modules())
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
_KEPT = ("lr", "foreach", "fused", "momentum", "scale_parameter", "relative_step")


def _everything() -> list[Tensor]:
    """Every tensor of the GPU that is there, but for what bitsandbytes keeps for itself."""
    bitsandbytes = sys.modules.get("bitsandbytes.functional")
    codes = {id(one) for one in vars(bitsandbytes)["name2qmap"].values()} if bitsandbytes else ()
    found = (one for one in gc.get_objects() if isinstance(one, torch.Tensor) and one.is_cuda)
    return [one for one in found if id(one) not in codes]


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
