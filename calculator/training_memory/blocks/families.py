"""Every family of models: what comes before its layers, the layer, and the norm after them."""

from __future__ import annotations

from collections.abc import Callable

from ..autograd import operations as op
from ..autograd.tape import Tape
from ..autograd.tensors import Tensor
from ..autograd.weights import Weights
from ..formula import as_formula
from ..records import dataclass
from ..structure import Structure
from . import classic_gpt, gemma, gpt2, llama, masks, olmo2, parallel, phi3, plain_llama, rms
from .rotary import position_ids, tables
from .shared import Shared
from .sizes import PLACES, POSITIONS, ROWS, TOKENS


class Start:
    """What the layers begin with: their input, what the first is given and what all others are.

    ``holding`` is what variables of the model's forward pass hold until the last norm is done.
    """

    __slots__ = ("_x", "first", "holding", "others")

    def __init__(self, x: Tensor, first: Shared, others: Shared, *holding: Tensor | None) -> None:
        self._x = [x]
        self.first = first
        self.others = others
        self.holding = holding

    def take(self) -> Tensor:
        """The layers' input, which is not held here any more."""
        return self._x.pop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One class of models."""

    before: Callable[[Tape, Tensor, Weights, Structure], Start]
    layer: Callable[[Tape, Tensor, Weights, Structure, Shared], Tensor]
    norm: Callable[[Tape, Tensor, Weights, Structure], Tensor]


def _embedded(
    tape: Tape, ids: Tensor, w: Weights, structure: Structure, *, scaled: bool = False
) -> Tensor:
    tape.units.start("embedding")
    if structure.split.tensor:
        x = parallel.embedded(tape, ids, w, structure)
    else:
        x = op.embedding(tape, ids, w("embedding", "V", "h"), TOKENS, "embedded tokens")
    if scaled and structure.split.casts and structure.split.way == "fsdp2":
        # The scale is kept in fp32 and cast to what the gathered table is in.
        scale = tape.new("embedding scale, cast", as_formula(1), x.dtype)
        x = op.multiply(tape, x, scale, "embedded tokens, scaled")
        del scale
    elif scaled:
        x = op.scale(tape, x, "embedded tokens, scaled")
    if structure.adapter != "none" and structure.recompute in ("full", "matmuls"):
        # transformers/modeling_utils.py, enable_input_require_grads: the first checkpoint is to
        # have an input that wants a gradient, though no weight before it does.
        tape.leaf(x)
    tape.units.after("embedding", x)
    return x


def _mask(tape: Tape, x: Tensor, structure: Structure) -> Tensor | None:
    return masks.causal(tape, x.dtype) if structure.kernel == "eager" else None


def _before_llama(tape: Tape, ids: Tensor, w: Weights, structure: Structure) -> Start:
    x = _embedded(tape, ids, w, structure)
    places = position_ids(tape)
    mask = _mask(tape, x, structure)
    # OLMo 2 leaves its tables in fp32.
    shared = Shared(tables(tape, "fp32" if structure.family == "olmo2" else x.dtype), places, mask)
    return Start(x, shared, shared, x)


def _before_gemma(tape: Tape, ids: Tensor, w: Weights, structure: Structure) -> Start:
    x = _embedded(tape, ids, w, structure, scaled=True)
    places = position_ids(tape)
    # The first layer looks only so far back; of the kinds of layers it is the last in backward.
    mask = _mask(tape, x, structure)
    near = masks.sliding(tape, x.dtype) if structure.kernel == "eager" else None
    turn = other = tables(tape, x.dtype)
    if structure.family == "gemma3" and structure.two_kinds:
        other = tables(tape, x.dtype)
    others = Shared(other, places, mask) if structure.two_kinds else Shared(turn, places, near)
    return Start(x, Shared(turn, places, near), others, x, mask)


def _before_gpt2(tape: Tape, ids: Tensor, w: Weights, structure: Structure) -> Start:
    embedded = _embedded(tape, ids, w, structure)
    places = position_ids(tape)
    placed = _placed(tape, places, w, structure)
    x = op.add(tape, embedded, placed, "residual stream")
    shared = Shared(None, places, _mask(tape, x, structure))
    return Start(op.dropout(tape, x, drops=structure.drops), shared, shared, embedded, placed)


def _placed(tape: Tape, places: Tensor, w: Weights, structure: Structure) -> Tensor:
    numel = TOKENS if structure.one_sequence else PLACES
    return op.embedding(tape, places, w("positions", "P", "h"), numel, "embedded positions")


def _before_plain_llama(tape: Tape, ids: Tensor, w: Weights, structure: Structure) -> Start:
    shared = Shared(None)
    return Start(_embedded(tape, ids, w, structure), shared, shared)


def _before_classic_gpt(tape: Tape, ids: Tensor, w: Weights, structure: Structure) -> Start:
    embedded = _embedded(tape, ids, w, structure)
    placed = _placed(tape, tape.new("positions", POSITIONS, "int64"), w, structure)
    x = op.add(tape, embedded, placed, "residual stream")
    del embedded, placed
    x = op.dropout(tape, x)
    shared = Shared(None, masks.triangle(tape, structure) if structure.kernel == "eager" else None)
    return Start(x, shared, shared)


def _rms_norm(tape: Tape, x: Tensor, w: Weights, structure: Structure) -> Tensor:
    return rms.norm(tape, x, w("final norm", "h"), structure, parallel.rows(structure))


def _layer_norm(tape: Tape, x: Tensor, w: Weights, _: Structure) -> Tensor:
    return op.layer_norm(tape, x, w("final norm", "h"), w("final norm bias", "h"), ROWS)


FAMILIES: dict[str, Family] = {
    "gpt2": Family(before=_before_gpt2, layer=gpt2.layer, norm=_layer_norm),
    "llama": Family(before=_before_llama, layer=llama.layer, norm=_rms_norm),
    "olmo2": Family(before=_before_llama, layer=olmo2.layer, norm=_rms_norm),
    "gemma2": Family(before=_before_gemma, layer=gemma.layer, norm=_rms_norm),
    "gemma3": Family(before=_before_gemma, layer=gemma.layer, norm=_rms_norm),
    "phi3": Family(before=_before_llama, layer=phi3.layer, norm=_rms_norm),
    "plain-llama": Family(before=_before_plain_llama, layer=plain_llama.layer, norm=_rms_norm),
    "classic-gpt": Family(before=_before_classic_gpt, layer=classic_gpt.layer, norm=_layer_norm),
}
