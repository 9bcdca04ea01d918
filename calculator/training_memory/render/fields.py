"""The calculator's controls, one definition each: the form is drawn and read from this list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from .. import catalog, gpus, recipe
from ..blocks.ledger import Recompute
from ..implementations import FAMILIES, Implementation
from ..layout import Exchange, Routing
from ..model import Activation, Norm, QkNorm
from ..pipeline import Schedule
from ..records import dataclass
from ..sharding import BackwardPrefetch, FsdpUnits, Host, Prefetch, ReduceDtype, Way
from ..switches import Attention, Compile, Fusion, Loss, Offload, Optimizer, OptimizerKernel
from ..tuning import Adapter, Dtype, QuantStorage, Targets
from .answer import WAYS


class Kind(StrEnum):
    """How a field is filled in."""

    NUMBER = "number"
    CHOICE = "choice"
    FLAG = "flag"
    TEXT = "text"


class Place(StrEnum):
    """Where in the form a field stands; all but the first fold."""

    OPEN = "open"
    SHAPE = "shape"
    DETAILS = "details"
    EXPERTS = "experts"
    LATENT = "latent"
    SPLIT = "split"
    FSDP = "fsdp"
    DEEPSPEED = "deepspeed"
    IMPLEMENTATION = "implementation"
    TUNING = "tuning"


#: What a choice offers: under each heading ("" for none) the values with their labels.
Choices = Mapping[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One control.

    ``name`` is the field's name in a run or a shape, ``symbol`` its letter in the formulas, and
    ``meaning`` what its question mark says. ``choices`` is called when the form is drawn.
    """

    name: str
    label: str
    kind: Kind
    place: Place
    meaning: str
    symbol: str = ""
    choices: Callable[[], Choices] | None = None


_FAMILIES = {
    "gpt": "GPT",
    "gpt-neox": "Pythia",
    "llama": "Llama",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "qwen": "Qwen",
    "gemma": "Gemma",
    "phi": "Phi",
    "olmo": "OLMo",
    "deepseek": "DeepSeek",
}


def _models() -> Choices:
    families: dict[str, list[tuple[str, str]]] = {}
    for model_id, model in catalog.models().items():
        heading = _FAMILIES.get(model.family, model.family)
        families.setdefault(heading, []).append((model_id, model.name))
    families["Your own"] = [("custom", "Custom shape")]
    return {heading: tuple(models) for heading, models in families.items()}


def _recipes() -> Choices:
    return {"": tuple((one.id, one.name[0].upper() + one.name[1:]) for one in _all_recipes())}


def _all_recipes() -> tuple[recipe.Recipe, ...]:
    return tuple(recipe.RECIPES.values())


def _gpus() -> Choices:
    # A control is narrow, and the makers' names tell nobody more.
    named = tuple(
        (gpu.id, gpu.name.removeprefix("NVIDIA ").removeprefix("AMD "))
        for gpu in gpus.gpus().values()
    )
    return {"": (*named, ("none", "No GPU"))}


def _recompute() -> Choices:
    labels = {
        Recompute.NONE: "None",
        Recompute.SELECTIVE: "Selective",
        Recompute.FULL: "Full",
        Recompute.MATMULS: "All but products with weights",
    }
    return {"": tuple((str(value), labels[value]) for value in Recompute)}


#: What each implementation is called.
IMPLEMENTATIONS: Mapping[Implementation, str] = {
    Implementation.PAPER: "Textbook",
    Implementation.HUGGINGFACE: "Hugging Face",
    Implementation.TORCHTITAN: "torchtitan",
    Implementation.MEGATRON: "Megatron",
    Implementation.NANOTRON: "nanotron",
}


def _implementations() -> Choices:
    return {"": tuple((str(value), IMPLEMENTATIONS[value]) for value in Implementation)}


def _switch(kind: type[StrEnum], labels: Mapping[str, str]) -> Callable[[], Choices]:
    """The choices of an implementation's switch, the implementation's own way first."""
    return lambda: {"": (("", "Its own"), *((str(value), labels[value]) for value in kind))}


def _families() -> Choices:
    return {"": (("", "Its own"), *((family, _FAMILIES[family]) for family in FAMILIES))}


def _zero() -> Choices:
    labels = ("0: off", "1: optimizer states", "2: and gradients", "3: and weights")
    return {"": tuple((str(stage), label) for stage, label in enumerate(labels))}


