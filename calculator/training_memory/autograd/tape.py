"""Tensors without values, the graph they leave behind, and the order in which it is worked off.

Lifetimes are the reference counts of these Python objects, as they are of PyTorch's: a storage is
released when its last tensor goes, whether that is held by a variable of a layer's code, by a node
of the graph that saved it, or by a gradient on its way. So nothing here depends on a garbage
collector, and no object may come to refer to itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..categories import Category
from ..formula import Formula

ITEM_BYTES = {"fp32": 4, "bf16": 2, "bool": 1, "int64": 8}


class Entry:
    """A storage comes to a category (``target``), leaves one (``source``), or changes it (both)."""

    __slots__ = ("source", "storage", "target")

    def __init__(self, storage: int, source: Category | None, target: Category | None) -> None:
        self.storage = storage
        self.source = source
        self.target = target


class Facts:
    """What is known of a storage: its size, who made it, and which operations saved it and why."""

    __slots__ = ("category", "dtype", "layer", "name", "numel", "saved_by")

    def __init__(
        self, numel: Formula, dtype: str, name: str, category: Category, layer: int | None
    ) -> None:
        #: The recorded layer it was made in, or None.
        self.layer = layer
        self.numel = numel
        self.dtype = dtype
        self.name = name
        self.category = category
        self.saved_by: list[tuple[str, str]] = []

    @property
    def bytes(self) -> Formula:
        """Its size."""
        return self.numel * ITEM_BYTES[self.dtype]


class Storage:
    """Memory that is taken while this object lives."""

    __slots__ = ("number", "tape")

    def __init__(self, tape: Tape, facts: Facts) -> None:
        self.tape = tape
        self.number = tape.take(facts)

    def __del__(self) -> None:
        self.tape.release(self.number)


class Parameter:
    """A weight: its own memory is the recipe's; its gradient comes to be here."""

    __slots__ = ("cast", "dtype", "grad", "name", "numel", "trainable")

    def __init__(self, name: str, numel: Formula, dtype: str, *, trainable: bool = True) -> None:
        self.name = name
        self.numel = numel
        self.dtype = dtype
        self.trainable = trainable
        self.grad: Tensor | None = None
        #: The 16-bit copy that autocast keeps until the forward pass ends.
        self.cast: Tensor | None = None


class Tensor:
    """A view of a storage, and the edge along which its gradient goes.

    ``heads_apart`` says that its memory does not lie in the order of its dimensions (a transposed
    view of tokens × heads), so that joining batch and heads must copy.
    """

    __slots__ = ("dtype", "edge", "heads_apart", "numel", "storage")

    def __init__(
        self,
        storage: Storage | None,
        numel: Formula,
        dtype: str,
        edge: Edge | None = None,
        *,
        heads_apart: bool = False,
    ) -> None:
        self.storage = storage
        self.numel = numel
        self.dtype = dtype
        self.edge = edge
        self.heads_apart = heads_apart

    def view(self, **changes: object) -> Tensor:
        """The same memory and gradient, seen otherwise."""
        made = Tensor(self.storage, self.numel, self.dtype, self.edge, heads_apart=self.heads_apart)
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    def detached(self) -> Tensor:
        """The same memory without its history, as a node saves it."""
        return self.view(edge=None)


#: A part of the model: its name, and which of several it is.
PartOf = tuple[str, int]
#: A gradient goes to one output of a node, or to a parameter.
Edge = tuple["Node", int] | Parameter
Grads = list["Tensor | None"]
Backward = Callable[["Tape", Grads, list[Tensor]], Sequence["Tensor | None"]]


