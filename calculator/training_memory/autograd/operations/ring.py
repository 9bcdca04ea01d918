"""Attention of GPUs that share a sequence, as PyTorch's ``context_parallel`` does it.

PyTorch 2.13, torch/distributed/tensor/experimental/_context_parallel/_attention.py. Each GPU has a
piece from either end of the sequence. Keys and values come to it round by round, sent on
("alltoall") or gathered at once ("allgather"); what the kernel gives is merged in 32 bits. Of those
from GPUs before it the first half is looked at, by all its tokens; those from GPUs after it by the
second half of its tokens alone. Here is the second of three GPUs or more, which has both; of two
the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...formula import Formula, as_formula
from ..tape import Tape
from ..tensors import Grads, Tensor
from .common import ATTENTION, RANDOM, like
from .views import contiguous

#: What the backward kernel holds while it runs: name, how many numbers, dtype.
Scratch = Sequence[tuple[str, Formula, str]]


def ring_attention(
    tape: Tape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Formula,
    gpus: int,
    *,
    gathers: bool,
    scratch: Scratch = (),
) -> Tensor:
    """``F.scaled_dot_product_attention`` of ``gpus``: saves q, k, v, output, log-sum-exp (rows)."""

    def turning(both: Formula, *, once: bool) -> _Turning:
        return _Turning(tape, both, gpus if once else 0)

    backward = _backward_of(q, k, v, rows, gpus, turning, gathers=gathers, scratch=scratch)
    node = tape.node("attention", [q, k, v], backward, [(one, ATTENTION) for one in (q, k, v)])
    z, lse, *drawn = tape.outputs(
        "attention",
        lambda: _forward(tape, q, k, v, rows, gpus, turning(k.numel + v.numel, once=gathers)),
    )
    saves = [(z, ATTENTION), (lse, ATTENTION), *((one, RANDOM) for one in drawn)]
    tape.attach(node, z, saves=saves)
    return z


class _Turning:
    """What comes from the other GPUs: sent on by each, or where so many ``gather``, all at once."""

    __slots__ = ("both", "buffer", "gather", "tape")

    def __init__(self, tape: Tape, both: Formula, gather: int) -> None:
        self.tape = tape
        self.both = both
        self.gather = gather
        self.buffer: Tensor | None = None

    def send(self, dtype: str) -> None:
        """Exchange what the caller holds."""
        if self.gather and self.buffer is not None:
            return
        numel = self.both * (self.gather or 1)
        name = "gradients" if dtype == "fp32" else "keys and values"
        self.buffer = self.tape.new(f"other GPUs' {name}", numel, dtype)

    def received(self, numel: Formula) -> Tensor:
        """A part of what has come."""
        assert self.buffer is not None
        return Tensor(self.buffer.storage, numel, self.buffer.dtype, None, "heads")


def _place(gpus: int) -> int:
    return min(1, gpus - 2)


def _laid(tape: Tape, numel: Formula, dtype: str, order: str, name: str) -> Tensor | None:
    """``x.contiguous()``, ``x.flatten()``: a copy, unless it lies by heads."""
    if order in ("heads", "any"):
        return None
    return tape.new(name, numel, dtype, "heads")


def _forward(
    tape: Tape, q: Tensor, k: Tensor, v: Tensor, rows: Formula, gpus: int, turning: _Turning
) -> list[Tensor]:
    key = _laid(tape, k.numel, k.dtype, k.order, "keys by heads") or k
    value = _laid(tape, v.numel, v.dtype, v.order, "values by heads") or v
    merged = _Merged(tape, q.numel, rows)
    seen = made = None
    for turn in range(gpus):
        if turn:
            key, value = turning.received(k.numel), turning.received(v.numel)
        if turn < gpus - 1:
            sent = tape.new("keys and values to send", turning.both, k.dtype)
            turning.send(k.dtype)
            del sent
        seen = (key, value)  # what the kernel is given is held until the next round's
        half = turn > _place(gpus)
        made = _round(tape, q, rows, half=half)
        merged.add(made[0], made[1], half=half)
    assert made is not None
    z = tape.new("attention output", q.numel, q.dtype, merged.order)
    del seen
    return [z, merged.sums(), *made[2:]]


def _round(tape: Tape, q: Tensor, rows: Formula, *, half: bool) -> list[Tensor]:
    parts = 2 if half else 1
    return [
        tape.new("output of a round", q.numel / parts, q.dtype, q.order),
        tape.new("log-sum-exp", rows / parts, "fp32"),
        *(tape.new("random state", as_formula(count), "uint64") for count in (2, 1)),
    ]


class _Merged:
    """``_SDPAMerger``: the output so far in 32 bits, and its log-sum-exp."""

    __slots__ = ("lse", "numel", "out", "rows", "tape")

    def __init__(self, tape: Tape, numel: Formula, rows: Formula) -> None:
        self.tape = tape
        self.numel = numel
        self.rows = rows
        self.out: Tensor | None = None
        self.lse: Tensor | None = None

    @property
    def order(self) -> str:
        """How the output lies in memory."""
        assert self.out is not None
        return self.out.order

    def sums(self) -> Tensor:
        """The log-sum-exp."""
        assert self.lse is not None
        return self.lse

    def add(self, out: Tensor, lse: Tensor, *, half: bool) -> None:
        """Merge a round's output with those before it, or with the second half of their tokens."""
        tape = self.tape
        wide = like(tape, out, "output of a round in fp32", "fp32")
        if self.out is None:
            self.out, self.lse = wide, lse
            return
        apart = like(tape, lse, "difference of log-sum-exps")
        share = like(tape, lse, "share of the round")
        del apart
        change = like(tape, wide, "difference of outputs")
        scaled = like(tape, wide, "difference of outputs, scaled")
        del share, change
        output = like(tape, wide, "outputs merged")
        del scaled
        apart = like(tape, lse, "difference of log-sum-exps")
        logarithm = like(tape, lse, "logarithm of the share")
        del apart
        sums = like(tape, lse, "log-sum-exps merged")
        del logarithm
        if half:
            self.lse = tape.new("log-sum-exp", self.rows, "fp32")
            self.out = tape.new("outputs merged, all tokens", self.numel, "fp32", "heads")
        else:
            self.lse, self.out = sums, output


