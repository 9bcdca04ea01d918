"""The causal masks that eager attention adds to its scores.

transformers 5.24, masking_utils.py: sdpa_mask and eager_mask.
"""

from __future__ import annotations

from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..formula import as_formula, product
from ..structure import Structure
from .sizes import CAUSAL, PAIRS, POSITIONS

ONE = as_formula(1)


def causal(tape: Tape, dtype: str) -> Tensor:
    """Zero where a token may look, minus infinity elsewhere, for every sequence of the batch."""
    counted = _counted(tape)
    seen = tape.new("causal mask, true or false", CAUSAL, "bool")
    del counted
    return _added(tape, seen, dtype)


def sliding(tape: Tape, dtype: str) -> Tensor:
    """The same for layers that look only so far back (sliding_window_causal_mask_function)."""
    counted = _counted(tape)
    true = tape.new("true", ONE, "bool")
    edge = tape.new("window's edge", POSITIONS, "int64")
    near = tape.new("near enough", CAUSAL, "bool")
    del edge
    seen = tape.new("near enough and true", CAUSAL, "bool")
    del near, true
    before = tape.new("causal mask, true or false", CAUSAL, "bool")
    both = tape.new("near enough and before", CAUSAL, "bool")
    del before, seen, counted
    return _added(tape, both, dtype)


def triangle(tape: Tape, structure: Structure) -> Tensor:
    """``torch.full((1, 1, s, s), -inf).triu(1)``, as the classic GPT makes it."""
    dtype = "bf16" if structure.autocast else structure.weights
    whole = tape.new("minus infinities", CAUSAL, dtype)
    upper = tape.new("causal mask", CAUSAL, dtype)
    del whole
    return upper


def _counted(tape: Tape) -> tuple[Tensor, ...]:
    """``torch.arange`` of sequences, heads, queries and keys."""
    sequences = tape.new("sequences counted", product(("b",)), "int64")
    head = tape.new("head counted", ONE, "int64")
    return sequences, head, _positions(tape), _positions(tape)


def _added(tape: Tape, seen: Tensor, dtype: str) -> Tensor:
    """``torch.where(seen, 0, -inf)``. The caller's variable goes on holding ``seen``."""
    numbers = [tape.new(name, ONE, dtype) for name in ("zero", "minus infinity")]
    mask = tape.new("causal mask", PAIRS, dtype)
    del numbers
    return mask


def _positions(tape: Tape) -> Tensor:
    """``torch.arange(s) + offset``."""
    counted = tape.new("positions counted", POSITIONS, "int64")
    shifted = tape.new("positions", POSITIONS, "int64")
    del counted
    return shifted
