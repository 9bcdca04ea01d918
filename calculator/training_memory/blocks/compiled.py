"""A plain Llama's layer as ``torch.compile`` runs it: one operation forward, one backward.

AOTAutograd's min-cut partitioner (torch/_functorch/partitioners.py) keeps what products and the
attention kernel read, what they give to elementwise operations, and norms' inverse roots; it makes
the rest again. Under a checkpoint it keeps what that does, if backward reads it. Inductor fuses
what is elementwise into the kernel that reads it, and frees each buffer after its last use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..autograd.memory import WORKING
from ..autograd.operations import common as why
from ..autograd.tape import Tape
from ..autograd.tensors import Grads, Parameter, Tensor
from ..autograd.weights import Weights
from ..categories import Category
from ..formula import Formula, as_formula
from ..structure import Structure
from .attention import scratch_of
from .shared import Shared
from .sizes import HEAD_ROWS, KEYS, PADDED_HEAD_ROWS, QUERIES, ROTARY, ROWS, TOKENS, WIDE

_AGAIN = "The operations that follow are made again from it."
_KERNEL = {
    "context": why.ATTENTION,
    "log-sum-exp": why.ATTENTION,
    "random state": why.RANDOM,
    "random state, unused": why.RANDOM,
}
#: What backward reads, and why it is kept where nothing is checkpointed.
_READ = _KERNEL | {
    "attention norm's inverse root": why.NORM,
    "attention norm output": why.INPUT,
    "queries": why.ATTENTION,
    "keys": why.ATTENTION,
    "values": why.ATTENTION,
    "attention output": _AGAIN,
    "mlp norm's inverse root": why.NORM,
    "mlp norm output": why.INPUT,
    "gate": why.ARGUMENT,
    "up": why.PRODUCT,
    "gated": why.INPUT,
}
#: Where every second product is kept: of the four, backward does not read the last one's.
_PRODUCTS = _KERNEL | {"query": _AGAIN, "value": _AGAIN, "gate": why.ARGUMENT}
_SHAPES: Mapping[str, tuple[str, ...]] = {
    "attention norm": ("h",),
    "query": ("a", "e", "h"),
    "key": ("g", "e", "h"),
    "value": ("g", "e", "h"),
    "attention output": ("h", "a", "e"),
    "mlp norm": ("h",),
    "gate": ("f", "h"),
    "up": ("f", "h"),
    "down": ("h", "f"),
}


def _copy_of(name: str) -> str:
    return f"{name}'s weight, 16-bit copy"


_COPIES = {_copy_of(name): why.WEIGHT_COPY for name in _SHAPES if "norm" not in name}


def layer(tape: Tape, x: Tensor, w: Weights, structure: Structure, _shared: Shared) -> Tensor:
    """The layer's output."""
    weights = {name: w(name, *shape) for name, shape in _SHAPES.items()}
    reasons: dict[str, str] = {}
    if structure.recompute != "full":
        reasons = _PRODUCTS if structure.recompute == "matmuls" else _READ | _COPIES
    run = _Run(tape, structure, weights, x.dtype, reasons)
    handed: list[dict[str, Tensor]] = []

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        again = _Run(tape, structure, weights, stream, _READ | _COPIES)
        again.have = handed.pop()
        with tape.as_category(Category.RECOMPUTED):
            again.inner()
        return again.back(grads)

    stream = x.dtype
    node = tape.node("compiled layer", [x, *weights.values()], backward, [(x, _AGAIN)])
    run.inner()
    out = run.output()
    if node:
        kept = [(made, reasons[name]) for name, made in run.have.items()]
        tape.attach(node, out, saves=kept)
        # Compiled code lets each go when it has used it, not when all of it is done.
        del node.saved[1:], kept
        handed.append(run.have)
    return out


