"""What a run asks of DeepSpeed: its configuration's numbers, and how weights are grouped."""

from __future__ import annotations

from collections.abc import Mapping

from ..run import Run
from ..sharding import Host
from . import flat
from .gathering import Limits
from .third import Shares


def item_bytes(run: Run) -> int:
    """The bytes of a weight, and of its gradient."""
    return 4 if run.recipe.precision == "fp32" else 2


def bucket_numbers(run: Run) -> int:
    """How many numbers the bucket of gradients has."""
    size = run.sharding.reduce_bucket_size
    return run.model.hidden**2 if isinstance(size, str) else size


def offloads(run: Run) -> bool:
    """Whether the optimizer's states are not on the GPU, and it steps on the CPU."""
    return run.sharding.offload_optimizer is not Host.NONE


def persistence_numbers(run: Run) -> int:
    """Weights of at most so many numbers stay whole."""
    size = run.sharding.param_persistence_threshold
    return 10 * run.model.hidden if isinstance(size, str) else size


def limits(run: Run) -> Limits:
    """How much stage 3 gathers; "auto" as transformers' integrations/deepspeed.py has it."""
    ahead = run.sharding.prefetch_bucket_size
    return Limits(
        bucket=bucket_numbers(run),
        prefetch=int(0.9 * run.model.hidden**2) if isinstance(ahead, str) else ahead,
        persistence=persistence_numbers(run),
        live=run.sharding.max_live_parameters,
        reuse=REUSE,
    )


#: DeepSpeed's stage3_max_reuse_distance where nothing else is said, in numbers.
REUSE = 1_000_000_000


def groups(run: Run) -> tuple[flat.Group, ...]:
    """The optimizer's groups of weights."""
    return flat.groups(run.model, str(run.implementation), run.layout.data, run.tuning)


def shares(run: Run) -> Shares:
    """Stage 3's shares of the weights."""
    return Shares(
        groups=groups(run),
        every=flat.weights(run.model, str(run.implementation), run.tuning)[0],
        item_bytes=item_bytes(run),
        bucket=bucket_numbers(run),
        persistence=persistence_numbers(run),
        offloads=offloads(run),
        away=run.sharding.offload_param is not Host.NONE,
    )


def numels(run: Run) -> Mapping[flat.Key, int]:
    """Each weight's numbers, in the model's order."""
    return flat.numels(run.model, str(run.implementation), run.tuning)


def stepped(run: Run) -> list[int]:
    """How many numbers each tensor has that the optimizer steps on one GPU."""
    of = groups(run)
    if run.layout.zero == 3:
        return [one.numel for one in shares(run).sub_groups()]
    if run.layout.zero:
        return [group.share for group in of]
    return [numel for group in of for numel in group.numels]
