"""The parameters of a stage, and the contiguous buffers in which Megatron keeps and shares them.

What layers repeat is written once, with how often it is there: a stage of a thousand layers, of a
hundred experts each, is worked out as quickly as one of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm

from ..layouts import Weight
from ..model import Model
from ..rank import Rank
from ..records import dataclass
from ..run import Run
from .shape import further_layers, mixed_layers, padded_vocabulary

#: Each parameter begins at a multiple of so many numbers in a buffer that is shared out, and the
#: buffer ends at one of the other (core/distributed/param_and_grad_buffer.py).
START_MULTIPLE = 64
END_MULTIPLE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Weights in the order in which a module has them, each so many times, and the module too."""

    weights: tuple[tuple[int, Weight], ...]
    times: int = 1

    @property
    def parameters(self) -> int:
        """How many numbers they are."""
        return self.times * sum(count * weight.numel for count, weight in self.weights)


def part_weights(run: Run, rank: Rank, part: int = 0) -> tuple[Block, ...]:
    """A part's parameter tensors on one GPU, in the order in which the modules have them."""
    model = run.model
    rows = padded_vocabulary(run) // run.layout.tensor
    first, layers = rank.stage == 0 and part == 0, rank.layers_at_once
    found = []
    further = further_layers(run, rank, part)
    if first or further:
        tables = [(1, Weight(name="embedding", shape=(rows, model.hidden), vocabulary=True))]
        if model.positions:
            tables.append(_one("positions", model.positions, model.hidden))
        found.append(Block(weights=tuple(tables)))
    mixed = mixed_layers(run, rank, part)
    for times, is_mixed in ((layers - mixed, False), (mixed, True)):
        if times:
            found.append(Block(weights=tuple(_layer(run, mixed=is_mixed)), times=times))
    if rank.has_head(part):
        last = [*_norm(model, "final norm", model.hidden)]
        if further:
            found.append(Block(weights=tuple(last)))
            found.append(Block(weights=tuple(_further(run)), times=further))
            last = []
        if not model.tied or not first:
            shape = (rows, model.hidden)
            last.append((1, Weight(name="head", shape=shape, vocabulary=True)))
        if last:
            found.append(Block(weights=tuple(last)))
    return tuple(found)


def _one(name: str, *shape: int) -> tuple[int, Weight]:
    return 1, Weight(name=name, shape=shape)


