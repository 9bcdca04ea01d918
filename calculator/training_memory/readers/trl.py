"""TRL's configurations: transformers' TrainingArguments, and what its trainers add.

Keys and what they are where they are missing follow TRL's ``sft_config.py`` and
``model_config.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import adapters, fsdp
from .table import Format, Taken, count, flag, is_on, lost, taken, words
from .training_arguments import (
    BESIDE,
    LAUNCHED,
    LAUNCHER,
    MARKS,
    MODEL,
    QUANTIZED,
    SHARED,
    bf16,
    packed,
    recomputes,
)


@taken("use_peft", ("adapter",))
def _peft(name: str, value: object) -> Taken:
    return Taken(settings={"adapter": "lora"} if is_on(name, value) else {})


def _narrow(_: Mapping[str, object], settings: dict[str, object]) -> None:
    """Beside 4-bit weights TRL keeps adapters in bfloat16."""
    if settings.get("base_bits") == 4:
        settings["adapter_dtype"] = "bf16"


FORMAT = Format(
    id="trl",
    name="TRL configuration",
    written="YAML, JSON, or flags in a script",
    source="TRL, sft_config.py and model_config.py",
    implementation="huggingface",
    marks=(
        *MARKS,
        *words(
            """
            max_length packing dataset_text_field use_peft lora_r lora_alpha completion_only_loss
            assistant_only_loss lora_target_modules padding_free truncation_mode max_prompt_length
            beta dataset_num_proc loss_type lora_dropout chat_template_path
            """
        ),
    ),
    rows=(
        *(row for row in SHARED if row is not bf16),
        *MODEL[:2],
        *LAUNCHED,
        taken("bf16", ("compute_dtype",), usual=True)(bf16.take),
        recomputes("gradient_checkpointing", "activation_checkpointing", usual=True),
        count("max_length", "sequence", "max_seq_length", usual=1024),
        _peft,
        adapters.rank("lora_r", usual=16),
        adapters.targets("lora_target_modules", usual="q_proj, v_proj"),
        adapters.dropout("lora_dropout"),
        adapters.bits("load_in_4bit", 4),
        adapters.bits("load_in_8bit", 8),
        packed("packing"),
        lost("padding_free", "a batch without padding may hold fewer tokens than was counted"),
        lost("loss_type", "this loss is not modelled; the full one was counted", off=(None, "nll")),
        lost("router_aux_loss_coef", "the routers' own loss is not counted"),
        lost(
            "lora_modules_to_save",
            "modules that are trained whole beside the adapters are not counted",
            off=(None, []),
        ),
        lost("use_dora", "DoRA's magnitudes are not modelled; LoRA was counted"),
        lost("lora_target_parameters", "adapters beside experts are not modelled", off=(None, [])),
        flag("use_bnb_nested_quant", "nested_scales", "bnb_4bit_use_double_quant", usual=False),
        adapters.storage,
        lost("model_init_kwargs.quantization_config", QUANTIZED, off=(None, {})),
        lost("beta", "a reference model beside the trained one is not counted"),
    ),
    beside=(
        *BESIDE,
        *fsdp.BESIDE,
        *LAUNCHER,
        *words(
            """
            dataset* packing_strategy eval_packing model_type completion_only* assistant_only*
            truncation_mode shuffle_dataset pad_to_multiple_of eos_token pad_token chat_template*
            lora_alpha lora_task_type use_rslora bnb_4bit_quant_type bnb_4bit_compute_dtype
            max_prompt_length max_completion_length
            """
        ),
    ),
    silent=("how many GPUs the job runs on, unless a script starts it",),
    finish=_narrow,
)
