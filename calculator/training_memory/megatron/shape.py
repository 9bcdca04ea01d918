"""A run's numbers as one GPU of Megatron's has them, and what decides the order of its step."""

from __future__ import annotations

from collections.abc import Mapping

from ..blocks.megatron import StageStructure
from ..implementations import Implementation
from ..run import Run

#: ``--make-vocab-size-divisible-by``, for each of the GPUs that share the vocabulary.
VOCABULARY_MULTIPLE = 128


def padded_vocabulary(run: Run) -> int:
    """The vocabulary's rows, up to what divides evenly (``_vocab_size_with_padding``)."""
    each = 1 if run.implementation is Implementation.NANOTRON else VOCABULARY_MULTIPLE
    multiple = each * run.layout.tensor
    return -(-run.model.vocabulary // multiple) * multiple


def values(run: Run) -> Mapping[str, int]:
    """The run's numbers on one GPU under the symbols of its recording."""
    model, layout = run.model, run.layout
    tokens = run.sequence // layout.context
    return {
        "L": model.layers,
        "a": model.heads // layout.tensor,
        "s": tokens,
        "z": tokens // layout.tensor if layout.sequence_parallel else tokens,
        "b": run.micro_batch,
        "h": model.hidden,
        "g": max(model.kv_heads // layout.tensor, 1),
        "e": model.head_dim,
        "f": model.ffn // layout.tensor,
        "V": padded_vocabulary(run) // layout.tensor,
        "t": layout.tensor,
        "C": layout.context,
    }


def structure(run: Run, *, first: bool, last: bool) -> StageStructure:
    """The order of the events of a part of the model that has the embedding, or the head."""
    model, layout = run.model, run.layout
    return StageStructure(
        split=layout.tensor > 1,
        shares_tokens=layout.sequence_parallel and layout.tensor > 1,
        first=first,
        last=last,
        tied=model.tied,
        grouped=model.kv_heads != model.heads,
        one_sequence=run.micro_batch == 1,
        qkv_bias=model.qkv_bias,
        recompute=str(run.recompute),
        loss=str(run.switches.loss),
        context=str(layout.context_exchange) if layout.context > 1 else "none",
        style=str(run.implementation),
    )
