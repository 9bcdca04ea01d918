"""Losses that never hold all logits: by checkpointed chunks of tokens, or fused with the head."""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Grads, Parameter, Tensor
from ..categories import Category
from ..formula import Formula, as_formula, product
from ..structure import Structure
from .sizes import ROWS, TOKENS
from .targets import next_tokens

ONE = as_formula(1)


def _size(index: int, chunks: int, *factors: str) -> Formula:
    """So many numbers for each token of a chunk; only the last may be shorter."""
    return product(("r" if index == chunks - 1 else "c", *factors))


def chunked(
    tape: Tape,
    x: Tensor,
    head: Parameter,
    bias: Parameter | None,
    structure: Structure,
    chunks: int,
) -> Tensor:
    """Cross-entropy chunk by chunk, the logits of each made again in the backward pass."""
    rows = op.view(tape, x)
    targets = next_tokens(tape, structure)
    total = tape.new("sum of losses", ONE, "fp32")
    parts = op.split(tape, rows, [_size(index, chunks, "h") for index in range(chunks)])
    for index, part in enumerate(parts):
        tape.mark("forward", "chunk", index)
        wanted = targets.part(_size(index, chunks))
        numel = _size(index, chunks, "V")
        total = op.add(
            tape,
            _of_chunk(tape, part, wanted, head, bias, structure, numel),
            total,
            "sum of losses",
        )
    tape.mark("forward", "loss")
    counted = _counted(tape)
    return op.divide(tape, total, counted)


def _counted(tape: Tape) -> Tensor:
    """``(targets != IGNORED).sum()``."""
    taken = tape.new("tokens that have a target", ROWS, "bool")
    counted = tape.new("how many have a target", ONE, "int64")
    del taken
    return counted


def _of_chunk(
    tape: Tape,
    rows: Tensor,
    targets: Tensor,
    head: Parameter,
    bias: Parameter | None,
    structure: Structure,
    numel: Formula,
) -> Tensor:
    def region(rows: Tensor, targets: Tensor) -> Tensor:
        with tape.as_category(Category.LOGITS):
            return op.cross_entropy(
                tape, _logits(tape, rows, head, bias, structure, numel), targets
            )

    return tape.checkpoint(region, rows, targets)


def _logits(
    tape: Tape,
    rows: Tensor,
    head: Parameter,
    bias: Parameter | None,
    structure: Structure,
    numel: Formula,
) -> Tensor:
    def of_head() -> Tensor:
        with tape.module("head"):
            return op.linear(tape, rows, head, numel, "logits", bias)

    return op.cast(tape, _capped(tape, of_head(), structure), "fp32", "logits in fp32")


def _capped(tape: Tape, logits: Tensor, structure: Structure) -> Tensor:
    if not structure.caps_logits:
        return logits
    return op.scale(
        tape, op.tanh(tape, op.scale(tape, logits, "logits over the cap")), "capped logits"
    )


def fused(
    tape: Tape,
    x: Tensor,
    head: Parameter,
    bias: Parameter | None,
    structure: Structure,
    chunks: int,
) -> Tensor:
    """Liger's fused linear cross-entropy: the gradients are computed in the forward pass.

    Hsu et al. 2024, arXiv:2410.10989, section 3.2; the library's order of things, as of 2025.
    """
    rows = op.view(tape, x)
    _targets = next_tokens(tape, structure)  # held by a variable until the loss is there

    def backward(tape: Tape, grads: Grads) -> list[Tensor | None]:
        return [kept.pop(0), kept.pop(0) if head.trainable else None]

    node = tape.node("fused_linear_loss", [rows, head], backward)
    tape.gradients_on = False
    kept, loss = _forward(tape, rows, head, chunks)
    tape.gradients_on = True
    tape.attach(node, loss, saves=[(one, COMPUTED) for one in kept])
    return loss


COMPUTED = "It is the gradient already, computed while the logits were there."


def _forward(tape: Tape, rows: Tensor, head: Parameter, chunks: int) -> tuple[list[Tensor], Tensor]:
    gradients = [tape.new("gradient of the hidden states", TOKENS, rows.dtype)]
    if head.trainable:
        gradients.append(tape.new(f"gradient of {head.name}", head.numel, head.dtype))
    losses = tape.new("each token's loss", ROWS, "fp32")
    counted = _counted(tape)
    buffer = None
    if not tape.autocast:
        with tape.as_category(Category.LOGITS):
            buffer = tape.new("logits of a chunk", _size(0, chunks + 1, "V"), rows.dtype)
    for index in range(chunks):
        tape.mark("forward", "chunk", index)
        sizes = _size(index, chunks, "V"), _size(index, chunks, "h")
        _chunk(tape, head, buffer, rows.dtype, *sizes)
    tape.mark("forward", "loss")
    del buffer
    loss = tape.new("loss", ONE, "fp32")
    del losses, counted
    return gradients, loss


def _chunk(
    tape: Tape,
    head: Parameter,
    buffer: Tensor | None,
    rows_dtype: str,
    logits_numel: Formula,
    rows_numel: Formula,
) -> None:
    if buffer is not None:
        # Products go to where they belong, but for one that no kernel adds to a total in fp32.
        if head.trainable and head.dtype == "fp32":
            tape.new(f"gradient of {head.name}, of a chunk", head.numel, "fp32")
        return
    copies = []
    if head.dtype == "fp32":
        copies.append(tape.new(f"{head.name} transposed, 16-bit copy", head.numel, "bf16"))
    if rows_dtype == "fp32":
        copies.append(tape.new("hidden states of a chunk", rows_numel, "bf16"))
    with tape.as_category(Category.LOGITS):
        logits = tape.new("logits of a chunk", logits_numel, "bf16")
    del copies
    copy = op.as_used(tape, head)
    tape.new("gradient of the hidden states of a chunk", rows_numel, "bf16")
    del copy
    if head.trainable and rows_dtype == "fp32":
        tape.new("hidden states of a chunk", rows_numel, "bf16")
    del logits
