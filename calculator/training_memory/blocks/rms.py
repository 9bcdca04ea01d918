"""Root-mean-square norms: by one kernel, or written out, each family in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Parameter, Tensor
from ..formula import Formula
from ..structure import Structure
from .sizes import ROWS


def norm(
    tape: Tape, x: Tensor, weight: Parameter, structure: Structure, rows: Formula = ROWS
) -> Tensor:
    """The family's norm, as the structure has it."""
    if structure.fused_norm:
        return op.rms_norm(tape, x, weight, rows)
    return _WRITTEN_OUT.get(structure.family, llama_norm)(tape, x, weight, rows)


def llama_norm(tape: Tape, x: Tensor, weight: Parameter, rows: Formula = ROWS) -> Tensor:
    """LlamaRMSNorm: in fp32, back to the input's dtype, times the scale.

    models/llama/modeling_llama.py; the same in Mistral, Mixtral, Qwen and Phi-3.
    """
    dtype = x.dtype
    x = op.cast(tape, x, "fp32", "norm input")
    variance = op.mean(tape, op.square(tape, x), rows)
    x = op.multiply(tape, x, op.reciprocal_root(tape, op.add_number(tape, variance)), "normalised")
    return op.multiply_weight(tape, op.cast(tape, x, dtype, "normalised"), weight, "norm output")


def olmo_norm(tape: Tape, x: Tensor, weight: Parameter, rows: Formula = ROWS) -> Tensor:
    """Olmo2RMSNorm: the scale is applied in fp32, before going back to the input's dtype.

    models/olmo2/modeling_olmo2.py.
    """
    dtype = x.dtype
    x = op.cast(tape, x, "fp32", "norm input")
    variance = op.mean(tape, op.square(tape, x), rows)
    x = op.multiply(tape, x, op.reciprocal_root(tape, op.add_number(tape, variance)), "normalised")
    return op.cast(tape, op.multiply_weight(tape, x, weight, "scaled"), dtype, "norm output")


def gemma_norm(tape: Tape, x: Tensor, weight: Parameter, rows: Formula = ROWS) -> Tensor:
    """Gemma2RMSNorm: in fp32, times one more than the scale, then to the input's dtype.

    models/gemma2/modeling_gemma2.py, models/gemma3/modeling_gemma3.py.
    """
    output = _normalised(tape, op.cast(tape, x, "fp32", "norm input"), rows)
    output = op.multiply(tape, output, op.one_more(tape, weight), "scaled")
    return op.cast(tape, output, x.dtype, "norm output")


def _normalised(tape: Tape, x: Tensor, rows: Formula) -> Tensor:
    """``x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)``, with no variable in between."""
    return op.multiply(
        tape,
        x,
        op.reciprocal_root(tape, op.add_number(tape, op.mean(tape, op.square(tape, x), rows))),
        "normalised",
    )


_WRITTEN_OUT: Mapping[str, Callable[[Tape, Tensor, Parameter, Formula], Tensor]] = {
    "olmo2": olmo_norm,
    "gemma2": gemma_norm,
    "gemma3": gemma_norm,
}
