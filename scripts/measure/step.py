"""One training step on fake tensors: the peak of each phase, and where it was reached."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from training_memory import catalog
from training_memory.model import Model

from . import adapters, fused_linear, losses, models, optimizers, recompute
from .backend import Tensor, fake_mode, save_on_cpu, torch
from .case import Case
from .modules import Modules
from .storages import ALLOCATION_BYTES, Category, Classifier, Log, Peak, Tracker

PHASES = ("forward", "backward", "clip", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one step held. All sizes in bytes; a phase's largest over all micro-batches.

    ``with_workspace`` are the peaks when kernels' known scratch memory counts too; ``modules``
    names the module that the peak of each phase belongs to.
    """

    case: Case
    parameters: int
    trainable: int
    persistent: int
    after_forward: int
    after_backward: int
    peaks: Mapping[str, Peak]
    with_workspace: Mapping[str, int]
    modules: Mapping[str, str]


def shape_of(case: Case) -> Model:
    """The catalogue's model with the case's overrides."""
    return catalog.with_shape(catalog.get(case.model), dict(case.shape))


class Step:
    """A built model, its optimizer and its batch, ready for the second step."""

    def __init__(self, case: Case, *, device: str = "cuda") -> None:
        self.case, self.device = case, device
        self.model = shape_of(case)
        weights = torch.float32 if case.precision in ("fp32", "autocast") else torch.bfloat16
        if case.adapter != "none":
            weights = adapters.DTYPES[case.frozen_dtype]
        self.built = models.build(
            self.model,
            implementation=case.implementation,
            attention=case.attention,
            dtype=weights,
            device=device,
            mlp=case.mlp,
            norm=case.norm,
            dropout=case.dropout,
        )
        recompute.apply(self.built, case.recompute, offload=case.offload == "checkpoints")
        self.called = self.built
        if case.adapter == "qlora":
            adapters.quantise(self.built)
        if case.adapter != "none":
            self.called = adapters.apply(self.built, case, device=device)
        self.loss = self._own_loss()
        self.updater = optimizers.updater(case.optimizer, self.built, precision=case.precision)
        if case.in_backward:
            self.updater.step_in_backward(case.optimizer)
        else:
            self.updater.create_states()
        size = (case.micro_batch, case.sequence)
        self.tokens = torch.randint(0, self.model.vocabulary, size, device=device)
        self.labels = self.tokens.clone()
        gc.collect()

    def _own_loss(self) -> Any:
        cap = getattr(getattr(self.built, "config", None), "final_logit_softcapping", None)
        if self.case.loss == "chunked":
            return losses.ChunkedLoss(cap)
        if self.case.loss == "fused-linear":
            return fused_linear.FusedLinearLoss()
        return None

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Every module to follow; a loss of this package's own is called "loss"."""
        yield from self.built.named_modules()
        if self.loss is not None:
            yield "loss", self.loss

    def micro_batch(self, *, last: bool) -> None:
        """A micro-batch begins."""

    def around(self) -> AbstractContextManager[Any]:
        """What both passes of a micro-batch run in."""
        return nullcontext()

    def buckets(self) -> Iterator[Tensor]:
        """What gradients are sent in, if it stays from step to step."""
        yield from ()

    def precision(self) -> AbstractContextManager[Any]:
        """What the forward pass runs under."""
        if self.case.precision == "autocast":
            context: AbstractContextManager[Any] = torch.autocast(self.device, dtype=torch.bfloat16)
            return context
        return nullcontext()

    def forward(self) -> tuple[Tensor, Tensor | None]:
        """The loss, and the logits where they exist."""
        with self.precision():
            if self.loss is not None:
                hidden = self.built.base_model(input_ids=self.tokens)
                hidden = getattr(hidden, "last_hidden_state", hidden)
                loss = self.loss(hidden, self.built.get_output_embeddings(), self.labels)
                return self._share(loss), None
            output = self.called(input_ids=self.tokens, labels=self.labels)
        logits = output.logits
        loss = output.loss
        del output
        if self.case.precision == "autocast" and self.case.implementation == "huggingface":
            # accelerate, and so the Trainer, turns whatever an autocast model returns into fp32.
            logits = logits.float()
        return self._share(loss), logits

    def _share(self, loss: Tensor) -> Tensor:
        return loss if self.case.micro_batches == 1 else loss / self.case.micro_batches


