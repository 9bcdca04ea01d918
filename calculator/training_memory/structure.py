"""What decides the order of a step's events, apart from any size: the key of a recording."""

from __future__ import annotations

from .implementations import family_of
from .layouts import DEFAULT_POSITIONS
from .model import Model
from .records import dataclass
from .splitting import ALONE, Splitting
from .tuning import FULL, Tuning

__all__ = [
    "CHUNK_TOKENS",
    "Structure",
    "chunk_sizes",
    "computes_in",
    "family_of",
    "fused_chunk_tokens",
    "repeats_of",
    "structure_of",
    "values_of",
]

#: Tokens whose logits the chunked loss holds at once.
CHUNK_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """One way in which a step can run.

    Two runs with equal structures allocate and release the same tensors in the same order; only
    their sizes differ. ``weights`` is the dtype in which the model computes, or fp32 under
    ``autocast``; ``kernel`` is what computes attention. ``grouped`` says that several query heads
    share a key head, ``one_key_head`` that all do, ``one_sequence`` that the micro-batch is one
    (then joining batch and heads copies nothing). ``recompute`` is "none", "selective" (the
    attention core), "full" or "matmuls" (all but products with weights; in torchtitan's
    way all but every second one). ``fused_norm`` and ``fused_mlp``: RMSNorm, or activation and
    gate, are one kernel; ``drops``: the model's dropouts do drop something. ``two_kinds`` says that
    some layers look at all tokens and some only so far back, with masks and rotary tables of their
    own. ``drops_gradients``: each gradient goes as it arrives. ``offload`` is what goes to the CPU
    in the forward pass: see :class:`.autograd.tape.Tape`. ``compiled``: what
    ``torch.compile`` is given, "none", "layers" or "layers-and-loss".
    """

    implementation: str
    family: str
    weights: str
    autocast: bool
    kernel: str
    recompute: str
    loss: str
    held_logits: bool
    drops_gradients: bool
    accumulates: bool

    one_sequence: bool
    grouped: bool
    one_key_head: bool
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_bias: bool
    final_norm: bool
    qk_norm: str
    activation: str
    experts: bool
    shared_experts: bool
    caps_scores: bool
    caps_logits: bool
    two_kinds: bool
    scratch: bool
    fused_norm: bool
    fused_mlp: bool
    drops: bool
    split: Splitting
    offload: str
    compiled: str

    adapter: str
    adapter_targets: str
    adapter_dtype: str
    adapter_drops: bool


def structure_of(
    model: Model,
    *,
    sequence: int,
    micro_batch: int,
    micro_batches: int = 1,
    implementation: str = "huggingface",
    precision: str = "bf16",
    attention: str = "flash",
    recompute: str = "none",
    loss: str = "full",
    hold_logits: bool = False,
    norm: str | None = None,
    mlp: str | None = None,
    dropout: bool | None = None,
    in_backward: bool = False,
    offload: str = "none",
    compiled: str = "none",
    scratch: bool = False,
    tuning: Tuning = FULL,
    split: Splitting = ALONE,
    tensor: int = 1,
) -> Structure:
    """The structure of one step of ``model``; the arguments are those of a run.

    ``norm`` and ``mlp`` are "fused" or "unfused"; None, as for ``dropout``, is the implementation's
    own way. ``tensor`` GPUs share each layer, as ``split`` says. ``in_backward``: each weight is
    updated, and its gradient dropped, as that arrives. With ``scratch`` it counts what attention's
    kernel is known to allocate inside itself as well.

    Raises :class:`InputError` where the implementation has no such model.
    """
    family = family_of(model, implementation)
    grouped = model.kv_heads != model.heads
    # A policy of mixed precision stands for autocast: what is gathered is in 16 bits already.
    # accelerate has both under FSDP's first version.
    autocast = precision == "autocast" and (not split.casts or split.way == "fsdp1")
    weights = computes_in(precision) if tuning.trains_all else str(tuning.frozen_dtype)
    if split.casts:
        weights = "bf16"
    in_fp32 = weights == "fp32" and not autocast
    return Structure(
        implementation=implementation,
        family=family,
        weights=weights,
        autocast=autocast,
        kernel=_kernel(family, attention, in_fp32=in_fp32, grouped=grouped),
        recompute=recompute,
        loss=loss,
        held_logits=hold_logits,
        drops_gradients=precision == "master-fp32-grad" or in_backward,
        accumulates=micro_batches > 1,
        one_sequence=micro_batch == 1,
        grouped=grouped,
        one_key_head=model.kv_heads == tensor,
        tied=model.tied,
        qkv_bias=model.qkv_bias,
        output_bias=model.output_bias,
        mlp_bias=model.mlp_bias,
        head_bias=model.head_bias,
        final_norm=model.final_norm,
        qk_norm=str(model.qk_norm),
        activation=str(model.activation),
        experts=model.experts > 0,
        shared_experts=model.shared_experts > 0,
        caps_scores=family == "gemma2",
        caps_logits=family == "gemma2",
        scratch=scratch,
        offload=offload,
        compiled=compiled,
        fused_norm=norm == "fused" if norm else family in _FUSES_NORMS,
        fused_mlp=mlp == "fused",
        drops=family in _DROPS if dropout is None else dropout,
        split=split,
        two_kinds=family == "gemma2" or (family == "gemma3" and model.layers >= 6),
        adapter=str(tuning.adapter),
        # What does not matter is left out, so that equal steps have equal structures.
        adapter_targets="" if tuning.trains_all else str(tuning.adapter_targets),
        adapter_dtype=_adapters_in(tuning, split),
        adapter_drops=tuning.adapter_dropout and not tuning.trains_all,
    )


