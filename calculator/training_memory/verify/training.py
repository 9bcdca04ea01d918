"""One training step by the textbook's recipe: 16-bit weights and gradients, Adam in 32-bit.

The loss and the optimizer work in place, as frameworks that count bytes do, so that what a step
holds is what the textbook's schedule says and not a habit of this program.
"""

# PyTorch is an extra: absent, its classes are Any to a type checker; present, many results are.
# mypy: allow-subclassing-any
# mypy: disable-error-code="import-not-found, no-any-return, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from ..events import Phase
from ..run import Run
from .network import Network
from .plan import dropout_of

#: Brackets one phase of a step, to measure it.
Meter = Callable[[Phase], AbstractContextManager[object]]


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy with one 32-bit copy of the logits (4·s·b·V bytes), worked on in place.

    Megatron-LM's way. In backward the copy becomes the gradient, and its 16-bit form (2·s·b·V) is
    what the head gets: with the 16-bit logits in forward, 6·s·b·V bytes at most.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        scores = logits.to(torch.float32, copy=True)
        scores -= scores.amax(-1, keepdim=True)
        wanted = scores.gather(-1, targets[..., None])
        sums = scores.exp_().sum(-1, keepdim=True)
        scores /= sums
        ctx.save_for_backward(scores, targets)
        ctx.dtype = logits.dtype
        return (sums.log() - wanted).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        probabilities, targets = ctx.saved_tensors
        ones = torch.ones_like(targets[..., None], dtype=probabilities.dtype)
        probabilities.scatter_add_(-1, targets[..., None], -ones)
        probabilities *= gradients[0] / targets.numel()
        return probabilities.to(ctx.dtype), None


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of ``logits`` (s, b, V) for ``targets`` (s, b), in 32-bit."""
    return _CrossEntropy.apply(logits, targets)


class MixedAdam:
    """Adam (Kingma and Ba 2014, algorithm 1) on 32-bit master copies of 16-bit weights.

    Its states exist from the start, so that the first step already needs what every step needs. It
    goes weight by weight: what it holds for a moment is one 32-bit copy of one tensor.
    """

    def __init__(
        self, weights: Iterable[nn.Parameter], *, rate: float = 1e-3, epsilon: float = 1e-8
    ) -> None:
        self.weights = list(weights)
        self.masters = [weight.detach().to(torch.float32, copy=True) for weight in self.weights]
        self.first = [torch.zeros_like(master) for master in self.masters]
        self.second = [torch.zeros_like(master) for master in self.masters]
        self.rate, self.epsilon = rate, epsilon
        self.decays = 0.9, 0.999
        self.steps = 0

    def step(self) -> None:
        """Update every weight from its gradient, then drop the gradient."""
        with torch.no_grad():
            self._step()

    def _step(self) -> None:
        self.steps += 1
        decay_1, decay_2 = self.decays
        rate = self.rate / (1 - decay_1**self.steps)
        spread = 1 - decay_2**self.steps
        for weight, master, first, second in zip(
            self.weights, self.masters, self.first, self.second, strict=True
        ):
            assert weight.grad is not None  # every weight takes part in every step
            gradient = weight.grad.to(torch.float32, copy=True)
            first.lerp_(gradient, 1 - decay_1)
            second.mul_(decay_2).addcmul_(gradient, gradient, value=1 - decay_2)
            # The gradient is used up; its buffer takes the denominator.
            denominator = torch.div(second, spread, out=gradient).sqrt_().add_(self.epsilon)
            master.addcdiv_(first, denominator, value=-rate)
            weight.copy_(master)
            weight.grad = None


class Trainer:
    """A model of a run's shape on a device, with its optimizer and one batch of random tokens.

    The batch stays the same, so that a working trainer's loss must fall. ``dtype`` is that of
    weights, gradients and activations. Raises ``RuntimeError`` should the model not have just the
    parameters that the calculator counts.
    """

    def __init__(self, run: Run, *, device: str, dtype: torch.dtype, seed: int = 0) -> None:
        torch.manual_seed(seed)
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)  # so that no 32-bit model exists even for a moment
        try:
            with torch.device(device):
                self.network = Network(
                    run.model,
                    sequence=run.sequence,
                    dropout=dropout_of(run.model),
                    recompute=run.recompute,
                )
                shape = (run.sequence, run.micro_batch)
                self.tokens = torch.randint(run.model.vocabulary, shape)
                self.targets = torch.randint(run.model.vocabulary, shape)
        finally:
            torch.set_default_dtype(default)
        for parameter in self.network.parameters():
            if parameter.dim() > 1:  # GPT-2's: norms stay at one, biases become small too
                nn.init.normal_(parameter, std=0.02)
        made = sum(parameter.numel() for parameter in self.network.parameters())
        counted = run.model.parameters.total
        if made != counted:
            raise RuntimeError(f"{run.model.name} has {made:,} parameters, counted {counted:,}")
        self.optimizer = MixedAdam(self.network.parameters())

    def step(self, meter: Meter) -> Tensor:
        """One training step, each of its phases within ``meter``. Returns the loss, in 32-bit."""
        with meter(Phase.FORWARD):
            loss = loss_of(self.network(self.tokens), self.targets)
        with meter(Phase.BACKWARD):
            loss.backward()
        with meter(Phase.OPTIMIZER):
            self.optimizer.step()
        return loss.detach()
