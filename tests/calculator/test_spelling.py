"""The lines to write: held against the formats' documentation, and complete."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from training_memory.estimate import estimate
from training_memory.fit import changes
from training_memory.run import Run
from training_memory.spelling import Spelling, spellings


def spell(library: str, before: dict[str, object], **changed: object) -> Spelling:
    after = Run.from_json({**before, **changed})
    return next(one for one in spellings(changed, after) if one.library == library)


PAPER: dict[str, object] = {"model": "llama-7b"}
LIBRARY: dict[str, object] = {"model": "llama-7b", "implementation": "huggingface"}
DEEPSPEED_3: dict[str, object] = {
    **LIBRARY,
    "recipe": "mixed-adam",
    "data": 8,
    "zero": 3,
    "sharding": "deepspeed",
}


@pytest.mark.parametrize(
    ("library", "before", "changed", "lines"),
    [
        # transformers, TrainingArguments
        (
            "Hugging Face",
            PAPER,
            {"recompute": "full"},
            (
                "gradient_checkpointing=True,",
                'gradient_checkpointing_kwargs={"use_reentrant": False},',
            ),
        ),
        (
            "Hugging Face",
            PAPER,
            {"micro_batch": 2, "micro_batches": 4},
            ("per_device_train_batch_size=2,", "gradient_accumulation_steps=4,"),
        ),
        ("Hugging Face", LIBRARY, {"optimizer": "adamw-8bit"}, ('optim="adamw_bnb_8bit",',)),
        (
            "Hugging Face",
            {**LIBRARY, "optimizer_kernel": "foreach"},
            {"optimizer_kernel": "fused"},
            ('optim="adamw_torch_fused",',),
        ),
        ("Hugging Face", LIBRARY, {"loss": "fused-linear"}, ("use_liger_kernel=True,",)),
        # accelerate, commands/launch.py
        (
            "Hugging Face",
            {**DEEPSPEED_3, "sharding": "fsdp1", "recipe": "autocast-adam"},
            {"reshard_after_forward": False},
            (
                "# accelerate's file, fsdp_config:",
                "fsdp_version: 1",
                "fsdp_sharding_strategy: SHARD_GRAD_OP",
            ),
        ),
        # deepspeed.ai/docs/config-json
        (
            "DeepSpeed",
            PAPER,
            {"data": 8, "zero": 2},
            (
                '"train_micro_batch_size_per_gpu": 1,',
                '"gradient_accumulation_steps": 1,',
                '"train_batch_size": 8,',
                '"zero_optimization": {"stage": 2},',
            ),
        ),
        # deepspeed/runtime/zero/config.py
        (
            "DeepSpeed",
            DEEPSPEED_3,
            {"reduce_bucket_size": 50_000_000, "max_live_parameters": 100_000_000},
            (
                (
                    '"zero_optimization": {"stage": 3, "reduce_bucket_size": 50000000, '
                    '"stage3_max_live_parameters": 100000000},'
                ),
            ),
        ),
        # torchtitan, job_config.py
        (
            "torchtitan",
            PAPER,
            {"recompute": "full"},
            ("[activation_checkpoint]", 'mode = "full"'),
        ),
        (
            "torchtitan",
            PAPER,
            {"pipeline": 4, "micro_batches": 16},
            (
                "[training]",
                "local_batch_size = 16",
                "global_batch_size = 16",
                "[parallelism]",
                "pipeline_parallel_degree = 4",
                'pipeline_parallel_schedule = "1F1B"',
                "pipeline_parallel_microbatch_size = 1",
            ),
        ),
        (
            "torchtitan",
            PAPER,
            {"context": 2},
            (
                "[parallelism]",
                "context_parallel_degree = 2",
                'context_parallel_rotate_method = "alltoall"',
            ),
        ),
        # Megatron-LM, arguments.py, and Megatron FSDP's guide
        (
            "Megatron",
            PAPER,
            {"tensor": 8, "sequence_parallel": True},
            ("--tensor-model-parallel-size 8", "--sequence-parallel"),
        ),
        (
            "Megatron",
            {**PAPER, "data": 8},
            {"zero": 3},
            (
                "--use-distributed-optimizer",
                "--use-megatron-fsdp",
                "--data-parallel-sharding-strategy optim_grads_params",
            ),
        ),
    ],
)
def test_lines(
    library: str, before: dict[str, object], changed: dict[str, object], lines: tuple[str, ...]
) -> None:
    found = spell(library, before, **changed)
    assert found.lines == lines
    assert found.lacks == ()


RUNS: tuple[dict[str, object], ...] = (
    {"micro_batch": 4, "micro_batches": 2},
    {"micro_batch": 4, "data": 8, "tensor": 2},
    {
        "implementation": "huggingface",
        "attention": "eager",
        "optimizer_kernel": "foreach",
        "hold_logits": True,
    },
    {"implementation": "torchtitan"},
    DEEPSPEED_3,
    {**DEEPSPEED_3, "sharding": "fsdp2", "recipe": "autocast-adam"},
    {**DEEPSPEED_3, "sharding": "fsdp1", "recipe": "autocast-adam"},
)


@pytest.mark.parametrize("request_json", RUNS)
def test_every_change_has_a_line_or_a_word_everywhere(request_json: dict[str, object]) -> None:
    """And the lines are what the formats take: TOML, members of JSON, flags."""
    before = estimate(Run.from_json(request_json))
    for change in changes(before):
        after = Run.from_json({**before.run.to_json(), **change.fields})
        for one in spellings(change.fields, after):
            assert one.lines or one.lacks, (change.title, one.library)
            if one.library == "torchtitan":
                tomllib.loads("\n".join(one.lines))
            if one.library == "DeepSpeed":
                members = [line for line in one.lines if line.startswith('"')]
                assert json.loads("{" + "".join(members).rstrip(",") + "}") or not members
            if one.library == "Megatron":
                assert all(re.match(r"(# without )?--[a-z-]+( \S+)?$", line) for line in one.lines)
