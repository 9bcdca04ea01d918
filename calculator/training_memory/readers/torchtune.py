"""A torchtune recipe's configuration in YAML.

Keys follow the configurations in torchtune's ``recipes/configs/``. The model is named by the
function that builds it: ``torchtune.models.llama3_1.llama3_1_8b``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import InputError
from .adapters import dropout, of_names, rank
from .fsdp import on_the_host, shards
from .names import model_id
from .optimizers import CLASSES, OTHER
from .table import Format, Taken, count, is_on, lost, taken, word_of, words
from .training_arguments import IN_EIGHT, dtype_row, offloads, recomputes

_KIND = re.compile(r"^(?:lora|qlora|dora|qdora)_")


@taken("compile", ("compile",))
def _compiled(name: str, value: object) -> Taken:
    # Of its losses the chunked one alone is compiled: what compile_loss returns is not used.
    return Taken(settings={"compile": "layers"} if is_on(name, value) else {})


@taken("model._component_", ("model_name", "adapter", "base_bits"))
def _model(name: str, value: object) -> Taken:
    if not isinstance(value, str):
        raise InputError(name, value, "a function's name is needed, such as ….llama3_1_8b")
    last = value.rpartition(".")[2]
    kind = _KIND.match(last)
    bare = _KIND.sub("", last)
    settings: dict[str, object] = {"model_name": model_id(bare) or bare}
    if kind is not None:
        # torchtune keeps adapters in the dtype of the recipe.
        settings |= {"adapter": "lora", "adapter_dtype": None}
        settings |= {"base_bits": 4} if kind[0].startswith("q") else {}
    why = "this was counted as LoRA" if kind is not None and "dora" in kind[0] else ""
    return Taken(settings=settings, lost=why)


def finish(values: Mapping[str, object], settings: dict[str, object]) -> None:
    """The products that have adapters are said in two places."""
    if settings.pop("adapter_dtype", "") is None and settings.get("weights_dtype") == "bf16":
        settings["adapter_dtype"] = "bf16"
    model = values.get("model")
    if settings.get("adapter") != "lora" or not isinstance(model, Mapping):
        return
    given = model.get("lora_attn_modules")
    names = {str(name) for name in given} if isinstance(given, list) else {"q_proj", "v_proj"}
    names = {"o_proj" if name == "output_proj" else name for name in names}
    if str(model.get("apply_lora_to_mlp", False)).lower() == "true":
        names |= {"gate_proj", "up_proj", "down_proj"}
    settings |= of_names("model.lora_attn_modules", names).settings


@taken("optimizer._component_", ("optimizer",))
def _optimizer(name: str, value: object) -> Taken:
    meaning = CLASSES.get(word_of(value).rpartition(".")[2], OTHER)
    return Taken(settings={}, lost=meaning) if isinstance(meaning, str) else Taken(settings=meaning)


@taken("optimizer.fused", ("optimizer_kernel",))
def _fused(name: str, value: object) -> Taken:
    return Taken(settings={"optimizer_kernel": "fused" if is_on(name, value) else "foreach"})


@taken("loss._component_", ("loss",))
def _loss(name: str, value: object) -> Taken:
    last = word_of(value).rpartition(".")[2]
    if "linearcrossentropy" in last or "chunked" in last:
        return Taken(settings={"loss": "chunked"}, lost=IN_EIGHT)
    if "crossentropy" in last:
        return Taken(settings={"loss": "full"})
    return Taken(settings={}, lost="this loss is not modelled; the full one was counted")


@taken("clip_grad_norm", ("clip",))
def _clips(name: str, value: object) -> Taken:
    try:
        return Taken(settings={"clip": float(str(value)) > 0})
    except ValueError:
        raise InputError(name, value, "a number is needed, such as 1.0, or null for off") from None


@taken("optimizer_in_bwd", ("optimizer_in_backward",))
def _in_backward(name: str, value: object) -> Taken:
    return Taken(settings={"optimizer_in_backward": True} if is_on(name, value) else {})


FORMAT = Format(
    id="torchtune",
    name="torchtune recipe",
    written="YAML",
    source="torchtune, recipes/configs/",
    implementation="torchtitan",
    marks=words(
        """
        model._component_ optimizer._component_ dataset._component_ loss._component_
        tokenizer._component_ checkpointer._component_ enable_activation_checkpointing
        metric_logger._component_ optimizer_in_bwd max_steps_per_epoch log_peak_memory_stats
        """
    ),
    rows=(
        _model,
        count("tokenizer.max_seq_len", "sequence"),
        count("batch_size", "micro_batch"),
        count("gradient_accumulation_steps", "accumulation", usual=1),
        dtype_row("dtype", "weights_dtype"),
        recomputes("enable_activation_checkpointing"),
        offloads("enable_activation_offloading"),
        lost(
            "ac_mode",
            "torchtune's own selective checkpointing is not modelled",
            "ac_option",
            off=(None, "full"),
        ),
        _optimizer,
        _fused,
        _in_backward,
        _loss,
        _clips,
        _compiled,
        lost("enable_fp8_training", "8-bit operations are not modelled"),
        on_the_host("fsdp_cpu_offload"),
        lost(
            "fsdp_reshard_after_forward",
            "weights that stay whole after forward are not modelled",
            off=(None, True),
        ),
        count("tensor_parallel_dim", "tensor"),
        shards("data_parallel_shard_dim", "data_parallel_dim"),
        count("data_parallel_replicate_dim", "replicas"),
        count("context_parallel_dim", "context"),
        rank("model.lora_rank"),
        dropout("model.lora_dropout"),
        lost("model.apply_lora_to_output", "an adapter beside the head is not modelled"),
        lost("quantizer", "quantization-aware training is not modelled", off=(None, {})),
        lost(
            "ref_checkpointer",
            "a reference model beside the trained one is not counted",
            off=(None, {}),
        ),
        lost(
            "custom_sharded_layers",
            "layers gathered by themselves are not modelled",
            off=(None, []),
        ),
        count("nproc_per_node", "gpus_per_node"),
    ),
    beside=words(
        """
        output_dir tokenizer.* dataset* seed shuffle checkpointer* epochs resume_from_checkpoint
        optimizer.* lr_scheduler* loss.* max_steps_per_epoch device metric_logger* log_* profiler*
        model.* save_* low_cpu_ram batch_size_val run_val* packed collate_fn cudnn* enable_async*
        *_plan tensor_parallel_plan* parallelize_plan* clip_* fp8* keep_last*
        """
    ),
    silent=(
        "how many GPUs the job runs on",
        "the sequence length, where max_seq_len is null",
        "torchtune's own modules, which are counted as torchtitan's plain Llama",
    ),
    finish=finish,
)
