"""What a step copies to the CPU's memory and back, where something waits there.

Only what is offloaded is: the checkpoints' inputs, or whatever operations save
(:class:`.switches.Offload`). Each tensor goes there once in the forward pass and comes back once
for each operation that reads it.
"""

from __future__ import annotations

from .blocks.ledger import Recompute
from .run import Run
from .sharding import Host, Way
from .switches import Offload

#: A recording calls a tensor so when it is there again; see :meth:`.autograd.tape.Tape`.
_BACK = ", brought back"


def copied_bytes(run: Run) -> int:
    """The bytes that a micro-batch copies, both ways together, as the run's recording has them."""
    if run.switches.offload is Offload.NONE:
        return 0
    from .recorded_step import sized

    return 2 * sized(run).taken_by(lambda facts: facts.name.endswith(_BACK))


def least_copied_bytes(run: Run) -> int:
    """No micro-batch copies less; this needs no recording."""
    if run.switches.offload is Offload.NONE:
        return 0
    model, tensor = run.model, run.layout.tensor
    tokens = run.sequence * run.micro_batch
    numbers = model.hidden // (tensor if run.layout.sequence_parallel else 1) * tokens
    if run.recompute is Recompute.NONE and run.tuning.trains_all and not model.experts:
        # Every product saves its input and its weight: at least those of the feed-forward layer.
        numbers += (model.ffn // tensor) * (tokens + 2 * model.hidden)
    return 2 * 2 * numbers * model.layers


def optimizer_copies(run: Run) -> tuple[int, int]:
    """Bytes that go to an optimizer on the CPU in a step, and that come back: a GPU's share.

    Its gradients and its new weights, both in 16 bits (Ren et al. 2021, ZeRO-Offload,
    arXiv:2101.06840, section 3.3). From FSDP reduced gradients go, and shards come as they are
    kept, once for each gather (torch/distributed/fsdp/_fully_shard/_fsdp_param.py,
    all_gather_inputs).
    """
    by_fsdp = run.sharding.sharding in (Way.FSDP1, Way.FSDP2)
    if by_fsdp and run.sharding.offload_param is Host.CPU:
        from .gathering import shard_bytes
        from .shares import share_of, splitting_of

        split = splitting_of(run)
        kept, trained = shard_bytes(run.model, str(run.implementation), share_of(run), run.tuning)
        gathers = run.micro_batches * (2 if split.reshards else 1)
        return trained * (1 if split.waits else run.micro_batches), kept * gathers
    if run.sharding.offload_optimizer is Host.NONE:
        return 0, 0
    share = 2 * run.model.parameters.total // run.layout.replicas
    return share, share
