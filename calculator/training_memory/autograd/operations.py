"""The operations that layers are written in: what each allocates, saves, and allocates going back.

Each function names the PyTorch operation it stands for. What an operation saves is in PyTorch's
``tools/autograd/derivatives.yaml``; what its backward pass allocates, in the kernels named there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..formula import Formula, as_formula
from .tape import Grads, Parameter, Tape, Tensor

_WIDER = {frozenset({"fp32", "bf16"}): "fp32"}

PRODUCT = "The gradient of one factor is the other."
INPUT = "A weight's gradient is its input times the gradient of its output."
OUTPUT = "Its gradient is computed from its own output."
ARGUMENT = "Its slope depends on where it was evaluated."
MASK = "Backward must drop the same values that forward dropped."
ATTENTION = "The fused kernel makes the scores again from these instead of keeping them."
NORM = "The norm's gradient needs the values it normalised and their spread."


def _promoted(left: str, right: str) -> str:
    return left if left == right else _WIDER[frozenset({left, right})]


def _only(grads: Grads) -> Tensor:
    gradient = grads[0]
    assert gradient is not None
    return gradient


# -- views and copies --------------------------------------------------------------------------


def to(tape: Tape, x: Tensor, dtype: str, name: str = "cast") -> Tensor:
    """``x.to(dtype)``: nothing where it has that type, else a copy."""
    if x.dtype == dtype:
        return x
    y = tape.new(f"{name} ({dtype})", x.numel, dtype)
    y.heads_apart = x.heads_apart
    before = x.dtype

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new("gradient cast", _only(grads).numel, before),)

    tape.record("to", [x], [y], [], backward)
    return y


def copied(tape: Tape, x: Tensor, name: str = "contiguous copy") -> Tensor:
    """``x.contiguous()`` of a transposed view: a copy in the order of its dimensions."""
    if not x.heads_apart:
        return x
    y = tape.new(name, x.numel, x.dtype)
    tape.record("clone", [x], [y], [], lambda tape, grads, saved: (_only(grads),))
    return y


def part(tape: Tape, x: Tensor, numel: Formula, name: str = "slice") -> Tensor:
    """``x[..., a:b]``: a view; its gradient is a whole tensor, zero elsewhere."""
    y = x.view(numel=numel)
    whole, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new(f"{name}'s gradient", whole, dtype),)

    tape.record("slice", [x], [y], [], backward)
    return y


def split(tape: Tape, x: Tensor, numels: Sequence[Formula]) -> list[Tensor]:
    """``x.split(…)``: views; their gradients are joined into one tensor."""
    parts = [x.view(numel=numel) for numel in numels]
    whole, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new("gradients joined", whole, dtype),)

    tape.record("split", [x], parts, [], backward)
    return parts


def joined(tape: Tape, tensors: Sequence[Tensor], name: str = "joined") -> Tensor:
    """``torch.cat``: a new tensor; the gradients of its inputs are views of its own."""
    numel = sum((one.numel for one in tensors), Formula())
    y = tape.new(name, numel, tensors[0].dtype)
    sizes = [one.numel for one in tensors]

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return [_only(grads).view(numel=size) for size in sizes]

    tape.record("cat", list(tensors), [y], [], backward)
    return y


def expanded_copy(tape: Tape, x: Tensor, numel: Formula, name: str) -> Tensor:
    """``x.expand(…).reshape(…)``: a copy, larger by the repeats, over which backward sums."""
    y = tape.new(name, numel, x.dtype)
    before, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new("gradient summed over repeats", before, dtype),)

    tape.record("expand", [x], [y], [], backward)
    return y


# -- arithmetic --------------------------------------------------------------------------------


def add(tape: Tape, x: Tensor, y: Tensor, name: str = "sum") -> Tensor:
    """``x + y``, ``y`` repeated where smaller: saves nothing; both gradients are the sum's."""
    z = tape.new(name, x.numel, _promoted(x.dtype, y.dtype))

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        gradient = _only(grads)
        return (gradient, gradient)

    tape.record("add", [x, y], [z], [], backward)
    return z


def add_small(tape: Tape, x: Tensor, name: str = "sum") -> Tensor:
    """``x + c`` with a number, or with something small that wants no gradient."""
    z = tape.new(name, x.numel, x.dtype)
    z.heads_apart = x.heads_apart
    tape.record("add", [x], [z], [], lambda tape, grads, saved: (_only(grads),))
    return z


def multiply(
    tape: Tape,
    x: Tensor,
    y: Tensor | Parameter,
    name: str = "product",
) -> Tensor:
    """``x * y``; ``y`` may be smaller and is then repeated, and its gradient summed."""
    dtype = _promoted(x.dtype, y.dtype)
    z = tape.new(name, x.numel, dtype)
    z.heads_apart = x.heads_apart
    wants_x = x.edge is not None
    wants_y = y.trainable if isinstance(y, Parameter) else y.edge is not None
    saves = []
    if wants_y:
        saves.append((x, PRODUCT))
    if wants_x and isinstance(y, Tensor):
        saves.append((y, PRODUCT))
    numel = x.numel

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return [
            tape.new("gradient of a factor", numel, dtype) if wanted else None
            for wanted in (wants_x, wants_y)
        ]

    tape.record("mul", [x, y], [z], saves, backward)
    return z


