"""The optimizers, and the one that keeps a 32-bit master copy of 16-bit weights."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from .backend import Tensor, nn, torch

RATE = 1e-3


def make(kind: str, named: Iterable[tuple[str, Any]]) -> list[Any]:
    """The optimizers of a model's parameters; Muon leaves what is no matrix to a second one."""
    named = list(named)
    parameters: Any = [parameter for _, parameter in named]
    if len(groups := _by_mesh(parameters, mesh_of=lambda one: one)) > 1:
        # As transformers' Trainer has it: weights that the same GPUs share are a group.
        parameters = [{"params": group} for group in groups]
    match kind:
        case "adamw-forloop":
            return [torch.optim.AdamW(parameters, lr=RATE, foreach=False, fused=False)]
        case "adamw-foreach":
            return [torch.optim.AdamW(parameters, lr=RATE, foreach=True)]
        case "adamw-fused":
            return [torch.optim.AdamW(parameters, lr=RATE, fused=True)]
        case "adamw-deepspeed":
            return [import_module("deepspeed.ops.adam").FusedAdam(parameters, lr=RATE)]
        case "sgd-momentum":
            return [torch.optim.SGD(parameters, lr=RATE, momentum=0.9, foreach=True)]
        case "adafactor":
            return [torch.optim.Adafactor(parameters, lr=RATE)]
        case "adafactor-hf":
            adafactor = import_module("transformers.optimization").Adafactor
            return [adafactor(parameters, lr=RATE, scale_parameter=False, relative_step=False)]
        case "adamw-8bit":
            return [_bitsandbytes().AdamW8bit(parameters, lr=RATE)]
        case "paged-adamw" | "paged-adamw-8bit":
            module = _bitsandbytes()
            _page_elsewhere()
            name = "PagedAdamW8bit" if kind.endswith("8bit") else "PagedAdamW32bit"
            return [getattr(module, name)(parameters, lr=RATE)]
        case "muon":
            hidden = [p for name, p in named if p.ndim == 2 and not _is_vocabulary(name)]
            chosen = {id(p) for p in hidden}
            rest = [p for p in parameters if id(p) not in chosen]
            return [
                torch.optim.Muon(hidden, lr=RATE),
                torch.optim.AdamW(rest, lr=RATE, fused=True),
            ]
    raise ValueError(f"optimizer {kind!r} is not known")


def _bitsandbytes() -> Any:
    # It says on import which of its CPU kernels are missing, and none is used; it waits for the GPU
    # after each parameter, and there is none to wait for.
    logging.getLogger("bitsandbytes").setLevel(logging.CRITICAL)
    torch.cuda.synchronize = lambda *_: None
    return import_module("bitsandbytes.optim")


def _page_elsewhere() -> None:
    """Paged states are in memory that CUDA's driver moves: here they are on the CPU."""
    functional: Any = import_module("bitsandbytes.functional")

    def paged(*shape: int, dtype: Any, device: Any) -> Tensor:
        made = torch.empty(*shape, dtype=dtype, device="cpu")
        made.is_paged = True
        return made

    functional.get_paged = paged
    functional.fill = functional.prefetch_tensor = lambda *_, **__: None


def _is_vocabulary(name: str) -> bool:
    """Whether a parameter belongs to the embeddings or the head, which Muon does not take."""
    return any(part in name for part in ("embed", "wte", "wpe", "lm_head", "output."))


