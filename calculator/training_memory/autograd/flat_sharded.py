"""FSDP's first version: flat weights that are gathered whole, and whose gradient is scattered.

As torch/distributed/fsdp of PyTorch 2.13 does it (_runtime_utils.py, _flat_param.py), hook by hook.
A unit's weights are views of one flat weight, which is gathered into memory that is given back by
resizing it. Their gradients wait for each other, are put side by side, and only then reduced.
Streams overlap in time; memory counts from when it is asked for, in the order of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..categories import Category
from ..formula import symbol
from ..splitting import Splitting, symbol_of
from .fully_sharded import GATHER, REDUCE, WHOLE
from .memory import WORKING
from .tape import Tape
from .tensors import Edge, Grads, Node, Parameter, Tensor
from .units import Units


class FlatUnit:
    """Weights that are one flat weight."""

    __slots__ = (
        "ahead",
        "began",
        "brought",
        "flat",
        "index",
        "kind",
        "needed",
        "node",
        "place",
        "share",
        "slots",
        "whole",
    )

    def __init__(self, kind: str, index: int, dtype: str) -> None:
        self.kind = kind
        self.index = index
        numel = symbol(symbol_of(kind, "n"))
        self.flat = Parameter(f"{_NAMES[kind]}'s flat weights", numel, dtype)
        #: The views of it: their gradients come here, each in a slot of its own.
        self.node: Node | None = None
        self.slots: dict[str, int] = {}
        self.whole: Tensor | None = None
        self.share: Tensor | None = None
        #: The share from the CPU, of which the model's own weights are views until they go back.
        self.brought: Tensor | None = None
        #: Gathered before its own turn (_prefetched).
        self.ahead = False
        #: To be gathered in this backward pass (_needs_pre_backward_unshard), and there already.
        self.needed = False
        self.began = False
        #: Where in the order of forward passes it was.
        self.place = 0

    def edge_of(self, name: str) -> Edge:
        """Where the gradient of a weight that is a part of it goes."""
        assert self.node is not None
        slot = self.slots.setdefault(name, len(self.slots))
        self.node.outputs = len(self.slots)
        return self.node, slot


class FlatSharded(Units):
    """All units of a model: each layer, and the whole with what is left."""

    keeps_gradients = False
    outside = True

    def __init__(self, tape: Tape, splitting: Splitting, layers: int, dtype: str) -> None:
        self.tape = tape
        self.splitting = splitting
        #: The dtypes to compute in, to reduce in and to keep.
        self.dtype = dtype
        self.kept = "fp32" if splitting.casts else dtype
        self.reduced = self.kept if splitting.casts and not splitting.recasts else dtype
        self.root = FlatUnit("root", 0, dtype)
        self.layers = [FlatUnit("layer", index, dtype) for index in range(layers)]
        for one in (self.root, *self.layers):
            one.flat.arrived = partial(self._after_backward, one)
        self.order: list[FlatUnit] = []

    # -- forward -------------------------------------------------------------------------------

    def begin(self) -> None:
        """_root_pre_forward, and the root's own _pre_forward."""
        self._enter(self.root, self.layers[0])

    def before(self, unit: str, x: Tensor, index: int = 0) -> Tensor:
        """_pre_forward_unshard: gather, and after it the next layer, if told so."""
        if unit == "layer":
            following = self.layers[index + 1] if index + 1 < len(self.layers) else None
            self._enter(self.layers[index], following)
        return x

    def after(self, unit: str, output: Tensor, index: int = 0) -> None:
        """_post_forward: free what is gathered; the gradient of an output has it gathered again."""
        if unit == "layer":
            one = self.layers[index]
            if self.splitting.reshards or self.splitting.copied:
                one.whole = None
            self._leave(one, output)

    def end(self, *outputs: Tensor) -> None:
        """The root's _post_forward: what it gathered stays for the backward pass to begin with."""
        self._leave(self.root, *outputs)

    def close(self) -> None:
        """A whole copy in 16 bits goes all the same (post_reshard)."""
        if self.splitting.copied:
            self.root.whole = None

    def _enter(self, one: FlatUnit, following: FlatUnit | None) -> None:
        for wanted in (one, following if self.splitting.forward else None):
            if wanted is not None and not wanted.ahead:
                self._unshard(wanted)
                # Its views are made anew: their gradients go to them.
                wanted.slots.clear()
                wanted.node = self.tape.node(
                    "flat weights", [wanted.flat], partial(self._side_by_side, wanted)
                )
                assert wanted.node is not None
                wanted.node.outputs = 0
                wanted.ahead = wanted is not one

    def _leave(self, one: FlatUnit, *outputs: Tensor) -> None:
        one.place = len(self.order)
        self.order.append(one)
        one.ahead, one.began, one.needed = False, False, True
        if self.splitting.reshards:
            one.brought = None
        for output in outputs:
            if output.edge is not None:
                self.tape.call_before_backward(output, partial(self._before_backward, one))

    # -- gathering -------------------------------------------------------------------------------

    def _unshard(self, one: FlatUnit) -> None:
        """pre_unshard, unshard and post_unshard of FlatParamHandle."""
        split = self.splitting
        shard = None
        if split.away or (split.casts and (split.copied or one.whole is None)):
            dtype = self.dtype if split.casts else self.kept
            shard = self._take(one, "m" if split.copied else "d", CAST, dtype, GATHER)
            if split.away and split.casts:
                self._take(one, "d", "share, brought back", self.kept, GATHER)
        if split.views:
            one.brought = shard
        if split.copied:
            one.whole = shard
        elif split.shares and one.whole is None:
            one.whole = self._take(one, "m", "whole weights", self.dtype, WHOLE)
        del shard

    def _take(self, one: FlatUnit, letter: str, what: str, dtype: str, why: str) -> Tensor:
        with self.tape.as_category(WORKING):
            numel = symbol(symbol_of(one.kind, letter))
            made = self.tape.new(f"{_NAMES[one.kind]}'s {what}", numel, dtype)
        return self._belongs(one, made, why)

    def _belongs(self, one: FlatUnit, made: Tensor, why: str) -> Tensor:
        facts = self.tape.facts[made.storage.number]
        facts.why = why
        if one.kind == "layer":
            # It is this layer's, though another one may gather it.
            facts.part = ("layer", one.index)
        return made

    # -- backward ----------------------------------------------------------------------------------

    def _before_backward(self, one: FlatUnit) -> None:
        """_pre_backward_hook: of several outputs the first one's."""
        if one.began:
            return
        one.began = True
        if not one.ahead:
            self._unshard(one)
        one.needed = False
        if self.splitting.backward == "pre":
            self._prefetch(one)

    def _prefetch(self, one: FlatUnit) -> None:
        """_prefetch_handle: what came before it in the order of forward passes."""
        before = self.order[one.place - 1] if one.place else None
        if before is not None and before.needed and not before.ahead:
            self._unshard(before)
            before.ahead = True

    def _side_by_side(self, one: FlatUnit, tape: Tape, grads: Grads) -> Sequence[Tensor]:
        """SplitWithSizesBackward: what pads the weights has a gradient of zeros."""
        zeros = None
        if self.splitting.zeros:
            numel = symbol(symbol_of(one.kind, "k"))
            zeros = self._belongs(one, tape.new("gradients of padding", numel, "bool"), BESIDE)
        made = tape.new(f"{_NAMES[one.kind]}'s gradients", one.flat.numel, one.flat.dtype)
        del zeros
        return (self._belongs(one, made, BESIDE),)

    def _after_backward(self, one: FlatUnit) -> None:
        """_post_backward_hook: free the weights, reduce the gradient."""
        split = self.splitting
        if split.copied or self.reduces or split.reshards:
            one.whole = None
        one.brought = None
        one.ahead = False
        if split.backward == "post":
            self._prefetch(one)
        computed = one.flat.grad
        assert computed is not None
        if not self.reduces:
            self.tape.count_as(computed.storage, Category.GRADIENTS)
            return
        if computed.dtype != self.reduced:
            one.flat.grad = self._take(one, "b", "gradients, cast", self.reduced, REDUCE)
        if split.shares:
            self._scatter(one)
        elif self.reduced != self.kept:
            one.flat.grad = self._take(one, "b", "reduced gradients, cast", self.kept, REDUCE)
        if not split.shares:
            assert one.flat.grad is not None
            self.tape.count_as(one.flat.grad.storage, Category.GRADIENTS)

    def _scatter(self, one: FlatUnit) -> None:
        """_reduce_grad."""
        split = self.splitting
        given, one.flat.grad = one.flat.grad, None
        padded = None
        if split.pads:
            padded = self._take(one, "g", "gradients, padded", self.reduced, REDUCE)
        share = self._take(one, "c", "reduced gradients", self.reduced, REDUCE)
        if self.reduced != self.kept:
            share = self._take(one, "c", "reduced gradients, cast", self.kept, REDUCE)
        if one.share is None:
            self.tape.count_as(share.storage, Category.GRADIENTS)
            one.share = share
        del padded, given

    def finish(self) -> None:
        """_post_backward_final_callback."""
        if self.splitting.away:
            self.tape.mark("backward", "rest")
        for one in (self.root, *self.layers):
            one.needed = one.ahead = False
            if self.splitting.away and self.reduces:
                one.share = None  # its copy on the CPU is the gradient
        self.order.clear()


_NAMES = {"root": "model", "layer": "layer"}
CAST = "share, as it is computed with"
BESIDE = "The gradients of a unit's weights are put side by side, as their flat weight has them."
