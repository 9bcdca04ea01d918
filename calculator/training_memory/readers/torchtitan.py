"""A torchtitan job in TOML, in Python, or its keys as flags.

Keys and what they are where they are missing follow ``torchtitan/config/configs.py``, and the
older names of torchtitan before that file. A job in Python is a function of a
``config_registry.py``, which is read and not run (:mod:`.python_file`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InputError
from ..units import parse_count
from .fsdp import on_the_host, shards
from .names import model_id
from .optimizers import CLASSES, OTHER
from .python_file import LINES
from .table import (
    Format,
    Taken,
    choice,
    count,
    flag,
    is_on,
    lost,
    taken,
    text,
    word_of,
    words,
)
from .training_arguments import IN_EIGHT, clips, dtype_row

_SEQUENCE = "enable_sequence_parallel"
_PP = "parallelism.pipeline_parallel_"
_FLOAT8 = "8-bit operations are not modelled; the weights and what is kept were counted as BF16's"

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


def finish(values: Mapping[str, object], settings: dict[str, object]) -> None:
    """Settings that no key decides alone: the model, and whether tokens are split as well."""
    parallelism = values.get("parallelism")
    if isinstance(parallelism, Mapping) and word_of(parallelism.get(_SEQUENCE, True)) == "false":
        settings["sequence_parallel"] = False
    if settings.get("context", 1) == 1:
        settings.pop("context_exchange", None)
    else:
        settings.setdefault("context_exchange", "all-gather")
    if "model_spec" in values or "function" in values:
        _registered(values, settings)
    else:
        _named(values, settings)


def _registered(values: Mapping[str, object], settings: dict[str, object]) -> None:
    """The catalog's model for a function's: by its assets, or by what the function is called."""
    assets = word_of(values.get("hf_assets_path", "")).rstrip("/").rpartition("/")[2]
    function = word_of(values.get("function", ""))
    spec = values.get("model_spec")
    flavor = word_of(spec.get("argument 1", "")) if isinstance(spec, Mapping) else ""
    family = next((name for name in FLAVORS if function.startswith(name)), "")
    flavor = flavor or function.removeprefix(f"{family}_")
    known = FLAVORS.get(family, {}).get(flavor)
    if known is None and family == "":
        known = model_id(assets)
    settings["model_name"] = known or f"{family or assets} {flavor}".strip()


def _named(values: Mapping[str, object], settings: dict[str, object]) -> None:
    """The catalog's model in the place of torchtitan's name and flavor."""
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


@taken("training.compile", ("compile",), "compile.enable")
def _compiled(name: str, value: object) -> Taken:
    # Of the newer table's components, both are what is compiled unless it says otherwise.
    return Taken(settings={"compile": "layers-and-loss"} if is_on(name, value) else {})


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


@taken("loss._component_", ("loss",))
def _loss(name: str, value: object) -> Taken:
    word = word_of(value)
    if "chunked" in word:
        return Taken(settings={"loss": "chunked"}, lost=IN_EIGHT)
    known = "crossentropy" in word
    why = "" if known else "this loss is not modelled; the full one was counted"
    return Taken(settings={"loss": "full"} if known else {}, lost=why)


@taken("optimizer._component_", ("optimizer_in_backward",))
def _container(name: str, value: object) -> Taken:
    word = word_of(value)
    if "inbackward" in word:
        return Taken(settings={"optimizer_in_backward": True})
    known = "adamw" in word or word.rpartition(".")[0].endswith("optimizerscontainer")
    return Taken(settings={}, lost="" if known else OTHER)


@taken("function", ("model_name",), "config")
def _function(name: str, value: object) -> Taken:
    """A function of torchtitan's Python configurations; a script names it, without its file."""
    if name == "function":
        return Taken(settings={"model_name": value}, said="the configuration that was read")
    why = "it names a configuration in Python: add torchtitan's config_registry.py"
    return Taken(settings={}, lost=why)