def scale(tape: Tape, x: Tensor, name: str = "scaled") -> Tensor:
    """``x * c`` with a number: saves nothing."""
    z = tape.new(name, x.numel, x.dtype)
    z.heads_apart = x.heads_apart

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new("gradient scaled", _only(grads).numel, _only(grads).dtype),)

    tape.record("mul", [x], [z], [], backward)
    return z


def negate(tape: Tape, x: Tensor) -> Tensor:
    """``-x``: saves nothing."""
    return scale(tape, x, "negated")


def square(tape: Tape, x: Tensor) -> Tensor:
    """``x.pow(2)``: saves x; back, x¹, twice it, and the product are three tensors in turn."""
    return _power(tape, x, "square")


def cube(tape: Tape, x: Tensor) -> Tensor:
    """``x.pow(3)``: the same with x² and three times it."""
    return _power(tape, x, "cube")


def _power(tape: Tape, x: Tensor, name: str) -> Tensor:
    if tape.autocast:
        x = to(tape, x, "fp32", f"{name} input")  # pow is on autocast's list of fp32 operations
    z = tape.new(name, x.numel, x.dtype)

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        base = tape.new("power", z_numel, dtype)
        doubled = tape.new("power times exponent", z_numel, dtype)
        del base
        gradient = tape.new(f"gradient of a {name}", z_numel, dtype)
        del doubled
        return (gradient,)

    z_numel, dtype = x.numel, x.dtype
    tape.record("pow", [x], [z], [(x, ARGUMENT)], backward)
    return z


def mean(tape: Tape, x: Tensor, numel: Formula) -> Tensor:
    """``x.mean(-1, keepdim=True)``: back, the gradient is spread over what was averaged."""
    z = tape.new("mean", numel, x.dtype)
    whole, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new("gradient spread", whole, dtype),)

    tape.record("mean", [x], [z], [], backward)
    return z


def rsqrt(tape: Tape, x: Tensor) -> Tensor:
    """``torch.rsqrt``: saves its output."""
    return _pointwise(tape, x, "rsqrt", "inverse root", saves_output=True)


def tanh(tape: Tape, x: Tensor) -> Tensor:
    """``torch.tanh``: saves its output."""
    return _pointwise(tape, x, "tanh", "tanh output", saves_output=True)


def silu(tape: Tape, x: Tensor) -> Tensor:
    """``F.silu``: saves its input."""
    return _pointwise(tape, x, "silu", "SiLU output", saves_output=False)


def gelu(tape: Tape, x: Tensor) -> Tensor:
    """``F.gelu``: saves its input."""
    return _pointwise(tape, x, "gelu", "GELU output", saves_output=False)


def _pointwise(tape: Tape, x: Tensor, name: str, label: str, *, saves_output: bool) -> Tensor:
    z = tape.new(label, x.numel, x.dtype)

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new(f"gradient of {label}", _only(grads).numel, _only(grads).dtype),)

    saved = (z, OUTPUT) if saves_output else (x, ARGUMENT)
    tape.record(name, [x], [z], [saved], backward)
    return z


def dropout(tape: Tape, x: Tensor) -> Tensor:
    """``F.dropout`` in training: a mask of one byte an element, and the output."""
    z = tape.new("dropout output", x.numel, x.dtype)
    mask = tape.new("dropout mask", x.numel, "bool")
    z.heads_apart = x.heads_apart

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new("gradient of dropout", _only(grads).numel, _only(grads).dtype),)

    tape.record("native_dropout", [x], [z], [(mask, MASK)], backward)
    return z


# -- matrices ----------------------------------------------------------------------------------


def _weight(tape: Tape, weight: Parameter) -> Parameter | Tensor:
    """A weight as a matrix multiplication reads it: under autocast a 16-bit copy, made once."""
    if not tape.autocast or weight.dtype == "bf16":
        return weight

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new("gradient cast", weight.numel, weight.dtype),)

    def make() -> Tensor:
        copy = tape.new(f"{weight.name}, 16-bit copy", weight.numel, "bf16")
        tape.record("to", [weight], [copy], [], backward)
        return copy

    return tape.cast_once(weight, make)


