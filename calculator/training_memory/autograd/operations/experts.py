"""Operations of a mixture of experts as Megatron runs one: the router, moves of tokens, products.

Megatron-Core 0.16: core/transformer/moe/ and core/tensor_parallel/mappings.py. Transformer Engine
2.11: pytorch/permutation.py and pytorch/module/grouped_linear.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...formula import Formula
from ..tape import Save, Tape
from ..tensors import Grads, Parameter, Tensor
from .common import IDS, INPUT, PRODUCT, like, only

PLACES = "Backward sends each gradient back to where its token came from."


def routing_product(tape: Tape, x: Tensor, weight: Parameter, numel: Formula) -> Tensor:
    """``RouterGatingLinearFunction`` in fp32: going back it casts both of its factors."""
    own, dtype, of_all = x.numel, x.dtype, weight.numel

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor, Tensor]:
        copy = tape.new("router's weight in fp32", of_all, "fp32")
        wide_x = tape.new("gradient of the router's input in fp32", own, "fp32")
        del copy
        copy = tape.new("router's input in fp32", own, "fp32")
        wide = tape.new("gradient of the router in fp32", of_all, "fp32")
        del copy
        of_x = tape.new("gradient of the router's input", own, dtype)
        del wide_x
        return of_x, tape.new("gradient of the router", wide.numel, weight.dtype)

    node = tape.node("linear", [x, weight], backward, [(x, INPUT), (weight, INPUT)])
    z = tape.new("router's scores", numel, "fp32")
    tape.attach(node, z)
    return z


def scattered_to(tape: Tape, x: Tensor, places: Tensor, numel: Formula, name: str) -> Tensor:
    """``zeros.scatter(1, places, x)``: saves the places."""
    own, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradients of the chosen", own, dtype),)

    zeros = tape.new("zeros", numel, dtype)
    node = tape.node("scatter", [x], backward, [(places, IDS)])
    y = tape.new(name, numel, dtype)
    del zeros
    tape.attach(node, y)
    return y


def with_loss(tape: Tape, x: Tensor, loss: Tensor) -> Tensor:
    """``MoEAuxLossAutoScaler``: the loss's gradient begins where x's passes."""
    one = loss.numel

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor, Tensor]:
        # Ones, scaled, and brought to the loss's size.
        ones = tape.new("ones", one, "fp32")
        scaled = tape.new("ones, scaled", one, "fp32")
        del ones
        return only(grads), tape.new("gradient of the balancing loss", scaled.numel, "fp32")

    node = tape.node("balancing loss", [x, loss], backward, [(loss, PRODUCT)])
    y = x.detached()
    tape.attach(node, y)
    return y


def times_counts(tape: Tape, x: Tensor, counts: Tensor | None) -> Tensor:
    """``x * counts``, or by a number: saves the counts."""

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradient of a factor", x_numel, "fp32"),)

    x_numel = x.numel
    node = tape.node("mul", [x], backward, [(counts, PRODUCT)] if counts else [])
    y = like(tape, x, "product")
    tape.attach(node, y)
    return y


def permuted(
    tape: Tape,
    x: Tensor,
    weights: Tensor,
    places: Tensor,
    sizes: tuple[Formula, Formula],
) -> tuple[Tensor, Tensor]:
    """``moe_permute_with_probs``: each token as often as it was chosen, expert by expert."""
    own, of_all, dtype = x.numel, weights.numel, weights.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor, Tensor]:
        # PyTorch makes zeros of the gradient that the places have not.
        zeros = tape.new("zeros for the places", places_numel, "int32")
        found = (
            tape.new("gradient of the tokens", own, x_dtype),
            tape.new("gradient of all chances", of_all, dtype),
        )
        del zeros
        return found

    x_dtype, places_numel = x.dtype, places.numel
    node = tape.node("permute", [x, weights], backward, outputs=2)
    tokens = tape.new("tokens by expert", sizes[0], x.dtype)
    chances = tape.new("their chances", sizes[1], dtype)
    tape.attach(node, tokens, chances, saves=[(places, PLACES)])
    return tokens, chances


def unpermuted(tape: Tape, x: Tensor, places: Tensor, numel: Formula) -> Tensor:
    """``moe_unpermute``: what the experts made of each token, summed."""
    own, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new("gradients by expert", own, dtype),)

    node = tape.node("unpermute", [x], backward, [(places, PLACES)])
    y = tape.new("experts' sum", numel, dtype)
    tape.attach(node, y)
    return y


def sorted_chunks(
    tape: Tape, x: Tensor, weights: Tensor | None, rows: Formula
) -> tuple[Tensor, Tensor | None]:
    """``moe_sort_chunks_by_index``: what came from each GPU, put together by expert."""
    given = [x] if weights is None else [x, weights]
    shapes = [(one.numel, one.dtype) for one in given]

    def backward(tape: Tape, grads: Grads) -> list[Tensor | None]:
        return [tape.new("gradients by GPU", numel, dtype) for numel, dtype in shapes]

    node = tape.node("sort", given, backward, outputs=len(given))
    places = tape.new("places of the chunks", rows, "int32")
    made = [like(tape, one, f"{name} by expert") for one, name in zip(given, _SORTED, strict=False)]
    tape.attach(node, *made, saves=[(places, PLACES)])
    return made[0], made[1] if len(made) > 1 else None


_SORTED = ("tokens", "chances")


def moved(tape: Tape, x: Tensor, numel: Formula, name: str, dtype: str | None = None) -> Tensor:
    """An exchange between GPUs, or a cast: a new tensor, and one for its gradient."""
    own, before = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        return (tape.new(f"gradient of {name}", own, before),)

    node = tape.node("move", [x], backward)
    y = tape.new(name, numel, dtype or x.dtype)
    tape.attach(node, y)
    return y


def grouped_linear(tape: Tape, x: Tensor, weight: Parameter, numel: Formula, name: str) -> Tensor:
    """``GroupedLinear``: one product of all experts; saves its input."""
    own, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        return tape.new(f"gradient of {name}'s input", own, dtype), None

    node = tape.node("linear", [x, weight], backward, [(x, INPUT), (weight, INPUT)])
    z = tape.new(name, numel, dtype)
    tape.attach(node, z)
    return z


def weighted_swiglu(tape: Tape, x: Tensor, weights: Tensor, numel: Formula) -> Tensor:
    """``WeightedSwiGLUFunction``: the activation times each token's chance, in one kernel."""
    inner, rows = (x.numel, x.dtype), (weights.numel, weights.dtype)

    def backward(tape: Tape, grads: Grads) -> list[Tensor]:
        names = ("gradient before the SwiGLU output", "gradient of the chances")
        shapes = zip(names, (inner, rows), strict=True)
        return [tape.new(name, numel, dtype) for name, (numel, dtype) in shapes]

    kept: list[Save] = [(x, PRODUCT), (weights, PRODUCT)]
    node = tape.node("activation", [x, weights], backward, kept)
    y = tape.new("SwiGLU output, weighted", numel, x.dtype)
    tape.attach(node, y)
    return y


def column_linear(
    tape: Tape, x: Tensor, weight: Parameter, numel: Formula, name: str, gathered: Formula | None
) -> Tensor:
    """``Linear`` whose GPUs each hold some rows: saves its input as it was before it was gathered.

    The gathered input is made again going back.
    """
    own, dtype = x.numel, x.dtype

    def backward(tape: Tape, grads: Grads) -> Sequence[Tensor | None]:
        total = tape.new(f"{name}'s input, gathered", gathered, dtype) if gathered else None
        of_total = tape.new(f"gradient of {name}'s input", gathered or own, dtype)
        of_x = of_total
        if gathered:
            of_x = tape.new(f"gradient of {name}'s input, scattered", own, dtype)
        del total, of_total
        return of_x, None

    node = tape.node("linear", [x, weight], backward, [(x, INPUT), (weight, INPUT)])
    total = tape.new(f"{name}'s input, gathered", gathered, dtype) if gathered else None
    z = tape.new(name, numel, dtype)
    del total
    tape.attach(node, z)
    return z