@dataclass(slots=True)
class Updater:
    """What turns gradients into new weights. ``owned`` are the parameters the optimizer steps."""

    optimizers: list[Any]
    weights: list[Any]
    owned: list[Any]

    @property
    def master(self) -> list[Any]:
        """The 32-bit copies of the weights, if there are any."""
        return []

    @property
    def kept_gradients(self) -> list[Any]:
        """Gradient buffers that outlive the step, if there are any."""
        return []

    def states(self) -> list[Tensor]:
        """Every tensor of the optimizers' states."""
        return [
            value
            for optimizer in self.optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        ]

    def create_states(self) -> None:
        """Take a step with gradients of nothing, so that the states exist, as after step one."""
        for parameter in self.owned:
            parameter.grad = torch.zeros_like(parameter)
        self._step()
        for parameter in self.owned:
            parameter.grad = None

    def receive(self) -> None:
        """Hand the gradients to the parameters that the optimizer steps."""

    def clip(self) -> None:
        """Scale the gradients to a norm of at most 1."""
        groups = _by_mesh(self.owned, mesh_of=lambda one: one.grad)
        if len(groups) == 1:
            torch.nn.utils.clip_grad_norm_(self.owned, 1.0, foreach=True)
        else:
            _clip_by_mesh(groups)

    def step(self) -> None:
        """Update the weights."""
        self._step()

    def step_in_backward(self, kind: str) -> None:
        """Update each weight as its gradient arrives, and drop the gradient."""
        by_weight = {id(weight): make(kind, [("", weight)]) for weight in self.weights}

        def update(weight: Any) -> None:
            for optimizer in by_weight[id(weight)]:
                optimizer.step()
            weight.grad = None

        self.optimizers = [one for several in by_weight.values() for one in several]
        self.create_states()
        for weight in self.weights:
            weight.register_post_accumulate_grad_hook(update)

    def zero(self) -> None:
        """Drop the gradients."""
        for parameter in self.weights:
            parameter.grad = None

    def _step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


def _by_mesh(parameters: Iterable[Any], *, mesh_of: Callable[[Any], Any]) -> list[list[Any]]:
    """Parameters by the mesh of GPUs that share them, or their gradients."""
    groups: dict[Any, list[Any]] = {}
    for parameter in parameters:
        groups.setdefault(getattr(mesh_of(parameter), "device_mesh", None), []).append(parameter)
    return list(groups.values())


def _clip_by_mesh(groups: list[list[Any]]) -> None:
    """A norm for each mesh, then one of all: _mixed_mesh_grad_norm of transformers' trainer.py."""
    norms = []
    for parameters in groups:
        norm = torch.nn.utils.get_total_norm([one.grad for one in parameters], foreach=True)
        norms.append(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    total = torch.linalg.vector_norm(torch.stack(norms))
    for parameters in groups:
        torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, total, foreach=True)


@dataclass(slots=True)
class MasterUpdater(Updater):
    """16-bit weights whose optimizer works on 32-bit copies, as Megatron's and apex's do.

    16-bit gradients are cast to 32 bits all at once before the step, and both are held during it;
    32-bit gradients are summed into buffers that stay, as each 16-bit gradient arrives.
    """

    buffers: list[Any] = field(default_factory=list)

    @property
    def master(self) -> list[Any]:
        """The 32-bit copies of the weights."""
        return self.owned

    @property
    def kept_gradients(self) -> list[Any]:
        """The 32-bit gradient buffers."""
        return self.buffers

    def receive(self) -> None:
        """Cast the gradients, or point to the buffers they were summed into."""
        for number, (weight, own) in enumerate(zip(self.weights, self.owned, strict=True)):
            own.grad = self.buffers[number] if self.buffers else weight.grad.float()

    def step(self) -> None:
        """Update the copies, and the weights from them."""
        self._step()
        with torch.no_grad():
            for weight, own in zip(self.weights, self.owned, strict=True):
                weight.copy_(own)

    def zero(self) -> None:
        """Drop the gradients; buffers are filled with zeros."""
        for weight, own in zip(self.weights, self.owned, strict=True):
            weight.grad = own.grad = None
        for buffer in self.buffers:
            buffer.zero_()


def updater(kind: str, built: Any, *, precision: str) -> Updater:
    """The optimizer of a built model, with its states still to be made."""
    named = [(name, one) for name, one in built.named_parameters() if one.requires_grad]
    weights = [parameter for _, parameter in named]
    if not precision.startswith("master"):
        return Updater(make(kind, named), weights, weights)
    own = [nn.Parameter(weight.detach().float()) for weight in weights]
    copies = [(name, copy) for (name, _), copy in zip(named, own, strict=True)]
    buffers = []
    if precision == "master-fp32-grad":
        buffers = [torch.zeros_like(weight, dtype=torch.float32) for weight in weights]
        for weight, buffer in zip(weights, buffers, strict=True):
            weight.register_post_accumulate_grad_hook(_sums_into(buffer))
    return MasterUpdater(make(kind, copies), weights, own, buffers)


def _sums_into(buffer: Tensor) -> Callable[[Any], None]:
    def add(weight: Any) -> None:
        buffer.add_(weight.grad)
        weight.grad = None

    return add