def linear(
    tape: Tape,
    x: Tensor,
    weight: Parameter,
    numel: Formula,
    name: str,
    bias: Parameter | None = None,
) -> Tensor:
    """``F.linear``: saves its input, and under autocast its 16-bit copy of the weight."""
    if tape.autocast:
        x = to(tape, x, "bf16", f"{name}'s input")
    used = _weight(tape, weight)
    used_bias = None if bias is None else _weight(tape, bias)
    dtype = x.dtype
    z = tape.keep_output(lambda: tape.new(name, numel, dtype))
    saves = [(x, INPUT)]
    if isinstance(used, Tensor) and x.edge is not None:
        saves.append((used, "The gradient of the input is the output's times the weight."))
    x_numel, wants_x = x.numel, x.edge is not None
    weight_numel = weight.numel
    bias_numel = bias.numel if bias is not None else None

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        found: list[Tensor | None] = [None, None, None]
        if wants_x:
            found[0] = tape.new(f"gradient of {name}'s input", x_numel, dtype)
        if weight.trainable:
            found[1] = tape.new(f"gradient of {weight.name}", weight_numel, dtype)
        if bias_numel is not None:
            found[2] = tape.new(f"gradient of {name}'s bias", bias_numel, dtype)
        return found

    tape.record("linear", [x, used, used_bias], [z], saves, backward)
    return z


def matmul(tape: Tape, x: Tensor, y: Tensor, numel: Formula, name: str) -> Tensor:
    """``torch.matmul`` of two batches of matrices (bmm): saves both."""
    if tape.autocast:
        x, y = to(tape, x, "bf16"), to(tape, y, "bf16")
    dtype = x.dtype
    z = tape.new(name, numel, dtype)
    sizes = (x.numel, y.numel)

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return [tape.new(f"gradient of {name}'s factor", size, dtype) for size in sizes]

    tape.record("bmm", [x, y], [z], [(x, PRODUCT), (y, PRODUCT)], backward)
    return z


def softmax(tape: Tape, x: Tensor, dtype: str | None = None) -> Tensor:
    """``F.softmax(…, dtype)``: a copy in that type first where it differs; saves its output."""
    wanted = "fp32" if tape.autocast else dtype or x.dtype
    x = to(tape, x, wanted, "softmax input")
    return _pointwise(tape, x, "softmax", "softmax output", saves_output=True)


def attention(tape: Tape, q: Tensor, k: Tensor, v: Tensor, log_sum_exp: Formula) -> Tensor:
    """``F.scaled_dot_product_attention`` by a fused kernel: saves q, k, v, output, log-sum-exp."""
    if tape.autocast:
        q, k, v = (to(tape, one, "bf16", "attention input") for one in (q, k, v))
    dtype = q.dtype
    z = tape.new("attention output", q.numel, dtype)
    lse = tape.new("log-sum-exp", log_sum_exp, "fp32")
    sizes = (q.numel, k.numel, v.numel)

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return [tape.new("gradient of attention's input", size, dtype) for size in sizes]

    saves = [(one, ATTENTION) for one in (q, k, v, z, lse)]
    tape.record("attention", [q, k, v], [z], saves, backward)
    return z


# -- norms, embedding and loss -----------------------------------------------------------------


def layer_norm(
    tape: Tape, x: Tensor, weight: Parameter, bias: Parameter | None, rows: Formula
) -> Tensor:
    """``F.layer_norm``: saves its input, and mean and inverse deviation in fp32."""
    if tape.autocast:
        x = to(tape, x, "fp32", "norm input")
    z = tape.new("norm output", x.numel, x.dtype)
    spread = [tape.new(f"norm {name}", rows, "fp32") for name in ("mean", "inverse deviation")]
    numel, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return [
            tape.new("gradient of a norm's input", numel, dtype),
            *(
                tape.new(f"gradient of {one.name}", one.numel, one.dtype) if one else None
                for one in (weight, bias)
            ),
        ]

    saves = [(one, NORM) for one in (x, *spread)]
    tape.record("layer_norm", [x, weight, bias], [z], saves, backward)
    return z


def embedding(tape: Tape, ids: Tensor, weight: Parameter, numel: Formula, name: str) -> Tensor:
    """``F.embedding``: saves the ids; back, a whole table of gradients."""
    z = tape.new(name, numel, weight.dtype)

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new(f"gradient of {weight.name}", weight.numel, weight.dtype),)

    tape.record("embedding", [weight], [z], [(ids, INPUT)], backward)
    return z


def cross_entropy(tape: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """``F.cross_entropy``: log-softmax, which saves its output, and the negative log-likelihood."""
    scores = _pointwise(tape, logits, "log_softmax", "log-probabilities", saves_output=True)
    loss = tape.new("loss", as_formula(1), scores.dtype)
    weight = tape.new("loss weight", as_formula(1), scores.dtype)
    numel, dtype = scores.numel, scores.dtype

    def backward(tape: Tape, grads: Grads, _: list[Tensor]) -> Sequence[Tensor | None]:
        return (tape.new("gradient of log-probabilities", numel, dtype),)

    saves = [(scores, ARGUMENT), (targets, ARGUMENT), (weight, ARGUMENT)]
    tape.record("nll_loss", [scores], [loss], saves, backward)
    return loss
