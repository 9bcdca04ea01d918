"""Megatron-LM's arguments: a launch script, or YAML with the same names.

Names and defaults follow ``megatron/training/arguments.py``.
"""

from __future__ import annotations

from ..errors import InputError
from ..units import parse_count
from . import megatron_experts, megatron_shape
from .table import Format, Taken, choice, count, flag, is_on, lost, taken, text, word_of, words
from .training_arguments import clips

_OFFLOAD = "what is moved to the host was counted as staying on the GPU"
_FP8 = "8-bit operations and weights are not modelled"
_SECTIONS = ("language_model.", "model_parallel.", "MODEL_ARGS.", "model.", "ARGS.")


def plain(path: str) -> str:
    """A key without its YAML section and its dashes: ``num_layers``."""
    for section in _SECTIONS:
        path = path.removeprefix(section)
    return path.removeprefix("--").replace("-", "_") if not path.startswith("sbatch.") else path


@taken("bf16", ("compute_dtype", "master", "gradient_dtype"))
def _bf16(name: str, value: object) -> Taken:
    # With --bf16 gradients always add up in 32 bits.
    kept = {"compute_dtype": "bf16", "master": True, "gradient_dtype": "fp32"}
    return Taken(settings=kept if is_on(name, value) else {})


@taken("fp16", ("compute_dtype", "master"))
def _fp16(name: str, value: object) -> Taken:
    on = is_on(name, value)
    return Taken(settings={"compute_dtype": "fp16", "master": True} if on else {})


@taken("accumulate_allreduce_grads_in_fp32", ("gradient_dtype",))
def _wide_gradients(name: str, value: object) -> Taken:
    return Taken(settings={"gradient_dtype": "fp32"} if is_on(name, value) else {})


@taken("use_distributed_optimizer", ("zero",))
def _distributed(name: str, value: object) -> Taken:
    return Taken(settings={"zero": 1 if is_on(name, value) else 0})


@taken("data_parallel_sharding_strategy", ("zero",))
def _sharding(name: str, value: object) -> Taken:
    stages = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
    word = word_of(value)
    if word not in stages:
        raise InputError.unknown_name(name, word, tuple(stages))
    return Taken(settings={"zero": stages[word]})


@taken("use_torch_fsdp2", ("zero",))
def _fsdp2(name: str, value: object) -> Taken:
    return Taken(settings={"zero": 3} if is_on(name, value) else {})


@taken("recompute_activations", ("recompute",))
def _recomputes(name: str, value: object) -> Taken:
    return Taken(settings={"recompute": "selective"} if is_on(name, value) else {})


@taken("recompute_num_layers", ())
def _recomputed_layers(name: str, value: object) -> Taken:
    many = parse_count(name, value) > 1
    why = "checkpoints of several layers at once are not modelled; one layer each was counted"
    return Taken(settings={}, lost=why if many else "")


@taken("recompute_modules", ())
def _modules(name: str, value: object) -> Taken:
    words = {word_of(word) for word in (value if isinstance(value, list) else [value])}
    why = "of these only the core of attention is recomputed in the answer"
    return Taken(settings={}, lost="" if words == {"core_attn"} else why)


@taken("cross_entropy_loss_fusion", ("loss",))
def _fused_loss(name: str, value: object) -> Taken:
    said = (
        "fused where --cross-entropy-fusion-impl is te; PyTorch's compiled loss (native) was "
        "counted like the loss that is not fused"
    )
    return (
        Taken(settings={"loss": "fused"}, said=said) if is_on(name, value) else Taken(settings={})
    )


@taken("hidden_dropout", ("dropout",), usual=0.1)
def _dropout(name: str, value: object) -> Taken:
    try:
        chance = float(str(value))
    except ValueError:
        raise InputError(name, value, "a chance from 0 to 1, such as 0.1") from None
    return Taken(settings={"dropout": chance > 0})


@taken("rampup_batch_size", ())
def _rampup(name: str, value: object) -> Taken:
    return Taken(settings={}, lost="the step at the end of the ramp was counted")


