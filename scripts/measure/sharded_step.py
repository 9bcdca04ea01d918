"""One training step on one of several GPUs, traced on fake tensors under a fake process group."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from . import adapters, data_parallel, losses, models, optimizers, recompute, sharding
from .backend import Tensor, fake_mode, functional, torch
from .fake_group import fake_group
from .modules import Modules
from .sharded_case import ShardedCase
from .step import Step, Trace, run, shape_of, traced_step
from .storages import ALLOCATION_BYTES, Log


class ShardedStep(Step):
    """A model laid out over GPUs, its optimizer and rank 0's batch."""

    def __init__(self, case: ShardedCase, mesh: Any, *, device: str = "cuda") -> None:
        self.case, self.device = case.step, device
        self.sharded = case
        self.model = shape_of(case.step)
        weights = torch.float32 if case.step.precision in ("fp32", "autocast") else torch.bfloat16
        adapted = case.step.adapter != "none"
        if adapted:
            weights = adapters.DTYPES[case.step.frozen_dtype]
        built = models.build(
            self.model,
            implementation=case.step.implementation,
            attention=case.step.attention,
            dtype=weights,
            device=device,
            mlp=case.step.mlp,
            norm=case.step.norm,
            dropout=case.step.dropout,
        )
        recompute.apply(built, case.step.recompute, offload=case.step.offload == "checkpoints")
        if case.step.adapter == "qlora":
            adapters.quantise(built, case.quant_storage, sharded=case.sharding == "fsdp2")
        sharding.split(built, mesh, case)
        if adapted:
            built = adapters.apply(built, case.step, device=device)
        self.tokens, self.labels = self._whole()
        self.built, self.mesh = built, mesh
        self.loss = self._own_loss()
        if self.loss is not None:
            losses.within(built, self.loss)
        self.built = self.called = sharding.laid_on(built, mesh, case)
        if case.sharding == "ddp":
            arrived = data_parallel.arrival(self.built, self._backward) if case.turn > 1 else None
            self.built = self.called = data_parallel.wrapped(self.built, case, arrived)
        self.updater = optimizers.updater(
            case.step.optimizer, self.built, precision=case.step.precision
        )
        if case.step.in_backward:
            self.updater.step_in_backward(case.step.optimizer)
        gc.collect()

    def micro_batch(self, *, last: bool) -> None:
        """Accelerate's no_sync: gradients are not reduced until the last micro-batch."""
        if not self.sharded.synced:
            self.built.set_requires_gradient_sync(last)

    def around(self) -> AbstractContextManager[Any]:
        """GPUs that share a sequence take a new batch apart for both passes."""
        if self.sharded.context == 1:
            return super().around()
        self.tokens, self.labels = self._whole()
        tables = [self.built.model.rotations] if self.case.implementation == "torchtitan" else []
        whole = [self.tokens, self.labels]
        context: AbstractContextManager[Any] = sharding.sequence_shared(
            self.sharded, self.mesh, whole, tables
        )
        return context

    def _whole(self) -> tuple[Tensor, Tensor]:
        size = (self.case.micro_batch, self.case.sequence)
        tokens = torch.randint(0, self.model.vocabulary, size, device=self.device)
        return tokens, tokens.clone()

    def buckets(self) -> Iterator[Tensor]:
        """DDP's buckets."""
        if self.sharded.sharding == "ddp":
            yield from self.built.reducer.buckets

    def _backward(self) -> None:
        loss, _ = self.forward()
        loss.backward()

    def forward(self) -> tuple[Tensor, Tensor | None]:
        """The loss and the logits; torchtitan computes the loss outside of what it splits."""
        if self.loss is not None:
            with self.precision():
                return self._share(self.called(self.tokens, self.labels)["loss"]), None
        if self.case.implementation == "huggingface":
            return super().forward()
        with self.precision():
            logits = self.built(self.tokens)
            targets = self.labels.flatten(0, 1)
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), targets)
        return self._share(loss), logits

    def precision(self) -> AbstractContextManager[Any]:
        """Under FSDP2 a policy of mixed precision stands for autocast."""
        if self.sharded.sharding == "fsdp2":
            return nullcontext()
        return super().precision()


def trace(case: ShardedCase, *, rounding: int = ALLOCATION_BYTES, log: Log | None = None) -> Trace:
    """Run the case's second step and count what rank 0 holds."""
    with ExitStack() as within:
        within.enter_context(fake_group(case.world, case.rank))
        mesh = sharding.mesh_of(case)
        within.enter_context(fake_mode())
        within.enter_context(sharding.loss_in_parallel(case))
        torch.manual_seed(0)
        step = ShardedStep(case, mesh)
        for _ in range(case.turn - 1):
            run(step, lambda _phase: None)
            step.updater.zero()
        gc.collect()
        modules = Modules.of(step.named_modules())
        return traced_step(step, modules, device="cuda", rounding=rounding, log=log)
