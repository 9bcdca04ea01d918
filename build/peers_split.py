"""Megatron-LM's own report for a run that is split, written anew from what it publishes."""

from __future__ import annotations

from fractions import Fraction

from training_memory.megatron.shape import padded_vocabulary
from training_memory.run import Run


def megatron_report(run: Run) -> int:
    """``megatron/training/theoretical_memory_usage.py``, with sequence parallelism.

    18 bytes a parameter of the fullest stage, or 6 + 12/d with the distributed optimizer. A layer
    s·b·h·(18 + 4·f/h), whatever is recomputed, and for each micro-batch of the first stage token
    ids, 8·s·b, and the embedding's dropout, s·b·h; without a pipeline 4·s·b·(h + V) for the head
    and the loss. All of it divided by the tensor-parallel GPUs.
    """
    model, layout = run.model, run.layout
    h, stages = model.hidden, layout.pipeline
    # 1 for an RMSNorm, and half as many numbers again for a gated feed-forward layer.
    layer = 2 * h * (Fraction(3, 2) * model.ffn + 1)
    layer += 2 * h * h * (1 + Fraction(model.kv_heads, model.heads))
    table = padded_vocabulary(run) * h
    parameters = (layer * model.layers + h) / stages + table
    if stages == 1 and not model.tied:
        parameters += table
    each = 6 + Fraction(12, layout.data) if layout.zero else Fraction(18)
    rows = run.sequence * run.micro_batch
    kept = rows * (18 * h + 4 * model.ffn) * model.layers + rows * (8 + h) * stages
    activations = kept * min(Fraction(1), Fraction(run.micro_batches, stages))
    if stages == 1:
        activations += 4 * rows * (h + padded_vocabulary(run))
    return int((parameters * each + activations) / layout.tensor)
