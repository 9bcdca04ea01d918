"""An axolotl configuration in YAML.

Keys and what they are where they are missing follow axolotl's ``utils/schemas/``; it loads the
weights in the dtype in which it computes.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import adapters, fsdp
from .optimizers import OTHER, TRANSFORMERS
from .table import Format, Row, Taken, choice, count, is_on, lost, taken, text, word_of, words
from .training_arguments import (
    BESIDE,
    COMPILED,
    HANDED_ON,
    QUANTIZED,
    clips,
    deepspeed_file,
    offloads,
    packed,
)


@taken("bf16", ("compute_dtype", "weights_dtype"), "bfloat16", usual="auto")
def _bf16(name: str, value: object) -> Taken:
    kept = {"compute_dtype": "bf16", "weights_dtype": "bf16"}
    if word_of(value) == "auto":
        return Taken(settings=kept, said="on a GPU that has bfloat16")
    on = word_of(value) == "full" or is_on(name, value)
    return Taken(settings=kept if on else {})


_QUANTIZED = "how weights are quantized is not read, but for their storage"


def _stored(name: str, value: object) -> Taken:
    """Of what goes to bitsandbytes the storage; axolotl's own is bfloat16."""
    rest = dict(value) if isinstance(value, Mapping) else {"": value} if value else {}
    key = adapters.storage.keys[0]
    stored = rest.pop(key, None)
    found = Taken(settings={}) if stored is None else adapters.storage.take(f"{name}.{key}", stored)
    more = _QUANTIZED if rest else ""
    return Taken(settings=found.settings, lost="; ".join(filter(None, (found.lost, more))))


@taken("fp16", ("compute_dtype", "weights_dtype"), "float16")
def _fp16(name: str, value: object) -> Taken:
    kept = {"compute_dtype": "fp16", "weights_dtype": "fp16"}
    return Taken(settings=kept if is_on(name, value) else {})


@taken("float32", ("compute_dtype", "weights_dtype"))
def _fp32(name: str, value: object) -> Taken:
    kept = {"compute_dtype": "fp32", "weights_dtype": "fp32"}
    return Taken(settings=kept if is_on(name, value) else {})


@taken("gradient_checkpointing", ("recompute", "offload"), usual=False)
def _recomputes(name: str, value: object) -> Taken:
    word = word_of(value)
    if word in ("offload", "offload_disk", "unsloth"):
        why = "checkpoints on disk were counted as on the host" if word == "offload_disk" else ""
        return Taken(settings={"recompute": "full", "offload": "checkpoints"}, lost=why)
    return Taken(settings={"recompute": "full" if is_on(name, value) else "none"})


@taken("adapter", ("adapter", "base_bits"))
def _adapter(name: str, value: object) -> Taken:
    word = word_of(value)
    meanings: dict[str, dict[str, object]] = {
        "lora": {"adapter": "lora"},
        "qlora": {"adapter": "lora", "base_bits": 4},
        "": {},
    }
    if word not in meanings:
        return Taken(settings={"adapter": "lora"}, lost="this adapter was counted as LoRA")
    return Taken(settings=meanings[word])


@taken("lora_target_linear", ("adapter_targets",))
def _linear(name: str, value: object) -> Taken:
    return Taken(settings={"adapter_targets": "all-linear"} if is_on(name, value) else {})


def _attention(key: str, means: str) -> Row:
    @taken(key, ("attention",))
    def row(name: str, value: object) -> Taken:
        return Taken(settings={"attention": means} if is_on(name, value) else {})

    return row


def _fused(key: str, setting: str, means: str) -> Row:
    @taken(key, (setting,))
    def row(name: str, value: object) -> Taken:
        return Taken(settings={setting: means} if is_on(name, value) else {})

    return row


