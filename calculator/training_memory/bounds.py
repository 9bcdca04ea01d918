"""Less than which no step of a run can take: quick to know, and enough to rule most plans out.

What stays from step to step, and beside it what backward passes cannot do without: products read
their inputs, attention its queries, keys, values and output, a norm its input, an activation its
own. A test holds every run to its bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from .blocks.ledger import Recompute
from .categories import Category
from .implementations import BY_STAGES, Implementation
from .pipeline import Schedule
from .rank import Rank, ranks
from .recorded_step import held_rows
from .run import Run
from .sharding import Host, Way
from .shares import splitting_of
from .step import layer_rows, logits_bytes, sharded, states
from .switches import Compile, Loss, Offload

#: Bytes of the smallest numbers that anything is computed in.
_ITEM_BYTES = 2


def held_bytes(run: Run) -> tuple[int, ...]:
    """What stays from step to step on each kind of GPU; in the textbook all states, gradients too.

    The same for every number of micro-batches, and none of the moves of a plan makes it less.
    """
    if run.implementation is Implementation.PAPER:
        return tuple(sum(size for _, size in states(run, rank)) for rank in ranks(run))
    if run.implementation in BY_STAGES:
        from .megatron.held import held_rows as by_stage

        # Other rows may be let go before the peak: what the last step's routing left, for one.
        return tuple(
            sum(row.bytes for row in by_stage(run, rank) if row.category in _STAYS)
            for rank in ranks(run)
        )
    # The first step's states are made as it ends.
    late = (Category.OPTIMIZER,) if run.sharding.first_step else ()
    return (sum(row.bytes for row in held_rows(run) if row.category not in late),)


_STAYS = (Category.WEIGHTS, Category.MASTER, Category.OPTIMIZER, Category.GRADIENTS)


def least_bytes(run: Run, held: Sequence[int] | None = None) -> int:
    """A lower bound of the worst GPU's peak.

    ``held`` is :func:`held_bytes` where that is known, of the run or of one that holds no more.
    """
    found = held or held_bytes(run)
    kinds = ranks(run)
    if run.implementation is Implementation.PAPER:
        return max(map(_of_the_textbook, repeat(run), kinds, found))
    if run.implementation in BY_STAGES:
        return max(size + _in_flight(run, rank) for rank, size in zip(kinds, found, strict=True))
    gradients, waiting = _gradients(run), _in_flight(run, *kinds)
    if run.micro_batches > 1:
        waiting += gradients  # those of the micro-batches before
    return found[0] + max(gradients, waiting)


def _of_the_textbook(run: Run, rank: Rank, everything: int) -> int:
    """All states as the optimizer steps, or what waits as the first backward pass begins."""
    waiting = _layer_bytes(run) * rank.layers_at_once * rank.in_flight
    if rank.is_last:
        waiting += logits_bytes(run)
    if run.layout.schedule is not Schedule.ONE_F_ONE_B or run.micro_batches <= rank.in_flight:
        # No backward pass has written gradients by then.
        stage = run.recipe.zero_stage[Category.GRADIENTS]
        waiting -= sharded(run, rank, stage) * run.recipe.by_category[Category.GRADIENTS]
    return everything + max(0, waiting)


def _layer_bytes(run: Run) -> int:
    return sum(row.bytes for row in layer_rows(run) if row.kept)


def _gradients(run: Run) -> int:
    """Every weight's gradient as the optimizer steps, beside those that stay anyway."""
    sharded = run.layout.replicas > 1 and run.sharding.sharding is Way.FSDP2
    if (
        not run.tuning.trains_all
        or run.switches.optimizer_in_backward
        or run.sharding.offload_param is Host.CPU
        or run.recipe.precision == "master-fp32-grad"
        or (run.layout.replicas > 1 and not sharded)  # in buckets, perhaps
    ):
        return 0
    shards = run.layout.replicas // run.sharding.replicate if sharded else 1
    wide = run.recipe.precision in ("fp32", "autocast") and not sharded
    item_bytes = 4 if wide else _ITEM_BYTES
    return run.model.parameters.total * item_bytes // (shards * run.layout.tensor)


def _in_flight(run: Run, rank: Rank) -> int:
    """What all layers keep of the micro-batches that wait as the first backward pass begins."""
    layout, model = run.layout, run.model
    tokens = run.sequence * run.micro_batch // layout.context
    waiting = _kept_bytes(run) * tokens * rank.layers_at_once * rank.in_flight
    by_stage = run.implementation in BY_STAGES
    if run.switches.compile is not Compile.NONE:
        return 0  # what a compiled graph keeps is its partitioner's to choose
    if rank.is_last and run.switches.loss in (Loss.FULL, Loss.FUSED):
        # PyTorch's loss has the logits in 32 bits, and their log-softmax beside them.
        each = _ITEM_BYTES if by_stage else 2 * 4
        waiting += each * tokens * (model.vocabulary // layout.tensor)
    return waiting if by_stage else waiting + _casts(run)


def _computes_in_fp32(run: Run) -> bool:
    return run.recipe.precision == "fp32"


def _casts(run: Run) -> int:
    """Autocast's copies of weights in 16 bits, which it has until the loss is there."""
    autocast = run.recipe.precision == "autocast" and run.tuning.trains_all
    if not autocast or splitting_of(run).casts:
        return 0
    model = run.model
    attention = model.hidden * (2 * model.query_width + 2 * model.kv_width)
    features = 0 if model.experts else model.hidden * model.ffn * (3 if model.gated else 2)
    of_layers = 0 if model.latent else model.layers * (attention + features)
    return _ITEM_BYTES * of_layers // run.layout.tensor


def _kept_bytes(run: Run) -> int:
    """Bytes that one layer keeps of a token on a GPU, at the least."""
    model, tensor = run.model, run.layout.tensor
    if run.switches.offload is not Offload.NONE or not run.tuning.trains_all:
        return 0
    each = 4 if _computes_in_fp32(run) else _ITEM_BYTES
    hidden = model.hidden // (tensor if run.layout.sequence_parallel else 1)
    # What goes from layer to layer is in 32 bits where the embedding is.
    wide = run.recipe.precision == "autocast" and not splitting_of(run).casts
    begins_with = hidden * (4 if wide else each)
    # With latent attention keys and values may be made anew of what they were made of.
    attention = 0 if model.latent else (model.query_width + 2 * model.kv_width) // tensor
    ffn = 0 if model.experts else model.ffn // tensor
    if run.recompute is Recompute.FULL:
        return begins_with
    if run.recompute is Recompute.MATMULS:
        if run.implementation is not Implementation.HUGGINGFACE:
            return 0
        # What every product gives.
        return begins_with + each * (attention + hidden + (2 if model.gated else 1) * ffn)
    if model.experts:
        return begins_with + each * attention
    # The activation's input and output, and where it is multiplied with a gate this as well.
    return begins_with + each * (2 * hidden + attention + (3 if model.gated else 2) * ffn)
