"""A LLaMA-Factory configuration: YAML, JSON, or flags in a script.

Keys and defaults follow LLaMA-Factory's ``hparams/``; it makes trained weights FP32
(``model/adapter.py``, ``init_adapter``), unless ``pure_bf16`` says not to.
"""

from __future__ import annotations

from . import adapters, fsdp
from .table import Format, Taken, choice, count, flag, is_on, lost, taken, text, word_of, words
from .training_arguments import BESIDE, SHARED, packed

_LOW_RANK = "this optimizer is not modelled; AdamW's two numbers a parameter were counted"


@taken("pure_bf16", ("weights_dtype", "compute_dtype"))
def _pure(name: str, value: object) -> Taken:
    if not is_on(name, value):
        return Taken(settings={})
    return Taken(settings={"weights_dtype": "bf16", "compute_dtype": "bf16"})


@taken("disable_gradient_checkpointing", ("recompute",), usual=False)
def _recomputes(name: str, value: object) -> Taken:
    return Taken(settings={"recompute": "none" if is_on(name, value) else "full"})


@taken("finetuning_type", ("adapter",), usual="lora")
def _kind(name: str, value: object) -> Taken:
    word = word_of(value)
    if word == "full":
        return Taken(settings={"adapter": "none"})
    if word == "freeze":
        return Taken(
            settings={"adapter": "none"},
            lost="frozen weights are not modelled; all were counted as trained",
        )
    return Taken(
        settings={"adapter": "lora"}, lost="" if word == "lora" else "this was counted as LoRA"
    )


@taken("stage", ())
def _stage(name: str, value: object) -> Taken:
    idle = word_of(value) in ("pt", "sft")
    why = "a second model beside the trained one (reference, reward) is not counted"
    return Taken(settings={}, lost="" if idle else why)


def upcast(_: object, settings: dict[str, object]) -> None:
    """Trained weights are FP32 unless something says otherwise; frozen ones are not touched."""
    frozen = settings.get("adapter", "lora") == "lora"
    kept = settings.get("compute_dtype", "fp32") if frozen else "fp32"
    settings.setdefault("weights_dtype", kept)


FORMAT = Format(
    id="llamafactory",
    name="LLaMA-Factory configuration",
    written="YAML, JSON, or flags in a script",
    source="LLaMA-Factory, hparams/ and model/adapter.py",
    implementation="huggingface",
    marks=words(
        """
        finetuning_type stage template cutoff_len dataset_dir lora_target lora_rank pure_bf16
        plot_loss flash_attn dataset overwrite_cache per_device_train_batch_size model_name_or_path
        max_samples do_train gradient_accumulation_steps learning_rate output_dir lr_scheduler_type
        num_train_epochs warmup_ratio logging_steps preprocessing_num_workers
        """
    ),
    rows=(
        *SHARED,
        text("model_name_or_path", "model_name"),
        count("cutoff_len", "sequence", usual=2048),
        _pure,
        _recomputes,
        _kind,
        _stage,
        choice(
            "flash_attn",
            {
                "auto": {"attention": "flash"},
                "fa2": {"attention": "flash"},
                "fa3": {"attention": "flash"},
                "sdpa": {"attention": "flash"},
                "disabled": {"attention": "eager"},
            },
        ),
        adapters.quantization,
        adapters.rank("lora_rank", usual=8),
        adapters.targets("lora_target", usual="all"),
        adapters.dropout("lora_dropout"),
        lost("use_galore", _LOW_RANK, "use_apollo", "use_badam", "use_adam_mini"),
        taken("use_muon", ("optimizer",))(
            lambda name, value: Taken(settings={"optimizer": "muon"} if is_on(name, value) else {})
        ),
        lost("use_unsloth", "unsloth's kernels are not modelled", "use_unsloth_gc"),
        lost("upcast_lmhead_output", "logits made FP32 once more are not counted"),
        lost("upcast_layernorm", "norms in FP32 are not counted"),
        lost("use_llama_pro", "frozen weights are not modelled; all were counted as trained"),
        lost("fp8", "8-bit operations are not modelled"),
        lost("mixture_of_depths", "mixture of depths is not modelled"),
        lost("shift_attn", "shifted attention is not modelled", "use_mca", "use_kt"),
        lost("resize_vocab", "a vocabulary that grows with the tokenizer is not counted"),
        lost(
            "additional_target",
            "modules that are trained whole beside the adapters are not counted",
            off=(None, "", []),
        ),
        lost("use_dora", "DoRA's magnitudes are not modelled; LoRA was counted"),
        lost("create_new_adapter", "adapters beside ones that are there already are not counted"),
        flag("double_quantization", "nested_scales", usual=True),
        lost(
            "quantization_method",
            "quantized by another library than bitsandbytes: the size was counted as its",
            off=(None, "bnb", "bitsandbytes"),
        ),
        lost(
            "add_tokens",
            "a vocabulary that grows with the tokenizer is not counted",
            "add_special_tokens",
            "new_special_tokens_config",
            off=(None, "", []),
        ),
        lost(
            "use_reentrant_gc",
            "reentrant checkpointing also keeps the random state; the other kind was counted",
            off=(None, False, "false"),
        ),
        lost("module_dropout", "OFT is not modelled; LoRA was counted", off=(None, 0, 0.0)),
        packed("packing"),
        lost(
            "neat_packing", "unless flash_attn is fa2, a mask of sequence × sequence is not counted"
        ),
        count("nproc_per_node", "gpus_per_node"),
        count("nnodes", "nodes"),
    ),
    beside=(
        *BESIDE,
        *fsdp.BESIDE,
        *words(
            """
            template dataset* eval_dataset media_dir max_samples overwrite_* val_size preprocessing*
            mask_history train_on_prompt mix_strategy interleave* buffer* ignore_pad* tool_format
            default_system enable_thinking preserve* tokenized* plot_loss compute_accuracy
            disable_shuffling early_stopping* lora_alpha loraplus* use_rslora
            pissa_* freeze_* oft_* pref_* kto_* simpo_* ppo_* dpo_*
            ref_model* reward_model* galore_* apollo_* badam_* swanlab_* use_swanlab adapter_*
            split_special* init_special* low_cpu_mem_usage
            rope_scaling train_from_scratch infer_* offload_folder
            use_kv_cache use_v1* *_hub_token print_param* quantization_device_map
            quantization_type image_*
            video_* audio_* crop_* use_audio* export_* vllm_* sglang_* kt_* ray_* master_* node_rank
            profil* enable_torch_profiler temperature top_* num_beams max_new_tokens *_penalty
            skip_special_tokens data_shared* use_dft* use_asft* asft* use_eaft* eaft*
            """
        ),
    ),
    silent=("how many GPUs the job runs on",),
    finish=upcast,
)
