"""FSDP2: units that are gathered when they are needed, and whose gradients are scattered.

As torch/distributed/fsdp/_fully_shard of PyTorch 2.13 does it (_fsdp_state.py,
_fsdp_param_group.py, _fsdp_collectives.py), hook by hook: what each variable holds, and until when,
is memory. Streams overlap in time, but the allocator counts memory from when it is asked for, which
is in the order of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..categories import Category
from ..formula import symbol
from ..splitting import Splitting, symbol_of
from .memory import NOWHERE, WORKING, Storage
from .tape import Tape
from .tensors import Grads, OfAllGpus, Parameter, Tensor
from .units import Units

#: A unit's weights, as far as the layers' code has named them.
Weights = Callable[[], Sequence[Parameter]]

IDLE, FORWARD, BEFORE_BACKWARD, AFTER_BACKWARD = range(4)


class Unit:
    """Weights that are gathered, freed and reduced together."""

    __slots__ = (
        "gathered",
        "grad",
        "index",
        "kind",
        "pending",
        "places",
        "reduced",
        "reshards",
        "state",
        "sums",
        "weights",
    )

    def __init__(self, kind: str, index: int, weights: Weights, *, reshards: bool) -> None:
        self.kind = kind
        self.index = index
        self.weights = weights
        self.reshards = reshards
        self.state = IDLE
        #: What a gather has written that is not yet copied out.
        self.pending: Storage | None = None
        self.gathered: Storage | None = None
        self.grad: Storage | None = None
        self.reduced: Storage | None = None
        #: Whole gradients of earlier micro-batches that wait to be reduced, by weight.
        self.sums: dict[str, Tensor] = {}
        #: Where in the order of forward passes it was.
        self.places: list[int] = []

    @property
    def name(self) -> str:
        """As the words of an event call it."""
        return _NAMES[self.kind]


class FullySharded(Units):
    """All units of a model, and what they share."""

    keeps_gradients = False

    def __init__(
        self,
        tape: Tape,
        splitting: Splitting,
        outer: Callable[[str], Sequence[Parameter]],
        layers: Sequence[Weights],
        *,
        has: Sequence[str],
        tied: bool,
        drops: bool = False,
    ) -> None:
        """``outer`` gives the weights of a unit around the layers, of which there are ``has``.

        With ``drops`` each weight is updated as its gradient is reduced, or the gradient is copied
        to the CPU, and goes then (_fsdp_collectives.py, foreach_reduce:
        _post_accumulate_grad_hooks, offload_to_cpu).
        """
        self.drops = drops
        self.tape = tape
        self.splitting = splitting
        ends = splitting.wrap != "layers"
        # With the ends apart the rest stays gathered: PyTorch's own rule for the root.
        reshards = {
            "root": splitting.reshards and not ends,
            "embedding": splitting.reshards,
            "tail": False,
        }
        self.units = {
            (kind, 0): Unit(kind, 0, _weights(outer, kind), reshards=reshards[kind])
            for kind in has
            if kind != "layer"
        }
        for index, weights in enumerate(layers):
            self.units["layer", index] = Unit("layer", index, weights, reshards=splitting.reshards)
        self.layers = len(layers)
        #: A unit whose head is its embedding begins where the embedding does.
        self.early_tail = tied and ends
        #: The gather before the latest one, until that is copied out (overlap in forward).
        self.last_gather: Storage | None = None
        #: What the last reduction reads, until the next one begins.
        self.reducing: Storage | None = None
        self.order: list[Unit] = []

    # -- forward -------------------------------------------------------------------------------

    def begin(self) -> None:
        """The root gathers what is its own."""
        self._enter(self.units.get(("root", 0)))

    def start(self, unit: str) -> None:
        """_pre_forward, with an input that has no gradient."""
        self._enter(self.units.get(("tail" if self.early_tail else unit, 0)))

    def before(self, unit: str, x: Tensor, index: int = 0) -> Tensor:
        """_pre_forward: gather, copy out, and note when the backward pass is through."""
        if unit == ("tail" if self.splitting.wrap == "head" else "head"):
            return x  # the tail begins after the last norm, or with it
        one = self.units.get(("tail" if unit == "head" else unit, index))
        if one is None or self.tape.replays:
            return x  # or gathered for the backward pass already
        entered = one.state == FORWARD
        self._enter(one)
        if self.splitting.explicit and unit == "layer" and index + 1 < self.layers:
            self._gather(self.units["layer", index + 1])
        return x if entered else self._through(one, x)

    def after(self, unit: str, output: Tensor, index: int = 0) -> None:
        """_post_forward: free the weights, and gather them again when the gradient comes."""
        one = self.units.get((unit, index))
        if one is not None and not self.tape.replays:
            self._leave(one, output)

    def end(self, *outputs: Tensor) -> None:
        """The root's _post_forward, and of a unit of which not every module was called."""
        root = self.units.get(("root", 0))
        if root is not None:
            self._leave(root, *outputs)
        for one in self.units.values():
            if one.state == FORWARD:
                self._leave(one, *outputs)
        self.last_gather = None

    def _enter(self, one: Unit | None) -> None:
        if one is not None:
            one.state = FORWARD
            self._gather(one)
            self._copy_out(one, forward=True)

    def _leave(self, one: Unit, *outputs: Tensor) -> None:
        if one.reshards:
            one.gathered = None
        one.places.append(len(self.order))
        self.order.append(one)
        for output in outputs:
            if output.edge is not None:
                self.tape.call_before_backward(output, self._before_backward(one))
        one.state = IDLE

    def _through(self, one: Unit, x: Tensor) -> Tensor:
        """RegisterPostBackwardFunction: an operation that does nothing but be last in backward."""

        def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
            self._after_backward(one)
            return list(grads)

        y = x.view()
        self.tape.attach(self.tape.node("unit", [x], backward), y)
        return y

    # -- gathering -------------------------------------------------------------------------------

    def _gather(self, one: Unit) -> None:
        """foreach_all_gather."""
        if one.pending is not None or one.gathered is not None:
            return
        shard = None
        if self.splitting.casts or self.splitting.away:
            # From the CPU each weight comes by itself, as it is kept, and is cast before the next
            # (_fsdp_param.py, all_gather_inputs): what that takes the gathered shards take after.
            shard = self._take(one, "i", SHARD[self.splitting.away], GATHER)
        one.pending = self._take(one, "o", "gathered shards", GATHER)
        del shard

    def _copy_out(self, one: Unit, *, forward: bool) -> None:
        """wait_for_unshard: every weight to memory of its own."""
        if one.pending is None:
            return
        before = self.last_gather  # a variable of PyTorch's function holds it until that returns
        one.gathered = self._take(one, "u", "whole weights", WHOLE)
        if forward:
            self.last_gather = one.pending
        one.pending = None
        del before

    def _take(self, one: Unit, letter: str, what: str, why: str) -> Storage:
        with self.tape.as_category(WORKING):
            made = self.tape.storage(
                f"{one.name}'s {what}", symbol(symbol_of(one.kind, letter)), "bool"
            )
        facts = self.tape.facts[made.number]
        facts.why = why
        if one.kind == "layer":
            # It is this layer's, though another one may gather it.
            facts.part = ("layer", one.index)
        return made

    # -- backward ----------------------------------------------------------------------------------

    def _before_backward(self, one: Unit) -> Callable[[], None]:
        return lambda: self._gather_again(one)

    def _gather_again(self, one: Unit) -> None:
        """pre_backward, and the gather of the unit before it in the order of forward passes."""
        if one.state == BEFORE_BACKWARD:
            return
        one.state = BEFORE_BACKWARD
        self._gather(one)
        self._copy_out(one, forward=False)
        if self.splitting.explicit and one.kind == "layer" and one.index:
            self._gather(self.units["layer", one.index - 1])
        elif one.places and (place := one.places.pop()):
            self._gather(self.order[place - 1])

    def _after_backward(self, one: Unit) -> None:
        """post_backward: free the weights, reduce the gradients."""
        one.state = AFTER_BACKWARD
        for weight in one.weights():
            if weight.name in one.sums and weight.grad is not None:
                weight.grad = None  # added in place
        if not self.reduces:
            self._wait(one)
            return
        gradients = dict[str, Tensor]()
        for weight in one.weights():
            gradient = one.sums.pop(weight.name, weight.grad)
            if gradient is not None:
                gradients[weight.name] = self._as_weight(weight, gradient)
                weight.grad = gradient = None
        one.gathered = None
        self.reducing = None
        if not gradients:
            return
        one.reduced = None
        # A variable of foreach_reduce's loop holds the last of them until it returns.
        last = gradients[_last_of(one.kind, list(gradients))]
        given = self._take(one, "r", "gradients, side by side", REDUCE)
        # There is one at a time: the next layer's takes the place of this one's.
        self.tape.facts[given.number].part = NOWHERE
        gradients.clear()
        share = self._take(one, "q", "reduced gradients", REDUCE)
        if self.splitting.replicated:
            one.reduced = share
        if self.splitting.recasts:
            share = self._take(one, "z", "reduced gradients, cast", REDUCE)
        if one.grad is None and not self.drops:
            self.tape.count_as(share, Category.GRADIENTS)
            one.grad = share
        self.reducing = given
        del last

    def _wait(self, one: Unit) -> None:
        """Keep whole gradients for the next micro-batch, in the dtype to reduce them in.

        _fsdp_param.py, to_accumulated_grad_if_needed: where that is the gradients' own, autograd
        adds to them itself.
        """
        one.gathered = None
        for weight in one.weights():
            if weight.grad is None:
                continue
            if self.splitting.widens:
                name = f"gradient of {weight.name}, whole"
                # With the rows of all tensor-parallel GPUs, if it has them.
                numel = self.tape.facts[weight.grad.storage.number].numel
                every = isinstance(weight.grad, OfAllGpus)
                made = self.tape.new(name, numel if every else weight.numel, "fp32")
                if every:
                    made = OfAllGpus(made.storage, weight.numel, made.dtype)
                one.sums[weight.name] = made
                del made
                weight.grad = None
            kept = one.sums.get(weight.name, weight.grad)
            assert kept is not None
            self.tape.count_as(kept.storage, Category.GRADIENTS)

    def _as_weight(self, weight: Parameter, gradient: Tensor) -> Tensor:
        """_get_grad_inner_tensor: the gradient of this GPU's part of a weight that GPUs share.

        Of the embedding's it takes its own rows; a norm of some of the tokens is summed over GPUs.
        """
        own = isinstance(gradient, OfAllGpus)
        partial = self.splitting.sequence and "norm" in weight.name
        if not own and not partial:
            return gradient
        with self.tape.as_category(WORKING):
            name = f"gradient of {weight.name}, its own"
            return self.tape.new(name, weight.numel, gradient.dtype)

    def finish(self) -> None:
        """_root_post_backward_final_callback: what no operation of the graph was last for."""
        self.tape.mark("backward", "rest")
        for one in self._as_modules_come():
            if one.state != AFTER_BACKWARD:
                self._after_backward(one)
            one.state = IDLE
            one.reduced = None
            one.pending = None
            one.places.clear()
        self.order.clear()
        self.reducing = None

    def _as_modules_come(self) -> Sequence[Unit]:
        """Root, embedding, layers, tail: the order in which the model has its modules."""
        kinds = ("root", "embedding", "layer", "tail")
        if self.early_tail:
            kinds = ("root", "tail", "embedding", "layer")
        return [one for kind in kinds for one in self.units.values() if one.kind == kind]


def _last_of(kind: str, names: Sequence[str]) -> str:
    """Which of a unit's weights the model has last, as its modules come."""
    if kind == "layer":
        # Norms come after attention and the feed-forward layer, whose weights alone have adapters.
        return next((name for name in reversed(names) if name.endswith("norm")), names[-1])
    after = ("head bias", "head", *(("embedding",) if kind == "tail" else ()), "final norm bias")
    return next((name for name in (*after, "final norm") if name in names), names[-1])


def _weights(outer: Callable[[str], Sequence[Parameter]], kind: str) -> Weights:
    return lambda: outer(kind)


_NAMES = {
    "root": "model",
    "embedding": "embedding",
    "layer": "layer",
    "tail": "head",
}
SHARD = ("shard, cast", "shard, brought back")
GATHER = "Each GPU holds a shard of the weights; all of them are brought together to compute."
WHOLE = "The unit's operations read whole weights."
REDUCE = "Gradients are summed over the GPUs, and each keeps the sum for its own shard."