class Node:
    """One operation of the graph: where its gradients go on to, what it saved, how it goes back."""

    __slots__ = (
        "backward",
        "expected",
        "inputs",
        "name",
        "outputs",
        "saved",
        "section",
        "sequence",
    )

    def __init__(
        self,
        name: str,
        sequence: int,
        inputs: tuple[Edge | None, ...],
        expected: tuple[tuple[Formula, str] | None, ...],
        saved: list[Tensor | Holder],
        backward: Backward,
        outputs: int,
        section: PartOf,
    ) -> None:
        self.name = name
        self.section = section
        self.sequence = sequence
        self.inputs = inputs
        #: Size and dtype of each input, which its gradient is brought to.
        self.expected = expected
        self.saved = saved
        self.backward = backward
        self.outputs = outputs


class Frame:
    """One checkpointed region: how to run it again, and what a second run brought back."""

    __slots__ = ("again", "cached", "keeps_matmuls", "recomputed", "saved")

    def __init__(self, again: Callable[[], object], *, keeps_matmuls: bool) -> None:
        self.again = again
        self.keeps_matmuls = keeps_matmuls
        self.saved = 0
        self.recomputed: list[Tensor | None] | None = None
        #: Outputs kept by a selective policy, in the order in which they were made.
        self.cached: list[Tensor] = []


class Holder:
    """Stands in a node for a tensor that a checkpoint did not keep."""

    __slots__ = ("frame", "index")

    def __init__(self, frame: Frame, index: int) -> None:
        self.frame = frame
        self.index = index


class _Enough(Exception):  # noqa: N818  # not an error: everything needed has been made again
    """Stops a second run once the last saved tensor is there."""


