"""What a run's splitting over GPUs means for the recording of its step, and for its sizes."""

from __future__ import annotations

from .flat import trained_units
from .held import item_bytes_of
from .implementations import Implementation
from .layout import Exchange
from .layouts import layout_of, trained
from .run import Run
from .sharding import FsdpUnits, Host, Prefetch, ReduceDtype, Way
from .splitting import ALONE, WITHOUT_ZERO, Share, Splitting
from .tuning import Adapter


def splitting_of(run: Run) -> Splitting:
    """The order of events of a run on several GPUs."""
    layout, of = run.layout, run.sharding
    tensor, sequence = layout.tensor > 1, layout.sequence_parallel
    if layout.replicas == 1:
        return Splitting(tensor=tensor, sequence=sequence) if tensor else ALONE
    if of.sharding is Way.DDP:
        return Splitting(way=str(of.sharding), views=of.bucket_views)
    if of.sharding is Way.DEEPSPEED:
        return Splitting(way=str(of.sharding) if layout.zero else WITHOUT_ZERO)
    share = share_of(run)
    if of.sharding is Way.FSDP1:
        return _flat(run, share)
    return Splitting(
        way=str(of.sharding),
        tensor=tensor,
        sequence=sequence,
        wrap=_wrap(run),
        reshards=of.reshard_after_forward,
        explicit=of.prefetch is Prefetch.EXPLICIT,
        casts=share.policy,
        recasts=share.reduce != share.keep,
        widens=share.reduce != share.compute,
        replicated=of.replicate > 1,
        waits=_kinds(run),
        away=share.away,
        context=layout.context,
        gathers=layout.context > 1 and layout.context_exchange is Exchange.ALL_GATHER,
    )


def _flat(run: Run, share: Share) -> Splitting:
    of = run.sharding
    units = list(trained_units(run.model, str(run.implementation), share, run.tuning))
    return Splitting(
        way=str(of.sharding),
        reshards=of.reshard_after_forward,
        casts=share.compute != share.keep,
        recasts=share.reduce != share.keep,
        waits=_kinds(run),
        away=share.away,
        views=share.away and share.views,
        backward=str(of.backward_prefetch),
        forward=of.forward_prefetch,
        shares=share.shards > 1,
        pads=any(one.share * share.shards != one.numel for one in units),
        zeros=any(one.zeros for one in units),
        frozen="" if run.tuning.trains_all else str(run.tuning.frozen_dtype),
        originals=share.views and not run.tuning.trains_all,
        adapters=_ahead(run) if of.forward_prefetch else (),
    )


def _ahead(run: Run) -> tuple[str, ...]:
    if run.tuning.trains_all:
        return ()
    return tuple(
        one.name for one in trained(layout_of(run.model, str(run.implementation)), run.tuning).layer
    )


def _wrap(run: Run) -> str:
    """What is a unit by itself.

    accelerate (utils/fsdp_utils.py, _find_final_norm) looks for the last norm in the model's
    "model"; PEFT's has all of the model there, norm and layers in a "model" of that.
    """
    if run.sharding.fsdp_units is FsdpUnits.LAYERS:
        return "layers"
    hidden = not run.tuning.trains_all and run.model.family != "gpt"
    return "head" if hidden else "ends"


def _kinds(run: Run) -> int:
    """Of how many kinds micro-batches are where only the last reduces gradients; 0 where all do.

    transformers' Trainer has FSDP keep whole gradients until then (accelerate's no_sync) unless it
    is told to sync_each_batch, while torchtitan reduces them each time.
    """
    waits = run.implementation is Implementation.HUGGINGFACE and run.micro_batches > 1
    if run.sharding.sync_each_batch:
        return 0
    return min(run.micro_batches, 3) if waits else 0


def share_of(run: Run) -> Share:
    """What one GPU of a run has of each weight."""
    of, precision = run.sharding, run.recipe.precision
    if run.layout.replicas == 1:
        return Share(tensor=run.layout.tensor, sequence=run.layout.sequence_parallel)
    keep = item_bytes_of(precision, run.tuning)
    if of.sharding is Way.DDP:
        return Share(buckets=True)
    if of.sharding is Way.DEEPSPEED:
        return Share(shards=run.layout.data if run.layout.zero else 1)
    # Where codes of 4 bits are flattened, transformers' Trainer makes a policy of their storage
    # (distributed/fsdp.py, update_fsdp_plugin_peft).
    four_bits = run.tuning.adapter is Adapter.QLORA and of.sharding is Way.FSDP1
    policy = precision == "autocast" or four_bits
    # Without a policy of mixed precision gradients are reduced as they come.
    reduce = (2 if of.reduce_dtype is ReduceDtype.BF16 else 4) if policy else keep
    shards = run.layout.replicas // of.replicate
    return Share(
        shards=shards,
        tensor=run.layout.tensor,
        compute=2 if policy else keep,
        keep=keep,
        reduce=reduce,
        policy=policy,
        away=of.offload_param is Host.CPU,
        # All GPUs are one group where none shares.
        flat=0 if of.sharding is Way.FSDP2 else shards if shards > 1 else run.layout.data,
        views=of.sharding is Way.FSDP1 and of.use_orig_params,
    )