FORMAT = Format(
    id="axolotl",
    name="axolotl configuration",
    written="YAML",
    source="axolotl, utils/schemas/config.py and its neighbours",
    implementation="huggingface",
    marks=words(
        """
        base_model sequence_len micro_batch_size datasets sample_packing adapter val_set_size
        num_epochs flash_attention pad_to_sequence_len load_in_4bit load_in_8bit lora_target_linear
        dataset_prepared_path gradient_checkpointing optimizer train_on_inputs special_tokens
        chat_template
        """
    ),
    rows=(
        text("base_model", "model_name"),
        count("sequence_len", "sequence", usual=512),
        count("micro_batch_size", "micro_batch", usual=1),
        count("gradient_accumulation_steps", "accumulation", usual=1),
        count("batch_size", "global_batch"),
        _bf16,
        _fp16,
        _fp32,
        _recomputes,
        choice("optimizer", TRANSFORMERS, unknown=OTHER, usual="adamw_torch_fused"),
        clips("max_grad_norm", usual=1.0),
        _attention("flash_attention", "flash"),
        _attention("sdp_attention", "flash"),
        _attention("xformers_attention", "flash"),
        _attention("eager_attention", "eager"),
        choice(
            "attn_implementation",
            {
                "sdpa": {"attention": "flash"},
                "flash_attention_2": {"attention": "flash"},
                "flash_attention_3": {"attention": "flash"},
                "eager": {"attention": "eager"},
            },
            unknown="this attention is not modelled; FlashAttention's was counted",
        ),
        lost(
            "flex_attention",
            "flex attention is not modelled; FlashAttention's was counted",
            "s2_attention",
            "sage_attention",
        ),
        _fused("liger_fused_linear_cross_entropy", "loss", "fused-linear"),
        _fused("cut_cross_entropy", "loss", "fused-linear"),
        _fused("chunked_cross_entropy", "loss", "chunked"),
        _fused("liger_glu_activation", "mlp", "fused"),
        _fused("liger_swiglu", "mlp", "fused"),
        _fused("liger_rms_norm", "norm_kernel", "fused"),
        lost(
            "liger_cross_entropy",
            "this loss is not modelled; the full one was counted",
            "unsloth_cross_entropy_loss",
            "flash_attn_cross_entropy",
        ),
        _adapter,
        adapters.rank("lora_r"),
        adapters.targets("lora_target_modules"),
        _linear,
        adapters.dropout("lora_dropout"),
        adapters.bits("load_in_4bit", 4),
        adapters.bits("load_in_8bit", 8),
        lost("gptq", QUANTIZED),
        lost(
            "lora_mlp_kernel",
            "adapters' fused kernels are not modelled",
            "lora_qkv_kernel",
            "lora_o_kernel",
        ),
        lost(
            "unfrozen_parameters",
            "frozen weights are not modelled; all were counted as trained",
            "lisa_n_layers",
            off=(None, [], False),
        ),
        lost(
            "rl",
            "a reference model or rewards beside the trained model are not counted",
            "reward_model",
        ),
        offloads("activation_offloading"),
        lost("layer_offloading", "what is moved to the host was counted as staying"),
        deepspeed_file,
        *fsdp.ROWS,
        count("dp_shard_size", "shards"),
        count("dp_replicate_size", "replicas"),
        count("tensor_parallel_size", "tensor"),
        count("context_parallel_size", "context", "sequence_parallel_degree"),
        lost("torch_compile", COMPILED),
        lost("tiled_mlp", "a feed-forward layer in tiles is not modelled"),
        lost("neftune_noise_alpha", "noise on the embeddings takes one more tensor of their size"),
        lost("fp8", "8-bit operations are not modelled", "qat", off=(None, False, {})),
        *HANDED_ON,
        lost(
            "lora_modules_to_save",
            "modules that are trained whole beside the adapters are not counted",
            off=(None, []),
        ),
        lost("peft_use_dora", "DoRA's magnitudes are not modelled; LoRA was counted"),
        lost(
            "lora_layers_to_transform",
            "adapters in some layers only are not modelled; all were counted",
            "peft_layers_to_transform",
            "lora_layers_pattern",
            off=(None, []),
        ),
        lost("lora_target_parameters", "adapters beside experts are not modelled", off=(None, [])),
        lost(
            "resize_token_embeddings_to_32x",
            "a vocabulary that grows with the tokenizer is not counted",
            "tokens",
            "added_tokens_overrides",
            "shrink_embeddings",
            off=(None, False, [], {}),
        ),
        lost("embeddings_skip_upcast", "embeddings that stay in 16 bits were counted so or in 32"),
        lost(
            "overrides_of_model_config",
            "a shape of one's own: add the config.json that it makes",
            "overrides_of_model_kwargs",
            off=(None, {}),
        ),
        lost(
            "device_map",
            "layers spread over GPUs that take turns are not modelled",
            off=(None, "", "cuda", "cuda:0"),
        ),
        lost(
            "flash_attn_fuse_mlp",
            "this kernel, which needs less than was counted, is not modelled",
            "flash_attn_fuse_qkv",
            "flash_attn_rms_norm",
            "liger_rope",
            "liger_layer_norm",
        ),
        lost("deepcompile", COMPILED),
        Row(
            keys=("bnb_config_kwargs",),
            take=_stored,
            settings=("quant_storage",),
            lost=_QUANTIZED,
        ),
        lost("batch_flattening", "a batch without padding may hold fewer tokens than was counted"),
        lost("vllm", "a server of answers beside the training is not counted", off=(None, {})),
        lost(
            "do_causal_lm_eval",
            "evaluation is not counted: answers that it writes are held on the GPU",
            "eval_table_size",
        ),
        lost("auto_find_batch_size", "it halves the micro-batch until the job fits"),
        lost(
            "optim_target_modules",
            "low-rank optimizers are not modelled; AdamW was counted",
            "relora",
            "relora_steps",
        ),
        lost(
            "gradient_checkpointing_kwargs",
            "reentrant checkpointing also keeps the random state; the other kind was counted",
            off=(None, {"use_reentrant": False}),
        ),
        packed("sample_packing"),
    ),
    beside=(
        *BESIDE,
        *fsdp.BESIDE,
        *words(
            """
            datasets dataset_* test_datasets pretraining_dataset val_set_size shuffle_*
            lora_alpha lora_fan_in* lora_on_cpu lora_model_dir peft_use_rslora
            peft_init* peft_autocast* loftq* loraplus* num_epochs lr_* cosine_*
            learning_rate embedding_lr*
            train_on_inputs chat_template* special_tokens tokenizer*
            base_model_config *_type type_of_model is_*_derived_model revision_of_model strict
            xformers* pad_to* sample_packing_* early_stopping* auto_resume* resume_from* plugins
            device use_wandb mlflow* use_mlflow comet* use_comet gradio* ray* use_ray
            resources_per_worker hf_* hub_* saves_* evals_* eval_* max_steps seed val_* debug
            ddp ddp_timeout ddp_find* local_rank world_size low_cpu_mem_usage mean_resizing*
            fix_untrained* default_system* eot_tokens
            heads_k_stride ring_attn_func fsdp_final*
            liger_use* save_* loss_watchdog* gc_* profiler* min_sample_len
            max_prompt_len excess_length* trust_remote_code group_by_length remove_unused*
            merge_lora push_dataset* skip_prepare* streaming* curriculum* multipack* pretrain* dpo_*
            orpo_* rl_beta trl rope_* include_t* axolotl_config* generate_*
            generation_* num_generation* use_tensorboard
            """
        ),
    ),
    silent=(
        "how many GPUs the job runs on",
        "what a plugin does that it does not have a key for",
    ),
)
