"""Attention in one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula, as_formula
from ..tape import Tape
from ..tensors import Grads, Tensor
from .common import ATTENTION, RANDOM
from .views import cast


def fused_attention(
    tape: Tape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_sum_exp: Formula,
    *,
    efficient: bool = False,
    scratch: Sequence[tuple[str, Formula, str]] = (),
) -> Tensor:
    """``F.scaled_dot_product_attention`` by a fused kernel: saves q, k, v, output, log-sum-exp.

    Also the state of the random number generator, whether or not anything is dropped:
    FlashAttention's as a pair and an unused word, the ``efficient`` kernel's as two numbers. Its
    backward kernel holds ``scratch``, (name, how many numbers, dtype) each, while it runs.
    """
    if tape.autocast:
        v = cast(tape, v, "bf16", "values")
        k = cast(tape, k, "bf16", "keys")
        q = cast(tape, q, "bf16", "queries")
    numels = (q.numel, k.numel, v.numel)
    # FlashAttention's tensors are made like its inputs, the other kernel's by tokens.
    orders = ("tokens",) * 3 if efficient else (q.order, k.order, v.order)
    dtype = q.dtype

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        found = [
            tape.new(f"gradient of {name}", numel, dtype, order)
            for name, numel, order in zip(_NAMES, numels, orders, strict=True)
        ]
        held = [tape.new(*one) for one in scratch]
        del held
        return found

    node = tape.node("attention", [q, k, v], backward, [(one, ATTENTION) for one in (q, k, v)])
    z, lse, *drawn = tape.outputs(
        "attention", lambda: _made(tape, q, log_sum_exp, efficient=efficient)
    )
    saves = [(z, ATTENTION), (lse, ATTENTION), *((one, RANDOM) for one in drawn)]
    tape.attach(node, z, saves=saves)
    return z


def _made(tape: Tape, q: Tensor, log_sum_exp: Formula, *, efficient: bool) -> list[Tensor]:
    counts, dtype = ((1, 1), "int64") if efficient else ((2, 1), "uint64")
    order = "tokens" if efficient else q.order
    return [
        tape.new("attention output", q.numel, q.dtype, order),
        tape.new("log-sum-exp", log_sum_exp, "fp32"),
        *(tape.new("random state", as_formula(count), dtype) for count in counts),
    ]


_NAMES = ("queries", "keys", "values")
