"""The parameters of a stage, and the contiguous buffers in which Megatron keeps and shares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm

from ..layouts import Weight
from ..rank import Rank
from ..records import dataclass
from ..run import Run
from .shape import padded_vocabulary

#: Each parameter begins at a multiple of so many numbers in a buffer that is shared out, and the
#: buffer ends at one of the other (core/distributed/param_and_grad_buffer.py).
START_MULTIPLE = 64
END_MULTIPLE = 128


def part_weights(run: Run, rank: Rank, part: int = 0) -> tuple[Weight, ...]:
    """A part's parameter tensors on one GPU, in the order in which the modules have them."""
    model, tensor = run.model, run.layout.tensor
    hidden = model.hidden
    rows = padded_vocabulary(run) // tensor
    queries, keys = model.query_width // tensor, max(model.kv_heads // tensor, 1) * model.head_dim
    wide = model.ffn // tensor
    layer = [
        Weight(name="attention output", shape=(hidden, queries)),
        Weight(name="attention norm", shape=(hidden,)),
        Weight(name="query, key and value", shape=(queries + 2 * keys, hidden)),
    ]
    if model.qkv_bias:
        layer.append(Weight(name="query, key and value bias", shape=(queries + 2 * keys,)))
    layer += [
        Weight(name="mlp norm", shape=(hidden,)),
        Weight(name="gate and up", shape=(2 * wide, hidden)),
        Weight(name="down", shape=(hidden, wide)),
    ]
    found = layer * rank.layers_at_once
    first = rank.stage == 0 and part == 0
    if first:
        found.insert(0, Weight(name="embedding", shape=(rows, hidden), vocabulary=True))
    if rank.has_head(part):
        found.append(Weight(name="final norm", shape=(hidden,)))
        if not model.tied or not first:
            found.append(Weight(name="head", shape=(rows, hidden), vocabulary=True))
    return tuple(found)


def of_products(weights: Sequence[Weight], *, tied: bool) -> Iterator[Weight]:
    """The weights whose gradient is added to the main gradient by the product itself."""
    has_norm = any(weight.name == "final norm" for weight in weights)
    for weight in weights:
        # The embedding is looked up in; where it is the head as well, there is a product with it.
        if len(weight.shape) > 1 and (weight.name != "embedding" or (tied and has_norm)):
            yield weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Parameters side by side: how many numbers with what fills the gaps, and where each lies.

    With the distributed optimizer every GPU that holds the same parameters updates ``share`` of
    them; ``places`` are (begin, end).
    """

    numel: int
    share: int
    places: tuple[tuple[int, int], ...]

    def pieces(self) -> Iterator[int]:
        """The numbers of each parameter, or part of one, that the first GPU updates."""
        for begin, end in self.places:
            if piece := max(0, min(end, self.share) - begin):
                yield piece


def buffer(weights: tuple[Weight, ...], *, replicas: int, shared_out: bool) -> Buffer:
    """The buffer of these parameters, the last of them first (``_ParamAndGradBuffer``)."""
    begin, places = 0, []
    for weight in reversed(weights):
        if shared_out:
            begin = _up(begin, START_MULTIPLE)
        places.append((begin, begin + weight.numel))
        begin += weight.numel
    numel = _up(begin, lcm(replicas, END_MULTIPLE)) if shared_out else begin
    return Buffer(
        numel=numel, share=numel // replicas if shared_out else numel, places=tuple(places)
    )


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
