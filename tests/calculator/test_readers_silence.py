"""No field that bears on memory is passed over: each is read, or said to be out of the answer.

The fields are those of each format's documentation that decide what a training step holds on a
GPU, with a value that is not the usual one. Sources: transformers, ``training_args.py``; TRL,
``sft_config.py`` and ``model_config.py``; accelerate, ``config_args.py``; DeepSpeed,
``docs/_pages/config-json.md``; torchtitan, ``config/configs.py``; Megatron-LM,
``megatron/training/arguments.py``; axolotl, ``utils/schemas/``; LLaMA-Factory, ``hparams/``;
torchtune, ``recipes/configs/``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from training_memory.errors import InputErrors
from training_memory.readers.formats import FORMATS, read_files
from training_memory.readers.report import Standing

TRAINER = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "bf16": True, "fp16": True,
    "max_grad_norm": 0.5, "optim": "adafactor", "optim_args": "rank=8",
    "gradient_checkpointing": True,
    "gradient_checkpointing_kwargs": {"use_reentrant": True}, "use_liger_kernel": True,
    "liger_kernel_config": {"rope": False}, "torch_compile": True,
    "torch_compile_backend": "inductor", "torch_compile_mode": "max-autotune",
    "neftune_noise_alpha": 5, "label_smoothing_factor": 0.1, "auto_find_batch_size": True,
    "optim_target_modules": ["attn"], "ddp_bucket_cap_mb": 100, "ddp_static_graph": True,
    "eval_strategy": "steps", "use_cpu": True, "fsdp": "full_shard", "deepspeed": "ds.json",
    "accelerator_config": {"split_batches": True},
    "accelerator_config.gradient_accumulation_kwargs": {"sync_each_batch": True},
    "fsdp_config": {"activation_checkpointing": True}, "fsdp_config.auto_wrap_policy": "NO_WRAP",
    "fsdp_config.min_num_params": 1000, "fsdp_config.offload_params": True,
    "fsdp_config.transformer_layer_cls_to_wrap": "LlamaDecoderLayer,LlamaMLP",
    "attn_implementation": "eager", "load_in_4bit": True, "torch_dtype": "bfloat16",
    "parallelism_config": {"tp_size": 2}, "activation_offloading": True,
}  # fmt: skip

#: Of each format: keys with a value that does not leave them off.
BEARING: dict[str, dict[str, Any]] = {
    "huggingface": {**TRAINER, "config_name": "x", "config_overrides": "n_layer=2"},
    "trl": {
        "max_length": 512, "packing": True, "padding_free": True, "lora_r": 8,
        "lora_target_modules": ["q_proj"], "lora_modules_to_save": ["lm_head"], "use_dora": True,
        "load_in_4bit": True, "load_in_8bit": True, "use_bnb_nested_quant": True,
        "bnb_4bit_quant_storage": "bfloat16", "loss_type": "dft", "beta": 1.0, "use_peft": True,
        "lora_target_parameters": ["experts"], "activation_offloading": True,
        "model_init_kwargs": {"attn_implementation": "eager"},
        "model_init_kwargs.dtype": "bfloat16", "model_init_kwargs.use_cache": True,
        "model_init_kwargs.quantization_config": {"load_in_4bit": True},
    },
    "accelerate": {
        "num_processes": 8, "num_machines": 2, "mixed_precision": "bf16",
        "distributed_type": "FSDP", "use_cpu": True, "gradient_accumulation_steps": 4,
        "deepspeed_config": {"zero_stage": 3}, "deepspeed_config.gradient_clipping": 1.0,
        "deepspeed_config.offload_optimizer_device": "cpu",
        "deepspeed_config.offload_param_device": "nvme",
        "deepspeed_config.gradient_accumulation_steps": 4,
        "fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP"},
        "fsdp_config.fsdp_activation_checkpointing": True,
        "fsdp_config.fsdp_offload_params": True,
        "fsdp_config.fsdp_reshard_after_forward": False,
        "fsdp_config.fsdp_auto_wrap_policy": "SIZE_BASED_WRAP",
        "fsdp_config.fsdp_min_num_params": 1000, "dynamo_config": {"dynamo_backend": "inductor"},
        "parallelism_config": {"parallelism_config_tp_size": 2},
        "parallelism_config.parallelism_config_cp_size": 2,
        "megatron_lm_config": {"megatron_lm_tp_degree": 2}, "fp8_config": {"backend": "TE"},
    },
    "deepspeed": {
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
        "train_batch_size": 64, "zero_optimization": {"stage": 2},
        "zero_optimization.offload_optimizer": {"device": "cpu"},
        "zero_optimization.offload_param": {"device": "cpu"},
        "zero_optimization.reduce_bucket_size": 1e8,
        "zero_optimization.stage3_prefetch_bucket_size": 1e7,
        "zero_optimization.stage3_max_live_parameters": 1e8,
        "zero_optimization.stage3_param_persistence_threshold": 1e5,
        "zero_optimization.zero_hpz_partition_size": 8, "bf16": {"enabled": True},
        "fp16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"},
        "gradient_clipping": 1.0, "optimizer": {"type": "Lion"},
        "activation_checkpointing": {"partition_activations": True},
        "activation_checkpointing.cpu_checkpointing": True, "sequence_parallel_size": 2,
        "tensor_parallel": {"autotp_size": 2},
    },
    "torchtitan": {
        "training": {"local_batch_size": 4}, "training.seq_len": 4096,
        "training.global_batch_size": 64, "training.max_norm": 0.5, "training.dtype": "bfloat16",
        "training.mixed_precision_param": "float32", "training.enable_cpu_offload": True,
        "parallelism": {"data_parallel_replicate_degree": 2},
        "parallelism.data_parallel_shard_degree": 4,
        "parallelism.fsdp_reshard_after_forward": "never",
        "parallelism.tensor_parallel_degree": 2, "parallelism.disable_loss_parallel": True,
        "parallelism.enable_sequence_parallel": False,
        "parallelism.enable_async_tensor_parallel": True,
        "parallelism.enable_fsdp_symm_mem": True, "parallelism.pipeline_parallel_degree": 2,
        "parallelism.pipeline_parallel_schedule": "Interleaved1F1B",
        "parallelism.pipeline_parallel_layers_per_stage": 2,
        "parallelism.pipeline_parallel_microbatch_size": 2,
        "parallelism.context_parallel_degree": 2, "parallelism.expert_parallel_degree": 2,
        "activation_checkpoint": {"mode": "full"}, "activation_checkpoint.early_stop": True,
        "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns": ["output"],
        "compile": {"enable": True}, "optimizer": {"name": "Adam"},
        "optimizer.implementation": "foreach", "optimizer.early_step_in_backward": True,
        "model": {"converters": ["float8"]}, "fault_tolerance": {"enable": True},
        "validation": {"enable": True},
    },
    "megatron": {
        "micro_batch_size": 2, "global_batch_size": 64, "seq_length": 4096,
        "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
        "context_parallel_size": 2, "sequence_parallel": True, "expert_model_parallel_size": 2,
        "expert_tensor_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 2, "bf16": True,
        "use_distributed_optimizer": True, "use_precision_aware_optimizer": True,
        "grad_reduce_in_bf16": True, "optimizer_cpu_offload": True,
        "cpu_offloading_num_layers": 1, "fp8_format": "hybrid",
        "optimizer": "sgd", "clip_grad": 0.5, "recompute_granularity": "full",
        "recompute_num_layers": 4, "recompute_modules": ["mlp"], "recompute_activations": True,
        "distribute_saved_activations": True, "attention_backend": "unfused",
        "num_layers": 8, "hidden_size": 1024, "num_attention_heads": 8, "ffn_hidden_size": 4096,
        "num_query_groups": 2, "swiglu": True, "untie_embeddings_and_output_weights": True,
        "disable_bias_linear": True, "normalization": "RMSNorm", "vocab_size": 32000,
        "make_vocab_size_divisible_by": 64, "num_experts": 8, "moe_router_topk": 2,
        "multi_latent_attention": True, "mtp_num_layers": 1, "hidden_dropout": 0.1,
        "cross_entropy_loss_fusion": True, "no_masked_softmax_fusion": True,
        "no_bias_swiglu_fusion": True, "no_rope_fusion": True, "cuda_graph_impl": "local",
        "enable_cuda_graph": True, "tp_comm_overlap": True, "nccl_ub": True,
        "transformer_impl": "local", "reset_attention_mask": True,
        "accumulate_allreduce_grads_in_fp32": True, "rampup_batch_size": ["32", "32", "100"],
    },
    "axolotl": {
        "sequence_len": 1024, "micro_batch_size": 2, "gradient_accumulation_steps": 2,
        "bf16": True, "optimizer": "adamw_bnb_8bit", "gradient_checkpointing": "offload",
        "adapter": "qlora", "lora_r": 8, "lora_target_linear": True, "load_in_8bit": True,
        "lora_modules_to_save": ["lm_head"], "peft_use_dora": True,
        "peft_layers_to_transform": [0, 1], "lora_layers_to_transform": [0],
        "resize_token_embeddings_to_32x": True, "tokens": ["<a>"], "device_map": "auto",
        "overrides_of_model_config": {"num_hidden_layers": 2}, "embeddings_skip_upcast": True,
        "flash_attn_fuse_mlp": True, "liger_rope": True, "liger_layer_norm": True,
        "liger_cross_entropy": True, "cut_cross_entropy": True, "deepcompile": True,
        "sample_packing": True, "batch_flattening": True, "vllm": {"tensor_parallel_size": 1},
        "unfrozen_parameters": ["lm_head"], "rl": "dpo", "neftune_noise_alpha": 1,
        "torch_compile_backend": "inductor",
        "ddp_bucket_cap_mb": 100, "optim_args": {"a": 1}, "accelerator_config.split_batches": True,
        "bnb_config_kwargs": {"bnb_4bit_use_double_quant": False}, "do_causal_lm_eval": True,
        "unsloth_lora_mlp": True, "lora_mlp_kernel": True, "relora": True, "tiled_mlp": True,
        "fp8": True, "fsdp": ["full_shard"], "fsdp_config.offload_params": True,
        "dp_shard_size": 8, "tensor_parallel_size": 2, "context_parallel_size": 2,
        "layer_offloading": True, "s2_attention": True,
    },
    "llamafactory": {
        "cutoff_len": 1024, "finetuning_type": "freeze", "pure_bf16": True, "lora_rank": 8,
        "lora_target": "q_proj", "additional_target": "embed_tokens", "use_dora": True,
        "quantization_bit": 4, "quantization_method": "hqq", "double_quantization": False,
        "use_galore": True, "use_badam": True, "use_unsloth": True, "upcast_layernorm": True,
        "upcast_lmhead_output": True, "disable_gradient_checkpointing": True,
        "use_reentrant_gc": True, "flash_attn": "disabled", "shift_attn": True,
        "mixture_of_depths": "load", "stage": "dpo", "neat_packing": True, "packing": True,
        "resize_vocab": True, "add_tokens": "<a>", "create_new_adapter": True,
        "enable_liger_kernel": True, "deepspeed": "ds.json", "fp8": True,
    },
    "torchtune": {
        "batch_size": 2, "tokenizer": {"max_seq_len": 1024}, "dtype": "bf16",
        "enable_activation_checkpointing": True, "enable_activation_offloading": True,
        "ac_mode": "selective", "optimizer": {"_component_": "torch.optim.SGD"},
        "optimizer_in_bwd": True, "loss": {"_component_": "x.LinearCrossEntropyLoss"},
        "clip_grad_norm": 1.0, "compile": True, "fsdp_cpu_offload": True,
        "fsdp_reshard_after_forward": False, "tensor_parallel_dim": 2,
        "data_parallel_shard_dim": 4, "context_parallel_dim": 2, "model": {"lora_rank": 8},
        "model.apply_lora_to_output": True, "quantizer": {"_component_": "x"},
        "custom_sharded_layers": ["tok_embeddings"], "enable_fp8_training": True,
        "gradient_accumulation_steps": 4,
    },
}  # fmt: skip
CASES = [
    (form, key, value) for form, keys in BEARING.items() for key, value in keys.items()
]  # fmt: skip


def test_every_format_that_trains_has_its_fields():
    assert BEARING.keys() == FORMATS.keys() - {"config"}


def nested(path: str, value: object) -> dict[str, Any]:
    first, dot, rest = path.partition(".")
    return {first: nested(rest, value) if dot else value}


@pytest.mark.parametrize(("form", "key", "value"), CASES, ids=[f"{f}-{k}" for f, k, _ in CASES])
def test_no_field_that_bears_on_memory_is_passed_over(form, key, value):
    text = json.dumps(nested(key, value))
    try:
        report = read_files([(f"{form}:a.json", text)], {"data": 16, "vocabulary": 32000}).report
    except InputErrors as found:
        # Alone it cannot be; that is a word about it as well.
        said = str(found)
        if key.rpartition(".")[2] not in said and "batch" not in said:
            raise
        return
    told = [one for one in report.findings if one.file and one.standing is not Standing.ASSUMED]
    assert told
    for finding in told:
        silent = finding.standing is Standing.BESIDE and not finding.said
        # What decides a field only beside others (an adapter's rank without an adapter) is idle.
        row = next((row for row in FORMATS[form].rows if finding.key in row.keys), None)
        assert not silent or (row is not None and row.settings), finding