def _adapters_in(tuning: Tuning, split: Splitting) -> str:
    """The dtype in which adapters are computed with; under a policy they are gathered so."""
    if tuning.trains_all:
        return ""
    return "bf16" if split.casts else str(tuning.adapter_dtype)


#: Families whose norm is PyTorch's own, which is one kernel.
_FUSES_NORMS = ("gpt2", "classic-gpt", "plain-llama")
#: Families that drop some values unless told otherwise: GPT-2's configuration has 0.1.
_DROPS = ("gpt2", "classic-gpt")


def computes_in(precision: str) -> str:
    """The dtype of the weights that a model computes with."""
    return "fp32" if precision in ("fp32", "autocast") else "bf16"


def _kernel(family: str, attention: str, *, in_fp32: bool, grouped: bool) -> str:
    """Which kernel PyTorch takes (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp)."""
    # transformers refuses PyTorch's kernels for Gemma 2: none of them can cap the scores.
    if attention == "eager" or family == "gemma2":
        return "eager"
    if not in_fp32:
        return "flash"
    # FlashAttention takes no 32-bit numbers; the kernel that does takes no shared keys, so plain
    # operations are left. A plain Llama repeats its keys before.
    return "math" if grouped and family != "plain-llama" else "efficient"


def chunk_sizes(model: Model, loss: str, tokens: int) -> list[int]:
    """How many tokens each chunk of the loss has; all of them in one where it is not chunked."""
    if loss == "chunked":
        size = min(CHUNK_TOKENS, tokens)
    elif loss == "fused-linear":
        size = fused_chunk_tokens(tokens, model.hidden, model.vocabulary)
    else:
        return [tokens]
    whole, rest = divmod(tokens, size)
    return [size] * whole + ([rest] if rest else [])


def fused_chunk_tokens(tokens: int, hidden: int, vocabulary: int) -> int:
    """Liger's chunk: as many tokens as make a chunk's logits about as large as the input.

    Hsu et al. 2024, arXiv:2410.10989, section 3.2: tokens / ceil(vocabulary / hidden), up to the
    next power of two.
    """
    wanted = -(-tokens // -(-vocabulary // hidden))
    return min(1 << (wanted - 1).bit_length(), tokens)


def repeats_of(
    model: Model, *, sequence: int, micro_batch: int, loss: str = "full"
) -> dict[str, int]:
    """How many layers the run has, and how many chunks its loss."""
    chunks = len(chunk_sizes(model, loss, sequence * micro_batch))
    return {"layer": model.layers, "chunk": chunks}


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def values_of(
    model: Model,
    *,
    sequence: int,
    micro_batch: int,
    loss: str = "full",
    tuning: Tuning = FULL,
    tensor: int = 1,
    context: int = 1,
) -> dict[str, int]:
    """The run's numbers under the symbols of :data:`.formula.SYMBOLS`.

    Of heads, feed-forward features and vocabulary one of ``tensor`` GPUs' share, and of the tokens
    one of ``context`` GPUs'.
    """
    sequence //= context
    sizes = chunk_sizes(model, loss, sequence * micro_batch)
    return {
        "L": model.layers,
        "a": model.heads // tensor,
        "s": sequence,
        "b": micro_batch,
        "h": model.hidden,
        "g": model.kv_heads // tensor,
        "e": model.head_dim,
        # Where it does not divide, the first GPUs have one more (DTensor, Shard).
        "f": -(-(model.expert_ffn if model.experts else model.ffn) // tensor),
        "V": -(-model.vocabulary // tensor),
        "U": model.vocabulary,
        "P": model.positions,
        "w": _up(sequence, 32),
        "u": _up(sequence, 128),
        "y": _up(model.head_dim, 32 if model.head_dim <= 128 else 64),
        "c": sizes[0],
        "r": sizes[-1],
        "x": model.experts,
        "k": model.experts_per_token,
        "R": tuning.adapter_rank,
        "t": tensor,
        **({"C": context, "T": model.context or DEFAULT_POSITIONS} if context > 1 else {}),
    }
