"""Other tools' formulas for one GPU, written anew from what they publish, to run on the same steps.

Each is given the model's true number of parameters, which is more than some of them have. Sizes are
in bytes; s, b, h, a, L, V and f as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from training_memory.blocks.ledger import Recompute
from training_memory.run import Run
from training_memory.switches import Attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One tool: its name, where its formula is published, and what it says of a run."""

    id: str
    name: str
    source: str
    bytes_of: Callable[[Run], int]


def _tokens(run: Run) -> int:
    return run.sequence * run.micro_batch


def _scores(run: Run) -> int:
    """One number for each pair of tokens and head."""
    return run.sequence * _tokens(run) * run.model.heads


def _item_bytes(run: Run) -> int:
    return 4 if run.recipe.precision == "fp32" else 2


def transformer_math(run: Run) -> int:
    """EleutherAI, "Transformer Math 101" (Anthony, Biderman, Schoelkopf 2023), "Training".

    Weights 4 in fp32, else 2; gradients 4 or 2; AdamW 12 with a 32-bit copy, 8 without. Activations
    s·b·h·L·(10 + 24/t + 5·a·s/(h·t)), the last term not with selective recomputation, and 2·s·b·h·L
    with full. No logits. It is older than flash kernels, which keep no scores: they are counted as
    selective recomputation here.
    """
    model, precision = run.model, run.recipe.precision
    wide = precision in ("fp32", "autocast")
    gradient = 4 if wide or precision == "master-fp32-grad" else 2
    states = (4 + gradient + 8) if wide else (2 + gradient + 12)
    per_layer = 34 * _tokens(run) * model.hidden
    if run.recompute is Recompute.FULL:
        per_layer = 2 * _tokens(run) * model.hidden
    elif run.recompute is Recompute.NONE and run.switches.attention is Attention.EAGER:
        per_layer += 5 * _scores(run)
    return states * model.parameters.total + model.layers * per_layer


def llm_analysis(run: Run) -> int:
    """llm-analysis 0.2.2 (Cheng Li), docstrings of ``llm_analysis.analysis.LLMAnalysis``.

    Weights by their type, gradients 4, Adam 12. A layer's attention 5·s·b·h numbers and a mask, and
    2·s·b·h + 4·a·s·b with a flash kernel or 2·a·s² b without; its MLP s·b·h + 2·s·b·f and a mask;
    two norms of 4 bytes. Logits once, in the activations' type.
    """
    model, size = run.model, _item_bytes(run)
    rows = _tokens(run) * model.hidden
    states = (size + 4 + 12) * model.parameters.total
    logits = size * _tokens(run) * model.vocabulary + 4 * rows
    if run.recompute is Recompute.FULL:
        return states + logits + model.layers * size * rows
    core = 0
    if run.recompute is not Recompute.SELECTIVE:
        flash = run.switches.attention is Attention.FLASH
        core = 2 * rows + 4 * model.heads * _tokens(run) if flash else 2 * _scores(run)
    attention = size * (5 * rows + core) + rows
    mlp = size * (rows + 2 * _tokens(run) * model.ffn) + rows
    return states + logits + model.layers * (attention + mlp + 2 * 4 * rows)


def megatron(run: Run) -> int:
    """Megatron-LM, ``megatron/training/theoretical_memory_usage.py``, without sequence parallelism.

    18 bytes a parameter. A layer s·b·h·34, whatever is recomputed; token ids 8·s·b; the embedding's
    dropout s·b·h; logits and the last norm's output in 16 bits; a twentieth more for the rest.
    """
    model, tokens = run.model, _tokens(run)
    activations = 34 * tokens * model.hidden * model.layers + tokens * (8 + model.hidden)
    activations += 2 * tokens * (model.vocabulary + model.hidden)
    return 18 * model.parameters.total + int(activations * Fraction(105, 100))


PEERS = (
    Peer(
        id="transformer-math",
        name="Transformer Math 101",
        source="blog.eleuther.ai/transformer-math",
        bytes_of=transformer_math,
    ),
    Peer(
        id="llm-analysis",
        name="llm-analysis",
        source="github.com/cli99/llm-analysis, 0.2.2",
        bytes_of=llm_analysis,
    ),
    Peer(
        id="megatron",
        name="Megatron-LM's report",
        source="github.com/NVIDIA/Megatron-LM, theoretical_memory_usage.py",
        bytes_of=megatron,
    ),
)


def can_describe(run: Run) -> bool:
    """Whether a run is one that these formulas are for: AdamW, and nothing newer recomputed."""
    return str(run.switches.optimizer) == "adamw" and run.recompute is not Recompute.MATMULS
