"""Megatron-Core's training step on fake tensors: one GPU of a run, by its own code.

Model, parallel layers, loss, gradient buffers, distributed optimizer and pipeline schedules are
``megatron-core``'s; Transformer Engine's kernels are stood in for (:mod:`.transformer_engine`). A
process group of the run's size is pretended: its collectives give tensors of the right sizes.
"""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from . import transformer_engine as engine
from . import transformer_engine_experts as experts
from . import transformer_engine_latent as latent
from .backend import Tensor, fake_mode, nn, torch
from .megatron_case import MegatronCase
from .modules import Modules
from .storages import ALLOCATION_BYTES, Category, Log, Peak, Tracker

warnings.filterwarnings("ignore")
logging.getLogger("megatron").setLevel(logging.ERROR)


class _Stream:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)

    def __getattr__(self, _: str) -> Any:
        return lambda *_a, **_k: None


_stream = _Stream()


def _pretend_runtime() -> None:
    """What Megatron asks of CUDA's runtime before any kernel."""
    import_module("torch._dynamo")  # it lists PyTorch's functions, which are exchanged below
    cuda = torch.cuda
    cuda.current_device = lambda: 0
    cuda.set_device = cuda.synchronize = cuda.empty_cache = lambda *_a, **_k: None
    cuda.device_count = lambda: 1
    cuda.Stream = cuda.Event = _Stream
    cuda.current_stream = cuda.default_stream = lambda *_a, **_k: _stream
    cuda.stream = lambda *_a, **_k: nullcontext()
    cuda.get_device_properties = lambda *_a: SimpleNamespace(
        name="fake", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132
    )
    cuda._lazy_init = lambda: None
    make = torch.tensor
    torch.tensor = lambda *a, pin_memory=False, **k: make(*a, **k)  # there is nothing to pin for
    cuda.is_current_stream_capturing = lambda: False


_pretend_runtime()
# It traces what Megatron's jit_fuser decorates; here the fused functions are replaced.
torch.compile = lambda function=None, **_: function

core: Any = import_module("megatron.core")
parallel_state: Any = import_module("megatron.core.parallel_state")
fusions: Any = import_module("megatron.core.fusions.fused_bias_swiglu")
gelu_fusion: Any = import_module("megatron.core.fusions.fused_bias_gelu")
dropping: Any = import_module("megatron.core.fusions.fused_bias_dropout")
attention: Any = import_module("megatron.core.transformer.attention")
predicting: Any = import_module("megatron.core.transformer.multi_token_prediction")
schedules: Any = import_module("megatron.core.pipeline_parallel.schedules")
layers: Any = import_module("megatron.core.tensor_parallel.layers")
random: Any = import_module("megatron.core.tensor_parallel.random")
mla: Any = import_module("megatron.core.transformer.multi_latent_attention")
moe: Any = import_module("megatron.core.transformer.moe.moe_utils")
dispatching: Any = import_module("megatron.core.transformer.moe.token_dispatcher")
rope: Any = import_module("megatron.core.models.common.embeddings.rope_utils")
language: Any = import_module("megatron.core.models.common.language_module.language_module")


def _one_kernel(gradient: Tensor, inner: Tensor) -> Tensor:
    return torch.empty_like(inner)


