"""Hugging Face's TrainingArguments, as JSON, YAML or a script's flags; TRL's configurations too.

What a key means and what it is where it is missing follows transformers'
``training_args.py`` and TRL's ``sft_config.py`` and ``model_config.py``.
"""

from __future__ import annotations

from ..errors import InputError
from . import fsdp
from .optimizers import OTHER, TRANSFORMERS
from .table import Format, Row, Taken, choice, count, flag, is_on, lost, taken, text, word_of, words

DTYPES = {
    "float32": "fp32",
    "fp32": "fp32",
    "float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "bf16": "bf16",
}
QUANTIZED = "weights of 4 or 8 bits are not modelled; they were counted at their full size"
IN_EIGHT = "the loss is cut into 8 chunks; chunks of 1,024 tokens were counted"
COMPILED = "torch.compile fuses operations, so less is kept between them than was counted"


def dtype_row(key: str, setting: str, *spellings: str, usual: str | None = None) -> Row:
    """A dtype by torch's name for it; ``auto`` says nothing."""

    @taken(key, (setting,), *spellings, usual=usual)
    def row(name: str, value: object) -> Taken:
        word = word_of(value).removeprefix("torch.")
        if word == "auto":
            return Taken(settings={}, said="as the model's config.json says")
        if word not in DTYPES:
            raise InputError.unknown_name(name, word, (*DTYPES, "auto"))
        return Taken(settings={setting: DTYPES[word]})

    return row


@taken("bf16", ("compute_dtype",))
def bf16(name: str, value: object) -> Taken:
    """Whether operations are in bfloat16."""
    return Taken(settings={"compute_dtype": "bf16"} if is_on(name, value) else {})


@taken("fp16", ("compute_dtype",))
def _fp16(name: str, value: object) -> Taken:
    return Taken(settings={"compute_dtype": "fp16"} if is_on(name, value) else {})


def recomputes(key: str, *spellings: str, usual: bool | None = None) -> Row:
    """Gradient checkpointing: every layer is computed again."""

    @taken(key, ("recompute",), *spellings, usual=usual)
    def row(name: str, value: object) -> Taken:
        return Taken(settings={"recompute": "full" if is_on(name, value) else "none"})

    return row


def offloads(key: str) -> Row:
    """Whether all that is saved for backward waits on the host."""

    @taken(key, ("offload",))
    def row(name: str, value: object) -> Taken:
        return Taken(settings={"offload": "saved"} if is_on(name, value) else {})

    return row


def clips(key: str, *, usual: float | None = None) -> Row:
    """A largest norm of the gradients; 0 is off."""

    @taken(key, ("clip",), usual=usual)
    def row(name: str, value: object) -> Taken:
        try:
            most = float(str(value))
        except ValueError:
            raise InputError(name, value, "a number is needed, such as 1.0, or 0 for off") from None
        return Taken(settings={"clip": most > 0})

    return row


@taken("use_liger_kernel", ("loss", "mlp", "norm_kernel"), "enable_liger_kernel", "use_liger")
def liger(name: str, value: object) -> Taken:
    """Liger's kernels: the loss in chunks from the last layer on, SwiGLU and RMSNorm fused."""
    if not is_on(name, value):
        return Taken(settings={})
    fused = {"loss": "fused-linear", "mlp": "fused", "norm_kernel": "fused"}
    return Taken(settings=fused)


ATTENTION = choice(
    "attn_implementation",
    {
        "sdpa": {"attention": "flash"},
        "flash_attention_2": {"attention": "flash"},
        "flash_attention_3": {"attention": "flash"},
        "kernels-community/flash-attn2": {"attention": "flash"},
        "kernels-community/flash-attn3": {"attention": "flash"},
        "eager": {"attention": "eager"},
    },
    "model_init_kwargs.attn_implementation",
    unknown="this attention is not modelled; FlashAttention's was counted",
)


