"""A layer that several GPUs share, as torchtitan splits it; on one GPU nothing happens here.

transformers' own plan (tp_plan="auto") is that without sequence parallelism, but for the head.

torchtitan, models/llama3/infra/parallelize.py, apply_tp, as of 2025: projections into heads and
into the feed-forward layer by columns, those out of them by rows, embedding and head by the
vocabulary. With sequence parallelism the residual stream and the norms have each GPU's tokens;
without, they are whole on every GPU.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..formula import Formula, product, symbol
from ..structure import Structure
from .sizes import ROWS, TOKENS

SHARE = symbol("t")
#: The residual stream's tokens and rows of one GPU.
OWN_TOKENS, OWN_ROWS = TOKENS / SHARE, ROWS / SHARE
#: The vocabulary of all GPUs, by tokens and by features.
WHOLE_LOGITS, WHOLE_TABLE = product(("b", "s", "U")), product(("U", "h"))


def rows(structure: Structure) -> Formula:
    """One number for each token of the residual stream."""
    return OWN_ROWS if structure.split.sequence else ROWS


def into(tape: Tape, x: Tensor, structure: Structure, name: str) -> Tensor:
    """What a part of the layer is given: every token."""
    if not structure.split.sequence:
        return x
    return op.gathered(tape, x, TOKENS, name, one_sequence=structure.one_sequence)


def by_columns(tape: Tape, x: Tensor, structure: Structure, name: str) -> Tensor:
    """What one weight split by columns is given."""
    if not structure.split.tensor or structure.split.sequence:
        return x
    return op.shared_input(tape, x, name)


def by_rows(tape: Tape, y: Tensor, structure: Structure, name: str) -> Tensor:
    """What a weight split by rows gives: the sum over GPUs, or each one's tokens of it."""
    if not structure.split.tensor:
        return y
    if structure.split.sequence:
        one = structure.one_sequence
        return op.scattered(tape, y, OWN_TOKENS, name, one_sequence=one)
    return op.reduced(tape, y, f"{name}, summed")


def whole_logits(tape: Tape, logits: Tensor, structure: Structure) -> Tensor:
    """Transformers' head gathers each GPU's part of the vocabulary (colwise_gather_output)."""
    if not structure.split.tensor or structure.implementation != "huggingface":
        return logits
    return op.gathered_columns(tape, logits, WHOLE_LOGITS, "logits")


def embedded(tape: Tape, ids: Tensor, w: Weights, structure: Structure) -> Tensor:
    """The tokens' rows of an embedding whose vocabulary is split."""
    weight = w("embedding", "V", "h")
    name = "embedded tokens"
    x = op.part_of_embedding(tape, ids, weight, WHOLE_TABLE, TOKENS, name)
    return by_rows(tape, x, structure, name)
