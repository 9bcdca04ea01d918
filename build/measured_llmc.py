"""What llm.c allocates for a step: train_gpt2.cu, fill_in_activation_sizes, gpt2_allocate_state.

llm.c is no PyTorch: all of it is allocated before the first step and stays. 16-bit weights,
gradients and activations, a 32-bit master copy and moments, GELU recomputed, attention by cuDNN.
"""

from __future__ import annotations

from training_memory import catalog

#: Bytes a parameter: weight, gradient, master copy, two moments.
STATES = 2 + 2 + 4 + 4 + 4


def allocated(*, model: str, vocabulary: int, sequence: int, micro_batch: int) -> int:
    """Bytes of everything that is allocated."""
    shape = catalog.with_shape(catalog.get(model), {"vocabulary": vocabulary})
    rows = sequence * micro_batch
    layers, h = shape.layers, shape.hidden
    # Of every layer: both norms' outputs, queries, keys and values, attention's and the residual's
    # (twice), and the widened features.
    kept = layers * (2 * h + 3 * h + 3 * h + 4 * h)
    # Once: the embedded tokens, the last norm's output, GELU's output, two scratch buffers, and the
    # largest of what the logits and the layers' gradients need.
    once = 2 * h + 4 * h + (4 * h + h) + max(3 * h, shape.heads * sequence, vocabulary)
    # In 32 bits: means and inverse deviations, cuDNN's statistics of each head, the losses.
    wide = layers * (4 + shape.heads) + 2 + 1
    activations = rows * (2 * (kept + once) + 4 * wide)
    return activations + STATES * shape.parameters.total
