"""Attention proper, from queries, keys and values to the context, as Hugging Face offers it.

transformers 5.24: ``eager_attention_forward`` of models/llama/modeling_llama.py and its siblings,
integrations/sdpa_attention.py; PyTorch 2.13: aten/src/ATen/native/transformers/attention.cpp.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..formula import Formula, as_formula, product
from ..structure import Structure
from .sizes import CAUSAL, HEAD_ROWS, PADDED_HEAD_ROWS, QUERIES, SCORES

ONE = as_formula(1)
#: The context, and what the eager form returns beside it: the scores after softmax.
Attended = tuple[Tensor, Tensor | None]
#: What a region that runs again holds on to besides its arguments: positions, a mask, tables.
Held = tuple[Tensor | None, ...]


def attend(
    tape: Tape,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    structure: Structure,
    held: Held = (),
) -> Attended:
    """The context; with selective recomputation this alone is run again in the backward pass."""

    def core(q: Tensor, k: Tensor, v: Tensor, held: Held = held) -> Attended:
        if structure.kernel == "eager":
            return eager(tape, q, k, v, structure)
        return fused(tape, q, k, v, structure), None

    if structure.recompute == "selective":
        return tape.checkpoint(core, q, k, v)
    return core(q, k, v)


def fused(
    tape: Tape, q: Tensor, k: Tensor, v: Tensor, structure: Structure, *, copies: bool = True
) -> Tensor:
    """``F.scaled_dot_product_attention``; where it ``copies``, into the order of the tokens."""
    if structure.kernel == "math":
        made = _math(tape, q, k, v, structure)
    elif structure.split.context > 1:
        scratch = scratch_of(structure) if structure.scratch else ()
        gpus, gathers = structure.split.context, structure.split.gathers
        made = op.ring_attention(tape, q, k, v, HEAD_ROWS, gpus, gathers=gathers, scratch=scratch)
    else:
        efficient = structure.kernel == "efficient"
        lse = PADDED_HEAD_ROWS if efficient else HEAD_ROWS
        scratch = scratch_of(structure) if structure.scratch and not efficient else ()
        made = op.fused_attention(tape, q, k, v, lse, efficient=efficient, scratch=scratch)
    return op.by_tokens(tape, made, "context in token order") if copies else made


def scratch_of(structure: Structure) -> tuple[tuple[str, Formula, str], ...]:
    """What PyTorch's flash backward kernel holds besides its results.

    ``mha_bwd`` in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp: a 32-bit sum of
    the queries' gradient, one number a query, and where heads share keys the gradients of keys and
    values for every head. A plain Llama has repeated its keys before.
    """
    held = [
        ("sum of the queries' gradient", product(("b", "a", "u", "y")), "fp32"),
        ("softmax's sums", product(("b", "a", "u")), "fp32"),
    ]
    if structure.grouped and structure.family != "plain-llama":
        held += [
            (f"gradient of every head's {name}", QUERIES, "bf16") for name in ("keys", "values")
        ]
    return tuple(held)


def _math(tape: Tape, q: Tensor, k: Tensor, v: Tensor, structure: Structure) -> Tensor:
    """``_scaled_dot_product_attention_math``: plain operations, heads repeated, scores kept."""
    q = op.scale(tape, q, "queries scaled")
    mask = _causal_bias(tape, q.dtype)
    k, v = _repeated(tape, k, structure, "keys"), _repeated(tape, v, structure, "values")
    weights = batched_product(tape, q, op.scale(tape, k, "keys scaled"), structure, "scores")
    weights = op.add_number(tape, weights, "masked scores")
    weights = op.softmax(tape, weights)
    weights = op.dropout(tape, weights, drops=structure.drops)
    context = batched_product(tape, weights, v, structure, "context")
    del mask
    return context


def _causal_bias(tape: Tape, dtype: str) -> Tensor:
    """``ones(…).tril()``, and zero or minus infinity where it is true or false."""
    ones = tape.new("ones", CAUSAL, "bool")
    lower = tape.new("causal mask, true or false", CAUSAL, "bool")
    del ones
    numbers = [tape.new(name, ONE, dtype) for name in ("zero", "minus infinity")]
    mask = tape.new("causal mask", CAUSAL, dtype)
    del numbers, lower
    return mask


def eager(tape: Tape, q: Tensor, k: Tensor, v: Tensor, structure: Structure) -> Attended:
    """``eager_attention_forward``: every score in memory."""
    k, v = _repeated(tape, k, structure, "keys"), _repeated(tape, v, structure, "values")
    weights = op.scale(tape, batched_product(tape, q, k, structure, "scores"), "scaled scores")
    if structure.caps_scores:
        weights = op.scale(tape, weights, "scores over the cap")
        weights = op.tanh(tape, weights)
        weights = op.scale(tape, weights, "capped scores")
    # Under autocast the scores are in 16 bits and the mask is in 32.
    weights = op.add_number(tape, weights, "masked scores", structure.weights)
    if structure.family == "gpt2":
        weights = op.softmax(tape, weights)
        weights = op.cast(tape, weights, v.dtype, "softmax output")
    else:
        # One expression: the scores are held until the cast is made.
        weights = op.cast(tape, op.softmax(tape, weights, "fp32"), q.dtype, "softmax output")
    weights = op.dropout(tape, weights, drops=structure.drops)
    context = batched_product(tape, weights, v, structure, "context")
    return op.by_tokens(tape, context, "context in token order"), weights


def batched_product(tape: Tape, x: Tensor, y: Tensor, structure: Structure, name: str) -> Tensor:
    """``torch.matmul`` of batch × heads × matrices."""
    # Autocast's wrapper casts the last argument first; arguments and copies are held until the
    # product is made.
    used_y = op.cast(tape, y, "bf16", f"{name}' second factor") if tape.autocast else y
    used_x = op.cast(tape, x, "bf16", f"{name}' first factor") if tape.autocast else x
    one = structure.one_sequence
    first = op.joined_with_batch(tape, used_x, one_sequence=one)
    second = op.joined_with_batch(tape, used_y, one_sequence=one)
    numel = SCORES if name == "scores" else QUERIES
    made = op.matmul(tape, first, second, numel, name, transposed=name == "scores")
    return op.heads_joined(tape, made, one_sequence=one)


def _repeated(tape: Tape, x: Tensor, structure: Structure, name: str) -> Tensor:
    """``repeat_kv``: a copy for every query head that shares a key head."""
    if not structure.grouped:
        return x
    if structure.one_key_head and structure.kernel == "eager":
        return op.expanded(tape, x, QUERIES)
    return op.expanded_copy(tape, x, QUERIES, f"{name} repeated")
