"""Which weights of a family have adapters or are in 4 bits, by the names in its code."""

from __future__ import annotations

from collections.abc import Mapping

from ..autograd.tensors import Adapter, Parameter
from ..autograd.weights import Fitting
from ..formula import LINEAR, Formula, product, symbol
from ..structure import Structure
from ..tuning import targeted

_H, _F = symbol("h"), symbol("f")
_Q, _K = product(("a", "e")), product(("g", "e"))

#: Of every product with a weight in a layer: the features that go in, and those that come out.
_FEATURES: Mapping[str, tuple[Formula, Formula]] = {
    "query": (_H, _Q),
    "key": (_H, _K),
    "value": (_H, _K),
    "query, key and value": (_H, _Q + 2 * _K),
    "attention output": (_Q, _H),
    "gate": (_H, _F),
    "up": (_H, _F),
    "gate and up": (_H, 2 * _F),
    "down": (_F, _H),
}
_NARROW = product(("s", "b", "R"))


def fitting(structure: Structure) -> Fitting | None:
    """What is done to every weight as it is made; None where all are trained."""
    if structure.adapter == "none":
        return None

    def fit(weight: Parameter) -> None:
        weight.trainable = False
        weight.packed = structure.adapter == "qlora" and weight.name in LINEAR
        if targeted(weight.name, structure.adapter_targets):
            into, out = _FEATURES[weight.name]
            rank = symbol("R")
            dtype = structure.adapter_dtype
            weight.adapter = Adapter(
                Parameter(f"{weight.name}'s adapter, down", rank * into, dtype),
                Parameter(f"{weight.name}'s adapter, up", out * rank, dtype),
                _NARROW,
                drops=structure.adapter_drops,
            )

    return fit