def _backward_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Formula,
    gpus: int,
    turning: Callable[..., _Turning],
    *,
    gathers: bool,
    scratch: Scratch,
) -> Callable[[Tape, Grads], Sequence[Tensor | None]]:
    of_q, of_k, of_v = q.numel, k.numel, v.numel
    order_q, order_k, order_v, dtype = q.order, k.order, v.order, q.dtype
    # Zeros for an expanded tensor are laid out anew.
    laid_k, laid_v = (contiguous(one) if one.order == "repeats" else one.order for one in (k, v))

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        sum_q = tape.new("sum of gradients of queries", of_q, "fp32", order_q)
        sum_k: Tensor | None = tape.new("sum of gradients of keys", of_k, "fp32", laid_k)
        sum_v: Tensor | None = tape.new("sum of gradients of values", of_v, "fp32", laid_v)
        key = _laid(tape, of_k, dtype, order_k, "keys by heads")
        value = _laid(tape, of_v, dtype, order_v, "values by heads")
        there, back = turning(of_k + of_v, once=gathers), turning(of_k + of_v, once=False)
        seen: object = None
        sent = half_rows = sent_back = None
        made: object = None
        for turn in range(gpus):
            half = turn > _place(gpus)
            if turn:
                key, value = there.received(of_k), there.received(of_v)
            if turn < gpus - 1:
                sent = tape.new("keys and values to send", of_k + of_v, dtype)
                there.send(dtype)
            contiguous_rows = tape.new("log-sum-exp of half", rows / 2, "fp32") if half else None
            seen, half_rows = (key, value), contiguous_rows
            del contiguous_rows
            parts = 1 if turn == 0 or half else 2
            made = [
                tape.new("round's gradient of queries", of_q / (2 if half else 1), dtype, order_q),
                tape.new("round's gradient of keys", of_k / parts, dtype, "heads"),
                tape.new("round's gradient of values", of_v / parts, dtype, "heads"),
                *(tape.new(*one) for one in scratch),
            ]
            del made[3:]
            if turn:
                sent_back = back.received(of_k + of_v)
                sum_k = back.received(of_k)
                sum_v = back.received(of_v)
                if not half:
                    sum_k = tape.new("sum of gradients of keys", of_k, "fp32", "heads")
                    sum_v = tape.new("sum of gradients of values", of_v, "fp32", "heads")
            flat = [
                _laid(tape, numel, "fp32", order if not turn else "heads", f"gradient of {name}")
                for name, numel, order in (("keys", of_k, laid_k), ("values", of_v, laid_v))
            ]
            sent_back = tape.new("gradients to send", of_k + of_v, "fp32")
            del flat
            back.send("fp32")
            if half:
                sum_q = tape.new("sum of gradients of queries", of_q, "fp32", "heads")
        order = sum_q.order
        result = tape.new("gradient of queries", of_q, dtype, order)
        del sum_q
        both = tape.new("gradient of keys and values", of_k + of_v, dtype, "heads")
        del sum_k, sum_v
        del sent, sent_back, seen, half_rows, made, key, value, there, back
        return result, both.part(of_k), both.part(of_v)

    return backward