FORMAT = Format(
    id="torchtitan",
    name="torchtitan job",
    written="TOML, a config_registry.py, or flags in a script",
    source="torchtitan, config/configs.py",
    implementation="torchtitan",
    marks=words(
        """
        job.dump_folder job.description training.seq_len training.local_batch_size model.flavor
        model.name parallelism.data_parallel_shard_degree activation_checkpoint.mode training.steps
        optimizer.lr metrics.log_freq training.batch_size parallelism.tensor_parallel_degree
        lr_scheduler.warmup_steps training.tensor_parallel_degree profiling.enable_profiling
        training.dataset checkpoint.interval optimizer.name model_spec function hf_assets_path
        module         lr_scheduler.decay_ratio activation_checkpoint
        """
    ),
    rows=(
        text("model.flavor", "model_name"),
        _function,
        flag(f"parallelism.{_SEQUENCE}", "sequence_parallel"),
        _loss,
        _container,
        lost(LINES, "what these lines change is not in the answer", off=()),
        lost(
            "model_spec.attn_backend",
            "this attention is not modelled; FlashAttention's was counted",
            off=(None, "sdpa", "flash"),
        ),
        lost("model_spec.moe_comm_backend", "this exchange between experts is not modelled"),
        count("training.local_batch_size", "micro_batch", "training.batch_size", usual=8),
        _global,
        count("training.seq_len", "sequence", usual=2048),
        clips("training.max_norm", usual=1.0),
        dtype_row("training.mixed_precision_param", "compute_dtype", usual="bfloat16"),
        dtype_row("training.dtype", "weights_dtype"),
        on_the_host("training.enable_cpu_offload", "experimental.enable_cpu_offload"),
        _compiled,
        lost(
            "parallelism.enable_async_tensor_parallel",
            "buffers that tensor parallelism shares between GPUs are not counted",
            "experimental.enable_async_tensor_parallel",
            "parallelism.enable_fsdp_symm_mem",
        ),
        lost("fault_tolerance.enable", "copies that fault tolerance keeps are not counted"),
        lost("validation.enable", "validation between the steps is not counted"),
        lost(
            "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
            "products that are recomputed by their shape are not modelled",
            off=(None, [], ["moe.router.gate"]),
        ),
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
        choice(
            "parallelism.context_parallel_rotate_method",
            {
                "allgather": {"context_exchange": "all-gather"},
                "alltoall": {"context_exchange": "ring"},
            },
            "experimental.context_parallel_rotate_method",
        ),
        count("parallelism.expert_parallel_degree", "expert"),
        count("parallelism.expert_tensor_parallel_degree", "expert_tensor"),
        _mode,
        _option,
        lost("activation_checkpoint.early_stop", "recomputing that stops early is not modelled"),
        lost(
            "model.converters",
            _FLOAT8,
            "model_converters.converters",
            "model_spec.converters",
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
            _component_ *._component_ hf_assets_path dump_folder model_spec.argument*
            model_spec._component_ dataloader.* validator.* profiler.* tokenizer.* module
            job.* profiling.* metrics.* model.name model.tokenizer_path model.hf_assets_path
            model.print_after_conversion model.norm_type optimizer.* lr_scheduler.*
            training.dataset* training.steps training.mixed_precision_reduce training.gc_*
            training.seed training.determin* training.warmup_steps training.data_parallel_type
            compile.* parallelism.enable_compiled*
            parallelism.context_parallel_load* checkpoint.* comm.*
            memory_estimation.* activation_checkpoint.preserve*
            activation_checkpoint.determinism* activation_checkpoint.visualize*
            activation_checkpoint.debug float8.* mx.* quantize.* fault_tolerance.*
            activation_checkpoint.memory_budget experimental.custom*
            experimental.enable_compiled* validation.* debug.* master_* rdzv* role tee
            local-ranks-filter local_rank*
            job.config_file sbatch.*
            """
        ),
    ),
    silent=("how many GPUs the job runs on, unless every degree is given",),
    finish=finish,
)
