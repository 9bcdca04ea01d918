"""Low-rank adapters beside a product, and products with weights in 4 bits.

PEFT 0.21, tuners/lora/layer.py (Linear.forward) and tuners/lora/bnb.py (Linear4bit.forward);
bitsandbytes 0.50, nn/modules.py (Linear4bit), autograd/_functions.py (MatMul4Bit).
"""

from __future__ import annotations

from collections.abc import Callable

from ...formula import Formula
from ..memory import WORKING
from ..tape import Tape
from ..tensors import Adapter, Grads, Parameter, Tensor
from . import matrices
from .common import like, passed
from .elementwise import add, dropout, scale
from .views import cast

#: So many numbers of a weight in 4 bits share a scale.
BLOCK = 64


def adapted(
    tape: Tape, x: Tensor, product: Callable[[], Tensor], weight: Parameter, numel: Formula
) -> Tensor:
    """``product + lora_B(lora_A(dropout(x))) * scaling``, in the dtype of the product."""
    assert weight.adapter is not None
    name = weight.name
    if not weight.packed:
        base = product()
        before = base.dtype
        x = cast(tape, x, tape.units.shown(weight.adapter.down), f"{name}'s input, for the adapter")
        base = add(tape, base, _of_adapter(tape, x, weight, numel), f"{name}, adapted")
        return cast(tape, base, before, f"{name}, adapted")
    base = _copied(tape, product(), name)
    if not tape.autocast:
        x = cast(tape, x, tape.units.shown(weight.adapter.down), f"{name}'s input, for the adapter")
    more = _of_adapter(tape, x, weight, numel)
    if not tape.autocast:
        more = cast(tape, more, base.dtype, f"{name}'s adapter, scaled")
    return add(tape, base, more, f"{name}, adapted")


def _of_adapter(tape: Tape, x: Tensor, weight: Parameter, numel: Formula) -> Tensor:
    # One expression, so that no variable holds what is between.
    adapter, name = weight.adapter, f"{weight.name}'s adapter"
    assert adapter is not None
    return scale(
        tape,
        _through(tape, _narrowed(tape, x, adapter, name), adapter.up, numel, f"{name}, up"),
        f"{name}, scaled",
    )


def _narrowed(tape: Tape, x: Tensor, adapter: Adapter, name: str) -> Tensor:
    dropped = dropout(tape, x) if adapter.drops else x
    return _through(tape, dropped, adapter.down, adapter.narrow, f"{name}, down")


def _through(tape: Tape, x: Tensor, weight: Parameter, numel: Formula, name: str) -> Tensor:
    """One of the two products; FSDP's first version has its weight as a unit of its own."""
    tape.units.enter(weight)
    made = matrices.linear(tape, x, weight, numel, name)
    tape.units.leave(weight, made)
    return made


def _copied(tape: Tape, x: Tensor, name: str) -> Tensor:
    """``x.clone()``."""
    node = tape.node("clone", [x], passed)
    y = like(tape, x, f"{name}, copied")
    tape.attach(node, y)
    return y


def unpacked_product(
    tape: Tape, x: Tensor, weight: Parameter, numel: Formula, name: str, bias: Parameter | None
) -> Tensor:
    """``Linear4bit``: in 16 bits, with a copy of the weight that lives as long as the product.

    It saves nothing that is not there anyway: going back, the copy is made again.
    """
    before = x.dtype
    x = cast(tape, x, "bf16", f"{name}'s input")
    x_numel = x.numel

    def backward(tape: Tape, grads: Grads) -> tuple[Tensor]:
        scales = tape.new(f"{weight.name}'s scales", weight.numel / BLOCK, "fp32")
        copy = tape.new(f"{weight.name}, 16-bit copy", weight.numel, "bf16")
        del scales
        made = tape.new(f"gradient of {name}'s input", x_numel, "bf16")
        del copy
        return (made,)

    node = tape.node("MatMul4Bit", [x], backward)
    with tape.as_category(WORKING):
        scales = tape.new(f"{weight.name}'s scales, centred", weight.numel / BLOCK, "fp32")
        scales = tape.new(f"{weight.name}'s scales", weight.numel / BLOCK, "fp32")
        copy = tape.new(f"{weight.name}, 16-bit copy", weight.numel, "bf16")
    made = tape.new(name, numel, "bf16", x.order)
    del scales, copy
    tape.attach(node, made)
    return cast(tape, made, before, name)
