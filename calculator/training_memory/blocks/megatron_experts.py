"""Megatron's mixture of experts on one of the GPUs that share it, operation by operation.

Megatron-Core 0.16, core/transformer/moe/: ``MoELayer``, ``TopKRouter`` in fp32 with the balancing
loss, ``MoEAlltoAllTokenDispatcher`` with Transformer Engine's permutations, ``TEGroupedMLP`` and
``SharedExpertMLP``. Variables are held as long as Megatron's are.
"""

from __future__ import annotations

from ..autograd import operations as op
from ..autograd.operations import experts as moe
from ..autograd.operations import transformer_engine as te
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..formula import Formula, as_formula, product, symbol
from ..records import dataclass
from . import megatron_permutation as unfused
from .sizes import OWN_CHOSEN, OWN_SCORES, SENT, TOKENS

#: Experts, those on this GPU, and the GPUs that exchange tokens.
EXPERTS, HERE, AROUND = symbol("x"), symbol("j"), symbol("i")
#: Where each token goes: for each expert twice, and how many.
OWN_PLACES = product((2, "z", "b", "x")) + product(("z", "b"))
#: What reaches this GPU of the others, and with what those that share its experts were sent.
RECEIVED_ROWS, RECEIVED = symbol("D"), product(("D", "h"))
ROWS_HERE, TOKENS_HERE = product(("n", "D")), product(("n", "D", "h"))
WIDE_HERE = product(("n", "D", "F"))
#: A shared expert's inner width.
SHARED_WIDE = product(("s", "b", "S"))
OWN = product(("z", "b"))
ONE = as_formula(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertStructure:
    """What decides the order of events in a mixture.

    ``exchanges``: tokens go to other GPUs' experts; ``shares``: several GPUs share each expert;
    ``sorts``: there are several experts on a GPU. ``shared`` is "none", "plain" or "gated" (by a
    learned gate). ``alone``: each micro-batch's backward pass follows its forward pass at once.
    ``fused``: tokens are put in order by Transformer Engine's kernels, or by PyTorch's operations.
    ``again``: the layer runs again in the backward pass; ``waits``: until then what is left of the
    backward pass before goes on being held.
    """

    exchanges: bool
    shares: bool
    sorts: bool
    shared: str
    alone: bool
    again: bool
    fused: bool = True
    waits: bool = False


class Dispatcher:
    """What a layer's dispatcher holds from one forward pass to the next."""

    __slots__ = ("counts", "known", "left", "places", "probabilities")

    def __init__(
        self,
        tape: Tape,
        structure: ExpertStructure,
        own: Formula,
        *,
        sent: bool,
        inputs: int = 1,
    ) -> None:
        # The chances lead back to what their layer began with, where it ran again; what a stage was
        # ``sent`` its schedule holds. A layer that predicts tokens further on has two ``inputs``.
        names = ("layer's gradient", "layer's input")[: 1 if sent else 2] * inputs
        names = names if structure.again else ()
        self.left = [tape.new(name, own, "bf16") for name in names]
        self.probabilities: Tensor | None = tape.new("chances", OWN_SCORES, "fp32")
        self.known: Tensor | None = tape.new("chosen experts", OWN_SCORES, "bool")
        self.places: Tensor | None = None
        if structure.alone:
            self.places = _places(tape, structure)
        # Without fused kernels they are read on the CPU.
        counts = structure.sorts and structure.fused
        self.counts: Tensor | None = _counts(tape, structure) if counts else None


def _places(tape: Tape, structure: ExpertStructure) -> Tensor:
    if structure.fused:
        return tape.new("places of the tokens", OWN_PLACES, "int32")
    return tape.new("places of the tokens", OWN_CHOSEN, "int64")


def _counts(tape: Tape, structure: ExpertStructure) -> Tensor:
    numel = product(("i", "n", "j")) if structure.exchanges or structure.shares else EXPERTS
    return tape.new("tokens of each expert, by GPU", numel, "int64")


def mixture(
    tape: Tape,
    x: Tensor,
    w: Weights,
    structure: ExpertStructure,
    dispatcher: Dispatcher,
    gathered: Formula | None,
) -> Tensor:
    """``MoELayer``; ``gathered`` are the numbers of all tokens where each GPU has its own."""
    own = x.numel
    shared = _shared(tape, x, w, structure, gathered) if structure.shared != "none" else None
    with tape.module("router"):
        probabilities, chosen = _routed(tape, x, w)
    with tape.module("experts"):
        dispatcher.probabilities = probabilities
        if tape.gradients_on is structure.waits:
            dispatcher.left.clear()
        dispatcher.known = chosen
        _count(tape, structure, dispatcher)
        # Where a later micro-batch comes first, its places are held when these are given back.
        if structure.fused:
            places = _places(tape, structure)
            tape.new("counts of each thousand tokens", EXPERTS, "int32")
            sent, chances = moe.permuted(tape, x, probabilities, places, (SENT, OWN_CHOSEN))
        else:
            sent, chances, places = unfused.permuted(tape, x, probabilities)
        del probabilities, chosen
        if structure.alone:
            dispatcher.places = places
        came = sent
        if structure.exchanges:
            came = moe.moved(tape, sent, RECEIVED, "tokens from all GPUs")
            chances = moe.moved(tape, chances, RECEIVED_ROWS, "their chances")
        output = _experts(tape, came, chances, w, structure)
        if structure.exchanges:
            output = moe.moved(tape, output, SENT, "results sent back")
        put_back = moe.unpermuted if structure.fused else unfused.unpermuted
        result = put_back(tape, output, places, own)
        if shared:
            result = op.add(tape, result, shared, "with the shared expert")
        del output, sent, came, chances, shared
        return result


def _routed(tape: Tape, x: Tensor, w: Weights) -> tuple[Tensor, Tensor]:
    """``TopKRouter``: each token's chance for each expert, zero but for the chosen, and which."""
    scores = moe.routing_product(tape, x, w("router", "x", "h"), OWN_SCORES)
    values, places = op.highest(tape, scores, OWN_CHOSEN, "chosen scores")
    chances = op.softmax(tape, values)
    probabilities = moe.scattered_to(tape, chances, places, OWN_SCORES, "chances")
    chosen = _marked(tape)
    del values, chances, places
    if not tape.gradients_on:
        return probabilities, chosen
    # The balancing loss looks at all experts, and at how many tokens chose each.
    every = op.softmax(tape, scores)
    values = tape.new("highest chances", OWN_CHOSEN, "fp32")
    places = tape.new("highest chances' places", OWN_CHOSEN, "int64")
    again = _marked(tape)
    del values, places
    counts = tape.new("tokens of each expert", EXPERTS, "int64")
    sums = op.summed(tape, every, EXPERTS, "chances of each expert")
    del every
    weighted = moe.times_counts(tape, sums, counts)
    total = op.summed(tape, weighted, ONE, "sum")
    del weighted
    loss = moe.times_counts(tape, total, None)
    del total, sums
    tape.new("balancing loss, to be told", ONE, "fp32")
    probabilities = moe.with_loss(tape, probabilities, loss)
    del again, scores, loss, counts
    return probabilities, chosen


def _marked(tape: Tape) -> Tensor:
    zeros = tape.new("zeros", OWN_SCORES, "fp32")
    numbers = tape.new("zeros", OWN_SCORES, "int32")
    del zeros
    ones = tape.new("ones at the chosen", OWN_SCORES, "int32")
    del numbers
    marked = tape.new("chosen experts", OWN_SCORES, "bool")
    del ones
    return marked


def _count(tape: Tape, structure: ExpertStructure, dispatcher: Dispatcher) -> None:
    """``MoEAlltoAllTokenDispatcher.preprocess``: how many tokens go where."""
    local = tape.new("tokens of each expert", EXPERTS, "int64")
    if not (structure.exchanges or structure.shares):
        if structure.sorts and structure.fused:
            dispatcher.counts = local
        return
    to_each = tape.new("tokens to each GPU", AROUND, "int64")
    every = tape.new("the same of all GPUs", product(("x", "i", "n")), "int64")
    here = _counts(tape, structure)
    of_each = tape.new("tokens from each GPU", product(("i", "n")), "int64")
    shares = tape.new("tokens of those that share", symbol("n"), "int64")
    in_all = tape.new("tokens of each expert here", HERE, "int64")
    if structure.sorts and structure.fused:
        dispatcher.counts = here
    del local, every, to_each, of_each, shares, in_all


def _experts(
    tape: Tape, tokens: Tensor, chances: Tensor, w: Weights, structure: ExpertStructure
) -> Tensor:
    """``routed_experts_compute``."""
    here, weights = tokens, chances
    if structure.shares:
        here = moe.moved(tape, here, TOKENS_HERE, "tokens of all that share")
        weights = moe.moved(tape, weights, ROWS_HERE, "their chances")
    if structure.sorts:
        sort = moe.sorted_chunks if structure.fused else unfused.sorted_chunks
        here, sorted_ = sort(tape, here, weights, ROWS_HERE)
        assert sorted_ is not None
        weights = sorted_
    inner = moe.grouped_linear(
        tape, here, w("experts' gate and up", "j", 2, "F", "h"), WIDE_HERE * 2, "gate and up"
    )
    active = moe.weighted_swiglu(tape, inner, weights, WIDE_HERE)
    made = moe.grouped_linear(tape, active, w("experts' down", "j", "h", "F"), TOKENS_HERE, "down")
    del inner, active
    return _put_back(tape, made, structure)


def _put_back(tape: Tape, made: Tensor, structure: ExpertStructure) -> Tensor:
    """``combine_preprocess``."""
    if structure.sorts:
        if structure.fused:
            order = tape.new("tokens of each GPU, by expert", product(("i", "n", "j")), "int64")
            made_again, _ = moe.sorted_chunks(tape, made, None, ROWS_HERE)
            del order
        else:
            made_again, _ = unfused.sorted_chunks(tape, made, None, ROWS_HERE)
    else:
        made_again = made
    if structure.shares:
        # The chances' dtype is what the sum over the GPUs is made in.
        wide = moe.moved(tape, made_again, TOKENS_HERE, "results in fp32", "fp32")
        summed = moe.moved(tape, wide, RECEIVED, "results summed")
        del wide
        made_again = moe.moved(tape, summed, RECEIVED, "results in 16 bits", "bf16")
        del summed
    return made_again


def _shared(
    tape: Tape, x: Tensor, w: Weights, structure: ExpertStructure, gathered: Formula | None
) -> Tensor:
    """``SharedExpertMLP``."""
    scattered = x.numel if gathered else None
    with tape.module("shared expert"):
        inner = moe.column_linear(
            tape, x, w("shared gate and up", 2, "S", "h"), SHARED_WIDE * 2, "gate and up", gathered
        )
        inner = te.activated(tape, op.view(tape, inner), SHARED_WIDE, "SwiGLU output")
        made = te.linear_and_scatter(
            tape, inner, w("shared down", "h", "S"), TOKENS, "down", scattered=scattered
        )
        if structure.shared == "plain":
            return made
        gate = op.linear(tape, op.view(tape, x), w("shared gate", "h"), OWN, "gate")
        chance = op.from_output(tape, gate, "sigmoid", "gate, between 0 and 1")
        return op.multiply(tape, made, chance, "gated")