@taken("deepspeed", ("engine", "master"))
def deepspeed_file(name: str, value: object) -> Taken:
    """A path to another file, or the DeepSpeed configuration itself."""
    if isinstance(value, dict) or (isinstance(value, str) and value.lstrip().startswith("{")):
        return Taken(settings={"master": True}, said="a DeepSpeed configuration, read as such")
    if isinstance(value, str):
        return Taken(settings={"engine": value, "master": True})
    raise InputError(name, value, "the path of a DeepSpeed configuration is needed")


BUCKETS = "DDP's buckets of another size than 25 MiB are not modelled"

#: What transformers hands on to accelerate.
ACCELERATED: tuple[Row, ...] = (
    flag(
        "accelerator_config.gradient_accumulation_kwargs.sync_each_batch",
        "sync_each_batch",
        "gradient_accumulation_kwargs.sync_each_batch",
    ),
    lost(
        "accelerator_config.split_batches",
        "the micro-batch is then that of all GPUs together: say --micro-batch",
        "split_batches",
    ),
)
#: What axolotl hands on to transformers as well.
HANDED_ON: tuple[Row, ...] = (
    lost("torch_compile_backend", COMPILED, "torch_compile_mode"),  # either turns it on
    lost("label_smoothing_factor", "a smoothed loss makes one more copy of the logits"),
    lost("optim_args", "what an optimizer is told beside its name is not read", off=(None, "")),
    lost("ddp_bucket_cap_mb", BUCKETS, off=(None, 25, "25")),
    lost("ddp_static_graph", "DDP with a fixed graph is not modelled"),
    *ACCELERATED,
)
_ACCELERATED = words(
    """
    dispatch_batches even_batches use_seedable_sampler non_blocking use_configured_state
    gradient_accumulation_kwargs.*
    """,
    under="accelerator_config.",
)

#: Rows that trainers built on transformers share.
SHARED: tuple[Row, ...] = (
    count("per_device_train_batch_size", "micro_batch", "per_gpu_train_batch_size", usual=8),
    count("gradient_accumulation_steps", "accumulation", usual=1),
    bf16,
    _fp16,
    clips("max_grad_norm", usual=1.0),
    choice("optim", TRANSFORMERS, unknown=OTHER, usual="adamw_torch_fused"),
    liger,
    ATTENTION,
    deepspeed_file,
    *fsdp.ROWS,
    lost("torch_compile", COMPILED),
    lost("neftune_noise_alpha", "noise on the embeddings takes one more tensor of their size"),
    lost("auto_find_batch_size", "it halves the micro-batch until the job fits"),
    *HANDED_ON,
    lost(
        "eval_strategy",
        "evaluation is not counted: it can need more than a step, where a script gathers "
        "predictions on the GPU",
        "evaluation_strategy",
    ),
    lost("use_cpu", "a job without a GPU is not counted", "no_cuda", "use_mps_device"),
    offloads("activation_offloading"),
    lost("optim_target_modules", "low-rank optimizers are not modelled; AdamW was counted"),
    lost("parallelism_config", "write its degrees as flags: --data, --tensor and so on"),
    lost("liger_kernel_config", "it turns some of Liger's kernels off or on; all usual ones count"),
    lost(
        "gradient_checkpointing_kwargs",
        "reentrant checkpointing also keeps the random state; the other kind was counted",
        "activation_checkpointing_kwargs",
        off=(None, {"use_reentrant": False}),
    ),
    lost("use_cache", "a cache of keys and values is kept in forward", off=(None, False)),
    lost("bf16_full_eval", "evaluation is not counted", "fp16_full_eval"),
)