def _half(inner: Tensor) -> Tensor:
    return torch.empty(
        (*inner.shape[:-1], inner.shape[-1] // 2), dtype=inner.dtype, device=inner.device
    )


def _same_everywhere(found: list[Any], mine: Any, group: Any = None) -> None:
    found[:] = [mine] * len(found)


def _read_back(self: Any, point: str, counts: Any = None) -> Any:
    if point != self.cuda_dtoh_point or self.drop_and_pad:
        return counts
    self.routing.read_back(self, self.hidden_shape[0] * self.hidden_shape[1])
    return experts.Known()


def _patch() -> None:
    # One kernel each, once torch.compile has fused them.
    fusions.swiglu, fusions.swiglu_back = _half, _one_kernel
    fusions.bias_swiglu = lambda inner, bias: _half(inner)
    fusions.bias_swiglu_back = lambda gradient, inner, bias: torch.empty_like(inner)
    dropping.bias_dropout_add_fused_train = engine.bias_dropout_add
    attention.SplitAlongDim = engine.split_along_dim
    gelu_fusion.bias_gelu = lambda bias, inner: torch.empty_like(inner)
    gelu_fusion.bias_gelu_back = lambda gradient, bias, inner: torch.empty_like(inner)
    # Transformer Engine's parts.
    rope.fused_apply_rotary_pos_emb = engine.fused_rope
    language.te_parallel_cross_entropy = engine.cross_entropy
    moe.HAVE_TE, moe.te_general_gemm = True, experts.general_gemm
    moe.fused_permute = NotImplemented  # asked whether it is there
    for name in (
        "fused_permute_with_probs",
        "fused_unpermute",
        "fused_sort_chunks_by_index",
        "fused_sort_chunks_by_index_with_probs",
    ):
        setattr(moe, name, getattr(experts, name))
    fusions.weighted_swiglu = lambda inner, weights: _half(inner)
    fusions.weighted_swiglu_back = lambda gradient, inner, weights: (
        torch.empty_like(inner),
        torch.empty_like(weights),
    )
    torch.Tensor.masked_select = experts.masked_select
    dispatching.MoEAlltoAllTokenDispatcher._maybe_dtoh_and_synchronize = _read_back
    mla.TELinear = latent.Linear
    mla.fused_apply_mla_rope_for_q = latent.rope_for_q
    mla.fused_apply_mla_rope_for_kv = latent.rope_for_kv
    layers.HAVE_TE, layers.get_dummy_wgrad = True, engine.get_dummy_wgrad
    # Apex's kernel, which adds a product to the main gradient in place.
    layers.fused_weight_gradient_mlp_cuda = SimpleNamespace(
        wgrad_gemm_accum_fp32=lambda *_: None, wgrad_gemm_accum_fp16=lambda *_: None
    )
    layers._grad_accum_fusion_available = True
    # Random states are numbers on the CPU; nothing is drawn here.
    random._get_all_rng_states = lambda: (None, None, None)
    random._set_all_rng_states = lambda *_: None
    random._fork_rng = nullcontext
    random.CudaRNGStatesTracker.fork = lambda *_a, **_k: nullcontext()
    # Every GPU of a group says the same.
    torch.distributed.all_gather_object = _same_everywhere


_patch()


class FusedAdam(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore]
    """``transformer_engine.pytorch.optimizers.FusedAdam``: two 32-bit moments, updated in place."""

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, {"lr": 0.0, "weight_decay": 0.0, **options})

    def create(self) -> None:
        """The moments, which the first step makes."""
        for group in self.param_groups:
            for weight in group["params"]:
                self.state[weight] = {
                    name: torch.empty_like(weight, dtype=torch.float32)
                    for name in ("exp_avg", "exp_avg_sq")
                }

    def step(self, closure: Any = None) -> None:
        """One kernel for all tensors, which takes no memory."""


@contextmanager
def _group_of(case: MegatronCase) -> Iterator[None]:
    """A process group of the run's size in which this process is one of the stage's GPUs."""
    pretended: Any = import_module("torch.testing._internal.distributed.fake_pg")
    world = case.tensor * case.pipeline * case.data * case.context
    rank = case.stage * (world // case.pipeline)
    torch.distributed.init_process_group(
        "fake", rank=rank, world_size=world, store=pretended.FakeStore()
    )
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=case.tensor,
        pipeline_model_parallel_size=case.pipeline,
        virtual_pipeline_model_parallel_size=case.interleave if case.interleave > 1 else None,
        context_parallel_size=case.context,
        expert_model_parallel_size=case.expert,
        expert_tensor_parallel_size=case.expert_tensor,
        create_gloo_process_groups=False,
    )
    try:
        yield
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_global_memory_buffer()
        moe.get_moe_layer_wise_logging_tracker().clear()
        moe.MoEAuxLossAutoScaler.main_loss_backward_scale = None
        predicting.MTPLossLoggingHelper.tracker = {}
        predicting.MTPLossAutoScaler.main_loss_backward_scale = None
        torch.distributed.destroy_process_group()
        engine.forget()


