"""A DeepSpeed configuration: JSON, in which DeepSpeed also allows comments.

Keys follow DeepSpeed's documentation (``docs/_pages/config-json.md``). ``auto`` is transformers'
word for "as TrainingArguments says".
"""

from __future__ import annotations

from ..errors import InputError
from ..units import parse_count
from .optimizers import DEEPSPEED, OTHER
from .table import Format, Row, Taken, choice, count, flag, is_on, lost, taken, word_of, words
from .training_arguments import dtype_row

_ZERO = "zero_optimization."
_OFFLOAD = "what is moved to the host or to disk was counted as staying on the GPU"


@taken(f"{_ZERO}stage", ("zero", "master", "sharding"), usual=0)
def _stage(name: str, value: object) -> Taken:
    word = word_of(value)
    if word not in ("0", "1", "2", "3"):
        raise InputError(name, value, "allowed: 0 (off), 1, 2, 3")
    return Taken(settings={"zero": int(word), "master": True, "sharding": "deepspeed"})


@taken("bf16.enabled", ("compute_dtype",), "bfloat16.enabled")
def _bf16(name: str, value: object) -> Taken:
    return Taken(settings={"compute_dtype": "bf16"} if is_on(name, value) else {})


@taken("fp16.enabled", ("compute_dtype",))
def _fp16(name: str, value: object) -> Taken:
    return Taken(settings={"compute_dtype": "fp16"} if is_on(name, value) else {})


@taken("torch_autocast.enabled", ("compute_dtype", "master"))
def _autocast(name: str, value: object) -> Taken:
    on = is_on(name, value)
    return Taken(settings={"compute_dtype": "bf16", "master": False} if on else {})


@taken("gradient_clipping", ("clip",))
def _clipping(name: str, value: object) -> Taken:
    try:
        return Taken(settings={"clip": float(str(value)) > 0})
    except ValueError:
        raise InputError(name, value, "a number is needed, such as 1.0, or 0 for off") from None


@taken("optimizer.params.torch_adam", ("optimizer_kernel",))
def _torch_adam(name: str, value: object) -> Taken:
    """PyTorch's AdamW in place of DeepSpeed's."""
    return Taken(settings={"optimizer_kernel": "foreach"} if is_on(name, value) else {})


def _numbers(key: str, setting: str, *, least: int = 1) -> Row:
    """How many numbers something has; "auto" is worked out from the model."""

    @taken(f"{_ZERO}{key}", (setting,))
    def row(name: str, value: object) -> Taken:
        if word_of(value) == "auto":
            return Taken(settings={setting: "auto"})
        size = parse_count(name, _whole(value), least=least, most=10**12)
        return Taken(settings={setting: size})

    return row


def _whole(value: object) -> object:
    """A number that may be written as ``5e8``."""
    try:
        return int(float(str(value)))
    except (ValueError, OverflowError):
        return value


def _device(part: str) -> str:
    return f"{_ZERO}{part}.device"


#: Where the optimizer is, as DeepSpeed's and accelerate's files say it.
ON_THE_HOST = {place: {"offload_optimizer": place} for place in ("none", "cpu", "nvme")}
WEIGHTS_ON_THE_HOST = {place: {"offload_param": place} for place in ("none", "cpu", "nvme")}