#: transformers' keys that do not bear on what a training step holds on a GPU.
BESIDE: tuple[str, ...] = (
    words(
        """
    output_dir overwrite_output_dir num_train_epochs max_steps learning_rate lr_scheduler_* warmup_*
    weight_decay adam_* average_tokens_across_devices tf32 torch_empty_cache_steps logging_* log_*
    include_* disable_tqdm report_to run_name project trackio_* wandb_* eval_*
    per_device_eval_batch_size per_gpu_eval_batch_size
    prediction_loss_only batch_eval_metrics save_* hub_* push_to_hub*
    enable_jit_checkpoint load_best_model_at_end metric_for_best_model greater_is_better
    ignore_data_skip restore_callback_states_from_checkpoint full_determinism seed data_seed
    dataloader_* remove_unused_columns label_names train_sampling_strategy
    group_by_length length_column_name ddp_backend ddp_timeout ddp_find* ddp_broadcast* debug
    skip_memory_metrics do_* resume_from_* local_rank
    jit_mode_eval past_index predict_with_generate generation_*
    trust_remote_code model_revision cache_dir token use_auth_token tokenizer_*
    use_fast_tokenizer ray_scope max_train_samples max_eval_samples
    preprocessing_num_workers overwrite_cache validation_* train_file test_file streaming use_ipex
    """
    )
    + _ACCELERATED
)


def packed(key: str) -> Row:
    """Samples put together until a sequence is full, which is what is counted anyway.

    Where each attends to itself alone, a fused kernel is told where they begin and keeps the same
    bytes (flash_attn_varlen_func; transformers' modeling_flash_attention_utils.py).
    """

    @taken(key, ())
    def row(name: str, value: object) -> Taken:
        on = is_on(name, value)
        full = "packed samples are to fused attention one full sequence, which was counted"
        return Taken(settings={}, said=full if on else "shorter samples need less than was counted")

    return row


LAUNCHED: tuple[Row, ...] = (
    count("nproc_per_node", "gpus_per_node", "nproc-per-node", "num_gpus"),
    count("nnodes", "nodes", "num_nodes", "sbatch.nodes"),
    count("sbatch.gpus-per-node", "gpus_per_node", "sbatch.ntasks-per-node"),
    count("num_processes", "gpus"),
)
LAUNCHER = words(
    """
    master_* node_rank rdzv* main_process_* machine_rank config_file sbatch.* use_deepspeed
    num_machines mixed_precision
    """
)
MODEL: tuple[Row, ...] = (
    text("model_name_or_path", "model_name", "model_name"),
    dtype_row(
        "dtype",
        "weights_dtype",
        "torch_dtype",
        "model_init_kwargs.torch_dtype",
        "model_init_kwargs.dtype",
    ),
    lost("load_in_4bit", QUANTIZED, "load_in_8bit"),
    lost(
        "config_name",
        "the model is made from that configuration: add its config.json",
        "config_overrides",
        off=(None, ""),
    ),
)

MARKS = words(
    """
    per_device_train_batch_size output_dir learning_rate num_train_epochs lr_scheduler_type
    save_strategy eval_strategy optim report_to logging_steps warmup_ratio gradient_checkpointing
    model_name_or_path max_grad_norm attn_implementation fsdp_config save_steps dataset_name fsdp
    per_device_eval_batch_size deepspeed
    """
)

FORMAT = Format(
    id="huggingface",
    name="Hugging Face TrainingArguments",
    written="JSON, YAML, or flags in a script",
    source="transformers, training_args.py",
    implementation="huggingface",
    marks=MARKS,
    rows=(
        *SHARED,
        *MODEL,
        *LAUNCHED,
        recomputes("gradient_checkpointing", "activation_checkpointing"),
        count("max_seq_length", "sequence", "max_seq_len", "block_size", "model_max_length"),
    ),
    beside=(
        *BESIDE,
        *fsdp.BESIDE,
        *LAUNCHER,
        *words(
            """
            dataset* model_type
            """
        ),
    ),
    silent=(
        "how many GPUs the job runs on, unless a script starts it",
        "the sequence length, which is the script's own affair",
        "the dtype in which the model is loaded",
        "adapters, which are set up in the script",
    ),
)