def _config(case: MegatronCase) -> Any:
    model = case.built
    transformer = import_module("megatron.core.transformer")
    kind = transformer.MLATransformerConfig if model.latent else transformer.TransformerConfig
    gated = model.gated
    options: dict[str, Any] = {
        "recompute_granularity": None if case.recompute == "none" else case.recompute
    }
    if case.recompute == "full":
        options |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    return kind(
        num_layers=model.layers,
        hidden_size=model.hidden,
        num_attention_heads=model.heads,
        num_query_groups=model.kv_heads,
        kv_channels=model.head_dim,
        ffn_hidden_size=model.ffn,
        gated_linear_unit=gated,
        activation_func=nn.functional.silu if gated else nn.functional.gelu,
        # GELU alone is one kernel without it.
        bias_activation_fusion=gated or model.mlp_bias,
        normalization="RMSNorm" if str(model.norm) == "rmsnorm" else "LayerNorm",
        add_bias_linear=model.mlp_bias,
        add_qkv_bias=model.qkv_bias,
        hidden_dropout=0.1 if case.dropout else 0.0,
        attention_dropout=0.1 if case.dropout else 0.0,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        perform_initialization=False,
        tensor_model_parallel_size=case.tensor,
        sequence_parallel=case.sequence_parallel,
        pipeline_model_parallel_size=case.pipeline,
        virtual_pipeline_model_parallel_size=case.interleave if case.interleave > 1 else None,
        context_parallel_size=case.context,
        apply_rope_fusion=True,
        bias_dropout_fusion=True,
        gradient_accumulation_fusion=True,
        cross_entropy_loss_fusion=case.loss == "fused",
        cross_entropy_fusion_impl="te",
        deallocate_pipeline_outputs=True,
        batch_p2p_comm=True,
        qk_layernorm=str(model.qk_norm) == "head" or model.latent,
        mtp_num_layers=case.mtp_layers or None,
        **options,
        **(_of_experts(case) if model.experts else {}),
        **(_of_latents(case) if model.latent else {}),
    )


def _of_latents(case: MegatronCase) -> dict[str, Any]:
    model = case.built
    return {
        "q_lora_rank": model.q_lora_rank or None,
        "kv_lora_rank": model.kv_lora_rank,
        "qk_head_dim": model.qk_nope_head_dim,
        "qk_pos_emb_head_dim": model.qk_rope_head_dim,
        "v_head_dim": model.v_head_dim,
        "rope_type": "yarn",
    }


def _of_experts(case: MegatronCase) -> dict[str, Any]:
    model = case.built
    shared = model.shared_experts * model.shared_expert_ffn or None
    return {
        "num_moe_experts": model.experts,
        "moe_router_topk": model.experts_per_token,
        "moe_ffn_hidden_size": model.expert_ffn,
        "moe_shared_expert_intermediate_size": shared,
        "moe_shared_expert_gate": model.shared_expert_gate,
        "moe_layer_freq": [int(layer >= model.dense_layers) for layer in range(model.layers)],
        "moe_router_dtype": "fp32",
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": 1e-2,
        "moe_grouped_gemm": True,
        "moe_permute_fusion": case.permutation == "fused",
        "moe_token_dispatcher_type": "alltoall",
        "expert_model_parallel_size": case.expert,
        "expert_tensor_parallel_size": case.expert_tensor,
    }


def _spec(case: MegatronCase, *, mixed: bool) -> Any:
    """A layer, with a mixture of experts where it is ``mixed``."""
    layer = import_module("megatron.core.transformer.transformer_layer")
    mlp = import_module("megatron.core.transformer.mlp")
    module = import_module("megatron.core.transformer.spec_utils").ModuleSpec
    add = import_module("megatron.core.fusions.fused_bias_dropout").get_bias_dropout_add
    identity = import_module("megatron.core.transformer.identity_op").IdentityOp
    latents = case.built.latent
    plain = module(
        module=mlp.MLP,
        submodules=mlp.MLPSubmodules(
            linear_fc1=engine.LayerNormColumnParallelLinear,
            linear_fc2=engine.RowParallelLinear,
        ),
    )
    return module(
        module=layer.TransformerLayer,
        submodules=layer.TransformerLayerSubmodules(
            input_layernorm=engine.Norm if latents else identity,
            self_attention=_latent(module) if latents else _attention(case, module),
            self_attn_bda=add,
            pre_mlp_layernorm=engine.Norm if mixed else identity,
            mlp=_mixture(module, mlp) if mixed else plain,
            mlp_bda=add,
        ),
    )


