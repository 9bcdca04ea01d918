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
from .memory import NOWHERE, WORKING, PartOf
from .tape import Tape
from .tensors import Edge, Grads, Node, Parameter, Tensor
from .units import Units


class FlatUnit:
    """Weights that are one flat weight, in the ``dtype`` to compute in; ``kept`` in another."""

    __slots__ = (
        "ahead",
        "began",
        "brought",
        "dtype",
        "flat",
        "kept",
        "kind",
        "name",
        "needed",
        "node",
        "out",
        "part",
        "place",
        "share",
        "shown",
        "slots",
        "state",
        "whole",
    )

    def __init__(
        self, kind: str, name: str, part: PartOf, dtype: str, kept: str, *, trained: bool = True
    ) -> None:
        self.kind = kind
        self.name = name
        #: The layer whose it is; nowhere's is the model's.
        self.part = part
        self.dtype = dtype
        self.kept = kept
        numel = symbol(symbol_of(kind, "n"))
        self.flat = Parameter(f"{name}'s flat weights", numel, dtype, trainable=trained)
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
        #: Gathered, and not given back yet.
        self.out = False
        #: What happens to it (_training_state), as far as that matters: "back" as its backward
        #: pass has begun, and not ended.
        self.state = ""
        #: The dtype of the weight that the module has now.
        self.shown = dtype
        #: Where in the order of forward passes it was.
        self.place = 0

    @property
    def casts(self) -> bool:
        """Whether it is computed with in another dtype than it is kept in."""
        return self.dtype != self.kept

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

    def __init__(
        self, tape: Tape, splitting: Splitting, layers: int, dtype: str, adapters: str
    ) -> None:
        self.tape = tape
        self.splitting = splitting
        #: The dtypes to compute in, to reduce in and to keep, of what is trained: all weights, in
        #: ``dtype``, or ``adapters``, in that.
        self.dtype = adapters or dtype
        self.kept = "fp32" if splitting.casts else self.dtype
        self.reduced = self.kept if splitting.casts and not splitting.recasts else self.dtype
        kept, trained = (splitting.frozen, False) if adapters else (self.kept, True)
        self.root = FlatUnit("root", "model", NOWHERE, dtype, kept, trained=trained)
        self.layers = [
            FlatUnit("layer", "layer", ("layer", index), dtype, kept, trained=trained)
            for index in range(layers)
        ]
        #: The adapters' matrices, each of which is a unit, by their layer and their name.
        self.adapters: dict[tuple[PartOf, str], FlatUnit] = {}
        for one in (self.root, *self.layers):
            one.flat.arrived = partial(self._after_backward, one)
        self.order: list[FlatUnit] = []

    # -- forward -------------------------------------------------------------------------------

    def begin(self) -> None:
        """_root_pre_forward, and the root's own _pre_forward."""
        self._enter(self.root)

    def before(self, unit: str, x: Tensor, index: int = 0) -> Tensor:
        """_pre_forward_unshard: gather, and after it the next layer, if told so."""
        if unit == "layer":
            one = self.layers[index]
            self._enter(one)
            if not one.flat.trainable and x.edge is not None:
                self.tape.call_before_backward(x, partial(self._after_inputs, one))
        return x

    def after(self, unit: str, output: Tensor, index: int = 0) -> None:
        """_post_forward: free what is gathered; the gradient of an output has it gathered again."""
        if unit == "layer":
            one = self.layers[index]
            self._give_back(one)
            self._leave(one, output)

    def enter(self, weight: Parameter) -> None:
        """The same as before a layer, unless it runs again within its backward pass."""
        one = self._of_adapter(weight)
        if one.state != "back":
            self._enter(one)

    def leave(self, weight: Parameter, output: Tensor) -> None:
        """The same as after a layer."""
        one = self._of_adapter(weight)
        if one.state != "back":
            self._give_back(one)
            self._leave(one, output)

    def shown(self, weight: Parameter) -> str:
        """As it is kept, where the module has its own weight back between its passes."""
        return self._of_adapter(weight).shown

    def _of_adapter(self, weight: Parameter) -> FlatUnit:
        one = self._adapter(self.tape.part, weight.name)
        weight.flat = weight.flat or one.edge_of
        return one

    def _adapter(self, part: PartOf, name: str) -> FlatUnit:
        if (part, name) not in self.adapters:
            one = FlatUnit(name, name, part, self.dtype, self.kept)
            one.flat.arrived = partial(self._after_backward, one)
            one.shown = self.kept if self.splitting.originals else self.dtype
            self.adapters[part, name] = one
        return self.adapters[part, name]

    def _give_back(self, one: FlatUnit) -> None:
        """_post_forward_reshard."""
        if self.splitting.reshards or self._copied(one):
            one.whole = None
        if self.splitting.reshards or not self.splitting.shares:
            self._shows_its_own(one)

    def _shows_its_own(self, one: FlatUnit) -> None:
        if self.splitting.originals:
            one.shown = one.kept

    def _copied(self, one: FlatUnit) -> bool:
        """Whether each GPU has all of it, and a whole copy to compute with."""
        return one.casts and not self.splitting.shares

    def end(self, *outputs: Tensor) -> None:
        """The root's _post_forward: what it gathered stays for the backward pass to begin with."""
        self._leave(self.root, *outputs)

    def close(self) -> None:
        """A whole copy in 16 bits goes all the same (post_reshard)."""
        if self._copied(self.root):
            self.root.whole = None

    def _following(self, one: FlatUnit) -> FlatUnit | None:
        """Whose forward pass is the next, if that is gathered ahead (_prefetch_handle)."""
        if not self.splitting.forward or self.tape.replays:
            return None
        names = self.splitting.adapters
        place = 0 if one.kind in ("root", "layer") else names.index(one.kind) + 1
        if one is not self.root and place < len(names):
            return self._adapter(one.part, names[place])
        index = 0 if one is self.root else one.part[1] + 1
        return self.layers[index] if index < len(self.layers) else None

    def _enter(self, one: FlatUnit) -> None:
        for wanted in (one, self._following(one)):
            if wanted is not None and not wanted.ahead:
                self._unshard(wanted)
                wanted.ahead = wanted is not one
                if not wanted.flat.trainable:
                    continue
                # Its views are made anew: their gradients go to them.
                wanted.slots.clear()
                wanted.node = self.tape.node(
                    "flat weights", [wanted.flat], partial(self._side_by_side, wanted)
                )
                assert wanted.node is not None
                wanted.node.outputs = 0

    def _leave(self, one: FlatUnit, *outputs: Tensor) -> None:
        # The first one has none yet as it runs again (record_post_forward).
        one.place = one.place or len(self.order)
        self.order.append(one)
        one.ahead = one.began = one.out = False
        one.needed = any(output.edge is not None for output in outputs)
        if self.splitting.reshards:
            one.brought = None
        for output in outputs:
            if output.edge is not None:
                self.tape.call_before_backward(output, partial(self._before_backward, one))

    # -- gathering -------------------------------------------------------------------------------

    def _unshard(self, one: FlatUnit) -> None:
        """pre_unshard, unshard and post_unshard of FlatParamHandle."""
        split, copied = self.splitting, self._copied(one)
        shard = None
        if split.away or (one.casts and (copied or one.whole is None)):
            shard = self._take(one, "m" if copied else "d", CAST, one.dtype, GATHER)
            if split.away and one.casts:
                self._take(one, "d", "share, brought back", one.kept, GATHER)
        if split.views and not one.casts:
            one.brought = shard
        if copied:
            one.whole = shard
        elif split.shares and one.whole is None:
            one.whole = self._take(one, "m", "whole weights", one.dtype, WHOLE)
        del shard
        one.out, one.shown = True, one.dtype

    def _take(self, one: FlatUnit, letter: str, what: str, dtype: str, why: str) -> Tensor:
        with self.tape.as_category(WORKING):
            numel = symbol(symbol_of(one.kind, letter))
            made = self.tape.new(f"{one.name}'s {what}", numel, dtype)
        return self._belongs(one, made, why)

    def _belongs(self, one: FlatUnit, made: Tensor, why: str) -> Tensor:
        facts = self.tape.facts[made.storage.number]
        facts.why = why
        if one.part != NOWHERE:
            # It is this layer's, though another one may gather it.
            facts.part = one.part
        return made

    # -- backward ----------------------------------------------------------------------------------

    def _before_backward(self, one: FlatUnit) -> None:
        """_pre_backward_hook: of several outputs the first one's."""
        if one.began:
            return
        one.began = True
        one.state = "back"
        if one.needed and not one.ahead:
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
        made = tape.new(f"{one.name}'s gradients", one.flat.numel, one.flat.dtype)
        del zeros
        return (self._belongs(one, made, BESIDE),)

    def _after_inputs(self, one: FlatUnit) -> None:
        """_post_backward_reshard_only_hook: all that reads frozen weights is done."""
        self._reshard(one)
        if self.splitting.backward == "post":
            self._prefetch(one)

    def _reshard(self, one: FlatUnit) -> None:
        """_reshard, as a backward pass has it (_should_free_in_backward)."""
        if self._copied(one) or self.reduces or self.splitting.reshards:
            one.whole = None
        one.brought = None
        one.ahead = one.out = False
        one.state = ""
        self._shows_its_own(one)

    def _after_backward(self, one: FlatUnit) -> None:
        """_post_backward_hook: free the weights, reduce the gradient."""
        split = self.splitting
        self._reshard(one)
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
        for one in (self.root, *self.layers, *self.adapters.values()):
            if one.out:
                self._reshard(one)  # _catch_all_reshard
            one.needed = one.ahead = False
            one.place = 0
            one.state = ""
            if self.splitting.away and self.reduces:
                one.share = None  # its copy on the CPU is the gradient
        self.order.clear()


CAST = "share, as it is computed with"
BESIDE = "The gradients of a unit's weights are put side by side, as their flat weight has them."
