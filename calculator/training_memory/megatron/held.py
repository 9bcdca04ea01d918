"""What a GPU of a Megatron run holds from one step to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..blocks.ledger import Recompute
from ..categories import Category
from ..held import Held
from ..implementations import Implementation
from ..layouts import rounded
from ..rank import Rank
from ..run import Run
from ..switches import Fusion
from .buffers import EXPERTS, TABLES, Block, Buffer, buffer, named, of_products, part_weights
from .shape import dense_layers, further_layers, mixed_layers, routed_layers, values

FP32_BYTES = 4
BF16_BYTES = 2
INT64_BYTES = 8


def held_rows(run: Run, rank: Rank) -> tuple[Held, ...]:
    """Every row, as the allocator counts."""
    rows = _of_nanotron if run.implementation is Implementation.NANOTRON else _rows
    return tuple(Held(name=n, category=c, bytes=b, why=w) for n, c, b, w in rows(run, rank) if b)


_Row = tuple[str, Category, int, str]


def _rows(run: Run, rank: Rank) -> Iterator[_Row]:
    parts = [part_weights(run, rank, part) for part in range(rank.parts)]
    shared_out = run.layout.zero > 0
    made = [one for blocks in parts for one in _buffers(run, rank, blocks)]
    everything = [block for blocks in parts for block in blocks]
    if shared_out:
        size = sum(rounded(BF16_BYTES * _numel(buckets)) for buckets in made)
        yield "weights, in one buffer", Category.WEIGHTS, size, WEIGHTS
    else:
        size = sum(
            block.times * count * rounded(BF16_BYTES * weight.numel)
            for block in everything
            for count, weight in block.weights
        )
        yield "weights", Category.WEIGHTS, size, WEIGHTS
    gradient_bytes = run.recipe.by_category[Category.GRADIENTS]
    main = sum(rounded(gradient_bytes * _numel(buckets)) for buckets in made)
    yield "main gradients, in one buffer", Category.GRADIENTS, main, GRADIENTS
    pieces = (piece for buckets in made for one in buckets for piece in one.pieces())
    own = sum(count * rounded(FP32_BYTES * numel) for count, numel in pieces)
    of_its_share = " of this GPU's share" if shared_out and run.layout.replicas > 1 else ""
    yield f"master copy{of_its_share}", Category.MASTER, own, MASTER
    yield f"first moment{of_its_share}", Category.OPTIMIZER, own, FIRST
    yield f"second moment{of_its_share}", Category.OPTIMIZER, own, SECOND
    shapes = {weight.shape for weight in of_products(everything, tied=run.model.tied)}
    empty = sum(rounded(BF16_BYTES * height * width) for height, width in shapes)
    yield "gradients that say nothing", Category.TEMPORARY, empty, EMPTY
    known = values(run)
    if rank.is_last and run.layout.sequence_parallel:
        gathered = rounded(BF16_BYTES * known["s"] * known["b"] * known["h"])
        yield "buffer for the head's gathered input", Category.TEMPORARY, gathered, GATHERED
    if run.model.latent:
        # Each layer has cosines and sines of its own.
        further = run.switches.mtp_layers if rank.is_last else 0
        angles = (rank.layers + further) * 2 * rounded(BF16_BYTES * known["s"] * known["E"])
    elif run.model.positions:
        angles = 0
    else:
        angles = rank.parts * rounded(FP32_BYTES * known["s"] * known["e"])
    yield "rotary angles", Category.ACTIVATIONS, angles, ANGLES
    if mixed := sum(routed_layers(run, rank, part) for part in range(rank.parts)):
        yield from _of_the_last_routing(run, rank, mixed)
    if run.model.experts:
        yield "scale of the balancing loss", Category.ACTIVATIONS, rounded(FP32_BYTES), BALANCE
    if further := run.switches.mtp_layers:
        losses = rounded(FP32_BYTES) + rank.is_last * rounded(FP32_BYTES * further)
        yield "losses of tokens further on", Category.ACTIVATIONS, losses, BALANCE
    yield "token counter", Category.ACTIVATIONS, rounded(FP32_BYTES), COUNTER


def _numel(buckets: Sequence[Buffer]) -> int:
    return sum(one.numel for one in buckets)


def _buffers(run: Run, rank: Rank, blocks: Sequence[Block]) -> Iterator[Sequence[Buffer]]:
    """A part's buffer, and that of its experts where each GPU has its own of them.

    Either in buckets that are shared out by themselves: an embedding that first and last stage both
    have is one, so that its gradients can be summed over the two.
    """
    layout, shared_out = run.layout, run.layout.zero > 0
    apart = run.model.experts > 0 and layout.expert > 1
    rest = named(blocks, EXPERTS, wanted=False) if apart else blocks
    buckets = [rest]
    names = TABLES[:1] if run.switches.mtp_layers else TABLES
    if shared_out and rank.stages > 1 and (run.model.tied or run.switches.mtp_layers):
        buckets = [named(rest, names, wanted=wanted) for wanted in (False, True)]
    yield [buffer(one, replicas=layout.replicas, shared_out=shared_out) for one in buckets if one]
    if apart:
        experts = named(blocks, EXPERTS, wanted=True)
        yield [buffer(experts, replicas=layout.expert_replicas, shared_out=shared_out)]


def _of_the_last_routing(run: Run, rank: Rank, mixed: int) -> Iterator[_Row]:
    """What the ``mixed`` layers' dispatchers hold."""
    known = values(run)
    experts, own = known["x"], known["z"] * known["b"]
    chances = rounded(FP32_BYTES * own * experts)
    yield "chances of the last tokens", Category.ACTIVATIONS, mixed * chances, ROUTED
    chosen = rounded(own * experts)
    yield "experts chosen for them", Category.ACTIVATIONS, mixed * chosen, ROUTED
    places = mixed * places_bytes(run)
    yield "places of the last tokens", Category.ACTIVATIONS, places, ROUTED
    around = known["i"] * known["n"] * known["j"]
    # Where either is in order already, both are one.
    one = 1 if known["j"] == 1 or known["i"] * known["n"] == 1 else 2
    order = one * rounded(INT64_BYTES * experts * known["n"])
    if known["j"] > 1:
        order += rounded(INT64_BYTES * around)
    if run.switches.permutation is not Fusion.UNFUSED:  # or else it is on the CPU
        yield "orders of the experts", Category.ACTIVATIONS, mixed * order, ORDERS
    sent = sum(_sent_bytes(run, rank, part) for part in range(rank.parts))
    if sent and run.recompute is not Recompute.FULL:
        yield "inputs from the stage before, their gradients", Category.ACTIVATIONS, sent, GRAPH
    if run.recompute is Recompute.FULL:
        # Those that predict tokens further on begin with two.
        further = further_layers(run, rank, rank.parts - 1)
        left = 2 * (mixed + further) * rounded(BF16_BYTES * own * known["h"])
        yield "layers' inputs and their gradients", Category.ACTIVATIONS, left, LEFT
    told = rounded(FP32_BYTES * run.model.layers)
    yield "balancing losses", Category.ACTIVATIONS, told, BALANCE