def _predicting(case: MegatronCase) -> Any:
    """Layers that predict tokens further on, each like the model's last."""
    module = import_module("megatron.core.transformer.spec_utils").ModuleSpec
    layer = module(
        module=predicting.MultiTokenPredictionLayer,
        submodules=predicting.MultiTokenPredictionLayerSubmodules(
            enorm=engine.Norm,
            hnorm=engine.Norm,
            eh_proj=experts.ColumnParallelLinear,
            transformer_layer=_spec(case, mixed=case.built.experts > 0),
            layer_norm=engine.Norm,
        ),
    )
    return module(
        module=predicting.MultiTokenPredictionBlock,
        submodules=predicting.MultiTokenPredictionBlockSubmodules(
            layer_specs=[layer] * case.mtp_layers
        ),
    )


def _attention(case: MegatronCase, module: Any) -> Any:
    mask = import_module("megatron.core.transformer.enums").AttnMaskType
    identity = import_module("megatron.core.transformer.identity_op").IdentityOp
    normed = engine.Norm if str(case.built.qk_norm) == "head" else identity
    return module(
        module=attention.SelfAttention,
        params={"attn_mask_type": mask.causal},
        submodules=attention.SelfAttentionSubmodules(
            linear_qkv=engine.LayerNormColumnParallelLinear,
            core_attention=engine.DotProductAttention,
            linear_proj=engine.RowParallelLinear,
            q_layernorm=normed,
            k_layernorm=normed,
        ),
    )


def _latent(module: Any) -> Any:
    mask = import_module("megatron.core.transformer.enums").AttnMaskType
    identity = import_module("megatron.core.transformer.identity_op").IdentityOp
    return module(
        module=mla.MLASelfAttention,
        params={"attn_mask_type": mask.causal},
        submodules=mla.MLASelfAttentionSubmodules(
            linear_q_proj=experts.ColumnParallelLinear,
            linear_q_down_proj=latent.Linear,
            linear_q_up_proj=engine.LayerNormColumnParallelLinear,
            linear_kv_down_proj=latent.Linear,
            linear_kv_up_proj=engine.LayerNormColumnParallelLinear,
            core_attention=engine.DotProductAttention,
            linear_proj=engine.RowParallelLinear,
            q_layernorm=identity,
            kv_layernorm=identity,
        ),
    )


def _mixture(module: Any, mlp: Any) -> Any:
    kind = import_module("megatron.core.transformer.moe.moe_layer")
    grouped = import_module("megatron.core.transformer.moe.experts").TEGroupedMLP
    shared = import_module("megatron.core.transformer.moe.shared_experts").SharedExpertMLP
    return module(
        module=kind.MoELayer,
        submodules=kind.MoESubmodules(
            experts=module(
                module=grouped,
                submodules=mlp.MLPSubmodules(
                    linear_fc1=experts.ColumnParallelGroupedLinear,
                    linear_fc2=experts.RowParallelGroupedLinear,
                ),
            ),
            shared_experts=module(
                module=shared,
                submodules=mlp.MLPSubmodules(
                    linear_fc1=experts.ColumnParallelLinear,
                    linear_fc2=engine.RowParallelLinear,
                ),
            ),
        ),
    )


def _chunk(case: MegatronCase, config: Any, number: int) -> Any:
    """The part of the model that this GPU holds, or one of its parts where they interleave."""
    model = case.built
    block = import_module("megatron.core.transformer.transformer_block")
    v = case.interleave
    first = case.stage == 0 and number == 0
    last = case.stage == case.pipeline - 1 and number == v - 1
    stage = number if v > 1 else None
    count = block.get_num_layers_to_build(config, vp_stage=stage)
    offset = import_module("megatron.core.transformer.transformer_layer")
    begin = offset.get_transformer_layer_offset(config, vp_stage=stage)
    dense = model.dense_layers if model.experts else model.layers
    specs = [_spec(case, mixed=layer >= dense) for layer in range(begin, begin + count)]
    spec = block.TransformerBlockSubmodules(layer_specs=specs, layer_norm=engine.Norm)
    gpt = import_module("megatron.core.models.gpt").GPTModel
    made = gpt(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=case.padded_vocabulary,
        max_sequence_length=model.positions or case.sequence,
        pre_process=first,
        post_process=last,
        parallel_output=True,
        share_embeddings_and_output_weights=model.tied,
        position_embedding_type="learned_absolute" if model.positions else "rope",
        vp_stage=stage,
        mtp_block_spec=_predicting(case) if last and case.mtp_layers else None,
    )
    if first and model.positions:
        # As Megatron-LM's Float16Module does: they are made in 32 bits.
        table = made.embedding.position_embeddings
        table.weight = nn.Parameter(table.weight.detach().bfloat16())
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronTrace:
    """What one GPU held in a step. All sizes in bytes."""

    parameters: int
    persistent: Mapping[Category, int]
    peaks: Mapping[str, Peak]
    modules: Mapping[str, str]