FORMAT = Format(
    id="megatron",
    name="Megatron-LM arguments",
    written="a launch script, or YAML",
    source="Megatron-LM, megatron/training/arguments.py",
    implementation="megatron",
    marks=words(
        """
        tensor_model_parallel_size pipeline_model_parallel_size num_layers micro_batch_size
        global_batch_size hidden_size num_attention_heads seq_length max_position_embeddings
        use_distributed_optimizer train_iters lr_decay_style sequence_parallel tokenizer_type
        train_samples use_mcore_models vocab_file data_path split eval_iters
        """
    ),
    rows=(
        count("micro_batch_size", "micro_batch", "batch_size"),
        count("global_batch_size", "global_batch"),
        count("seq_length", "sequence", "encoder_seq_length"),
        count("tensor_model_parallel_size", "tensor", usual=1),
        count("pipeline_model_parallel_size", "pipeline", usual=1),
        count("context_parallel_size", "context"),
        flag("sequence_parallel", "sequence_parallel"),
        count("expert_model_parallel_size", "expert"),
        count("expert_tensor_parallel_size", "expert_tensor"),
        count("num_layers_per_virtual_pipeline_stage", "virtual_layers"),
        count("num_virtual_stages_per_pipeline_rank", "interleave"),
        lost(
            "pipeline_model_parallel_layout",
            "stages of one's own cut are not modelled",
            "decoder_first_pipeline_num_layers",
            "decoder_last_pipeline_num_layers",
            "account_for_embedding_in_pipeline_split",
            "account_for_loss_in_pipeline_split",
        ),
        count("nproc_per_node", "gpus_per_node"),
        count("nnodes", "nodes", "sbatch.nodes"),
        count("sbatch.gpus-per-node", "gpus_per_node", "sbatch.ntasks-per-node"),
        count("world_size", "gpus"),
        _bf16,
        _fp16,
        _wide_gradients,
        _distributed,
        _sharding,
        _fsdp2,
        lost(
            "use_precision_aware_optimizer",
            "optimizer states of other dtypes are not modelled",
            "main_grads_dtype",
            "main_params_dtype",
            "exp_avg_dtype",
            "exp_avg_sq_dtype",
            off=(None, False, "fp32"),
        ),
        lost("grad_reduce_in_bf16", "gradients reduced in 16 bits were counted in 32"),
        lost(
            "optimizer_cpu_offload",
            _OFFLOAD,
            "cpu_offloading",
            "cpu_offloading_num_layers",
            "fine_grained_activation_offloading",
        ),
        lost("fp8_format", _FP8, "fp8", "fp8_hybrid", "fp8_e4m3", "fp8_param_gather", "fp4_format"),
        choice(
            "optimizer",
            {
                "adam": {"optimizer": "adamw", "optimizer_kernel": "fused"},
                "sgd": {"optimizer": "sgd-momentum"},
                "muon": {"optimizer": "muon"},
            },
            unknown="this optimizer is not modelled; AdamW was counted",
            usual="adam",
        ),
        clips("clip_grad", usual=1.0),
        _recomputes,
        choice(
            "recompute_granularity",
            {"full": {"recompute": "full"}, "selective": {"recompute": "selective"}},
        ),
        choice(
            "recompute_method",
            {
                "uniform": {},
                "block": "recomputing some layers only is not modelled; all were counted",
            },
        ),
        _recomputed_layers,
        _modules,
        lost(
            "distribute_saved_activations",
            "checkpoints spread over tensor-parallel GPUs are not modelled",
        ),
        taken("use_flash_attn", ("attention",))(
            lambda name, value: Taken(settings={"attention": "flash"} if is_on(name, value) else {})
        ),
        choice(
            "attention_backend",
            {
                "flash": {"attention": "flash"},
                "fused": {"attention": "flash"},
                "auto": {"attention": "flash"},
                "unfused": {"attention": "eager"},
                "local": {"attention": "eager"},
            },
        ),
        _rampup,
        _fused_loss,
        lost(
            "no_masked_softmax_fusion",
            "operations that are not fused keep more than was counted",
            "no_bias_gelu_fusion",
            "no_bias_swiglu_fusion",
            "no_bias_dropout_fusion",
            "no_rope_fusion",
            "no_gradient_accumulation_fusion",
        ),
        lost(
            "cuda_graph_impl",
            "what CUDA graphs hold beside the step is not counted",
            "enable_cuda_graph",
            "external_cuda_graph",
            off=(None, False, "none"),
        ),
        lost(
            "tp_comm_overlap",
            "buffers for overlapped communication are not counted",
            "nccl_ub",
            "use_nccl_ub",
        ),
        lost(
            "reset_attention_mask",
            "a mask of its own for each sequence is not counted",
            "create_attention_mask_in_dataloader",
        ),
        choice(
            "transformer_impl",
            {
                "transformer_engine": {},
                "local": "Megatron's own layers are not modelled; Transformer Engine's were",
                "inference_optimized": "these layers are not modelled; Transformer Engine's were",
            },
        ),
        *megatron_shape.ROWS,
        *megatron_experts.ROWS,
        count("mtp_num_layers", "mtp_layers", least=0),
        _dropout,
        text("tokenizer_model", "model_name", "hf_model"),
    ),
    beside=words(
        """
        lr* min_lr weight_decay* adam_* train_* eval_* save* load* log_* tensorboard* wandb*
        data_path data_cache* split vocab_file merge_file tokenizer_type dataloader* num_workers
        seed init_method* attention_dropout attention_softmax* norm_epsilon rotary* use_mcore*
        transformer_impl no_* distributed_* ddp_* overlap_* master_* rdzv* node_rank exit_* ckpt_*
        dist_ckpt* async_save use_dist* use_checkpoint* manual_gc* empty_unused* mock_data apply_*
        masked_* bert_* tp_comm* moe_aux* moe_router* moe_token* moe_grouped* moe_permute* moe_z*
        moe_per_layer*
        initial_loss* loss_scale* hysteresis override_opt* start_weight* end_weight* calculate_*
        sbatch.* timing_* profile* use_pytorch_profiler record_memory* memory_snapshot* local_rank
        te_* use_tp_pp* deterministic* cross_entropy* sft* finetune reset_* eod_* create_attention*
        use_te* bias_* gradient_accumulation_fusion params_dtype pipeline_dtype layernorm_*
        enable_autocast autocast_dtype timers batch_p2p* deallocate_pipeline* perform_init*
        use_cpu_init* external_cuda* cuda_graph* enable_cuda* ENV_VARS* TEST_TYPE activation_func*
        untie_* position_embedding* yaml_cfg num_dataset* inference* nccl* high_priority* check_*
        rerun* error_*
        """
    ),
    silent=(
        "how many GPUs the job runs on, unless the script starts it",
        "the vocabulary, where the tokenizer decides it",
    ),
    plain=plain,
    finish=megatron_shape.finish,
)
