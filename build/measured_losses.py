"""Losses by themselves, as Liger's benchmark runs them: forward and backward, again and again.

Each is run on the calculator's own tape, which records what PyTorch would hold. What the benchmark
holds beside the loss is held here too: the gradients of the run before, which a further run adds
to, and what matrix products left behind. Scripts and results: linkedin/Liger-Kernel, benchmark/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from training_memory.autograd import operations as op
from training_memory.autograd.backward import BackwardPass
from training_memory.autograd.tape import Tape
from training_memory.autograd.tensors import Parameter, Tensor
from training_memory.blocks.sizes import LOGITS, ROWS, TOKENS
from training_memory.formula import Formula, as_formula, product
from training_memory.recorded import Sized, sizes_of
from training_memory.recording import of_memory
from training_memory.structure import fused_chunk_tokens
from training_memory.walk import walk

WEIGHT = product(("V", "h"))
ONE = as_formula(1)
#: cuBLAS's workspace on GPUs before Hopper: two of 4,096 KiB and eight of 16 KiB
#: (getChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp).
CUBLAS_BYTES = (2 * 4096 + 8 * 16) * 1024


def peak(*, of: str, tokens: int, vocabulary: int, hidden: int = 1) -> int:
    """The most that one loss allocates, for so many tokens at once."""
    tape = Tape()
    tape.mark("forward", "loss")
    chunk = fused_chunk_tokens(tokens, hidden, vocabulary)
    _LOSSES[of](tape)
    values = {"s": tokens, "b": 1, "h": hidden, "V": vocabulary, "c": chunk}
    recording = of_memory(tape)
    sized = Sized(recording=recording, sizes=sizes_of(recording, values), repeats={})
    return walk(sized.phases()).peak


def _leaf(tape: Tape, name: str, numel: Formula, dtype: str, *, again: bool = True) -> Tensor:
    """An input that wants a gradient; ``again`` gives it the one of the run before."""
    tensor = tape.new(name, numel, dtype)
    leaf = Parameter(name, numel, dtype)
    if again:
        leaf.grad = tape.new(f"gradient of {name}, of the run before", numel, dtype)
    tensor.edge = leaf, 0
    return tensor


def _of_torch(tape: Tape) -> None:
    """``F.cross_entropy`` on logits in fp32."""
    logits = _leaf(tape, "logits", LOGITS, "fp32")
    targets = _targets(tape)
    loss = op.cross_entropy(tape, logits, targets)
    BackwardPass(tape).run(loss)


def _targets(tape: Tape) -> Tensor:
    return tape.new("targets", ROWS, "int64")


def _of_liger(tape: Tape) -> None:
    """Liger's kernel, v0.2.1: the gradient takes the logits' own place.

    ``(target != ignored).sum()`` adds up a copy of the comparison in int64.
    """
    logits = _leaf(tape, "logits", LOGITS, "fp32", again=False)
    targets = _targets(tape)
    losses = tape.new("each token's loss", ROWS, "fp32")
    counted = _counted(tape)
    del counted
    loss = tape.new("loss", ONE, "fp32")
    del losses, loss, targets, logits


def _counted(tape: Tape) -> Tensor:
    taken = tape.new("tokens that have a target", ROWS, "bool")
    counts = tape.new("the same as numbers", ROWS, "int64")
    counted = tape.new("how many have a target", ONE, "int64")
    del taken, counts
    return counted


@contextmanager
def _head(tape: Tape) -> Iterator[Parameter]:
    """The benchmark's head, and the other library's, which it makes as well.

    Matrix products left two workspaces behind, one of the thread that runs forward and one of the
    thread that runs backward.
    """
    held = [tape.new(f"{whose} head", WEIGHT, "bf16") for whose in ("this", "the other")]
    workspaces = [
        tape.new("cuBLAS's workspace", as_formula(CUBLAS_BYTES), "bool") for _ in range(2)
    ]
    head = Parameter("head", WEIGHT, "bf16")
    head.grad = tape.new("gradient of the head, of the run before", WEIGHT, "bf16")
    yield head
    del held, workspaces


def _of_torch_with_head(tape: Tape) -> None:
    """``nn.Linear`` and ``nn.CrossEntropyLoss`` in bf16."""
    with _head(tape) as head:
        rows = _leaf(tape, "hidden states", TOKENS, "bf16")
        targets = _targets(tape)
        logits = op.linear(tape, rows, head, LOGITS, "logits")
        loss = op.cross_entropy(tape, logits, targets)
        del logits
        BackwardPass(tape).run(loss)


def _of_liger_with_head(tape: Tape) -> None:
    """Liger's fused linear cross-entropy, v0.4.2: chunks of logits, upcast and cast back."""
    with _head(tape) as head:
        rows = _leaf(tape, "hidden states", TOKENS, "bf16")
        targets = _targets(tape)
        made = [
            tape.new("gradient of the head", WEIGHT, "bf16"),
            tape.new("gradient of the hidden states", TOKENS, "bf16"),
            tape.new("each token's loss", ROWS, "fp32"),
            _counted(tape),
        ]
        numel = product(("c", "V"))
        scaled = None
        for _ in range(2):  # further chunks are as the second
            logits = tape.new("logits of a chunk", numel, "bf16")
            share = tape.new("the chunk's share of the loss", ONE, "fp32")
            wide = tape.new("logits of a chunk in fp32", numel, "fp32")
            del logits
            logits = tape.new("their gradient in bf16", numel, "bf16")
            del wide
            scaled = tape.new("their gradient, scaled", numel, "bf16")
        del scaled, logits, share, made, targets, rows
        assert head.grad is not None


def _of_megatron(*, copies: int) -> Callable[[Tape], None]:
    """Megatron's vocabulary-parallel cross-entropy on one GPU, logits in bf16.

    ``megatron/core/tensor_parallel/cross_entropy.py``: one copy of the logits in fp32 becomes their
    exponentials, the softmax and the gradient, each in place. Compiled (the fused form), the
    gradient is written to a second copy, since what a compiled function is given it may not change
    before it is done.
    """

    def loss(tape: Tape) -> None:
        logits = _leaf(tape, "logits", LOGITS, "bf16", again=False)
        targets = _targets(tape)
        kept: list[Tensor] = [tape.new("softmax", LOGITS, "fp32")]
        kept.append(tape.new("targets within this GPU's part", ROWS, "int64"))
        kept.append(tape.new("targets outside of it", ROWS, "bool"))
        losses = tape.new("each token's loss", ROWS, "fp32")
        ends = [tape.new(name, ONE, "fp32") for name in ("sum", "its gradient", "its scale")]
        kept += [tape.new("gradient in fp32", LOGITS, "fp32") for _ in range(copies)]
        gradient = tape.new("gradient", LOGITS, "bf16")
        del gradient, ends, losses, kept, targets, logits

    return loss


_LOSSES: dict[str, Callable[[Tape], None]] = {
    "torch": _of_torch,
    "liger": _of_liger,
    "torch-with-head": _of_torch_with_head,
    "liger-with-head": _of_liger_with_head,
    "megatron": _of_megatron(copies=0),
    "megatron-fused": _of_megatron(copies=1),
}