def trace(case: MegatronCase, *, log: Log | None = None) -> MegatronTrace:
    """Run the case's second step on its stage and count."""
    with fake_mode(), _group_of(case):
        config = _config(case)
        with torch.device("cuda"):
            chunks = [_chunk(case, config, number) for number in range(case.interleave)]
        for chunk in chunks:
            for one in chunk.modules():
                if hasattr(one, "token_dispatcher"):
                    one.token_dispatcher.routing = experts.Routing(
                        kind=case.routing,
                        chosen=case.built.experts_per_token,
                        here=case.built.experts // case.expert,
                        groups=case.expert,
                        fused=case.permutation == "fused",
                        shares=case.expert_tensor,
                    )
        wrapped, optimizer = _wrapped(case, config, chunks)
        modules = Modules.of(
            (f"chunk{number}.{name}" if case.interleave > 1 else name, module)
            for number, chunk in enumerate(chunks)
            for name, module in chunk.named_modules()
        )
        # The first step makes what stays: gradients that say nothing, buffers.
        _step(case, wrapped)
        gc.collect()
        tracker = Tracker(
            device="cuda",
            modules=modules,
            classify=_classify(case),
            rounding=ALLOCATION_BYTES,
            log=log,
        )
        held = _hold(tracker, case, wrapped, optimizer)
        _phases.begin = tracker.begin
        with tracker:
            _step(case, wrapped)
        _phases.begin = lambda phase: None
        places = {
            phase: modules.of_node(peak.node) if peak.node else peak.module
            for phase, peak in tracker.peaks.items()
        }
        modules.remove()
        return MegatronTrace(
            parameters=sum(p.numel() for chunk in chunks for p in chunk.parameters()),
            persistent=held,
            peaks=dict(tracker.peaks),
            modules=places,
        )


def _wrapped(case: MegatronCase, config: Any, chunks: list[Any]) -> tuple[list[Any], Any]:
    distributed = import_module("megatron.core.distributed")
    ddp = distributed.DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        use_distributed_optimizer=case.distributed_optimizer,
        overlap_grad_reduce=False,
        bucket_size=None,
    )
    wrapped = [
        distributed.DistributedDataParallel(config, ddp, chunk, disable_bucketing=number > 0)
        for number, chunk in enumerate(chunks)
    ]
    package: Any = import_module("megatron.core.optimizer")
    shared: Any = import_module("megatron.core.optimizer.distrib_optimizer")
    package.Adam, package.USING_PYTORCH_OPTIMIZER = FusedAdam, False
    shared.Adam = FusedAdam
    settings = package.OptimizerConfig(
        optimizer="adam",
        lr=1e-4,
        bf16=True,
        params_dtype=torch.bfloat16,
        use_distributed_optimizer=case.distributed_optimizer,
        clip_grad=0.0,
    )
    made = package.get_megatron_optimizer(settings, wrapped, use_gloo_process_groups=False)
    for one in getattr(made, "chained_optimizers", [made]):
        one.optimizer.create()
    return wrapped, made


class _Phases:
    """Hears whether a forward or a backward pass begins, once it listens."""

    def __init__(self) -> None:
        self.begin: Any = lambda phase: None


_phases = _Phases()
_backward_step = schedules.backward_step


def _heard_backward(*arguments: Any, **options: Any) -> Any:
    _phases.begin("backward")
    return _backward_step(*arguments, **options)


schedules.backward_step = _heard_backward


