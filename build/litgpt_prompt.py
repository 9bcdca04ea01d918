"""LLaMA-Adapter's prompt: ten learned tokens that each layer but the first two attends to as well.

lit_gpt/adapter.py (CausalSelfAttention.forward); PyTorch 2.1.0, sdp_utils and
transformers/attention.cpp: with a mask it is the memory-efficient kernel, and the mask becomes
numbers, repeated for every head and padded to a whole number of 16 keys (``preprocess_mask``).
"""

from __future__ import annotations

from collections.abc import Sequence

from training_memory.autograd import operations as op
from training_memory.autograd.operations.common import ATTENTION, PRODUCT, RANDOM
from training_memory.autograd.tape import Tape
from training_memory.autograd.tensors import Grads, Parameter, Tensor
from training_memory.autograd.weights import Weights
from training_memory.blocks.sizes import PADDED_HEAD_ROWS, QUERIES
from training_memory.formula import as_formula, product

#: adapter_prompt_length, and the layers before the first that has one (adapter_start_layer).
PROMPT, FIRST = 10, 2
#: Keys of the padded mask.
_PADDED = 16
KEYS = product((PROMPT, "a", "e"))
JOINT = 3 * KEYS
_MASK = product(("b", "a", "s", _PADDED))


def prompt_of(tape: Tape, w: Weights) -> Tensor:
    """The learned tokens, which are a parameter: no memory beside the weights'."""
    weight = w.of("prompt", product((PROMPT, "h")))
    seen = Tensor(tape.storage("prompt", as_formula(0), "bf16"), weight.numel, "bf16")
    seen.edge = weight, 0
    return seen


def attended(tape: Tape, q: Tensor, joint: Tensor, y: Tensor, gate: Parameter) -> Tensor:
    """``y + gating_factor * attention(q, prompt's keys and values)``, in the order of tokens."""
    _, k, v = op.split(tape, joint, [KEYS] * 3)
    seen = _masked_attention(tape, q, op.heads(tape, k), op.heads(tape, v))
    return op.add(tape, y, _gated(tape, seen, gate), "context with the prompt's")


def _masked_attention(tape: Tape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    dtype, numels = q.dtype, (q.numel, k.numel, v.numel)
    wants_q = q.edge is not None
    allowed = tape.new("which keys are allowed", product(("s", PROMPT)), "bool")
    numbers = tape.new("the same as numbers", product(("s", PROMPT)), dtype)
    mask = tape.new("mask, padded", _MASK, dtype)
    del numbers

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        found: list[Tensor | None] = [
            tape.new("gradient of attention's input", numel, dtype) for numel in numels
        ]
        if not wants_q:
            found[0] = None
        return found

    saves = [(one, ATTENTION) for one in (q, k, v, mask)]
    node = tape.node("attention to the prompt", [q, k, v], backward, saves)
    seen = tape.new("attention to the prompt", QUERIES, dtype)
    lse = tape.new("log-sum-exp", PADDED_HEAD_ROWS, "fp32")
    drawn = [tape.new("random state", as_formula(1), "int64") for _ in range(2)]
    tape.attach(
        node, seen, saves=[(seen, ATTENTION), (lse, ATTENTION), *((one, RANDOM) for one in drawn)]
    )
    del allowed
    return seen


def _gated(tape: Tape, x: Tensor, gate: Parameter) -> Tensor:
    numel, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        of_gate = tape.new("gradient of the gate, of each feature", numel, dtype)
        return of_gate, tape.new("gradient of attention to the prompt", numel, dtype)

    node = tape.node("mul", [gate, x], backward, [(x, PRODUCT), (gate, PRODUCT)])
    y = tape.new("attention to the prompt, gated", numel, dtype)
    tape.attach(node, y)
    return y