def _sent_bytes(run: Run, rank: Rank, part: int) -> int:
    """What a stage was sent, and its gradient, to which the graph of the last chances leads.

    Where layers run again, the gradient is one of theirs.
    """
    known, first = values(run), rank.stage == 0 and part == 0
    if first or not mixed_layers(run, rank, part):
        return 0
    if run.recompute is Recompute.FULL and dense_layers(run, rank, part):
        return 0
    times = 1 if run.recompute is Recompute.FULL else 2
    return times * rounded(BF16_BYTES * known["z"] * known["b"] * known["h"])


def left_of(run: Run, rank: Rank, part: int) -> int:
    """What a part's dispatchers hold from step to step and not from pass to pass.

    Its places, where those of several micro-batches in flight take turns, and what the graph of its
    last chances leads to.
    """
    return places_of(run, rank, part) + _sent_bytes(run, rank, part)


def places_of(run: Run, rank: Rank, part: int) -> int:
    """The places of a part's tokens, where those of several micro-batches take turns."""
    mixed = routed_layers(run, rank, part)
    if not mixed or rank.in_flight == 1 or run.recompute is Recompute.FULL:
        return 0
    return mixed * places_bytes(run)


def places_bytes(run: Run) -> int:
    """Where one layer's tokens go: for each expert two 32-bit numbers, and how many.

    Without fused kernels where each came from.
    """
    known = values(run)
    own = known["z"] * known["b"]
    if run.switches.permutation is Fusion.UNFUSED:
        return rounded(INT64_BYTES * own * known["k"])
    return rounded(FP32_BYTES * own * (2 * known["x"] + 1))


def _of_nanotron(run: Run, rank: Rank) -> Iterator[_Row]:
    """nanotron, src/nanotron/optim/gradient_accumulator.py and zero.py."""
    weights = [
        (block.times * count, weight.numel)
        for block in part_weights(run, rank)
        for count, weight in block.weights
    ]

    def rounded_all(item_bytes: int, over: int = 1) -> int:
        return sum(n * rounded(item_bytes * -(-numel // over)) for n, numel in weights)

    yield "weights", Category.WEIGHTS, rounded_all(BF16_BYTES), WEIGHTS
    numel = sum(n * numel for n, numel in weights)
    yield "gradients in fp32, in one buffer", Category.GRADIENTS, rounded(FP32_BYTES * numel), SUMS
    over = run.layout.data if run.layout.zero else 1
    master = rounded(FP32_BYTES * sum(n * -(-numel // over) for n, numel in weights))
    yield "master copy, in one buffer", Category.MASTER, master, MASTER
    moments = rounded_all(FP32_BYTES, over)
    yield "first moment", Category.OPTIMIZER, moments, FIRST
    yield "second moment", Category.OPTIMIZER, moments, SECOND
    known = values(run)
    angles = rank.layers * 2 * rounded(known["s"] * known["e"] // 2 * BF16_BYTES)
    yield "rotary angles, of every layer", Category.ACTIVATIONS, angles, ANGLES


SUMS = "When a backward pass is done, its 16-bit gradients are added to the sum here."
WEIGHTS = "Every product with a weight reads it."
GRADIENTS = (
    "Each product adds its weight's gradient to the sum here, so that small ones of many "
    "micro-batches are not lost."
)
MASTER = "A small update to a 16-bit weight is rounded away; it is added here instead."
FIRST = "The running mean of the gradient, which the update follows."
SECOND = "The running mean of the squared gradient, which scales the update."
EMPTY = (
    "A weight's gradient is in its main gradient already, but Megatron's hooks wait for one to "
    "arrive: Transformer Engine sends one empty tensor for each shape and keeps it."
)
GATHERED = "The head's product reads all tokens; the buffer in which they meet is kept."
ANGLES = "All layers turn queries and keys by the same angles, which are worked out once."
COUNTER = "The step counts its tokens on the GPU."
ROUTED = "Each layer's dispatcher holds what it routed last until it routes again."
LEFT = (
    "The last tokens' chances are held with the graph that made them, which began with these when "
    "the layer ran again."
)
GRAPH = "The last tokens' chances are held with the graph that made them, which began with these."
ORDERS = "The dispatcher puts what comes from each GPU together by expert, and apart again."
BALANCE = "The losses that keep experts evenly used are told after the step."