def _of(kind: type[StrEnum], labels: Mapping[str, str]) -> Callable[[], Choices]:
    return lambda: {"": tuple((str(value), labels[value]) for value in kind)}


def _norm_counts() -> Choices:
    return {"": (("2", "2"), ("4", "4"))}


def _number(name: str, label: str, place: Place, meaning: str, symbol: str = "") -> Field:
    return Field(
        name=name, label=label, kind=Kind.NUMBER, place=place, meaning=meaning, symbol=symbol
    )


def _choice(
    name: str, label: str, place: Place, meaning: str, choices: Callable[[], Choices]
) -> Field:
    return Field(
        name=name, label=label, kind=Kind.CHOICE, place=place, meaning=meaning, choices=choices
    )


def _flag(name: str, label: str, place: Place, meaning: str) -> Field:
    return Field(name=name, label=label, kind=Kind.FLAG, place=place, meaning=meaning)


_FUSION: Mapping[str, str] = {Fusion.FUSED: "One kernel", Fusion.UNFUSED: "Each by itself"}

_SCHEDULES: Mapping[str, str] = {
    Schedule.GPIPE: "GPipe",
    Schedule.ONE_F_ONE_B: "One forward, one backward (1F1B)",
    Schedule.INTERLEAVED: "Interleaved",
    Schedule.ZERO_BUBBLE: "Zero bubble (ZB-H1)",
}

