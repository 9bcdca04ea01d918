"""Tensors without values, the parameters they meet, and the nodes that an operation leaves behind.

Lifetimes are the reference counts of these Python objects, as they are of PyTorch's: a storage is
released when its last tensor goes, whether that is held by a variable of a layer's code, by a node
of the graph that saved it, or by a gradient on its way. So nothing here depends on a garbage
collector, and no object may come to refer to itself.

A step makes thousands of these objects. They have no ``__slots__``: Python 3.13 makes an object in
half the time without them. As an object goes, what it holds goes in the order in which it was set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..categories import Category
from ..formula import Formula
from .memory import Storage

# For type checkers alone: the tape is built on this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .checkpoint import Away, Holder
    from .tape import Tape


class Adapter:
    """Two matrices beside a frozen weight: down to a small rank, and up again."""

    def __init__(self, down: Parameter, up: Parameter, narrow: Formula, *, drops: bool) -> None:
        self.down = down
        self.up = up
        #: How many numbers there are between the two.
        self.narrow = narrow
        #: Whether something is dropped before them.
        self.drops = drops


class Parameter:
    """A weight: its own memory is the recipe's; its gradient comes to be here.

    ``packed`` says that it is frozen in 4 bits; ``variable`` holds a tensor that is no weight and
    wants a gradient all the same.
    """

    order = "tokens"
    #: As a node has so many outputs: its gradient is one.
    outputs = 1

    def __init__(self, name: str, numel: Formula, dtype: str, *, trainable: bool = True) -> None:
        self.name = name
        self.numel = numel
        self.dtype = dtype
        self.trainable = trainable
        self.packed = False
        self.adapter: Adapter | None = None
        #: The 16-bit copy that autocast keeps until the forward pass ends.
        self.cast: Tensor | None = None
        self.grad: Tensor | None = None
        #: What is called as the gradient of a tensor comes that is no weight.
        self.hooks: list[Callable[[], None]] | None = None
        #: That tensor, before whose memory its gradient goes.
        self.variable: Tensor | None = None
        #: Where its gradient goes instead, where it is a part of a flat one.
        self.flat: Callable[[str], Edge] | None = None
        #: What is called once its gradient has come to be here.
        self.arrived: Callable[[], None] | None = None

    @property
    def edge(self) -> Edge | None:
        """Where its gradient goes, if anywhere."""
        if not self.trainable:
            return None
        return self.flat(self.name) if self.flat else (self, 0)


class Argument(Parameter):
    """Stands for a tensor from outside, whose gradient is wanted there.

    ``copies``: the tensor lies among others, so a gradient that does as well is copied
    (AccumulateGrad's layout contract).
    """

    def __init__(self, name: str, numel: Formula, dtype: str) -> None:
        super().__init__(name, numel, dtype)
        self.copies = False


class Tensor:
    """A view of a storage, and the edge along which its gradient goes.

    ``order`` is how the memory of a tensor with heads lies: by ``"tokens"`` (as the projections
    write it: all heads of a token together), by ``"heads"``, by the heads' ``"features"`` (a key's
    gradient, since the product was with transposed keys), ``"any"`` where there is one head, so
    that tokens and heads are the same, or ``"repeats"``: one head seen as many. A reshape that
    needs another order must copy.
    """

    def __init__(
        self,
        storage: Storage,
        numel: Formula,
        dtype: str,
        edge: Edge | None = None,
        order: str = "tokens",
    ) -> None:
        # The graph goes before the memory (TensorImpl.cpp, release_resources).
        self.edge = edge
        self.storage = storage
        self.numel = numel
        self.dtype = dtype
        self.order = order

    def view(self, *, numel: Formula | None = None, order: str | None = None) -> Tensor:
        """The same memory and gradient, seen otherwise."""
        return Tensor(self.storage, numel or self.numel, self.dtype, self.edge, order or self.order)

    def part(self, numel: Formula) -> Tensor:
        """A part of the same memory, with no history yet."""
        return Tensor(self.storage, numel, self.dtype, None, self.order)

    def detached(self) -> Tensor:
        """The same memory without its history, as a node saves it."""
        return Tensor(self.storage, self.numel, self.dtype, None, self.order)


class OfAllGpus(Tensor):
    """A gradient with the rows of all GPUs, of which this one's are seen."""


#: A gradient goes to one output of a node, by its number, or to a parameter, by 0.
Edge = tuple["Node | Parameter", int]
Grads = list[Tensor | None]
#: Computes the gradients of a node's inputs from those of its outputs and what it saved.
Backward = Callable[["Tape", Grads], Sequence[Tensor | None]]


#: Stands for size and dtype of an input that is left out, which has no gradient.
_NOTHING = Formula(), ""


class Node:
    """An operation in the graph: where gradients of its inputs go, and what it saved for them."""

    def __init__(
        self,
        tape: Tape,
        name: str,
        inputs: Sequence[Tensor | Parameter | None],
        edges: Sequence[Edge | None],
        backward: Backward | None,
        outputs: int,
    ) -> None:
        self.name = name
        self.sequence = tape.nodes
        #: None where the gradients of its inputs are written over what it saved of them.
        self.backward = backward
        #: Size and dtype of each input, which its gradient is brought to.
        self.expected = [(one.numel, one.dtype) if one else _NOTHING for one in inputs]
        #: What is called as its backward pass begins.
        self.hooks: list[Callable[[], None]] | None = None
        self.inputs = edges
        self.saved: list[Tensor | Holder | Away] = []
        #: Whether some of these are to be had again first.
        self.packed = False
        self.outputs = outputs
        self.module = tape.module_name
        self.part = tape.part
        #: Its gradients have a number for each token and vocabulary entry.
        self.logits = tape.category is Category.LOGITS
