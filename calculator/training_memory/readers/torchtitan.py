"""A torchtitan job in TOML, or its keys as flags.

Keys and what they are where they are missing follow ``torchtitan/config/job_config.py``, and the
older names of torchtitan before that file.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InputError
from ..units import parse_count
from .fsdp import shards
from .optimizers import CLASSES, OTHER
from .table import Format, Taken, choice, count, flag, lost, taken, text, word_of, words
from .training_arguments import clips, dtype_row

_PP = "parallelism.pipeline_parallel_"
_FLOAT8 = "8-bit operations are not modelled; the weights and what is kept were counted as BF16's"
_COMPILED = "torch.compile fuses operations, so less is kept between them than was counted"

#: Flavors by the model's name in torchtitan, in lower case.
FLAVORS: Mapping[str, Mapping[str, str]] = {
    "llama3": {"8b": "llama-3.1-8b", "70b": "llama-3.1-70b", "405b": "llama-3.1-405b"},
    "llama2": {"7b": "llama-2-7b", "13b": "llama-2-13b", "70b": "llama-2-70b"},
    "qwen3": {
        size: f"qwen3-{size}"
        for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b", "30b-a3b", "235b-a22b")
    },
    "deepseek_v3": {"16b": "deepseek-v2-lite", "236b": "deepseek-v2", "671b": "deepseek-v3"},
}


def named(values: Mapping[str, object], settings: dict[str, object]) -> None:
    """Put the catalog's model in the place of torchtitan's name and flavor."""
    model = values.get("model")
    name, flavor = (
        (word_of(model.get(key, usual)) for key, usual in (("name", "llama3"), ("flavor", "")))
        if isinstance(model, Mapping)
        else (word_of(values.get("model.name", "llama3")), word_of(values.get("model.flavor", "")))
    )
    known = FLAVORS.get(name, {}).get(flavor)
    if known:
        settings["model_name"] = known
    elif flavor:
        settings["model_name"] = f"{name} {flavor}"


@taken("activation_checkpoint.mode", ("recompute",), usual="selective")
def _mode(name: str, value: object) -> Taken:
    meanings = {"none": "none", "full": "full", "selective": "matmuls"}
    word = word_of(value)
    if word == "memory_budget":
        return Taken(
            settings={"recompute": "full"},
            lost="a memory budget is not modelled; full recomputation was counted",
        )
    if word not in meanings:
        raise InputError.unknown_name(name, word, (*meanings, "memory_budget"))
    return Taken(settings={"recompute": meanings[word]})


@taken("activation_checkpoint.selective_ac_option", (), "activation_checkpoint.selective_ac_type")
def _option(name: str, value: object) -> Taken:
    word = word_of(value)
    if word == "op":
        return Taken(settings={})
    if word.isdecimal():
        why = f"recomputing one layer in {word} is not modelled; the choice of op was counted"
        return Taken(settings={}, lost=why)
    raise InputError(name, value, "allowed: op, or a whole number")


@taken(f"{_PP}schedule", ())
def _schedule(name: str, value: object) -> Taken:
    word = word_of(value)
    known = word in ("1f1b", "")
    return Taken(
        settings={},
        lost="" if known else "this pipeline schedule is not modelled; 1F1B was counted",
    )


@taken("parallelism.fsdp_reshard_after_forward", ("reshard_after_forward",))
def _reshards(name: str, value: object) -> Taken:
    word = word_of(value)
    if word not in ("default", "always", "never"):
        raise InputError.unknown_name(name, word, ("default", "always", "never"))
    if word == "never":
        return Taken(settings={"reshard_after_forward": False})
    return Taken(settings={})


@taken("training.global_batch_size", ("global_batch",))
def _global(name: str, value: object) -> Taken:
    if value in (-1, "-1"):
        return Taken(settings={})
    return Taken(settings={"global_batch": parse_count(name, value)})


@taken("optimizer.implementation", ("optimizer_kernel",), usual="fused")
def _kernel(name: str, value: object) -> Taken:
    word = word_of(value)
    kernels = {"fused": "fused", "foreach": "foreach", "for-loop": "forloop"}
    if word not in kernels:
        raise InputError.unknown_name(name, word, tuple(kernels))
    return Taken(settings={"optimizer_kernel": kernels[word]})


@taken(
    "parallelism.tensor_parallel_degree",
    ("tensor", "sequence_parallel"),
    "training.tensor_parallel_degree",
    usual=1,
)
def _tensor(name: str, value: object) -> Taken:
    # torchtitan's plan for tensor parallelism splits the tokens between the layers as well.
    return Taken(settings={"tensor": parse_count(name, value), "sequence_parallel": True})


FORMAT = Format(
    id="torchtitan",
    name="torchtitan job",
    written="TOML, or flags in a script",
    source="torchtitan, config/job_config.py",
    implementation="torchtitan",
    marks=words(
        """
        job.dump_folder job.description training.seq_len training.local_batch_size model.flavor
        model.name parallelism.data_parallel_shard_degree activation_checkpoint.mode training.steps
        optimizer.lr metrics.log_freq training.batch_size parallelism.tensor_parallel_degree
        lr_scheduler.warmup_steps training.tensor_parallel_degree profiling.enable_profiling
        training.dataset checkpoint.interval optimizer.name
        """
    ),
    rows=(
        text("model.flavor", "model_name"),
        count("training.local_batch_size", "micro_batch", "training.batch_size", usual=8),
        _global,
        count("training.seq_len", "sequence", usual=2048),
        clips("training.max_norm", usual=1.0),
        dtype_row("training.mixed_precision_param", "compute_dtype", usual="bfloat16"),
        dtype_row("training.dtype", "weights_dtype"),
        lost(
            "training.enable_cpu_offload",
            "what is moved to the host was counted as staying",
            "experimental.enable_cpu_offload",
        ),
        lost("training.compile", _COMPILED, "compile.enable"),
        choice("optimizer.name", CLASSES, unknown=OTHER, usual="AdamW"),
        _kernel,
        flag("optimizer.early_step_in_backward", "optimizer_in_backward"),
        count(
            "parallelism.data_parallel_replicate_degree",
            "replicas",
            "training.data_parallel_replicate_degree",
        ),
        shards(
            "parallelism.data_parallel_shard_degree",
            "training.data_parallel_shard_degree",
            "training.data_parallel_degree",
        ),
        _reshards,
        _tensor,
        lost(
            "parallelism.disable_loss_parallel",
            "the logits are then whole on every GPU; they were counted as split",
        ),
        count(f"{_PP}degree", "pipeline", "experimental.pipeline_parallel_degree"),
        count(f"{_PP}microbatch_size", "pipeline_micro_batch", usual=1),
        _schedule,
        lost(
            f"{_PP}split_points",
            "stages of one's own cut are not modelled",
            f"{_PP}layers_per_stage",
            "parallelism.module_fqns_per_model_part",
        ),
        count(
            "parallelism.context_parallel_degree", "context", "experimental.context_parallel_degree"
        ),
        count("parallelism.expert_parallel_degree", "expert"),
        count("parallelism.expert_tensor_parallel_degree", "expert_tensor"),
        _mode,
        _option,
        lost("activation_checkpoint.early_stop", "recomputing that stops early is not modelled"),
        lost(
            "model.converters",
            _FLOAT8,
            "float8.recipe_name",
            "float8.enable_float8_linear",
            off=(None, [], "", False),
        ),
        count("nproc_per_node", "gpus_per_node", "nproc-per-node"),
        count("nnodes", "nodes", "sbatch.nodes"),
    ),
    beside=(
        f"{_PP}schedule_csv",
        f"{_PP}first*",
        f"{_PP}last*",
        *words(
            """
            job.* profiling.* metrics.* model.name model.tokenizer_path model.hf_assets_path
            model.print_after_conversion model.norm_type optimizer.* lr_scheduler.*
            training.dataset* training.steps training.mixed_precision_reduce training.gc_*
            training.seed training.determin* training.warmup_steps training.data_parallel_type
            compile.* parallelism.enable_* parallelism.context_parallel_rotate_method
            parallelism.context_parallel_load* checkpoint.* comm.*
            memory_estimation.* activation_checkpoint.per_op* activation_checkpoint.preserve*
            activation_checkpoint.determinism* activation_checkpoint.visualize*
            activation_checkpoint.debug float8.* mx.* quantize.* fault_tolerance.* experimental.*
            validation.* debug.* master_* rdzv* role tee local-ranks-filter local_rank*
            job.config_file sbatch.*
            """
        ),
    ),
    silent=("how many GPUs the job runs on, unless every degree is given",),
    finish=named,
)
