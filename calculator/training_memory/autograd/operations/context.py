"""Attention of GPUs that share a sequence, as Transformer Engine exchanges keys and values.

Transformer Engine 2.11, pytorch/attention/dot_product_attention/context_parallel.py. Each GPU has
``C``-th of the tokens (``made``, the output's, and the rest are its own); causal attention, the
fused kernel, 16 bits. Where GPUs differ (in a ring the last has the most to do), the fullest is
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...formula import Formula, as_formula, symbol
from ..tape import Tape
from ..tensors import Grads, Tensor
from .common import ATTENTION, RANDOM
from .transformer_engine import STATE

GPUS = symbol("C")
#: As many 64-bit numbers as the allocator's smallest block: each round has a state of its own.
BLOCK = as_formula(64)
Attend = Callable[[Tape, Tensor, Tensor, Tensor, Formula, Formula], Tensor]


def ring(tape: Tape, q: Tensor, k: Tensor, v: Tensor, rows: Formula, made: Formula) -> Tensor:
    """``AttnFuncWithCPAndKVP2P``: keys and values go round; saves q, its own k and v, the output.

    Every GPU's keys and values, and what each of the rounds gives, are there until the last.
    """
    numel, both, dtype = q.numel, k.numel + v.numel, q.dtype
    own_k, own_v = k.numel, v.numel

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        of_q = tape.new("gradient of queries", numel, dtype)
        # Keys and values on their way, and their gradients with them.
        here, there = (tape.new(name, both * 2, dtype) for name in ("sent on", "received"))
        round_q = tape.new("gradient of queries in a round", numel, dtype)
        parts = [tape.new("gradient of keys, values in a round", both, dtype) for _ in range(2)]
        del here, round_q, parts
        return of_q, there.part(own_k), there.part(own_v)

    node = tape.node("attention", [q, k, v], backward, [(q, ATTENTION)])
    mine = tape.new("keys and values", both, dtype)
    others = tape.new("keys and values of the other GPUs", both * GPUS - both, dtype)
    rounds = tape.new("output of each round", made * GPUS, dtype)
    sums = tape.new("log-sum-exp of each round", rows * GPUS, "fp32")
    lse = tape.new("log-sum-exp", rows, "fp32")
    z = tape.new("attention output", made, dtype)
    del others, rounds, sums
    states = tape.new("random states", BLOCK * GPUS, "int64")
    kept = [(mine, ATTENTION), (z, ATTENTION), (lse, ATTENTION), (states, RANDOM)]
    tape.attach(node, z, saves=kept)
    return z


def all_gather(tape: Tape, q: Tensor, k: Tensor, v: Tensor, rows: Formula, made: Formula) -> Tensor:
    """``AttnFuncWithCPAndKVAllGather``: every GPU has all keys and values for the moment.

    Saves q, its own k and v, and the output of either of its pieces of the sequence, which is
    copied into the one that is returned.
    """
    numel, dtype = q.numel, q.dtype
    sizes = (k.numel, v.numel)

    def gathered(tape: Tape) -> list[Tensor]:
        found = [tape.new("keys or values of all GPUs", size * GPUS, dtype) for size in sizes]
        for place, size in enumerate(sizes):
            found[place] = tape.new("the same, in order of tokens", size * GPUS, dtype)
        return found

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        of_q = tape.new("gradient of queries", numel, dtype)
        total = gathered(tape)
        of_all = [tape.new("gradient of all keys or values", size * GPUS, dtype) for size in sizes]
        pieces = [tape.new("gradient of a piece", one, dtype) for one in (numel, *sizes)]
        # Together the two pieces see about as many keys as there are.
        pieces += [tape.new("gradient of keys or values seen", s * GPUS, dtype) for s in sizes]
        del total, pieces
        for place, size in enumerate(sizes):
            of_all[place] = tape.new("the same, by GPUs", size * GPUS, dtype)
        of_k, of_v = (tape.new("gradient, scattered", size, dtype) for size in sizes)
        return of_q, of_k, of_v

    node = tape.node("attention", [q, k, v], backward, [(one, ATTENTION) for one in (q, k, v)])
    total = gathered(tape)
    z = tape.new("attention output", made, dtype)
    pieces = tape.new("output of both pieces", made, dtype)
    lse = tape.new("log-sum-exp", rows, "fp32")
    states = tape.new("random states", BLOCK * 2, "int64")
    del total
    kept = [(pieces, ATTENTION), (lse, ATTENTION), (states, RANDOM)]
    tape.attach(node, z, saves=kept)
    return z


def ulysses(tape: Tape, q: Tensor, k: Tensor, v: Tensor, rows: Formula, made: Formula) -> Tensor:
    """``AttnFuncWithCPAndQKVOA2A``: each GPU has all tokens of some heads for the moment.

    Saves what was exchanged, and the output before it is exchanged back (from version 2.8 on).
    """
    dtype = q.dtype
    sizes = (q.numel, k.numel, v.numel)

    def exchanged(tape: Tape, size: Formula) -> Tensor:
        sent = tape.new("sent to the other GPUs", size, dtype)
        received = tape.new("received from the other GPUs", size, dtype)
        del sent
        ordered = tape.new("the same, in order", size, dtype)
        del received
        return ordered

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        of_output = exchanged(tape, made)
        found = [tape.new("gradient of some heads", size, dtype) for size in sizes]
        del of_output
        for place, size in enumerate(sizes):
            found[place] = exchanged(tape, size)
        return found

    node = tape.node("attention", [q, k, v], backward)
    heads = [exchanged(tape, size) for size in sizes]
    own = tape.new("attention output of some heads", made, dtype)
    lse = tape.new("log-sum-exp", rows, "fp32")
    state = tape.new("random state", STATE, "int64")
    z = exchanged(tape, made)
    kept = [*((one, ATTENTION) for one in heads), (own, ATTENTION), (lse, ATTENTION)]
    tape.attach(node, z, saves=[*kept, (state, RANDOM)])
    return z


WAYS: dict[str, Attend] = {"ring": ring, "all-gather": all_gather, "ulysses": ulysses}