_PLACES: Mapping[str, str] = {
    Host.NONE: "On the GPU",
    Host.CPU: "On the CPU",
    Host.NVME: "On disks (NVMe)",
}
_GENERAL: tuple[Field, ...] = (
    _choice(
        "model",
        "Model",
        Place.OPEN,
        "A published model; its shape fills the fields under Shape.",
        _models,
    ),
    _number(
        "sequence",
        "Sequence length",
        Place.OPEN,
        "Tokens in one training example. 4k means 4,096.",
        "s",
    ),
    _number(
        "micro_batch",
        "Micro-batch",
        Place.OPEN,
        "How many sequences one GPU works on at a time.",
        "b",
    ),
    _choice(
        "recipe",
        "Recipe",
        Place.OPEN,
        "The optimizer and the number formats: which numbers are kept for every parameter, and "
        "with how many bytes each.",
        _recipes,
    ),
    _choice(
        "recompute",
        "Recomputation",
        Place.OPEN,
        "Activations that are dropped in the forward pass and computed again in the backward pass, "
        "also called checkpointing. Selective drops the attention core, full all but each layer's "
        "input.",
        _recompute,
    ),
    _choice(
        "gpu",
        "GPU",
        Place.OPEN,
        "The accelerator whose memory the run should fit in.",
        _gpus,
    ),
    _number("layers", "Layers", Place.SHAPE, "Transformer layers, one after the other.", "L"),
    _number(
        "hidden", "Hidden size", Place.SHAPE, "Numbers that describe a token between layers.", "h"
    ),
    _number(
        "heads",
        "Attention heads",
        Place.SHAPE,
        "Heads of queries in each attention block.",
        "a",
    ),
    _number(
        "kv_heads",
        "Key-value heads",
        Place.SHAPE,
        "Heads of keys and values. Fewer than the attention heads is grouped-query attention.",
    ),
    _number(
        "head_dim",
        "Head size",
        Place.SHAPE,
        "Numbers in one head's query; follows hidden size and heads where it did before.",
    ),
    _number(
        "ffn",
        "Feed-forward size",
        Place.SHAPE,
        "The width of a layer's feed-forward block (its MLP).",
    ),
    _number("vocabulary", "Vocabulary", Place.SHAPE, "Tokens the model can read and write.", "V"),
    _number(
        "positions",
        "Learned positions",
        Place.SHAPE,
        "Rows of a learned position embedding; 0 where positions cost no parameters, as with "
        "rotary ones.",
    ),
    Field(
        name="name",
        label="Name",
        kind=Kind.TEXT,
        place=Place.SHAPE,
        meaning="What a model of your own is called.",
    ),
    _choice(
        "family",
        "Family",
        Place.SHAPE,
        "Whose classes build a model of your own, where a library's way of running is followed.",
        _families,
    ),
    _flag(
        "gated",
        "Gated feed-forward",
        Place.SHAPE,
        "A third matrix whose output multiplies the second's, as in SwiGLU.",
    ),
    _flag(
        "tied",
        "Tied head",
        Place.SHAPE,
        "The output head is the token embedding, and so has no parameters of its own.",
    ),
    _choice(
        "activation",
        "Activation",
        Place.DETAILS,
        "The feed-forward block's non-linearity.",
        _of(
            Activation,
            {
                Activation.GELU: "GELU",
                Activation.GELU_TANH: "GELU (tanh)",
                Activation.SILU: "SiLU",
                Activation.RELU: "ReLU",
            },
        ),
    ),
    _choice(
        "norm",
        "Norm",
        Place.DETAILS,
        "LayerNorm has a scale and usually a bias for each number, RMSNorm a scale.",
        _of(Norm, {Norm.LAYERNORM: "LayerNorm", Norm.RMSNORM: "RMSNorm"}),
    ),
    _choice(
        "norms_per_layer",
        "Norms a layer",
        Place.DETAILS,
        "Two, or four where the outputs of attention and feed-forward are normalised too.",
        _norm_counts,
    ),
    _choice(
        "qk_norm",
        "Query and key norm",
        Place.DETAILS,
        "Whether queries and keys are normalised: not, within each head, or whole.",
        _of(QkNorm, {QkNorm.NONE: "None", QkNorm.HEAD: "Each head", QkNorm.FULL: "Whole"}),
    ),
    _flag("post_norm", "Norms follow", Place.DETAILS, "The norms follow their block (OLMo 2)."),
    _flag("final_norm", "Final norm", Place.DETAILS, "A norm between the last layer and the head."),
    _flag("norm_bias", "Norm bias", Place.DETAILS, "The norms have a bias beside their scale."),
    _flag("qkv_bias", "Query, key, value bias", Place.DETAILS, "Those projections have a bias."),
    _flag("output_bias", "Attention output bias", Place.DETAILS, "That projection has a bias."),
    _flag("mlp_bias", "Feed-forward bias", Place.DETAILS, "The feed-forward matrices have one."),
    _flag("head_bias", "Head bias", Place.DETAILS, "The output head has a bias."),
    _number(
        "experts",
        "Experts",
        Place.EXPERTS,
        "Feed-forward blocks in a layer, of which each token uses a few; 0 for an ordinary model.",
    ),
    _number(
        "experts_per_token",
        "Experts a token",
        Place.EXPERTS,
        "How many experts compute each token.",
    ),
    _number("expert_ffn", "Expert size", Place.EXPERTS, "One expert's feed-forward width."),
    _number("shared_experts", "Shared experts", Place.EXPERTS, "Experts that every token uses."),
    _number("shared_expert_ffn", "Shared expert size", Place.EXPERTS, "A shared expert's width."),
    _number(
        "dense_layers",
        "Dense layers first",
        Place.EXPERTS,
        "First layers with an ordinary feed-forward block.",
    ),
    _flag(
        "shared_expert_gate",
        "Shared expert gate",
        Place.EXPERTS,
        "A learned gate on the shared expert's output.",
    ),
    _number(
        "kv_lora_rank",
        "Key-value latent size",
        Place.LATENT,
        "Numbers to which keys and values are compressed together; 0 for ordinary attention.",
    ),
    _number(
        "q_lora_rank",
        "Query latent size",
        Place.LATENT,
        "Numbers to which queries are compressed; 0: they are not.",
    ),
    _number(
        "qk_nope_head_dim",
        "Head size without position",
        Place.LATENT,
        "The part of a query's head that knows no position.",
    ),
    _number(
        "qk_rope_head_dim",
        "Head size with position",
        Place.LATENT,
        "The part of a query's head that is turned by its position.",
    ),
    _number("v_head_dim", "Value head size", Place.LATENT, "Numbers in one head's value."),
    _number(
        "data",
        "Data-parallel replicas",
        Place.SPLIT,
        "Copies of the model that work on different sequences at the same time.",
        "d",
    ),
    _choice(
        "zero",
        "ZeRO stage",
        Place.SPLIT,
        "What the replicas share out instead of each keeping a copy. PyTorch's FSDP is stage 3.",
        _zero,
    ),
    _number(
        "tensor",
        "Tensor parallelism",
        Place.SPLIT,
        "GPUs that share every layer: each holds some of its heads and columns.",
        "t",
    ),
    _number(
        "pipeline",
        "Pipeline stages",
        Place.SPLIT,
        "Groups of GPUs that hold successive layers, a micro-batch passing from one to the next.",
        "p",
    ),
    _choice(
        "schedule",
        "Pipeline schedule",
        Place.SPLIT,
        "How the stages take turns, which decides how many micro-batches wait on each.",
        lambda: {"": (("", "Usual"), *((str(value), _SCHEDULES[value]) for value in Schedule))},
    ),
    _number(
        "interleave",
        "Parts on each stage",
        Place.SPLIT,
        "Parts of the model that lie far apart on one stage and take turns; 1: the stage's layers "
        "are one part.",
    ),
    _number(
        "layers_per_stage",
        "Layers of each stage",
        Place.SPLIT,
        "Where the layers are not spread evenly, each stage's, such as 8,8,8,7.",
    ),
    _number(
        "context",
        "Context parallelism",
        Place.SPLIT,
        "GPUs that share every sequence: each has some of its tokens.",
        "C",
    ),
    _choice(
        "context_exchange",
        "Exchange within a sequence",
        Place.SPLIT,
        "How GPUs that share a sequence see each other's keys and values: passed round (PyTorch's "
        "alltoall), gathered by all (its allgather, torchtitan's usual way), or heads exchanged "
        "for tokens (Megatron). Not for the textbook.",
        _of(
            Exchange,
            {
                Exchange.RING: "Ring",
                Exchange.ALL_GATHER: "All gathered",
                Exchange.ULYSSES: "Heads for tokens (Ulysses)",
            },
        ),
    ),
    _number(
        "expert",
        "Expert parallelism",
        Place.SPLIT,
        "GPUs that share out a layer's experts, among those of a stage.",
    ),
    _number(
        "expert_tensor",
        "GPUs that share an expert",
        Place.SPLIT,
        "Tensor parallelism inside the experts, apart from that of the other layers.",
    ),
    _choice(
        "routing",
        "Routing",
        Place.SPLIT,
        "How many tokens reach this GPU's experts: as many as any other's, or, at worst, every "
        "token that can. Of Megatron's experts only.",
        _of(Routing, {Routing.BALANCED: "Balanced", Routing.WORST: "Worst case"}),
    ),
    _number(
        "micro_batches",
        "Micro-batches a step",
        Place.SPLIT,
        "How many micro-batches each replica works through before the optimizer steps.",
    ),
    _flag(
        "sequence_parallel",
        "Sequence parallelism",
        Place.SPLIT,
        "The tensor-parallel GPUs also share out the tokens where tensor parallelism alone leaves "
        "every GPU a whole copy.",
    ),
    _choice(
        "sharding",
        "Replicas by",
        Place.SPLIT,
        "Whose data parallelism, with its buffers. DDP: every GPU has all, and buckets in which "
        "gradients are sent. FSDP2 (fully_shard): weights are gathered layer by layer. FSDP1 "
        "(FullyShardedDataParallel): as one flat tensor for each layer. DeepSpeed: "
        "its engine, with ZeRO or without. Not for the textbook.",
        _switch(Way, WAYS),
    ),
    _number(
        "replicate",
        "Sharded copies",
        Place.FSDP,
        "FSDP: how many groups of GPUs hold a sharded copy each (hybrid sharding, HSDP); under "
        "FSDP1 as many as GPUs are NO_SHARD.",
    ),
    _flag(
        "reshard_after_forward",
        "Reshard after forward",
        Place.FSDP,
        "FSDP: gathered weights are freed until the backward pass; under FSDP1 that is FULL_SHARD, "
        "without it SHARD_GRAD_OP.",
    ),
    _choice(
        "fsdp_units",
        "FSDP2's units",
        Place.FSDP,
        "What is gathered at a time beside each layer: the embedding and the head by themselves, "
        "as accelerate and torchtitan do now, or both at once for the whole forward pass.",
        _switch(
            FsdpUnits,
            {
                FsdpUnits.ENDS: "Layers, embedding, head",
                FsdpUnits.LAYERS: "Layers and the rest",
            },
        ),
    ),
    _choice(
        "prefetch",
        "FSDP2's prefetch",
        Place.FSDP,
        "Implicit: the next layer is gathered as one ends. Explicit: as one begins.",
        _switch(Prefetch, {Prefetch.IMPLICIT: "Implicit", Prefetch.EXPLICIT: "Explicit"}),
    ),
    _choice(
        "reduce_dtype",
        "Gradients summed in",
        Place.FSDP,
        "FSDP's mixed precision: the numbers in which GPUs sum their gradients.",
        _switch(ReduceDtype, {ReduceDtype.FP32: "FP32", ReduceDtype.BF16: "BF16"}),
    ),
    _flag(
        "sync_each_batch",
        "Gradients reduced each time",
        Place.FSDP,
        "accelerate's sync_each_batch: FSDP reduces gradients after every micro-batch; otherwise "
        "each GPU holds them whole until the last.",
    ),
    _choice(
        "backward_prefetch",
        "FSDP1's backward prefetch",
        Place.FSDP,
        "When the weights of the layer before are gathered in the backward pass: only as it "
        "begins, before a layer's own pass (BACKWARD_PRE), or after it (BACKWARD_POST).",
        _switch(
            BackwardPrefetch,
            {
                BackwardPrefetch.NONE: "None",
                BackwardPrefetch.PRE: "Before",
                BackwardPrefetch.POST: "After",
            },
        ),
    ),
    _flag(
        "forward_prefetch",
        "FSDP1's forward prefetch",
        Place.FSDP,
        "FSDP1: the next layer's weights are gathered as one begins. A layer's gradients then wait "
        "for the layer before.",
    ),
    _flag(
        "use_orig_params",
        "FSDP1's use_orig_params",
        Place.FSDP,
        "The optimizer is given the model's own weights, views of the flat ones, and not these.",
    ),
    _flag(
        "bucket_views",
        "Gradients in buckets",
        Place.FSDP,
        "DDP's gradient_as_bucket_view: gradients live in its buckets instead of beside them.",
    ),
    _flag(
        "first_step",
        "The first step",
        Place.FSDP,
        "DDP's first step: gradients have one flat bucket, and the optimizer makes its states only "
        "after the backward pass.",
    ),
    _number(
        "reduce_bucket_size",
        "DeepSpeed's bucket",
        Place.DEEPSPEED,
        "DeepSpeed's reduce_bucket_size: how many numbers the bucket of gradients has.",
    ),
    _flag(
        "overlap_comm",
        "DeepSpeed overlaps",
        Place.DEEPSPEED,
        "DeepSpeed's overlap_comm: one bucket is summed while another is filled.",
    ),
    _choice(
        "offload_optimizer",
        "DeepSpeed's optimizer",
        Place.DEEPSPEED,
        "DeepSpeed's offload_optimizer: 32-bit weights and the optimizer's states on the GPU, in "
        "the CPU's memory, where it then steps, or of stage 3 on disks.",
        _of(Host, _PLACES),
    ),
    _choice(
        "offload_param",
        "Shares of the weights",
        Place.SPLIT,
        "Each GPU's share of the weights on it, or in the CPU's memory: ZeRO-3's offload_param; "
        "FSDP's CPU offload, which has gradients and the optimizer there as well.",
        _of(Host, _PLACES),
    ),
    _number(
        "prefetch_bucket_size",
        "DeepSpeed's prefetch",
        Place.DEEPSPEED,
        "ZeRO-3's stage3_prefetch_bucket_size: how many numbers are gathered ahead in one go.",
    ),
    _number(
        "param_persistence_threshold",
        "DeepSpeed keeps whole",
        Place.DEEPSPEED,
        "ZeRO-3's stage3_param_persistence_threshold: weights of so few numbers are never spread.",
    ),
    _number(
        "max_live_parameters",
        "DeepSpeed's live weights",
        Place.DEEPSPEED,
        "ZeRO-3's stage3_max_live_parameters: nothing is gathered ahead beyond so many numbers.",
    ),
    _choice(
        "implementation",
        "Whose step is counted",
        Place.IMPLEMENTATION,
        "Textbook: the GPT layer of Korthikanti et al. 2022, in 16-bit with dropout. Hugging Face "
        "and torchtitan: the operations that these libraries run, with what PyTorch holds for "
        "each. Megatron: Megatron-Core with Transformer Engine, on every GPU of a run; nanotron "
        "likewise. Traced steps of these libraries agree, nanotron's with what was measured.",
        _implementations,
    ),
    _choice(
        "attention",
        "Attention",
        Place.IMPLEMENTATION,
        "A fused kernel keeps no scores; eager attention keeps them all. Not for the textbook.",
        _switch(Attention, {Attention.FLASH: "Fused kernel", Attention.EAGER: "Eager"}),
    ),
    _choice(
        "loss",
        "Loss",
        Place.IMPLEMENTATION,
        "All logits at once, a chunk of tokens after the other, or fused with the head (Liger); in "
        "Megatron also with the gradient in place of the logits. Not for the textbook.",
        _switch(
            Loss,
            {
                Loss.FULL: "All logits",
                Loss.CHUNKED: "Chunked",
                Loss.FUSED_LINEAR: "Fused with the head",
                Loss.FUSED: "In place of the logits",
            },
        ),
    ),
    _choice(
        "optimizer",
        "Optimizer",
        Place.IMPLEMENTATION,
        "What takes the place of the recipe's Adam: what it keeps for each parameter, and what it "
        "needs for a moment. Not for the textbook.",
        _switch(
            Optimizer,
            {
                Optimizer.ADAMW: "AdamW",
                Optimizer.SGD_MOMENTUM: "SGD with momentum",
                Optimizer.ADAFACTOR: "Adafactor",
                Optimizer.ADAFACTOR_HF: "Adafactor (transformers)",
                Optimizer.MUON: "Muon",
                Optimizer.ADAMW_8BIT: "8-bit AdamW",
                Optimizer.PAGED_ADAMW: "Paged AdamW",
                Optimizer.PAGED_ADAMW_8BIT: "Paged 8-bit AdamW",
            },
        ),
    ),
    _choice(
        "optimizer_kernel",
        "AdamW's kernel",
        Place.IMPLEMENTATION,
        "Fused takes nothing more; foreach copies a whole state for a moment; the loop two tensors "
        "as large as the largest. DeepSpeed's FusedAdam is what its configuration's optimizer is. "
        "Not for the textbook.",
        _switch(
            OptimizerKernel,
            {
                OptimizerKernel.FUSED: "Fused",
                OptimizerKernel.FOREACH: "Foreach",
                OptimizerKernel.FORLOOP: "Loop",
                OptimizerKernel.DEEPSPEED: "DeepSpeed's",
            },
        ),
    ),
    _flag(
        "hold_logits",
        "Logits held",
        Place.IMPLEMENTATION,
        "The model's output is kept until the step ends. Not for the textbook.",
    ),
    _flag(
        "clip",
        "Gradients clipped",
        Place.IMPLEMENTATION,
        "Their norm is taken and they are scaled down before the optimizer steps. Not for the "
        "textbook.",
    ),
    _choice(
        "mlp",
        "Activation and gate",
        Place.IMPLEMENTATION,
        "One kernel (Liger's SwiGLU and GEGLU) keeps its two inputs alone; operations by "
        "themselves keep what is between them too. Not for the textbook.",
        _switch(Fusion, _FUSION),
    ),
    _choice(
        "norm_kernel",
        "RMSNorm",
        Place.IMPLEMENTATION,
        "One kernel keeps the norm's input and its spread; written out in operations it keeps a "
        "32-bit copy of the input and the normalised values. Not for the textbook.",
        _switch(Fusion, _FUSION),
    ),
    _choice(
        "dropout",
        "Dropout",
        Place.IMPLEMENTATION,
        "Where it drops values it keeps a mask of one byte for each. Not for the textbook.",
        lambda: {"": (("", "Its own"), ("true", "On"), ("false", "Off"))},
    ),
    _choice(
        "permutation",
        "Experts' permutation",
        Place.IMPLEMENTATION,
        "Tokens are put in the order of their experts by Transformer Engine's kernels, or by "
        "PyTorch's operations, as Megatron does unless told otherwise. Of Megatron's experts only.",
        _switch(Fusion, _FUSION),
    ),
    _number(
        "mtp_layers",
        "Multi-token layers",
        Place.IMPLEMENTATION,
        "Layers after the last one that predict tokens further on, each with a projection and a "
        "loss of its own (DeepSeek-V3 has 1). Of Megatron only.",
    ),
    _choice(
        "compile",
        "torch.compile",
        Place.IMPLEMENTATION,
        "Compiled code keeps what products and attention read and makes what is between them "
        "again; a compiled loss never has 32-bit logits. Each layer by itself. Of torchtitan.",
        _switch(
            Compile,
            {
                Compile.NONE: "Nothing",
                Compile.LAYERS: "Layers",
                Compile.LAYERS_AND_LOSS: "Layers and loss",
            },
        ),
    ),
)