FORMAT = Format(
    id="deepspeed",
    name="DeepSpeed configuration",
    written="JSON, with comments or without",
    source="DeepSpeed, docs/_pages/config-json.md",
    implementation="huggingface",
    marks=words(
        """
        zero_optimization train_micro_batch_size_per_gpu train_batch_size steps_per_print
        wall_clock_breakdown gradient_clipping bf16.enabled fp16.enabled zero_optimization.stage
        zero_allow_untested_optimizer scheduler.type optimizer.type activation_checkpointing
        """
    ),
    rows=(
        count("train_micro_batch_size_per_gpu", "micro_batch"),
        count("gradient_accumulation_steps", "accumulation"),
        count("train_batch_size", "global_batch"),
        _stage,
        _bf16,
        _fp16,
        _autocast,
        dtype_row("data_types.grad_accum_dtype", "gradient_dtype"),
        _clipping,
        choice("optimizer.type", DEEPSPEED, unknown=OTHER),
        _torch_adam,
        choice(_device("offload_optimizer"), ON_THE_HOST),
        choice(_device("offload_param"), WEIGHTS_ON_THE_HOST),
        lost(f"{_ZERO}cpu_offload", _OFFLOAD, f"{_ZERO}cpu_offload_params"),
        _numbers("reduce_bucket_size", "reduce_bucket_size"),
        flag(f"{_ZERO}overlap_comm", "overlap_comm"),
        _numbers("stage3_prefetch_bucket_size", "prefetch_bucket_size", least=0),
        _numbers("stage3_param_persistence_threshold", "param_persistence_threshold", least=0),
        _numbers("stage3_max_live_parameters", "max_live_parameters", least=0),
        lost(
            f"{_ZERO}stage3_max_reuse_distance",
            "weights that are used again within 1e9 numbers were counted as kept until then",
            off=(1e9, 1_000_000_000, "1e9", "auto"),
        ),
        lost(
            f"{_ZERO}sub_group_size",
            "the optimizer was counted as stepping 1e9 numbers at a time",
            off=(1e9, 1_000_000_000, "1e9", 1e12, 1_000_000_000_000, "auto"),
        ),
        lost(
            f"{_ZERO}zero_hpz_partition_size",
            "a second copy of the weights in each machine is not counted",
            off=(1,),
        ),
        lost(f"{_ZERO}zero_quantized_weights", "quantized communication is not counted"),
        lost(f"{_ZERO}zero_quantized_gradients", "quantized communication is not counted"),
        lost("zero_hpz_partition_size", "it belongs under zero_optimization"),
        lost(
            "activation_checkpointing.partition_activations",
            "activations spread over tensor-parallel GPUs are not modelled",
        ),
        lost(
            "activation_checkpointing.cpu_checkpointing",
            "checkpoints moved to the host were counted as staying",
        ),
        lost("tensor_parallel.autotp_size", "say the degree with --tensor", off=(0, 1)),
        lost("sequence_parallel_size", "DeepSpeed-Ulysses is not modelled", off=(1,)),
        lost("pipeline", "say the degree with --pipeline", off=({}, None)),
        lost("amp.enabled", "apex is not modelled"),
        lost("bf16.bf16_master_weights_and_grads", "16-bit master weights are not modelled"),
        lost("bf16.bf16_optimizer_states", "16-bit optimizer states are not modelled"),
        lost("fp16.fp16_master_weights_and_grads", "16-bit master weights are not modelled"),
        lost("compile.deepcompile", "compiled steps are not modelled"),
        lost("compression_training", "compression is not modelled", off=({}, None)),
        lost("moe", "DeepSpeed's own experts are not modelled", off=({}, None)),
    ),
    beside=(
        *words(
            """
            allgather_bucket_size contiguous_gradients reduce_scatter allgather_partitions
            round_robin_gradients offload_* gather_16bit* stage3_gather*
            elastic_checkpoint load_from_fp32_weights
            ignore_unused_parameters legacy_stage1
            use_multi_rank* memory_efficient_linear override_module_apply zeropp_* mics_*
            log_trace* leaf_module*
            """,
            under=_ZERO,
        ),
        *words(
            """
            optimizer.params* optimizer.legacy_fusion scheduler* steps_per_print
            wall_clock_breakdown dump_state prescale_gradients communication_data_type
            gradient_predivide_factor sparse_gradients zero_allow_untested_optimizer
            zero_force_ds_cpu_optimizer fp16.loss_scale* fp16.initial_scale_power fp16.hysteresis
            fp16.min_loss_scale fp16.auto_cast fp16.consecutive* bf16.check_grad_overflow
            bf16.immediate_grad_update torch_autocast.lower* torch_autocast.dtype flops_profiler*
            monitor_config* tensorboard* wandb* csv_monitor* comet* comms_logger* autotuning*
            elasticity* aio* checkpoint* data_efficiency* curriculum_learning* communication_data*
            activation_checkpointing.profile activation_checkpointing.number_checkpoints
            activation_checkpointing.synchronize* activation_checkpointing.contiguous* seed
            data_types managed_gradient_accumulation use_data_before_expert* graph_harvesting
            compile.* timers* dataloader_drop_last hybrid_engine*
            """
        ),
    ),
    silent=(
        "the model and the sequence length",
        "how many GPUs the job runs on",
        "whether layers are recomputed, which the model's code says",
    ),
)