class _Run:
    """The layer's buffers by name while its code runs; at their last use all but some go."""

    def __init__(
        self,
        tape: Tape,
        structure: Structure,
        weights: Mapping[str, Parameter],
        stream: str,
        stay: Mapping[str, str],
    ) -> None:
        self.tape = tape
        self.structure = structure
        self.weights = weights
        #: The dtype of the residual stream, and of what is computed beside it.
        self.stream = stream
        self.dtype = "bf16" if tape.autocast else weights["query"].dtype
        self.stay = stay
        self.have: dict[str, Tensor] = {}

    def _make(self, name: str, numel: Formula, dtype: str | None = None) -> None:
        if name not in self.have:
            self.have[name] = self.tape.new(name, numel, dtype or self.dtype)

    def _done(self, *names: str) -> None:
        for name in names:
            if name not in self.stay:
                self.have.pop(name, None)

    def _copied(self, name: str) -> None:
        if self.tape.autocast:
            with self.tape.as_category(WORKING):
                self._make(_copy_of(name), self.weights[name].numel)

    def _product(self, name: str, numel: Formula) -> None:
        if name not in self.have:
            self._copied(name)
            self._make(name, numel)
            self._done(_copy_of(name))

    def inner(self) -> None:
        """All that comes before the last product, but for what is there already."""
        self._norm("attention norm")
        if not {"queries", "keys", "values"} <= self.have.keys():
            self._heads()
        if "context" not in self.have:
            self._attend()
        self._done("queries", "keys", "values")
        self._product("attention output", TOKENS)
        self._done(*_KERNEL)
        self._norm("mlp norm")
        if "gated" not in self.have:
            self._product("gate", WIDE)
            self._product("up", WIDE)
            self._make("gated", WIDE)
        self._done("mlp norm output", "gate", "up")

    def output(self) -> Tensor:
        """The last product, and the sum with the residual stream, in its place where it fits."""
        fits = self.stream == self.dtype
        self._copied("down")
        out = self.tape.new("residual stream" if fits else "down", TOKENS, self.dtype)
        self._done(_copy_of("down"))
        if not fits:
            out = self.tape.new("residual stream", TOKENS, self.stream)
        self._done(*self.have.copy())
        return out

    def _norm(self, name: str) -> None:
        self._make(f"{name}'s inverse root", ROWS, "fp32")
        self._make(f"{name} output", TOKENS)
        self._done(f"{name}'s inverse root")

    def _heads(self) -> None:
        """Queries and keys turned, keys and values repeated for every query head."""
        repeats = self.structure.grouped and not self.structure.one_key_head
        everywhere = QUERIES if repeats else KEYS
        for name, numel in (("query", QUERIES), ("key", KEYS), ("value", KEYS)):
            self._product(name, numel)
        self._done("attention norm output")
        self._turned("query", "queries", QUERIES, QUERIES)
        self._turned("key", "keys", KEYS, everywhere)
        if repeats:
            self._make("values", QUERIES)
        else:
            self.have["values"] = self.have["value"]
        self._done("value")

    def _turned(self, name: str, to: str, numel: Formula, out: Formula) -> None:
        # Inductor leaves complex numbers to PyTorch: these are no fused kernels.
        pairs = self.tape.new(f"{name}, pairs in fp32", numel, "fp32")
        self._done(name)
        turned = self.tape.new(f"{name}, turned", numel, "fp32")
        del pairs
        self._make(to, out)
        del turned

    def _attend(self) -> None:
        efficient = self.structure.kernel == "efficient"
        self._make("context", QUERIES)
        self._make("log-sum-exp", PADDED_HEAD_ROWS if efficient else HEAD_ROWS, "fp32")
        self._make("random state", as_formula(1 if efficient else 2), _STATE[efficient])
        self._make("random state, unused", as_formula(1), _STATE[efficient])

    # -- backward ------------------------------------------------------------------------------

    def back(self, grads: Grads) -> list[Tensor | None]:
        """The gradients of the input and of every weight, from the output's."""
        tape, found = self.tape, dict[str, Tensor]()
        given = self._computed(why.only(grads))
        self._of_weight("down", found, "gated")
        self._copied("down")
        wide = tape.new("gradient of gated", WIDE, self.dtype)
        self._drop(_copy_of("down"))
        del given
        of_gate = tape.new("gradient of gate", WIDE, self.dtype)
        self._drop("gate", "up")
        of_up = wide  # in its place
        del wide
        first = self._through("up", found)
        del of_up
        second = self._through("gate", found)
        del of_gate
        self._drop("mlp norm output")
        x = self._of_norm("mlp norm", found, first)
        del first, second
        self._drop("attention output")
        given = self._computed(x)
        self._of_weight("attention output", found)
        self._copied("attention output")
        context = tape.new("gradient of context", QUERIES, self.dtype)
        self._drop(_copy_of("attention output"))
        del given
        wanted = self._of_attention()
        del context
        self._drop("queries", "keys", "values", *_KERNEL)
        v = wanted.pop()
        if self.structure.grouped:
            v = tape.new("gradient of value", KEYS, self.dtype)
        k = self._turned_back("key", KEYS, wanted)
        q = self._turned_back("query", QUERIES, wanted)
        by_value = self._through("value", found)
        del v
        by_key = self._through("key", found)
        del k
        by_query = self._through("query", found)
        del q
        self._drop("attention norm output")
        x = self._of_norm("attention norm", found, by_value)
        del by_value, by_key, by_query
        return [x, *(found[name] for name in self.weights)]

    def _drop(self, *names: str) -> None:
        for name in names:
            self.have.pop(name, None)

    def _computed(self, gradient: Tensor) -> Tensor:
        """The stream's gradient as products read it."""
        if gradient.dtype == self.dtype:
            return gradient
        return self.tape.new("gradient in 16 bits", TOKENS, self.dtype)

    def _of_weight(self, name: str, found: dict[str, Tensor], read: str = "") -> None:
        weight = self.weights[name]
        made = self.tape.new(f"gradient of {name}'s weight", weight.numel, self.dtype)
        self._drop(read)
        if weight.dtype != made.dtype:
            made = self.tape.new(f"gradient of {name}'s weight", weight.numel, weight.dtype)
        found[name] = made

    def _through(self, name: str, found: dict[str, Tensor]) -> Tensor:
        """A product's two gradients: the weight's, and the input's, which is returned."""
        self._of_weight(name, found)
        self._copied(name)
        made = self.tape.new(f"gradient of {name}'s input", TOKENS, self.dtype)
        self._drop(_copy_of(name))
        return made

    def _of_norm(self, name: str, found: dict[str, Tensor], reuse: Tensor) -> Tensor:
        """One kernel: sums what came back, and adds it to the stream's gradient, where it fits."""
        made = reuse
        if reuse.dtype != self.stream:
            made = self.tape.new("gradient of the residual stream", TOKENS, self.stream)
        weight = self.weights[name]
        found[name] = self.tape.new(f"gradient of {name}'s weight", weight.numel, weight.dtype)
        self._drop(f"{name}'s inverse root")
        return made

    def _of_attention(self) -> list[Tensor]:
        made = [
            self.tape.new(f"gradient of {name}", QUERIES, self.dtype)
            for name in ("queries", "keys", "values")
        ]
        structure = self.structure
        if structure.scratch and structure.kernel == "flash":
            held = [self.tape.new(*one) for one in scratch_of(structure)]
            del held
        return made

    def _turned_back(self, name: str, numel: Formula, wanted: list[Tensor]) -> Tensor:
        """Of the last of those ``wanted``, summed over its repeats."""
        pairs = self.tape.new(f"gradient of {name}, pairs in fp32", numel, "fp32")
        wanted.pop()
        conjugate = self.tape.new("conjugate of the rotations", ROTARY, "fp32")
        turned = self.tape.new(f"gradient of {name}, turned back", numel, "fp32")
        del pairs, conjugate
        made = self.tape.new(f"gradient of {name}", numel, self.dtype)
        del turned
        return made


#: Random states of the efficient kernel and of FlashAttention.
_STATE = {True: "int64", False: "uint64"}


def loss(tape: Tape, logits: Tensor, labels: Tensor) -> Tensor:
    """``F.cross_entropy(logits.float(), labels)``, the logits read as they are, twice."""
    numel, dtype = logits.numel, logits.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of the logits", numel, dtype),)

    saves = [(logits, why.ARGUMENT), (labels, why.TARGETS)]
    node = tape.node("compiled loss", [logits], backward, saves)
    rows = [tape.new(name, ROWS, "fp32") for name in ("largest logit", "logarithm of the sum")]
    rows.append(tape.new("how many have a target", as_formula(1), "fp32"))
    made = tape.new("loss", as_formula(1), "fp32")
    tape.attach(node, made, saves=[(one, why.OUTPUT) for one in rows])
    return made