#: What makes room on the GPU at the cost of time.
_ROOM: tuple[Field, ...] = (
    _flag(
        "optimizer_in_backward",
        "Optimizer in backward",
        Place.IMPLEMENTATION,
        "Each weight is updated as soon as its gradient is there, which then goes: never are two "
        "layers' gradients held. Not with clipping or several micro-batches; not for the textbook.",
    ),
    _choice(
        "offload",
        "Kept on the CPU",
        Place.IMPLEMENTATION,
        "What waits in the CPU's memory from the forward to the backward pass: nothing, each "
        "recomputed layer's input (transformers, Unsloth), or all that is saved (PyTorch's "
        "save_on_cpu; copies of the weights too). Not for the textbook.",
        _switch(
            Offload,
            {
                Offload.NONE: "Nothing",
                Offload.CHECKPOINTS: "Layers' inputs",
                Offload.SAVED: "All that is saved",
            },
        ),
    ),
)

#: How much of the model is trained.
TUNING: tuple[Field, ...] = (
    _choice(
        "adapter",
        "What is trained",
        Place.TUNING,
        "All weights; or LoRA: two thin matrices beside each frozen product, so that gradients and "
        "optimizer states are the adapters' alone; or QLoRA: the same beside weights in 4 bits "
        "(nf4, double quantisation), of which each product makes a 16-bit copy for a moment. Of "
        "Hugging Face's models.",
        _of(Adapter, {Adapter.NONE: "All weights", Adapter.LORA: "LoRA", Adapter.QLORA: "QLoRA"}),
    ),
    _number(
        "adapter_rank",
        "Rank",
        Place.TUNING,
        "The width between an adapter's two matrices: what is trained grows with it, activations "
        "hardly do.",
        "R",
    ),
    _choice(
        "adapter_targets",
        "Adapted products",
        Place.TUNING,
        "Every product keeps its input where its adapter is trained: with queries and values alone "
        "far fewer activations are kept than with all of a layer's products.",
        _switch(
            Targets,
            {Targets.QUERY_VALUE: "Queries and values", Targets.ALL_LINEAR: "All of a layer's"},
        ),
    ),
    _choice(
        "adapter_dtype",
        "Adapters' format",
        Place.TUNING,
        "PEFT keeps adapters in 32 bits beside 16-bit weights unless told otherwise; the input of "
        "each is then copied to 32 bits for a moment, or for good where no autocast runs.",
        _switch(Dtype, {Dtype.BF16: "BF16", Dtype.FP32: "FP32"}),
    ),
    _choice(
        "frozen_dtype",
        "Frozen weights' format",
        Place.TUNING,
        "With LoRA the format of all frozen weights; with QLoRA that of norms, embedding and head, "
        "which prepare_model_for_kbit_training puts into FP32: then the layers' values are too.",
        _switch(Dtype, {Dtype.BF16: "BF16", Dtype.FP32: "FP32"}),
    ),
    _choice(
        "quant_storage",
        "Storage of 4-bit weights",
        Place.TUNING,
        "bnb_4bit_quant_storage: tensors of 16-bit numbers, of 4 codes each, which FSDP shares "
        "out, or of bytes, bitsandbytes' own, which each GPU then holds whole, as it does scales.",
        _switch(QuantStorage, {QuantStorage.BF16: "BF16", QuantStorage.UINT8: "bytes"}),
    ),
    _flag(
        "adapter_dropout",
        "Dropout in adapters",
        Place.TUNING,
        "What goes into an adapter is dropped in part: one more tensor and a mask are kept for "
        "each.",
    ),
)
#: Every control, in the order of its place.
FIELDS = (*_GENERAL, *_ROOM, *TUNING)

BY_NAME: Mapping[str, Field] = {field.name: field for field in FIELDS}


def at(place: Place) -> tuple[Field, ...]:
    """The fields of one place, in order."""
    return tuple(field for field in FIELDS if field.place is place)
