"""The tape: runs a model's operations and records the memory that they take and release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..categories import Category
from ..formula import Formula
from .checkpoint import Away, Enough, Frame, Holder, Keeps
from .memory import Facts, Memory, Storage, Use
from .tensors import Argument, Backward, Node, Parameter, Tensor
from .units import Units

# For type checkers alone: typing takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

#: A tensor that an operation saves, with the reason; a parameter is saved without costing memory.
Save = tuple[Tensor | Parameter, str]


class Tape(Memory):
    """Records a step: the memory it takes and releases, in order."""

    def __init__(self, *, autocast: bool = False, offload: str = "none") -> None:
        super().__init__()
        self.autocast = autocast
        #: What goes to the CPU in the forward pass: "none", "checkpoints" (what these begin with)
        #: or "saved", whatever any operation saves, weights as well (graph.py, save_on_cpu).
        self.offload = offload
        self.gradients_on = True
        #: Hears of every part of the model that GPUs may share.
        self.units = Units()
        #: How many operations there were that a gradient goes through.
        self.nodes = 0
        self._frame: Frame | None = None
        self._replay: Frame | None = None
        self._casts: list[Parameter] = []

    def new(self, name: str, numel: Formula, dtype: str, order: str = "tokens") -> Tensor:
        """A tensor with memory of its own and no history."""
        # As Memory.storage makes it, without its calls: a step has hundreds.
        facts, category = self.facts, self.category
        number = len(facts)
        facts.append(Facts(numel, dtype, name, self.module_name, self.part, category))
        self.places.append(number)
        self.codes.append(category.comes)
        return Tensor(Storage(self, number), numel, dtype, None, order)

    # -- autocast ------------------------------------------------------------------------------

    def leaf(self, x: Tensor) -> None:
        """``x.requires_grad_()``: a gradient of it is wanted, and stays as long as the graph."""
        if x.edge is None:
            variable = Parameter("embedded tokens", x.numel, x.dtype)
            variable.variable = x.detached()
            x.edge = variable, 0

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

    def node(
        self,
        name: str,
        inputs: Sequence[Tensor | Parameter | None],
        backward: Backward | None,
        saves: Sequence[Save] = (),
        outputs: int = 1,
    ) -> Node | None:
        """Begin an operation: save what its backward pass reads of its inputs.

        As PyTorch does, before anything is computed: a second run of a checkpoint that has saved
        all there is to save never computes the operation. None where no input wants a gradient.
        """
        if self.notes is not None:
            self.note_weights(inputs, "use")
        if not self.gradients_on:
            return None
        edges = [one.edge if one else None for one in inputs]
        if not any(edges):
            return None
        self.nodes += 1
        node = Node(self, name, inputs, edges, backward, outputs)
        if saves:
            self._save(node, saves)
        return node

    @property
    def replays(self) -> bool:
        """Whether a checkpointed region runs for the second time."""
        return self._replay is not None

    def call_before_backward(self, output: Tensor, call: Callable[[], None]) -> None:
        """``Tensor.register_hook``: call as the operation that made it begins its backward pass.

        Or as its gradient comes, where it wants one and nothing before it does.
        """
        assert output.edge is not None
        target = output.edge[0]
        if target.hooks is None:
            target.hooks = []
        target.hooks.append(call)

    def attach(
        self, node: Node | None, output: Tensor, *others: Tensor, saves: Sequence[Save] = ()
    ) -> None:
        """End an operation: its outputs lead back to its node, which saves some of them."""
        if node is None:
            return
        output.edge = (node, 0)
        if others:
            for slot, other in enumerate(others, 1):
                other.edge = (node, slot)
        if saves:
            self._save(node, saves)
        if self.notes is not None:
            self.note_weights(node.inputs, "used")

    def note_weights(self, among: Iterable[object], kind: str) -> None:
        """Keep in mind that something happens to the weights among things, or at edges' ends."""
        for found in among:
            one = found[0] if isinstance(found, tuple) else found
            if isinstance(one, Parameter) and not (isinstance(one, Argument) or one.variable):
                self.note(kind, one.name)

    def _save(self, node: Node, saves: Sequence[Save]) -> None:
        saved, replay, frame = node.saved, self._replay, self._frame
        if replay is not None:
            for one, _ in saves:
                # A weight is there anyway, and counts among what is saved all the same.
                tensor = None if isinstance(one, Parameter) else one.detached()
                replay.bring_back(tensor)
                if tensor is not None:
                    saved.append(tensor)
        elif frame is not None:
            node.packed = True
            for _ in saves:
                saved.append(frame.placeholder())
        elif self.offload == "saved":
            node.packed = True
            for one, _ in saves:
                saved.append(self._away(one))
        else:
            facts = self.facts
            for one, why in saves:
                if not isinstance(one, Parameter):
                    saved.append(one.detached())
                    use = Use(node.name, why, node.module, node.part)
                    facts[one.storage.number].uses += (use,)

    # -- checkpointing -------------------------------------------------------------------------

    def checkpoint(
        self, region: Callable[..., T], *arguments: Tensor, keeps: Keeps | None = None
    ) -> T:
        """Run a region keeping only its arguments; its saved tensors are made again in backward.

        What ``keeps`` says is kept as well, and brought back instead of computed again.
        """
        if self.offload == "none":
            kept = [argument.detached() for argument in arguments]
            wants = [argument.edge is not None for argument in arguments]
            frame = Frame(lambda: region(*map(as_input, kept, wants)), keeps)
            for argument in kept:
                use = Use("checkpoint", AGAIN, self.module_name, self.part)
                self.facts[argument.storage.number].uses += (use,)
        else:
            away = [self._away(argument) for argument in arguments]
            frame = Frame(
                lambda: region(*(as_input(self._back(one), one.wants) for one in away)), keeps
            )
        outer, self._frame = self._frame, frame
        try:
            return region(*arguments)
        finally:
            self._frame = outer

    def _away(self, one: Tensor | Parameter) -> Away:
        """A copy in the CPU's memory: it takes none of the GPU's."""
        if isinstance(one, Parameter):
            return Away(one.name, one.numel, one.dtype, one.order, wants=False)
        name = self.facts[one.storage.number].name
        return Away(name, one.numel, one.dtype, one.order, wants=one.edge is not None)

    def _back(self, away: Away) -> Tensor:
        return self.new(f"{away.name}, brought back", away.numel, away.dtype, away.order)

    def outputs(self, operation: str, make: Callable[[], list[Tensor]]) -> list[Tensor]:
        """What an operation gives that a selective policy may keep: made, or brought back."""
        if self._replay is not None and self._replay.keeps:
            cached = self._replay.cached.pop(0)
            return make() if cached is None else [one.detached() for one in cached]
        made = make()
        if self._frame is not None and self._frame.keeps:
            keeps = self._frame.keeps(operation)
            self._frame.cached.append([one.detached() for one in made] if keeps else None)
            for one in made if keeps else ():
                use = Use("checkpoint", RESULT_KEPT, self.module_name, self.part)
                self.facts[one.storage.number].uses += (use,)
        return made

    def unpack(self, saved: Tensor | Holder | Away) -> Tensor | None:
        """A saved tensor; where a checkpoint kept a placeholder, its region runs again first.

        None for a weight's placeholder, which makes the region run again like any other.
        """
        if not isinstance(saved, Holder):
            return self._back(saved) if isinstance(saved, Away) else saved
        frame = saved.frame
        if frame.recomputed is None:
            self._run_again(frame)
        assert frame.recomputed is not None
        tensor = frame.recomputed[saved.index]
        frame.recomputed[saved.index] = None
        return tensor

    def _run_again(self, frame: Frame) -> None:
        frame.recomputed = []
        before = self._frame, self._replay, self.gradients_on
        self._frame, self._replay, self.gradients_on = None, frame, True
        with self.as_category(Category.RECOMPUTED):
            try:
                frame.again()
            except Enough as stop:
                # The traceback holds the region's variables; PyTorch's is gone by now as well.
                stop.__traceback__ = None
            finally:
                self._frame, self._replay, self.gradients_on = before
                self.forget_casts()


AGAIN = "The region runs again from this in the backward pass, instead of keeping what it makes."
RESULT_KEPT = "It is kept, so that the second run need not compute it."


def as_input(tensor: Tensor, wants: bool = True) -> Tensor:
    """An argument of a second run: it wants a gradient if it did, so that as much is saved."""
    again = tensor.detached()
    if wants:
        again.edge = Argument("argument", tensor.numel, tensor.dtype), 0
    return again
