"""Configurations as people have them, each with the reading that the format's own words ask for.

The files in data/files/ are written for these tests after the formats' documentation and code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from training_memory import catalog
from training_memory.errors import InputErrors
from training_memory.model import SHAPE_FIELDS
from training_memory.readers.formats import FORMATS, read_files
from training_memory.readers.report import Standing
from training_memory.readers.resolve import Resolved
from training_memory.readers.stand_in import textbook
from training_memory.run import DEFAULTS, Run

DATA = Path(__file__).parent / "data"
FILES = DATA / "files"
FUSED = {"optimizer": "adamw", "optimizer_kernel": "fused"}
FOREACH = {"optimizer": "adamw", "optimizer_kernel": "foreach"}
HUGGING_FACE = {"implementation": "huggingface"}
FSDP1 = {
    "zero": 3,
    "sharding": "fsdp1",
    "backward_prefetch": "pre",
    "forward_prefetch": False,
    "use_orig_params": True,
}

#: What DeepSpeed has on one GPU as well, where it is not followed.
ON_ONE_GPU = (
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_param_persistence_threshold",
)

#: Files read together, with: the format of the first, the fields of the run, and the keys of what
#: is asked, not modelled or unknown.
EXPECTED: list[tuple[str, str, dict[str, Any], set[str]]] = [
    (
        "trainer-full.yaml",
        "huggingface",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "llama-3.1-8b",
            "sequence": 4096,
            "micro_batch": 2,
            "micro_batches": 16,
            "data": 1,
            "recipe": "autocast-adam",  # bf16 without a dtype for the weights
            "recompute": "full",
            "attention": "flash",
            "clip": True,
        },
        {"GPUs"},
    ),
    (
        "trainer-defaults.json",
        "huggingface",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "gpt2",
            "sequence": 1024,
            "micro_batch": 8,  # transformers' default
            "micro_batches": 1,
            "data": 1,
            "recipe": "autocast-adam",
            "clip": True,  # max_grad_norm is 1.0 unless it is said
        },
        {"GPUs"},
    ),
    (
        "trainer-deepspeed.yaml",
        "huggingface",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "qwen2.5-7b",
            "sequence": 8192,
            "micro_batch": 1,
            "micro_batches": 8,
            "data": 1,
            "recipe": "mixed-adam",  # DeepSpeed keeps a master copy
            "recompute": "full",
            "clip": True,
        },
        {"GPUs", "DeepSpeed"},
    ),
    (
        "ds-auto.json",
        "deepspeed",
        {
            **HUGGING_FACE,
            "data": 1,
            "micro_batches": 1,
            "zero": 3,
            "recipe": "fp32-adam",
            "optimizer": "adamw",
        },
        {
            *("model", "GPUs", "sequence", "bf16.enabled", "gradient_accumulation_steps"),
            *("gradient_clipping", "train_batch_size", "train_micro_batch_size_per_gpu"),
            *ON_ONE_GPU,
        },
    ),
    (
        # Every auto is said by the trainer's file, and the shape by config.json.
        "ds-auto.json trainer-deepspeed.yaml ../configs/qwen2.5-7b.json",
        "deepspeed",
        {
            **HUGGING_FACE,
            "optimizer": "adamw",  # by DeepSpeed's own kernel, where there are GPUs to share
            "sequence": 8192,
            "micro_batch": 1,
            "micro_batches": 8,
            "data": 1,
            "zero": 3,
            "recipe": "mixed-adam",
            "recompute": "full",
            "clip": True,
        },
        {"GPUs", *ON_ONE_GPU},
    ),
    (
        "ds-zero2-offload.json",
        "deepspeed",
        {
            **HUGGING_FACE,
            "data": 1,
            "micro_batch": 64,  # 256 / 4, on one GPU
            "micro_batches": 4,
            "zero": 2,
            "recipe": "mixed-adam",
            "optimizer": "adamw",
            "clip": True,
        },
        {
            *("model", "GPUs", "sequence"),
            "zero_optimization.reduce_bucket_size",
            "zero_optimization.offload_optimizer.device",
        },
    ),
    (
        "ds-no-zero.json",
        "deepspeed",
        {
            **HUGGING_FACE,
            "data": 1,
            "micro_batch": 4,
            "micro_batches": 2,
            "zero": 0,
            "recipe": "mixed-adam",  # gradients add up as they are (engine.py, get_data_types)
        },
        {"model", "GPUs", "sequence", "activation_checkpointing.cpu_checkpointing"},
    ),
    (
        "accelerate-fsdp.yaml",
        "accelerate",
        {
            **HUGGING_FACE,
            "data": 8,
            **FSDP1,  # accelerate's own version, unless it is told
            "micro_batches": 1,
            "recipe": "autocast-adam",  # accelerate makes FSDP's shards FP32
        },
        {"model", "micro-batch", "sequence"},
    ),
    (
        "accelerate-hybrid.yaml",
        "accelerate",
        {
            **HUGGING_FACE,
            "data": 32,
            "replicate": 4,  # machines, each of which holds the model once
            "zero": 3,
            "sharding": "fsdp1",
            "micro_batches": 1,
            "recipe": "autocast-adam",
            "recompute": "full",
            "offload_param": "cpu",
        },
        {"model", "micro-batch", "sequence"},
    ),
    (
        "accelerate-fsdp2.yaml",
        "accelerate",
        {
            **HUGGING_FACE,
            "data": 4,
            "zero": 3,
            "fsdp_units": "layers",
            "micro_batches": 1,
            "recipe": "autocast-adam",
        },
        {"model", "micro-batch", "sequence", "dynamo_config.dynamo_backend"},
    ),
    (
        "accelerate-deepspeed.yaml",
        "accelerate",
        {
            **HUGGING_FACE,
            "data": 16,
            "zero": 2,
            "sharding": "deepspeed",
            "offload_optimizer": "none",
            "micro_batches": 4,
            "recipe": "mixed-adam",
            "clip": True,
        },
        {"model", "micro-batch", "sequence"},
    ),
    (
        "accelerate-ddp.yaml",
        "accelerate",
        {**HUGGING_FACE, "data": 2, "zero": 0, "micro_batches": 1, "recipe": "fp32-adam"},
        {"model", "micro-batch", "sequence"},
    ),
    (
        "accelerate-fsdp.yaml trainer-full.yaml",
        "accelerate",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "llama-3.1-8b",
            "sequence": 4096,
            "micro_batch": 2,
            "micro_batches": 16,
            "data": 8,
            **FSDP1,
            "recipe": "autocast-adam",
            "recompute": "full",
            "attention": "flash",
            "clip": True,
        },
        set(),
    ),
    (
        "trl-sft.yaml",
        "trl",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "qwen2.5-0.5b",
            "sequence": 2048,
            "micro_batch": 2,
            "micro_batches": 8,
            "data": 1,
            "recipe": "autocast-adam",  # TRL trains in bf16 unless it is told not to
            "recompute": "full",  # and recomputes
            "clip": True,
        },
        {"GPUs"},
    ),
    (
        "trl-lora.yaml",
        "trl",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "gemma-2-2b",
            "sequence": 1024,
            "micro_batch": 4,
            "micro_batches": 1,
            "data": 1,
            "recipe": "bf16-adam",  # TRL keeps adapters in bfloat16 beside 4-bit weights
            "recompute": "full",
            "adapter": "qlora",
            "adapter_rank": 16,
            "adapter_targets": "query-value",
            "adapter_dtype": "bf16",
            "clip": True,
        },
        # TRL quantizes scales only where use_bnb_nested_quant says so.
        {"GPUs", "scales of the weights"},
    ),
    (
        "titan-llama3-8b.toml",
        "torchtitan",
        {
            **FUSED,
            "implementation": "torchtitan",
            "model": "llama-3.1-8b",
            "sequence": 8192,
            "micro_batch": 1,
            "micro_batches": 1,
            "data": 1,
            "context": 1,
            "tensor": 1,
            "pipeline": 1,
            "recipe": "autocast-adam",
            "recompute": "matmuls",  # selective, by operation
            "clip": True,
            "compile": "layers-and-loss",
        },
        {"GPUs"},
    ),
    (
        "titan-70b-2d.toml",
        "torchtitan",
        {
            "implementation": "torchtitan",
            **FOREACH,
            "model": "llama-3.1-70b",
            "sequence": 8192,
            "micro_batch": 8,
            "micro_batches": 1,  # 256 sequences, 32 replicas of 8
            "data": 32,
            "zero": 3,
            "tensor": 8,
            "sequence_parallel": True,
            "recipe": "autocast-adam",
            "recompute": "full",
            "clip": True,
        },
        {"model.converters", "compile.enable", "parallelism.enable_async_tensor_parallel"},
    ),
    (
        "titan-pipeline-old.toml",
        "torchtitan",
        {
            "implementation": "torchtitan",
            **FUSED,
            "model": "llama-2-13b",
            "sequence": 4096,
            "micro_batch": 1,  # the pipeline cuts a batch of 8 into ones
            "micro_batches": 8,
            "data": 4,
            "zero": 3,
            "tensor": 2,
            "sequence_parallel": True,
            "pipeline": 2,
            "recipe": "autocast-adam",
            "recompute": "none",
            "clip": True,
        },
        set(),
    ),
    (
        "megatron-gpt3.sh",
        "megatron",
        {
            "dropout": True,  # Megatron's own 0.1
            "sequence": 2048,
            "micro_batch": 1,
            "micro_batches": 1536,  # 64 GPUs, all of them in one replica
            "data": 1,
            "tensor": 8,
            "pipeline": 8,
            "recipe": "mixed-adam",  # FP16, gradients in 16 bits
        },
        {"rampup_batch_size"},
    ),
    (
        "megatron-llama.sh",
        "megatron",
        {
            "dropout": True,  # Megatron's own 0.1
            "sequence": 8192,
            "micro_batch": 2,
            "micro_batches": 8,  # 128 / (2 x 8 replicas of 4 GPUs)
            "data": 8,
            "zero": 1,
            "tensor": 4,
            "sequence_parallel": True,
            "pipeline": 1,
            "recipe": "mixed-adam-fp32-grad",
            "recompute": "selective",
        },
        set(),
    ),
    (
        "megatron-experts.sh",
        "megatron",
        {
            "permutation": "fused",
            "dropout": True,  # Megatron's own 0.1
            "sequence": 4096,
            "micro_batch": 1,
            "micro_batches": 4,
            "pipeline": 1,
            "data": 4,
            "zero": 1,
            "tensor": 2,
            "sequence_parallel": True,
            "expert": 4,
            "expert_tensor": 1,
            "recipe": "mixed-adam-fp32-grad",
        },
        {"moe_expert_capacity_factor"},
    ),
    (
        "megatron.yaml",
        "megatron",
        {
            "dropout": False,
            "sequence": 1024,
            "micro_batch": 4,
            "micro_batches": 4,
            "data": 4,
            "zero": 1,
            "tensor": 2,
            "sequence_parallel": True,
            "pipeline": 1,
            "recipe": "mixed-adam-fp32-grad",
            "recompute": "full",
        },
        set(),
    ),
    (
        "axolotl-full.yml",
        "axolotl",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "llama-3.1-8b",
            "sequence": 4096,
            "micro_batch": 2,
            "micro_batches": 4,
            "data": 1,
            "recipe": "bf16-adam",  # axolotl loads in the dtype in which it computes
            "recompute": "full",
            "attention": "flash",
            "loss": "fused-linear",
            "mlp": "fused",
            "norm_kernel": "fused",
            "clip": True,
        },
        # Liger's kernel for rotary positions is asked for as well.
        {"GPUs", "liger_rope"},
    ),
    (
        "axolotl-qlora.yml",
        "axolotl",
        {
            **HUGGING_FACE,
            "model": "mistral-7b",
            "sequence": 8192,
            "micro_batch": 2,
            "micro_batches": 4,
            "data": 1,
            "recipe": "autocast-adam",  # PEFT keeps adapters in FP32
            "recompute": "full",
            "attention": "flash",
            "optimizer": "adamw-8bit",
            "adapter": "qlora",
            "adapter_rank": 32,
            "adapter_targets": "all-linear",
            "adapter_dropout": True,
            "frozen_dtype": "bf16",
            "clip": True,
        },
        {"GPUs"},
    ),
    (
        "axolotl-fsdp.yml",
        "axolotl",
        {
            **HUGGING_FACE,
            **FOREACH,
            "model": "llama-3.3-70b",
            "sequence": 2048,
            "micro_batch": 1,
            "micro_batches": 2,
            "data": 1,
            "zero": 3,
            "recipe": "autocast-adam",
            "recompute": "full",
            "offload": "checkpoints",
            "clip": True,
        },
        {"GPUs", "fsdp_config.fsdp_offload_params"},
    ),
    (
        "llamafactory-full.yaml",
        "llamafactory",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "qwen2.5-7b",
            "sequence": 2048,
            "micro_batch": 1,
            "micro_batches": 2,
            "data": 1,
            "recipe": "mixed-adam",
            "recompute": "full",  # on unless it is disabled
            "clip": True,
        },
        {"GPUs", "DeepSpeed"},
    ),
    (
        "llamafactory-lora.yaml",
        "llamafactory",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "llama-3-8b",
            "sequence": 2048,
            "micro_batch": 1,
            "micro_batches": 8,
            "data": 1,
            "recipe": "autocast-adam",
            "recompute": "full",
            "attention": "eager",
            "adapter": "qlora",
            "adapter_rank": 8,
            "adapter_targets": "all-linear",
            "frozen_dtype": "bf16",
            "clip": True,
        },
        {"GPUs", "stage"},
    ),
    (
        "llamafactory-pure.yaml",
        "llamafactory",
        {
            **HUGGING_FACE,
            **FUSED,
            "model": "qwen3-4b",
            "sequence": 4096,
            "micro_batch": 1,
            "micro_batches": 1,
            "data": 1,
            "recipe": "bf16-adam",
            "recompute": "none",
            "loss": "fused-linear",
            "mlp": "fused",
            "norm_kernel": "fused",
            "clip": True,
        },
        {"GPUs", "use_galore"},
    ),
    (
        "torchtune-full.yaml",
        "torchtune",
        {
            "implementation": "torchtitan",
            **FUSED,
            "model": "llama-3.2-3b",
            "sequence": 4096,
            "micro_batch": 4,
            "micro_batches": 8,
            "data": 1,
            "recipe": "bf16-adam",
            "recompute": "full",
            "loss": "chunked",
        },
        {"GPUs", "loss._component_"},
    ),
    (
        "torchtune-lora.yaml",
        "torchtune",
        {
            **HUGGING_FACE,  # PEFT's adapters are the ones that are followed
            "model": "llama-3.1-8b",
            "micro_batch": 2,
            "micro_batches": 2,  # ${batch_size}
            "data": 1,
            "recipe": "fp32-adam",
            "recompute": "none",
            "loss": "chunked",
            "optimizer": "paged-adamw-8bit",
            "adapter": "lora",
            "adapter_rank": 8,
            "adapter_targets": "all-linear",
            "clip": True,
        },
        {"GPUs", "loss._component_", "sequence"},
    ),
    (
        "launch-trainer.sh",
        "huggingface",
        {
            **HUGGING_FACE,
            "model": "qwen3-8b",
            "sequence": 4096,
            "micro_batch": 1,
            "micro_batches": 1,
            "data": 16,
            "zero": 3,
            "fsdp_units": "layers",
            "recipe": "autocast-adam",
            "recompute": "full",
            "optimizer": "adafactor-hf",
            "clip": True,
        },
        {"gradient_accumulation_steps"},  # $ACC depends on a condition
    ),
]


def read(names: str, **given: int) -> Resolved:
    files = [(name, (FILES / name).read_text(encoding="utf-8")) for name in names.split()]
    return read_files(files, given)


@pytest.mark.parametrize(
    ("names", "form", "fields", "doubts"), EXPECTED, ids=[names for names, *_ in EXPECTED]
)
def test_a_file_means_what_its_program_would_do(names, form, fields, doubts):
    resolved = read(names)
    first = names.split()[0]
    assert resolved.report.files[first] == FORMATS[form].name
    found = dict(resolved.fields)
    if form == "megatron":  # whose way of running is not of these files
        for name in ("implementation", "attention", "optimizer", "optimizer_kernel", "clip"):
            found.pop(name, None)
        stand_in = {"none": "selective", None: "selective"}.get(fields.get("recompute"))
        fields = {**fields, "recompute": stand_in} if stand_in in found.values() else fields
    assert found == fields
    keys = {finding.key for finding in resolved.report.doubts if finding.key != "implementation"}
    assert keys == doubts


def test_there_are_enough_files_and_all_are_expected():
    named = {name for names, *_ in EXPECTED for name in names.split()}
    assert {path.name for path in FILES.iterdir()} <= named
    assert len(named) >= 25
    assert {form for _, form, *_ in EXPECTED} == {*FORMATS} - {"config"}


@pytest.mark.parametrize("names", [names for names, *_ in EXPECTED])
def test_every_reading_makes_a_run(names):
    resolved = read(names)
    request = {"model": "llama-3.1-8b", **resolved.fields}
    request = {name: value for name, value in request.items() if name in DEFAULTS}
    assert request.keys() >= resolved.fields.keys()
    if resolved.model:
        shape = {name: getattr(resolved.model, name) for name in SHAPE_FIELDS}
        request |= {"model": "custom", "shape": shape}
    try:
        run = Run.from_json(request)
    except InputErrors as errors:
        run = Run.from_json(textbook(request, errors.errors) or request)
    assert run.to_json()["micro_batches"] == request["micro_batches"]


def test_megatrons_shapes_are_those_of_its_models():
    gpt3 = read("megatron-gpt3.sh").model
    assert gpt3 is not None
    # Brown et al. 2020, Table 2.1 has 174.6 B; the vocabulary is padded to 128 x 8 here.
    assert (gpt3.layers, gpt3.vocabulary, gpt3.positions) == (96, 51_200, 2048)
    llama = read("megatron-llama.sh").model
    assert llama is not None
    # Llama 3 8B's parameters, and 256 more entries of the vocabulary in both of its matrices, for
    # Megatron makes it a multiple of 128 on each of the four GPUs.
    assert llama.parameters.total == catalog.get("llama-3-8b").parameters.total + 2 * 256 * 4096


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # megatron/training/arguments.py: --cross-entropy-fusion-impl is native unless said.
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "fused"),
        ("--cross-entropy-loss-fusion", None),
        ("--cross-entropy-fusion-impl te", None),
    ],
)
def test_megatrons_fused_loss_is_transformer_engines_where_both_say_so(given, expected):
    script = (FILES / "megatron-llama.sh").read_text(encoding="utf-8")
    script = script.replace("--micro-batch-size", f"{given} --micro-batch-size")
    assert read_files([("run.sh", script)], {}).fields.get("loss") == expected


def test_megatrons_experts_are_those_of_their_model():
    model = read("megatron-experts.sh").model
    assert model is not None
    # The arguments are Qwen1.5-MoE's; its vocabulary goes up to a multiple of 128 on both GPUs.
    theirs = catalog.get("qwen1.5-moe-a2.7b").parameters.total
    assert model.parameters.total == theirs + 2 * 128 * 2048


@pytest.mark.parametrize(
    ("pattern", "dense"),
    [
        ("1", 0),
        ("([0]*3+[1]*58)", 3),
        ("([0]*1+[1]*3)*1", 1),
        ("[0,1,1]", 1),
        ("([1]*1+[0]*1)*4", None),
        ("2", None),
        ("[1]*x", None),
    ],
)
def test_which_of_megatrons_layers_have_experts(pattern, dense):
    text = (
        "--num-layers 61 --hidden-size 64 --vocab-size 8 --num-attention-heads 2 --num-experts 4 "
        f"--swiglu --moe-router-topk 1 --moe-layer-freq '{pattern}' --micro-batch-size 1 "
        "--seq-length 8"
    )
    resolved = read_files([("run.sh", f"python pretrain_gpt.py {text}\n")], {})
    assert resolved.model is not None
    assert resolved.model.dense_layers == (dense or 0)
    lost = {finding.key for finding in resolved.report.of(Standing.LOST)}
    assert ("moe_layer_freq" in lost) is (dense is None)


def test_megatrons_latents_are_those_of_their_model():
    text = (
        "--num-layers 27 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 10944 "
        "--vocab-size 102400 --seq-length 4096 --micro-batch-size 1 --swiglu --bf16 "
        "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
        "--untie-embeddings-and-output-weights --num-experts 64 --moe-router-topk 6 "
        "--moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 2816 "
        "--moe-layer-freq '([0]*1+[1]*26)' --multi-latent-attention --kv-lora-rank 512 "
        "--qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm"
    )
    resolved = read_files([("run.sh", f"python pretrain_gpt.py {text}\n")], {})
    assert resolved.model is not None
    lite = catalog.get("deepseek-v2-lite")
    assert resolved.model.parameters.by_component == lite.parameters.by_component
    shape = {name: getattr(resolved.model, name) for name in SHAPE_FIELDS}
    assert Run.from_json({**resolved.fields, "model": "custom", "shape": shape}).model.latent


def test_degrees_said_beside_the_files_decide_the_micro_batches():
    spread = read("ds-zero2-offload.json", data=8).fields
    assert (spread["micro_batch"], spread["reduce_bucket_size"]) == (8, 200_000_000)
    assert spread["offload_optimizer"] == "cpu"
    third = read("ds-auto.json", data=8).fields
    assert third["sharding"] == "deepspeed"
    for name in ("reduce_bucket_size", "prefetch_bucket_size", "param_persistence_threshold"):
        assert third[name] == "auto"
    assert third["max_live_parameters"] == 10**9
    assert read("megatron-llama.sh", data=16).fields["micro_batches"] == 4
    sharded = read("titan-llama3-8b.toml", data=8).fields
    assert (sharded["data"], sharded["zero"]) == (8, 3)
    with pytest.raises(InputErrors, match="a multiple of 12 is needed"):
        read("ds-zero2-offload.json", data=3)


def test_what_is_lost_says_why():
    text = '{"zero_optimization": {"stage": 3, "cpu_offload": true}}'
    (lost,) = read_files([("ds.json", text)], {"data": 8}).report.of(Standing.LOST)
    assert lost.key == "zero_optimization.cpu_offload"
    assert "counted as staying on the GPU" in lost.said


def test_adapters_under_fsdp_are_counted_and_on_experts_said_to_be_trained_in_full(tmp_path):
    lora = "base_model: {}\nsequence_len: 512\nadapter: lora\nlora_r: 8\n"
    fsdp = "fsdp: [full_shard, auto_wrap]\nbf16: true\n"
    resolved = read_files([("a.yml", lora.format("meta-llama/Llama-2-7b-hf") + fsdp)], {"data": 8})
    assert (resolved.fields["adapter"], resolved.fields["zero"]) == ("lora", 3)
    assert str(Run.from_json(resolved.fields).sharding.sharding) == "fsdp1"
    mixtral = lora.format("mistralai/Mixtral-8x7B-v0.1")
    resolved = read_files([("a.yml", mixtral + fsdp)], {"data": 8})
    with pytest.raises(InputErrors, match="none for a mixture of experts"):
        Run.from_json(resolved.fields)
    report = resolved.report.in_the_textbooks_way(resolved.fields, "huggingface")
    (lost,) = (finding for finding in report.doubts if finding.key == "adapter")
    assert "the job needs far less" in lost.said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sft.yaml", "max_length: 512\nuse_peft: true\n{bits}bnb_4bit_quant_storage: {stored}\n"),
        (
            "axolotl.yml",
            (
                "sequence_len: 512\nadapter: qlora\nlora_r: 8\n{bits}"
                "bnb_config_kwargs:\n  bnb_4bit_quant_storage: {stored}\n"
            ),
        ),
    ],
)
def test_what_4_bit_weights_are_stored_in_is_read(name, text):
    """transformers, BitsAndBytesConfig: what FSDP shares, or cannot where it is of integers."""
    model = "meta-llama/Llama-2-7b-hf"
    key = "base_model" if name.startswith("axolotl") else "model_name_or_path"
    for stored, means in (("bfloat16", "bf16"), ("uint8", "uint8")):
        said = f"{key}: {model}\n" + text.format(bits="load_in_4bit: true\n", stored=stored)
        resolved = read_files([(name, said)], {})
        assert resolved.fields["quant_storage"] == means
        assert Run.from_json(resolved.fields).tuning.quant_storage == means
    said = f"{key}: {model}\n" + text.format(bits="load_in_4bit: true\n", stored="float32")
    lost = read_files([(name, said)], {}).report.of(Standing.LOST)
    assert any("stored in this dtype" in finding.said for finding in lost)
    plain = said.replace("load_in_4bit: true\n", "").replace("qlora", "lora")
    fields = read_files([(name, plain.replace("float32", "uint8"))], {}).fields
    assert "quant_storage" not in fields
    Run.from_json(fields)


def test_what_deepspeed_does_on_one_gpu_is_not_said_to_be_beside_memory() -> None:
    """ZeRO-Offload is for one GPU as well (DeepSpeed, docs/_tutorials/zero-offload.md)."""
    text = '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
    key = "zero_optimization.offload_optimizer.device"
    alone = read_files([("ds.json", text)], {})
    assert "offload_optimizer" not in alone.fields
    (lost,) = (finding for finding in alone.report.of(Standing.LOST) if finding.key == key)
    assert "say --data" in lost.said
    several = read_files([("ds.json", text)], {"data": 8})
    assert several.fields["offload_optimizer"] == "cpu"
    assert key in {finding.key for finding in several.report.of(Standing.UNDERSTOOD)}


def test_deepspeeds_engine_turns_adapters_into_16_bits_and_keeps_copies():
    lora = "base_model: meta-llama/Llama-2-7b-hf\nsequence_len: 512\nadapter: lora\nlora_r: 8\n"
    files = [
        ("a.yml", lora + "bf16: true\nlora_target_linear: true\n"),
        ("ds.json", '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'),
    ]
    resolved = read_files(files, {"data": 8})
    run = Run.from_json({**resolved.fields, "model": "llama-2-7b"})
    # deepspeed/runtime/engine.py, _configure_distributed_model: self.module.bfloat16().
    assert (run.recipe.id, str(run.tuning.adapter_dtype)) == ("mixed-adam", "bf16")
    assert (str(run.sharding.sharding), run.layout.zero) == ("deepspeed", 2)


def test_only_stage_3_has_anything_on_disks():
    # DeepSpeedZeroOptimizer.__init__ of zero/stage_1_and_2.py: any device but none is the CPU.
    text = '{{"zero_optimization": {{"stage": {}, "offload_optimizer": {{"device": "nvme"}}}}}}'
    for stage, place in ((1, "cpu"), (2, "cpu"), (3, "nvme")):
        found = read_files([("ds.json", text.format(stage))], {"data": 8}).fields
        assert found["offload_optimizer"] == place


@pytest.mark.parametrize(
    ("optimizer", "kernel"),
    [
        # deepspeed/runtime/engine.py, get_optimizer_configuration.
        ('{"type": "Adam"}', "deepspeed"),
        ('{"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": true}}', "foreach"),
    ],
)
def test_adam_in_deepspeeds_file_is_deepspeeds_own(optimizer: str, kernel: str) -> None:
    text = f'{{"bf16": {{"enabled": true}}, "steps_per_print": 1, "optimizer": {optimizer}}}'
    found = read_files([("ds.json", text)], {"data": 8}).fields
    assert (found["sharding"], found["zero"]) == ("deepspeed", 0)
    assert (found["optimizer_kernel"], found["recipe"]) == (kernel, "mixed-adam")


@pytest.mark.parametrize("value", ["true", "{bnb_4bit_quant_type: fp4}"])
def test_what_else_goes_to_bitsandbytes_is_said_to_be_lost(value):
    text = f"sequence_len: 512\nadapter: qlora\nload_in_4bit: true\nbnb_config_kwargs: {value}\n"
    lost = read_files([("a.yml", text)], {}).report.of(Standing.LOST)
    assert (
        "how weights are quantized is not read"
        in {one.key: one.said for one in lost}["bnb_config_kwargs"]
    )
