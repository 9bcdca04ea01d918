"""A run's numbers as one GPU of Megatron's has them, and what decides the order of its step."""

from __future__ import annotations

from collections.abc import Mapping

from ..blocks.ledger import Recompute
from ..blocks.megatron_experts import ExpertStructure
from ..blocks.megatron_structure import StageStructure
from ..implementations import Implementation
from ..layout import Routing
from ..model import Norm
from ..rank import Rank
from ..run import Run
from ..switches import Fusion

#: ``--make-vocab-size-divisible-by``, for each of the GPUs that share the vocabulary.
VOCABULARY_MULTIPLE = 128


def padded_vocabulary(run: Run) -> int:
    """The vocabulary's rows, up to what divides evenly (``_vocab_size_with_padding``)."""
    each = 1 if run.implementation is Implementation.NANOTRON else VOCABULARY_MULTIPLE
    multiple = each * run.layout.tensor
    return -(-run.model.vocabulary // multiple) * multiple


def values(run: Run) -> Mapping[str, int]:
    """The run's numbers on one GPU under the symbols of its recording."""
    model, layout = run.model, run.layout
    tokens = run.sequence // layout.context
    return {
        "L": model.layers,
        "a": model.heads // layout.tensor,
        "s": tokens,
        "z": tokens // layout.tensor if layout.sequence_parallel else tokens,
        "b": run.micro_batch,
        "h": model.hidden,
        "g": max(model.kv_heads // layout.tensor, 1),
        "e": model.head_dim,
        "f": model.ffn // layout.tensor,
        "V": padded_vocabulary(run) // layout.tensor,
        "t": layout.tensor,
        "C": layout.context,
        "P": model.positions,
        **(_of_experts(run, tokens) if model.experts else {}),
        **(_of_latents(run) if model.latent else {}),
    }


def _of_latents(run: Run) -> Mapping[str, int]:
    model = run.model
    return {
        "q": model.q_lora_rank,
        "l": model.kv_lora_rank,
        "E": model.qk_rope_head_dim,
        "v": model.v_head_dim,
    }


def _of_experts(run: Run, tokens: int) -> Mapping[str, int]:
    model, layout = run.model, run.layout
    own = tokens * run.micro_batch // (layout.tensor if layout.sequence_parallel else 1)
    here = model.experts // layout.expert
    if layout.routing is Routing.WORST:
        # Every token of all GPUs whose tokens come here, for as many experts as there are here.
        come = own * layout.expert * min(model.experts_per_token, here)
    else:
        come = own * model.experts_per_token
    return {
        "x": model.experts,
        "k": model.experts_per_token,
        "j": here,
        "i": layout.expert,
        "n": layout.expert_tensor,
        "D": come,
        "S": model.shared_experts * model.shared_expert_ffn // layout.tensor,
        "F": model.expert_ffn // layout.expert_tensor,
    }


def drops(run: Run) -> bool:
    """Whether something is dropped: as Megatron's arguments have it, of GPTs a tenth."""
    dropout = run.switches.dropout
    return run.model.positions > 0 if dropout is None else dropout


def dense_layers(run: Run, rank: Rank, part: int) -> int:
    """How many of a part's layers, the first of them, have no experts in a mixture."""
    if not run.model.experts:
        return 0
    before = rank.first_layer_of(part) - 1
    return min(max(run.model.dense_layers - before, 0), rank.layers_at_once)


def mixed_layers(run: Run, rank: Rank, part: int) -> int:
    """How many of a part's layers have experts."""
    if not run.model.experts:
        return 0
    return rank.layers_at_once - dense_layers(run, rank, part)


def further_layers(run: Run, rank: Rank, part: int) -> int:
    """How many layers that predict tokens further on follow a part's."""
    return run.switches.mtp_layers if rank.has_head(part) else 0


def routed_layers(run: Run, rank: Rank, part: int) -> int:
    """How many layers of a part route tokens to experts, those included."""
    further = further_layers(run, rank, part) if run.model.experts else 0
    return mixed_layers(run, rank, part) + further


def structure(
    run: Run,
    *,
    first: bool,
    last: bool,
    mixed: bool = False,
    alone: bool = True,
    waits: bool = False,
) -> StageStructure:
    """The order of the events of a part of the model that has the embedding, or the head.

    ``mixed``: some of its layers have experts. ``alone``: one micro-batch is in flight at a time;
    ``waits``: see :class:`.ExpertStructure`.
    """
    model, layout = run.model, run.layout
    return StageStructure(
        split=layout.tensor > 1,
        shares_tokens=layout.sequence_parallel and layout.tensor > 1,
        first=first,
        last=last,
        tied=model.tied,
        grouped=model.kv_heads != model.heads,
        one_sequence=run.micro_batch == 1,
        qkv_bias=model.qkv_bias,
        recompute=str(run.recompute),
        loss=str(run.switches.loss),
        context=str(layout.context_exchange) if layout.context > 1 else "none",
        style=str(run.implementation),
        normed=model.qk_norm != "none",
        learned=model.positions > 0,
        shifted=model.norm is Norm.LAYERNORM,
        biased=model.mlp_bias,
        gated=model.gated,
        drops=drops(run),
        predicts=run.switches.mtp_layers if last else 0,
        interleaves=last and layout.interleave > 1,
        latent=("all" if model.q_lora_rank else "keys") if model.latent else "none",
        experts=_experts(run, alone=alone, waits=waits) if mixed else None,
    )


def part_structure(
    run: Run, rank: Rank, part: int, *, waits: bool = False
) -> tuple[StageStructure, int, int]:
    """The structure of a part of a stage; its layers, and those without experts that come before.

    Where its layers are of one kind, all are of the first number.
    """
    mixed, dense = mixed_layers(run, rank, part), dense_layers(run, rank, part)
    decided = structure(
        run,
        first=rank.stage == 0 and part == 0,
        last=rank.has_head(part),
        mixed=mixed > 0,
        alone=rank.in_flight == 1,
        waits=waits,
    )
    return (decided, mixed, dense) if mixed else (decided, rank.layers_at_once, 0)


def _experts(run: Run, *, alone: bool, waits: bool) -> ExpertStructure:
    model, layout = run.model, run.layout
    shared = "none"
    if model.shared_experts:
        shared = "gated" if model.shared_expert_gate else "plain"
    return ExpertStructure(
        exchanges=layout.expert > 1,
        shares=layout.expert_tensor > 1,
        sorts=model.experts > layout.expert,
        shared=shared,
        # What runs again in the backward pass routes again.
        alone=alone or run.recompute is Recompute.FULL,
        again=run.recompute is Recompute.FULL,
        fused=run.switches.permutation is not Fusion.UNFUSED,
        waits=waits,
    )
