"""The units of a model that several GPUs share, made for the way in which they do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..autograd.flat_sharded import FlatSharded
from ..autograd.fully_sharded import FullySharded
from ..autograd.tape import Tape
from ..autograd.tensors import Parameter
from ..autograd.units import Units
from ..autograd.weights import Weights
from ..splitting import parameters_of
from .causal_lm import CausalLM


def units_of(tape: Tape, model: CausalLM) -> Units:
    """What hears of a model's parts as its step is recorded."""
    structure = model.structure
    split = structure.split
    if split.way == "fsdp1":
        flat = FlatSharded(
            tape, split, len(model.layers), structure.weights, structure.adapter_dtype
        )
        for weights, one in (
            (model.outer, flat.root),
            *zip(model.layers, flat.layers, strict=True),
        ):
            weights.flat = one.edge_of
        return flat
    if split.way != "fsdp2":
        return Units()
    outer, wrap, tied = model.outer, split.wrap, structure.tied

    def around(kind: str) -> Sequence[Parameter]:
        named = {
            name: other
            for other in ("embedding", "tail")
            for name in parameters_of(other, wrap, tied=tied)
        }
        return [weight for name, weight in outer.made.items() if named.get(name, "root") == kind]

    positioned = structure.family in ("gpt2", "classic-gpt")
    if wrap == "layers":
        has: tuple[str, ...] = ("root",)
    else:
        rooted = positioned or wrap == "head"
        has = (*(("root",) if rooted else ()), *(() if tied else ("embedding",)), "tail")
    return FullySharded(
        tape,
        split,
        around,
        [_of_layer(weights) for weights in model.layers],
        has=has,
        tied=tied,
        drops=structure.drops_gradients or split.away,
    )


def _of_layer(weights: Weights) -> Callable[[], Sequence[Parameter]]:
    return lambda: list(_with_adapters(weights.made.values()))


def _with_adapters(weights: Iterable[Parameter]) -> Iterator[Parameter]:
    for weight in weights:
        yield weight
        if weight.adapter:
            yield from (weight.adapter.down, weight.adapter.up)