def trace(
    case: Case,
    *,
    device: str = "cuda",
    fake: bool = True,
    rounding: int = ALLOCATION_BYTES,
    log: Log | None = None,
) -> Trace:
    """Run the case's second step and count. ``fake`` off runs it with real numbers."""
    with fake_mode() if fake else nullcontext():
        torch.manual_seed(0)
        step = Step(case, device=device)
        modules = Modules.of(step.named_modules())
        return traced_step(step, modules, device=device, rounding=rounding, log=log)


def traced_step(
    step: Step, modules: Modules, *, device: str, rounding: int, log: Log | None
) -> Trace:
    """Take a built step and count."""
    tracker = tracker_for(step, modules, device=device, rounding=rounding, log=log)
    held: dict[str, int] = {}

    def begin(phase: str) -> None:
        if phase != "step":
            held[phase] = max(tracker.total, held.get(phase, 0))
        # Of the step's two beginnings, only the first still holds nothing of its own.
        held.setdefault(phase, tracker.total)
        tracker.begin(phase)

    persistent = tracker.total
    with tracker, _named_gradients(tracker, step):
        run(step, begin)
    places = {
        phase: modules.of_node(peak.node) if peak.node else peak.module
        for phase, peak in tracker.peaks.items()
    }
    modules.remove()
    return Trace(
        case=step.case,
        parameters=sum(p.numel() for p in step.built.parameters()),
        trainable=sum(p.numel() for p in step.updater.weights),
        persistent=persistent,
        after_forward=held["backward"],
        after_backward=held.get("step", held["end"]),
        peaks={phase: tracker.peaks[phase] for phase in PHASES if phase in tracker.peaks},
        with_workspace=tracker.with_workspace,
        modules=places,
    )


def run(step: Step, begin: Callable[[str], None]) -> None:
    """Take one training step; ``begin`` hears of each phase as it begins."""
    kept: list[Any] = []
    for number in range(1, step.case.micro_batches + 1):
        step.micro_batch(last=number == step.case.micro_batches)
        kept.clear()
        begin("forward")
        with step.around():
            with offloading(step.case):
                loss, logits = step.forward()
            if step.case.hold_logits:
                kept.append(logits)
            del logits
            begin("backward")
            loss.backward()
            del loss
    begin("step")
    if step.case.in_backward:
        begin("end")
        return
    step.updater.receive()
    if step.case.clip:
        begin("clip")
        step.updater.clip()
        begin("step")
    step.updater.step()
    begin("end")


def offloading(case: Case) -> AbstractContextManager[Any]:
    """Where what is saved goes: PyTorch's save_on_cpu puts all of it into the CPU's memory."""
    return save_on_cpu() if case.offload == "saved" else nullcontext()


def tracker_for(
    step: Step, modules: Modules, *, device: str, rounding: int, log: Log | None
) -> Tracker:
    """A tracker that knows what is held before the step."""
    tracker = Tracker(
        device=device,
        modules=modules,
        classify=_classifier(step),
        rounding=rounding,
        log=log,
    )
    tracker.hold(step.built.parameters(), Category.WEIGHTS)
    tracker.hold(adapters.states_of(step.built), Category.WEIGHTS)
    tracker.hold(step.built.buffers(), Category.BUFFERS)
    tracker.hold((step.tokens, step.labels), Category.INPUTS)
    tracker.hold(step.updater.states(), Category.OPTIMIZER)
    tracker.hold(step.updater.master, Category.MASTER)
    tracker.hold(step.updater.kept_gradients, Category.GRADIENTS)
    tracker.hold(step.buckets(), Category.GRADIENTS)
    return tracker


def _classifier(step: Step) -> Classifier:
    case, vocabulary = step.case, step.model.vocabulary
    tokens = case.micro_batch * case.sequence
    rows = {tokens}
    if case.loss == "chunked":
        size = losses.CHUNK_TOKENS
        rows |= {min(size, tokens), tokens % size}
    elif case.loss == "fused-linear":
        size = fused_linear.chunk_tokens(tokens, step.model.hidden, vocabulary)
        rows |= {min(size, tokens), tokens % size}
    return Classifier(vocabulary=vocabulary, rows=frozenset(rows - {0}))


@contextmanager
def _named_gradients(tracker: Tracker, step: Step) -> Iterator[None]:
    """Call a parameter's gradient one as soon as it is stored, before any other hook sees it."""

    def name(weight: Any) -> None:
        tracker.hold((weight.grad,), Category.GRADIENTS)

    handles = [
        weight.register_post_accumulate_grad_hook(name)
        for weight in step.updater.weights
        if not step.updater.kept_gradients
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
