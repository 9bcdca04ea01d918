"""The backward pass: the order in which the graph is worked off, and where gradients come to be.

As autograd's engine does it (torch/csrc/autograd/engine.cpp): of the nodes whose gradients are all
there, the one made last runs first; a gradient that meets another waiting for the same node is
added to it; a parameter takes the sum of all its uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from ..categories import Category
from ..formula import Formula
from ..slices import Work, finished
from .memory import WORKING
from .tape import Tape
from .tensors import Argument, Edge, Grads, Node, OfAllGpus, Parameter, Tensor


class BackwardPass:
    """One backward pass over a tape. ``keeps`` False drops each weight's gradient as it arrives."""

    def __init__(self, tape: Tape, *, keeps: bool = True) -> None:
        self.tape = tape
        self.keeps = keeps
        self.waiting: dict[Node | Parameter, int] = {}
        self.buffers: dict[Node | Parameter, Grads] = {}
        self.ready: list[tuple[int, Node]] = []

    def run(self, output: Tensor) -> None:
        """From the loss to every parameter."""
        finished(self.steps(output))

    def steps(self, output: Tensor) -> Work[None]:
        """:meth:`run`, which may be left off after every node."""
        with self.tape.as_category(WORKING):
            # Held by torch.autograd.backward, which calls the engine, to the end.
            first = self.tape.new("the loss's gradient", output.numel, output.dtype)
        yield from self._steps_from(output.edge, first)
        del first

    def run_from(self, edge: Edge | None, gradient: Tensor) -> None:
        """From an output whose gradient is known, which the caller holds."""
        finished(self._steps_from(edge, gradient))

    def _steps_from(self, edge: Edge | None, gradient: Tensor) -> Work[None]:
        assert edge is not None
        root, slot = edge
        assert isinstance(root, Node)
        self.waiting = _dependencies(root)
        self.buffers[root] = [None] * root.outputs
        self.buffers[root][slot] = gradient
        self.ready.append((-root.sequence, root))
        before, self.tape.gradients_on = self.tape.gradients_on, False
        try:
            while self.ready:
                self._next()
                yield
            self.tape.units.finish()
        finally:
            self.tape.gradients_on = before

    def sum_with(self, old: Tensor, gradient: Tensor) -> Tensor:
        """Where two gradients come together: into new memory, both are read until it is made."""
        own = None
        if isinstance(gradient, OfAllGpus):
            own = self.tape.new("gradient's own rows", old.numel, old.dtype)
        made = self.tape.new("sum of gradients", old.numel, old.dtype, old.order)
        del own
        return made

    def _next(self) -> None:
        tape = self.tape
        node = heappop(self.ready)[1]
        tape.go_on("backward", node.part)
        if node.hooks:
            for hook in node.hooks:
                hook()
            node.hooks = None
        if tape.notes is not None:
            tape.note_weights(node.inputs, "back")
        # What `with tape.module(…)` does, and below with a category, a good deal more quickly.
        module, tape.module_name = tape.module_name, node.module
        try:
            found = self._gradients(node, self.buffers.pop(node))
            # PyTorch hands them on in the order of the inputs.
            found.reverse()
            for edge in node.inputs:
                if edge is None:
                    found.pop()
                else:
                    self._hand_on(edge, found)
        finally:
            tape.module_name = module
        if tape.notes is not None:
            tape.note_weights(node.inputs, "backed")

    def _gradients(self, node: Node, grads: Grads) -> list[Tensor | None]:
        tape = self.tape
        saved = list(map(tape.unpack, node.saved)) if node.packed else node.saved
        category, tape.category = tape.category, Category.LOGITS if node.logits else WORKING
        try:
            found = list(node.backward(tape, grads) if node.backward else _over(tape, saved))
            # What a checkpoint made again is dropped here; what the node itself kept, and the
            # gradients it was given, only once its own are checked (call_function).
            del saved
            for place, (numel, dtype) in enumerate(node.expected):
                gradient = found[place]
                if gradient is not None and (
                    gradient.numel is not numel or gradient.dtype != dtype
                ):
                    del gradient
                    _bring(tape, found, place, numel, dtype)
            gradient = None
        finally:
            tape.category = category
        grads.clear()
        node.saved = []
        return found

    def _hand_on(self, edge: Edge, found: Grads) -> None:
        """Let the last gradient wait for its node or parameter; run what waits for nothing more."""
        target, slot = edge
        gradient = found.pop()  # here alone, so that it goes once it is added to another
        grads = self.buffers.get(target)
        if gradient is not None:
            if grads is None:
                grads = self.buffers[target] = [None] * target.outputs
            old = grads[slot]
            if old is None:
                grads[slot] = gradient
            else:
                with self.tape.as_category(WORKING):
                    grads[slot] = self.sum_with(old, gradient)
                del old
        del gradient
        left = self.waiting[target] = self.waiting[target] - 1
        if left:
            return
        if isinstance(target, Node):
            if grads is None:
                self.buffers[target] = [None] * target.outputs
            heappush(self.ready, (-target.sequence, target))
        elif grads is not None:
            del self.buffers[target]
            self._accumulate(target, grads)

    def _accumulate(self, parameter: Parameter, grads: Grads) -> None:
        """A parameter takes its first gradient over as it is, and adds a further one in place."""
        gradient = grads.pop()
        if parameter.hooks:
            for hook in parameter.hooks:
                hook()
            parameter.hooks = None
        if isinstance(parameter, Argument) and parameter.copies and gradient is not None:
            with self.tape.as_category(WORKING):
                gradient = self.tape.new("gradient, side by side", gradient.numel, gradient.dtype)
        if parameter.variable is not None or isinstance(parameter, Argument):
            parameter.grad = gradient  # no weight's: it goes with the graph, or back to the caller
            return
        if gradient is not None:
            self.tape.note("gradient", parameter.name)
        if isinstance(gradient, OfAllGpus) and not self.keeps:
            # The optimizer, which updates the weight now, is handed this GPU's rows.
            self.tape.new(f"gradient of {parameter.name}, own rows", gradient.numel, gradient.dtype)
        if gradient is not None and parameter.grad is None and self.keeps:
            if self.tape.units.keeps_gradients:
                self.tape.count_as(gradient.storage, Category.GRADIENTS)
            parameter.grad = gradient
        if parameter.arrived:
            parameter.arrived()


def _over(tape: Tape, saved: Sequence[object]) -> Iterator[Tensor]:
    """Gradients that take the place of what was saved."""
    for one in saved:
        assert isinstance(one, Tensor)
        tape.count_as(one.storage, WORKING)
        yield one


def _bring(tape: Tape, found: list[Tensor | None], place: int, numel: Formula, dtype: str) -> None:
    """Bring a gradient to its input's size, summing over repeats, and then to its dtype."""
    gradient = found[place]
    assert gradient is not None
    if gradient.numel != numel:
        gradient = tape.new("gradient summed over repeats", numel, gradient.dtype, gradient.order)
        found[place] = gradient
    if gradient.dtype != dtype:
        found[place] = tape.new("gradient cast", numel, dtype, gradient.order)


def _dependencies(root: Node) -> dict[Node | Parameter, int]:
    """How many gradients each node and parameter of the graph waits for."""
    waiting: dict[Node | Parameter, int] = {root: 0}
    todo = [root]
    while todo:
        for edge in todo.pop().inputs:
            if edge is None:
                continue
            target = edge[0]
            if target in waiting:
                waiting[target] += 1
            else:
                waiting[target] = 1
                if isinstance(target, Node):
                    todo.append(target)
    return waiting