def _further(run: Run) -> Iterator[tuple[int, Weight]]:
    """A layer that predicts tokens further on (``MultiTokenPredictionLayer``)."""
    model, hidden = run.model, run.model.hidden
    for name in ("norm of the embedding", "norm of the state"):
        yield from _norm(model, name, hidden)
    yield _one("states together", hidden // run.layout.tensor, 2 * hidden)
    yield from _layer(run, mixed=model.experts > 0)
    yield from _norm(model, "norm of its output", hidden)


def further_parameters(run: Run) -> tuple[int, int]:
    """How many numbers such layers have on a GPU of the last stage, and of them the experts'.

    With a pipeline there is another embedding as well.
    """
    block = Block(weights=tuple(_further(run)), times=run.switches.mtp_layers)
    of_experts = sum(one.parameters for one in named([block], EXPERTS, wanted=True))
    rows = padded_vocabulary(run) // run.layout.tensor
    table = (rows + run.model.positions) * run.model.hidden if run.layout.pipeline > 1 else 0
    return block.parameters + table, of_experts


def _norm(model: Model, name: str, width: int) -> Iterator[tuple[int, Weight]]:
    yield _one(name, width)
    if model.norm_bias:
        yield _one(f"{name} bias", width)


def _product(
    name: str, height: int, width: int, *, biased: bool = False
) -> Iterator[tuple[int, Weight]]:
    yield _one(name, height, width)
    if biased:
        yield _one(f"{name} bias", height)


def _layer(run: Run, *, mixed: bool) -> Iterator[tuple[int, Weight]]:
    model, hidden = run.model, run.model.hidden
    yield from _latent_attention(run) if model.latent else _attention(run)
    yield from _norm(model, "mlp norm", hidden)
    if mixed:
        yield from _mixture(run)
    else:
        wide, biased = model.ffn // run.layout.tensor, model.mlp_bias
        name, parts = ("gate and up", 2) if model.gated else ("up", 1)
        yield from _product(name, parts * wide, hidden, biased=biased)
        yield from _product("down", hidden, wide, biased=biased)


def _attention(run: Run) -> Iterator[tuple[int, Weight]]:
    model, tensor, hidden = run.model, run.layout.tensor, run.model.hidden
    queries, keys = model.query_width // tensor, max(model.kv_heads // tensor, 1) * model.head_dim
    yield from _product("attention output", hidden, queries, biased=model.output_bias)
    yield from _norm(model, "attention norm", hidden)
    joint = queries + 2 * keys
    yield from _product("query, key and value", joint, hidden, biased=model.qkv_bias)
    if model.qk_norm != "none":
        yield from _norm(model, "query norm", model.head_dim)
        yield from _norm(model, "key norm", model.head_dim)


def _latent_attention(run: Run) -> Iterator[tuple[int, Weight]]:
    model, hidden, heads = run.model, run.model.hidden, run.model.heads // run.layout.tensor
    yield _one("attention norm", hidden)
    yield _one("attention output", hidden, heads * model.v_head_dim)
    wide = model.q_lora_rank or hidden
    if model.q_lora_rank:
        yield _one("query latents", model.q_lora_rank, hidden)
        yield _one("query latent norm", model.q_lora_rank)
    yield _one("queries", heads * model.head_dim, wide)
    yield _one("latents", model.kv_lora_rank + model.qk_rope_head_dim, hidden)
    yield _one("latent norm", model.kv_lora_rank)
    made = model.qk_nope_head_dim + model.v_head_dim
    yield _one("keys and values", heads * made, model.kv_lora_rank)


def _mixture(run: Run) -> Iterator[tuple[int, Weight]]:
    model, hidden = run.model, run.model.hidden
    wide = model.expert_ffn // run.layout.expert_tensor
    here = model.experts // run.layout.expert
    yield 1, Weight(name="router", shape=(model.experts, hidden))
    yield here, Weight(name=EXPERTS[0], shape=(2 * wide, hidden))
    yield here, Weight(name=EXPERTS[1], shape=(hidden, wide))
    if model.shared_experts:
        wide = model.shared_experts * model.shared_expert_ffn // run.layout.tensor
        if model.shared_expert_gate:
            yield 1, Weight(name="shared gate", shape=(1, hidden))
        yield 1, Weight(name="shared gate and up", shape=(2 * wide, hidden))
        yield 1, Weight(name="shared down", shape=(hidden, wide))


#: Each expert's weights, which have replicas of their own where experts are shared out.
EXPERTS = ("expert's gate and up", "expert's down")
#: What a tied head shares with the first stage.
TABLES = ("embedding", "head")


def named(blocks: Sequence[Block], names: Sequence[str], *, wanted: bool) -> tuple[Block, ...]:
    """The weights of these names alone, or all others."""
    return tuple(
        Block(weights=weights, times=block.times)
        for block in blocks
        if (weights := tuple(o for o in block.weights if (o[1].name in names) is wanted))
    )


#: Weights whose gradient comes as a tensor: looked up in, or multiplied by without a main gradient.
_NOT_ADDED = ("embedding", "positions", "router", "shared gate")


def of_products(blocks: Sequence[Block], *, tied: bool) -> Iterator[Weight]:
    """The weights whose gradient is added to the main gradient by the product itself."""
    weights = [weight for block in blocks for _, weight in block.weights]
    has_norm = any(weight.name == "final norm" for weight in weights)
    for weight in weights:
        # Where the embedding is the head as well, there is a product with it.
        heads = weight.name == "embedding" and tied and has_norm
        if len(weight.shape) > 1 and (weight.name not in _NOT_ADDED or heads):
            yield weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where weights of ``numel`` numbers begin: ``count`` of them, again in ``times`` layers."""

    begin: int
    numel: int
    count: int
    step: int
    times: int
    layer_step: int

    def pieces(self, share: int) -> Iterator[tuple[int, int]]:
        """How many of how many numbers lie before ``share``, whole and cut."""
        last = self.begin + (self.count - 1) * self.step + self.numel
        layers = _fitting(share - last, self.layer_step, self.times)
        whole = layers * self.count
        if layers < self.times:
            begin = self.begin + layers * self.layer_step
            more = _fitting(share - begin - self.numel, self.step, self.count)
            whole += more
            cut = share - begin - more * self.step
            if more < self.count and cut > 0:
                yield 1, min(cut, self.numel)
        if whole:
            yield whole, self.numel


def _fitting(room: int, step: int, most: int) -> int:
    return min(most, room // step + 1) if room >= 0 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Parameters side by side: how many numbers with what fills the gaps, and where each lies.

    With the distributed optimizer every GPU that holds the same parameters updates ``share`` of
    them.
    """

    numel: int
    share: int
    places: tuple[Place, ...]

    def pieces(self) -> Iterator[tuple[int, int]]:
        """How often how many numbers: each parameter, or part, that the first GPU updates."""
        for place in self.places:
            yield from place.pieces(self.share)


def buffer(blocks: Sequence[Block], *, replicas: int, shared_out: bool) -> Buffer:
    """The buffer of these parameters, the last of them first (``_ParamAndGradBuffer``)."""
    multiple = START_MULTIPLE if shared_out else 1
    end, places = 0, []
    for block in reversed(blocks):
        base = end = _up(end, multiple)
        laid = []
        for count, weight in reversed(block.weights):
            begin, step = _up(end, multiple), _up(weight.numel, multiple)
            laid.append((begin, weight.numel, count, step))
            end = begin + (count - 1) * step + weight.numel
        layer_step = _up(end, multiple) - base
        end += (block.times - 1) * layer_step
        places += [
            Place(
                begin=begin,
                numel=numel,
                count=count,
                step=step,
                times=block.times,
                layer_step=layer_step,
            )
            for begin, numel, count, step in laid
        ]
    numel = _up(end, lcm(replicas, END_MULTIPLE)) if shared_out else end
    return Buffer(
        numel=numel, share=numel // replicas if shared_out else numel, places=tuple(places)
    )


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
