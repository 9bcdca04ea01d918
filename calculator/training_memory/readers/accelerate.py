"""accelerate's configuration (``accelerate config``): YAML or JSON.

Keys follow accelerate's ``commands/config/config_args.py`` and ``commands/launch.py``.
"""

from __future__ import annotations

from ..errors import InputError
from . import fsdp
from .deepspeed import ON_THE_HOST, WEIGHTS_ON_THE_HOST
from .table import Format, Taken, choice, count, is_on, lost, taken, text, word_of, words
from .training_arguments import ACCELERATED

_IN = "deepspeed_config."
_MEGATRON = "megatron_lm_config.megatron_lm_"
_DEGREES = "parallelism_config.parallelism_config_"


@taken(f"{_IN}zero_stage", ("zero", "master", "sharding"))
def _stage(name: str, value: object) -> Taken:
    word = word_of(value)
    if word not in ("0", "1", "2", "3"):
        raise InputError(name, value, "allowed: 0, 1, 2, 3")
    return Taken(settings={"zero": int(word), "master": True, "sharding": "deepspeed"})


@taken(f"{_IN}gradient_clipping", ("clip",), f"{_MEGATRON}gradient_clipping")
def _clipping(name: str, value: object) -> Taken:
    return Taken(settings={"clip": word_of(value) not in ("0", "0.0", "none")})


@taken(f"{_MEGATRON}use_distributed_optimizer", ("zero",))
def _distributed(name: str, value: object) -> Taken:
    return Taken(settings={"zero": 1 if is_on(name, value) else 0})


@taken(f"{_MEGATRON}recompute_activations", ("recompute",))
def _recomputes(name: str, value: object) -> Taken:
    return Taken(settings={"recompute": "selective" if is_on(name, value) else "none"})


FORMAT = Format(
    id="accelerate",
    name="accelerate configuration",
    written="YAML or JSON",
    source="accelerate, commands/config/config_args.py",
    implementation="huggingface",
    marks=words(
        """
        compute_environment distributed_type num_processes num_machines machine_rank mixed_precision
        downcast_bf16 main_training_function rdzv_backend same_network use_cpu fsdp_config
        deepspeed_config
        """
    ),
    rows=(
        count("num_processes", "gpus"),
        count("num_machines", "nodes"),
        choice(
            "mixed_precision",
            {
                "no": {"compute_dtype": "fp32"},
                "false": {"compute_dtype": "fp32"},  # YAML's no
                "bf16": {"compute_dtype": "bf16"},
                "fp16": {"compute_dtype": "fp16"},
                "fp8": "8-bit operations are not modelled; say --recipe",
            },
        ),
        choice(
            "distributed_type",
            {
                "no": {"gpus": 1},
                "false": {"gpus": 1},
                "multi_gpu": {"zero": 0},
                "fsdp": {"shards": -1, "fsdp_units": "layers"},
                "deepspeed": {"master": True},
                "megatron_lm": {"master": True},
                "tp": {"zero": 0},
            },
            unknown="only GPUs are counted",
        ),
        *fsdp.ROWS,
        _stage,
        _clipping,
        count(f"{_IN}gradient_accumulation_steps", "accumulation"),
        choice(f"{_IN}offload_optimizer_device", ON_THE_HOST),
        choice(f"{_IN}offload_param_device", WEIGHTS_ON_THE_HOST),
        text(f"{_IN}deepspeed_config_file", "engine"),
        count(f"{_MEGATRON}tp_degree", "tensor"),
        count(f"{_MEGATRON}pp_degree", "pipeline"),
        count(f"{_MEGATRON}num_micro_batches", "accumulation"),
        taken(f"{_MEGATRON}sequence_parallelism", ("sequence_parallel",))(
            lambda name, value: Taken(settings={"sequence_parallel": is_on(name, value)})
        ),
        _distributed,
        _recomputes,
        count(f"{_DEGREES}dp_replicate_size", "replicas"),
        count(f"{_DEGREES}dp_shard_size", "shards"),
        count(f"{_DEGREES}tp_size", "tensor", "tp_config.tp_size"),
        count(f"{_DEGREES}cp_size", "context", f"{_DEGREES}sp_size"),
        lost(
            "dynamo_config.dynamo_backend",
            "torch.compile fuses operations, so less is kept between them than was counted",
            "dynamo_backend",
        ),
        *ACCELERATED,
        count("gradient_accumulation_steps", "accumulation"),
        lost("fp8_config", "8-bit operations are not modelled"),
        lost("use_cpu", "a job without a GPU is not counted"),
    ),
    beside=(
        *fsdp.BESIDE,
        *words(
            """
            compute_environment debug machine_rank gpu_ids main_process_* rdzv_backend same_network
            main_training_function enable_cpu_affinity downcast_bf16 tpu_* command_file commands
            ipex_config mpirun_config dynamo_config.* deepspeed_config.zero3_*
            deepspeed_config.deepspeed_multinode* deepspeed_config.deepspeed_hostfile
            deepspeed_config.deepspeed_ex* deepspeed_config.deepspeed_in*
            deepspeed_config.offload_*_nvme_path parallelism_config.parallelism_config_cp_*
            parallelism_config.parallelism_config_sp_* fp16
            """
        ),
    ),
    silent=(
        "the model, the sequence length and the micro-batch",
        "whether gradients are clipped and layers recomputed, where the training script says it",
    ),
)