class Tape:
    """Records a step: the memory it takes and releases, in order."""

    def __init__(self, *, autocast: bool = False) -> None:
        self.entries: list[Entry] = []
        self.facts: list[Facts] = []
        self.autocast = autocast
        self.category = Category.ACTIVATIONS
        self._sequence = 0
        self._grad = True
        self._frame: Frame | None = None
        self._replay: Frame | None = None
        self._module: list[str] = []
        #: Where each part of the step begins: (entries before it, phase, section).
        self.marks: list[tuple[int, str, PartOf]] = []
        self._section: PartOf = ("", 0)
        self._casts: list[Parameter] = []

    def mark(self, phase: str, name: str, index: int = 0) -> None:
        """Begin a part of the step (``index`` tells layers apart), unless it is what goes on."""
        section = (name, index)
        if not self.marks or self.marks[-1][1:] != (phase, section):
            self.marks.append((len(self.entries), phase, section))
        self._section = section

    # -- memory --------------------------------------------------------------------------------

    def take(self, facts: Facts) -> int:
        """Record that a storage is taken; returns its number."""
        self.facts.append(facts)
        self.entries.append(Entry(len(self.facts) - 1, None, facts.category))
        return len(self.facts) - 1

    def release(self, number: int) -> None:
        """Record that a storage is released."""
        self.entries.append(Entry(number, self.facts[number].category, None))

    def move(self, tensor: Tensor, category: Category) -> None:
        """Count a storage under another category from here on."""
        if tensor.storage is None:
            return
        facts = self.facts[tensor.storage.number]
        if facts.category is not category:
            self.entries.append(Entry(tensor.storage.number, facts.category, category))
            facts.category = category

    def new(self, name: str, numel: Formula, dtype: str) -> Tensor:
        """A tensor with memory of its own and no history."""
        path = " ".join((*self._module, name))
        name, index = self._section
        facts = Facts(numel, dtype, path, self.category, index if name == "layer" else None)
        return Tensor(Storage(self, facts), numel, dtype)

    @contextmanager
    def module(self, name: str) -> Iterator[None]:
        """Name the part of the model that the operations within belong to."""
        self._module.append(name)
        try:
            yield
        finally:
            self._module.pop()

    @contextmanager
    def as_category(self, category: Category) -> Iterator[None]:
        """Count what is allocated within under ``category``."""
        before, self.category = self.category, category
        try:
            yield
        finally:
            self.category = before

    def cast_once(self, parameter: Parameter, make: Callable[[], Tensor]) -> Tensor:
        """A weight's 16-bit copy: made when first needed, kept until :meth:`forget_casts`."""
        if parameter.cast is None:
            parameter.cast = make()
            self._casts.append(parameter)
        return parameter.cast

    def forget_casts(self) -> None:
        """Leave autocast: its cache of 16-bit weights goes; what a node saved stays."""
        for parameter in self._casts:
            parameter.cast = None
        self._casts.clear()

    # -- the graph -----------------------------------------------------------------------------

    def record(
        self,
        name: str,
        inputs: Sequence[Tensor | Parameter | None],
        outputs: Sequence[Tensor],
        saves: Sequence[tuple[Tensor, str]],
        backward: Backward,
    ) -> None:
        """Attach a node to ``outputs``, if any input wants a gradient."""
        edges = tuple(_edge(one) for one in inputs)
        if not self._grad or not any(edges):
            return
        saved = [self._save(tensor, name, why) for tensor, why in saves]
        self._sequence += 1
        expected = tuple((one.numel, one.dtype) if one else None for one in inputs)
        node = Node(
            name, self._sequence, edges, expected, saved, backward, len(outputs), self._section
        )
        for slot, output in enumerate(outputs):
            output.edge = (node, slot)

    def _save(self, tensor: Tensor, operation: str, why: str) -> Tensor | Holder:
        if self._replay is not None:
            return self._bring_back(tensor.detached())
        if self._frame is not None:
            self._frame.saved += 1
            return Holder(self._frame, self._frame.saved - 1)
        if tensor.storage is not None:
            self.facts[tensor.storage.number].saved_by.append((operation, why))
        return tensor.detached()

    # -- checkpointing (torch.utils.checkpoint, use_reentrant=False) ---------------------------

    def checkpoint(
        self, region: Callable[..., Tensor], *arguments: Tensor, keeps_matmuls: bool = False
    ) -> Tensor:
        """Run a region keeping only its arguments; its saved tensors are made again in backward.

        With ``keeps_matmuls`` the outputs of matrix multiplications by weights are kept as well and
        brought back instead of computed again.
        """
        kept = [argument.detached() for argument in arguments]
        frame = Frame(
            lambda: region(*(self._as_input(argument) for argument in kept)),
            keeps_matmuls=keeps_matmuls,
        )
        outer, self._frame = self._frame, frame
        try:
            return region(*arguments)
        finally:
            self._frame = outer

    def _as_input(self, tensor: Tensor) -> Tensor:
        """An argument of a second run: it wants a gradient, so that the region saves as before."""
        return tensor.view(edge=Parameter("argument", tensor.numel, tensor.dtype))

    def _bring_back(self, tensor: Tensor) -> Tensor:
        frame = self._replay
        assert frame is not None
        assert frame.recomputed is not None
        frame.recomputed.append(tensor)
        if len(frame.recomputed) == frame.saved:
            raise _Enough
        return tensor

    def _unpack(self, saved: Tensor | Holder) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        frame = saved.frame
        if frame.recomputed is None:
            self._run_again(frame)
        assert frame.recomputed is not None
        tensor = frame.recomputed[saved.index]
        assert tensor is not None
        frame.recomputed[saved.index] = None
        return tensor

    def _run_again(self, frame: Frame) -> None:
        frame.recomputed = []
        before = self._frame, self._replay, self._grad
        self._frame, self._replay, self._grad = None, frame, True
        with self.as_category(Category.RECOMPUTED):
            try:
                frame.again()
            except _Enough as stop:
                # The traceback holds the region's variables; PyTorch's is gone by now as well.
                stop.__traceback__ = None
            finally:
                self._frame, self._replay, self._grad = before
                self.forget_casts()

    def keep_output(self, make: Callable[[], Tensor]) -> Tensor:
        """An output that a selective policy keeps: made once, brought back in a second run."""
        if self._replay is not None and self._replay.cached:
            return self._replay.cached.pop(0)
        output = make()
        if self._frame is not None and self._frame.keeps_matmuls:
            self._frame.cached.append(output.detached())
        return output

    # -- backward ------------------------------------------------------------------------------

    def backward(self, output: Tensor) -> None:
        """Work off the graph as autograd does: of the nodes that are ready, the latest first."""
        assert isinstance(output.edge, tuple)
        root, slot = output.edge
        waiting = _dependencies(root)
        shared: dict[Parameter, Grads] = {}
        buffers: dict[Node, Grads] = {root: [None] * root.outputs}
        buffers[root][slot] = self.new("the loss's gradient", output.numel, output.dtype)
        ready = [(-root.sequence, root)]
        self._grad = False
        try:
            while ready:
                _, node = heapq.heappop(ready)
                self.mark("backward", *node.section)
                found = self._apply(node, buffers.pop(node))
                for edge in reversed(node.inputs):
                    gradient = found.pop()
                    if edge is None:
                        continue
                    if isinstance(edge, Parameter):
                        waiting[edge] -= 1
                        if gradient is not None:
                            self._add(shared.setdefault(edge, [None]), 0, gradient)
                        del gradient
                        # A weight used twice takes its gradient when both uses have theirs.
                        if not waiting[edge]:
                            self._accumulate(edge, shared.pop(edge))
                        continue
                    target, place = edge
                    if gradient is not None:
                        grads = buffers.setdefault(target, [None] * target.outputs)
                        self._add(grads, place, gradient)
                    del gradient
                    waiting[target] -= 1
                    if not waiting[target]:
                        buffers.setdefault(target, [None] * target.outputs)
                        heapq.heappush(ready, (-target.sequence, target))
        finally:
            self._grad = True

    def _apply(self, node: Node, grads: Grads) -> list[Tensor | None]:
        saved = [self._unpack(one) for one in node.saved]
        node.saved = []
        with self.as_category(Category.RECOMPUTED):
            found = list(node.backward(self, grads, saved))
            grads.clear()
            for place, wanted in enumerate(node.expected):
                self._validate(found, place, wanted)
        saved.clear()
        return found

    def _validate(
        self, found: list[Tensor | None], place: int, wanted: tuple[Formula, str] | None
    ) -> None:
        """Bring a gradient to its input's size, summing over repeats, and then to its dtype."""
        gradient = found[place]
        if gradient is None or wanted is None:
            return
        numel, dtype = wanted
        if gradient.numel != numel:
            gradient = self.new("gradient summed over repeats", numel, gradient.dtype)
            found[place] = gradient
        if gradient.dtype != dtype:
            found[place] = self.new("gradient cast", numel, dtype)

    def _add(self, grads: Grads, place: int, gradient: Tensor) -> None:
        """Add to what already waits there, into new memory: both are read until the sum is made."""
        old = grads[place]
        if old is None:
            grads[place] = gradient
            return
        with self.as_category(Category.RECOMPUTED):
            grads[place] = self.new("sum of gradients", old.numel, old.dtype)

    def _accumulate(self, parameter: Parameter, grads: Grads) -> None:
        """A parameter takes its first gradient over as it is, and adds a further one in place."""
        gradient = grads.pop()
        if gradient is not None and parameter.grad is None:
            self.move(gradient, Category.GRADIENTS)
            parameter.grad = gradient


def _edge(one: Tensor | Parameter | None) -> Edge | None:
    if isinstance(one, Parameter):
        return one if one.trainable else None
    return one.edge if one is not None else None


def _dependencies(root: Node) -> dict[Node | Parameter, int]:
    """How many gradients each node and parameter of the graph waits for."""
    waiting: dict[Node | Parameter, int] = {root: 0}
    todo = [root]
    while todo:
        for edge in todo.pop().inputs:
            if edge is None:
                continue
            target = edge if isinstance(edge, Parameter) else edge[0]
            if target not in waiting:
                waiting[target] = 0
                if isinstance(target, Node):
                    todo.append(target)
            waiting[target] += 1
    return waiting
