"""The same model by PyTorch's own means: ``python3 -m decoder.check_against_torch``.

PyTorch's functions and autograd share no line with the trainer here. Given the same weights and
tokens in 64-bit, both must find the same loss and the same gradients. Needs PyTorch, and
``PYTHONPATH=calculator:scripts``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch  # type: ignore[import-not-found, unused-ignore]
from torch.nn import functional  # type: ignore[import-not-found, unused-ignore]

from .data import TEXT, draw_batch, encode
from .model import Decoder, block_name
from .operations import NORM_EPSILON

TOLERANCE = 1e-10
"""What two correct 64-bit computations may differ by, absolutely and relative to the gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The loss or one tensor's gradient by both: the largest difference and the largest size."""

    name: str
    difference: float
    largest: float

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.difference <= TOLERANCE * max(1.0, self.largest)


def check(*, sequences: int = 16, seed: int = 0) -> list[Agreement]:
    """Compare the loss, then every parameter tensor's gradient, on one batch."""
    model = Decoder(seed=seed, settled=False)
    inputs, targets = draw_batch(
        encode(TEXT), random.Random(seed), sequences=sequences, sequence=model.shape.sequence
    )
    loss = model.gradients(inputs, targets)
    tensors = {
        name: torch.tensor(
            p.rows[0] if len(p.shape) == 1 else p.rows, dtype=torch.float64, requires_grad=True
        )
        for name, p in model.parameters.items()
    }
    torch_loss = _loss(model, tensors, torch.tensor(inputs), torch.tensor(targets))
    torch_loss.backward()  # type: ignore[no-untyped-call, unused-ignore]

    found = [Agreement(name="loss", difference=abs(loss - torch_loss.item()), largest=abs(loss))]
    for name, parameter in model.parameters.items():
        gradient = tensors[name].grad
        if gradient is None:
            raise RuntimeError(f"{name}: PyTorch found no gradient")
        ours = torch.tensor(parameter.gradient, dtype=torch.float64).reshape(gradient.shape)
        found.append(
            Agreement(
                name=name,
                difference=float((ours - gradient).abs().max()),
                largest=float(gradient.abs().max()),
            )
        )
    return found


def _loss(
    model: Decoder, p: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """The Decoder's forward pass by PyTorch's functions."""
    h = model.shape.hidden
    x = functional.embedding(inputs, p["embedding"]) + p["positions"]
    for layer in range(model.shape.layers):
        name = block_name(layer)

        def norm(x: torch.Tensor, which: str, block: str = name) -> torch.Tensor:
            scale, shift = p[f"{block}{which} scale"], p[f"{block}{which} shift"]
            return functional.layer_norm(x, (h,), scale, shift, NORM_EPSILON)

        n = norm(x, "norm 1")
        q, k, v = (
            functional.linear(n, p[f"{name}{which} weight"])
            .unflatten(-1, (model.shape.heads, -1))
            .transpose(1, 2)
            for which in ("query", "key", "value")
        )
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        context = context.transpose(1, 2).flatten(2)
        x = x + functional.linear(context, p[f"{name}projection weight"])
        wide = functional.gelu(functional.linear(norm(x, "norm 2"), p[f"{name}FFN in weight"]))
        x = x + functional.linear(wide, p[f"{name}FFN out weight"])
    logits = functional.linear(x, p["embedding"])
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main() -> int:
    """Print the comparison; the exit status is 1 if anything disagrees."""
    found = check()
    print(f"PyTorch {torch.__version__}, 64-bit, largest differences")
    for row in found:
        verdict = "agrees" if row.agrees else "DISAGREES"
        print(f"{row.name:28}{row.difference:10.1e} of {row.largest:8.1e}  {verdict}")
    return 0 if all(row.agrees for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
