"""Rotary positions: the tables of cosines and sines, and queries and keys turned by them.

transformers 5.24, models/llama/modeling_llama.py: LlamaRotaryEmbedding, apply_rotary_pos_emb.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from .sizes import POSITIONS, ROTARY

Tables = tuple[Tensor, Tensor]


def position_ids(tape: Tape) -> Tensor:
    """``torch.arange(s) + 0``."""
    counted = tape.new("positions counted", POSITIONS, "int64")
    ids = tape.new("position ids", POSITIONS, "int64")
    del counted
    return ids


def tables(tape: Tape, dtype: str) -> Tables:
    """The tables, worked out in fp32 and kept in the dtype of the embedded tokens."""
    places = tape.new("positions as numbers", POSITIONS, "fp32")
    angles = tape.new("angles of half a head", ROTARY / 2, "fp32")
    del places
    both = tape.new("angles", ROTARY, "fp32")
    cos = _scaled(tape, "cosine")
    sin = _scaled(tape, "sine")
    cos, sin = op.cast(tape, cos, dtype, "cosine"), op.cast(tape, sin, dtype, "sine")
    del angles, both
    return cos, sin


def _scaled(tape: Tape, name: str) -> Tensor:
    values = tape.new(name, ROTARY, "fp32")
    scaled = tape.new(f"{name} scaled", ROTARY, "fp32")
    del values
    return scaled


def rotated(tape: Tape, x: Tensor, turn: Tables) -> Tensor:
    """``(x * cos) + (rotate_half(x) * sin)``."""
    cos, sin = turn
    return op.add(
        tape,
        op.multiply(tape, x, cos, "times cosine"),
        op.multiply(tape, _half_rotated(tape, x), sin, "times sine"),
        "rotated",
    )


def _half_rotated(tape: Tape, x: Tensor) -> Tensor:
    first = op.part(tape, x, x.numel / 2)
    second = op.part(tape, x, x.numel / 2)
    return op.joined(tape, [op.negate(tape, second), first], "half rotated", x.numel)