def _batch(case: MegatronCase, model: Any) -> tuple[Any, ...]:
    """What the loader gives a part: tokens and positions to the first, the rest to the last."""
    size = (case.micro_batch, case.sequence // case.context)

    def some(wanted: bool, dtype: Any) -> Any:
        return torch.empty(size, dtype=dtype, device="cuda") if wanted else None

    reads = model.pre_process or model.mtp_process
    return (
        some(reads, torch.int64),
        some(reads, torch.int64),
        some(model.post_process, torch.int64),
        some(model.post_process, torch.float32),
    )


def _step(case: MegatronCase, wrapped: list[Any]) -> None:
    def loss_of(counts: Tensor, output: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        losses = output.view(-1).float()
        return torch.sum(losses * counts.view(-1)), {}

    def forward(_: Any, model: Any) -> tuple[Tensor, Any]:
        _phases.begin("forward")
        tokens, positions, labels, counts = _batch(case, model.module)
        output = model(tokens, positions, None, labels=labels, loss_mask=counts)
        return output, lambda made: loss_of(counts, made)

    virtual = case.interleave if case.interleave > 1 else None
    schedules.get_forward_backward_func(case.pipeline, virtual)(
        forward_step_func=forward,
        data_iterator=[iter(())] * len(wrapped),
        model=wrapped if case.pipeline > 1 else wrapped[0],
        num_microbatches=case.micro_batches,
        seq_length=case.sequence,
        micro_batch_size=case.micro_batch,
        forward_only=False,
    )


def _hold(
    tracker: Tracker, case: MegatronCase, wrapped: list[Any], optimizer: Any
) -> Mapping[Category, int]:
    for model in wrapped:
        tracker.hold(model.parameters(), Category.WEIGHTS)
        for buffer in model.buffers + model.expert_parallel_buffers:
            tracker.hold((buffer.param_data,), Category.WEIGHTS)
            tracker.hold((buffer.grad_data,), Category.GRADIENTS)
        tracker.hold(model.module.buffers(), Category.BUFFERS)
        if hasattr(model.module, "rotary_pos_emb"):
            # The angles are worked out once and kept.
            tracker.hold((_angles(case, model.module),), Category.BUFFERS)
        tracker.hold(_of_the_last_routing(model.module), Category.BUFFERS)
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        moments = one.optimizer.state.values()
        tracker.hold((m for state in moments for m in state.values()), Category.OPTIMIZER)
        tracker.hold(
            (p for group in one.optimizer.param_groups for p in group["params"]), Category.MASTER
        )
    tracker.hold(engine.dummies(), Category.STEP)
    memory = parallel_state.get_global_memory_buffer()
    tracker.hold(memory.buffer.values(), Category.BACKWARD)
    return {kind: size for kind, size in tracker.by_category.items() if size}


def _of_the_last_routing(model: Any) -> Iterator[Tensor | None]:
    """What each layer's dispatcher holds until its next forward pass, and the balancing loss's."""
    for module in model.modules():
        if hasattr(module, "token_dispatcher"):
            one = module.token_dispatcher
            yield from (one.probs, one.routing_map, one.reversed_local_input_permutation_mapping)
            orders = (
                one.sort_input_by_local_experts,
                one.restore_output_by_local_experts,
                getattr(one, "num_global_tokens_per_local_expert", None),
            )
            # Without fused kernels they are on the CPU.
            yield from (order for order in orders if torch.is_tensor(order))
            yield from _leaves(one.probs)
    for found in moe.get_moe_layer_wise_logging_tracker().values():
        yield found["values"]
    yield moe.MoEAuxLossAutoScaler.main_loss_backward_scale
    yield predicting.MTPLossLoggingHelper.tracker.get("values")
    yield predicting.MTPLossAutoScaler.main_loss_backward_scale


def _leaves(tensor: Tensor) -> Iterator[Tensor | None]:
    """What the graph of a tensor that is held holds: the inputs it began with, their gradients."""
    todo, seen = [tensor.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo += (following for following, _ in node.next_functions)
        leaf = getattr(node, "variable", None)
        if leaf is not None and not isinstance(leaf, nn.Parameter):
            yield from (leaf, leaf.grad)


def _angles(case: MegatronCase, model: Any) -> Tensor:
    """Asked for as the model's forward pass does, so that the cache answers."""
    return model.rotary_pos_emb(case.sequence, packed_seq=False, cp_group=None)


def _classify(case: MegatronCase) -> Any:
    width = case.padded_vocabulary // case.tensor
    tokens = case.micro_batch * case.sequence // case.context

    def kind(tracker: Tracker, operation: str, tensor: Tensor, first: Any) -> Category:
        if tensor.dim() > 1 and tensor.shape[-1] == width and tensor.numel() == tokens * width:
            return Category.LOGITS
        if torch._C._current_autograd_node() is None:
            return Category.ACTIVATIONS
        return Category.RECOMPUTED if tracker.recomputing else Category.BACKWARD

    return kind
