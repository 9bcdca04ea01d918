"""Bad input: each field is checked, all at once, and the message helps."""

import pytest

from training_memory import controls
from training_memory.errors import InputErrors
from training_memory.run import DEFAULTS, Run


def refused(**request: object) -> InputErrors:
    with pytest.raises(InputErrors) as caught:
        Run.from_json(request)
    return caught.value


def test_what_was_given_is_said_again_only_as_far_as_a_line_holds():
    pasted = "9" * 10_000
    with pytest.raises(InputErrors) as refused:
        Run.from_json({"model": "llama-7b", "micro_batch": pasted})
    (error,) = refused.value.errors
    assert error.value == pasted
    assert len(error.message) < 700
    assert "micro_batch: '999" in error.message
    assert "(10,002 characters)" in error.message


@pytest.mark.parametrize(
    ("field", "value", "allowed", "suggestion"),
    [
        ("model", "lama-7b", "names, which training-memory models lists", "llama-7b"),
        ("model", 7, "names", None),
        ("shape", [], "object of shape fields", None),
        ("sequence", "many", "whole number, 1 to 1,073,741,824", None),
        ("sequence", 0, "whole number", None),
        ("micro_batch", "1.5", "whole number, 1 to 1,048,576", None),
        ("micro_batches", -1, "whole number", None),
        ("recipe", "mixed-adm", "mixed-adam, fp32-adam, autocast-adam", "mixed-adam"),
        ("recompute", "selectiv", "none, selective, full, matmuls", "selective"),
        ("implementation", "papper", "paper, huggingface, torchtitan, megatron, nanotron", "paper"),
        ("attention", "flsh", "flash, eager", "flash"),
        ("loss", "chunk", "full, chunked, fused-linear", "chunked"),
        ("optimizer", "adafacto", "adamw, sgd-momentum, adafactor", "adafactor"),
        ("clip", "maybe", "true or false", None),
        ("optimizer_kernel", "fuse", "fused, foreach, forloop", "fused"),
        ("hold_logits", "maybe", "true or false", None),
        ("mlp", "fusd", "fused, unfused", "fused"),
        ("norm_kernel", 7, "fused, unfused", None),
        ("dropout", 0.1, "true or false", None),
        ("compile", 7, "none, layers, layers-and-loss", None),
        ("permutation", "fuse", "fused, unfused", "fused"),
        ("mtp_layers", -1, "whole number", None),
        ("optimizer_in_backward", "maybe", "true or false", None),
        ("offload", "checkpoint", "none, checkpoints, saved", "checkpoints"),
        ("adapter", "loar", "none, lora, qlora", "lora"),
        ("adapter_rank", 0, "whole number, 1 to 65,536", None),
        ("adapter_targets", "all", "query-value, all-linear", "all-linear"),
        ("adapter_dtype", "fp16", "bf16, fp32", "bf16"),
        ("adapter_dropout", 0.1, "true or false", None),
        ("frozen_dtype", "fp3", "bf16, fp32", "fp32"),
        ("quant_storage", "uint4", "bf16, uint8", "uint8"),
        ("data", 0, "whole number", None),
        ("zero", 4, "0 (off), 1, 2, 3", None),
        ("zero", True, "0 (off), 1, 2, 3", None),
        ("tensor", "x", "whole number", None),
        ("sequence_parallel", "maybe", "true or false", None),
        ("pipeline", 0, "whole number", None),
        ("sharding", "fsdp", "ddp, fsdp2, fsdp1, deepspeed", "fsdp2"),
        ("replicate", 0, "whole number", None),
        ("reshard_after_forward", "maybe", "true or false", None),
        ("fsdp_units", "layer", "ends, layers", "layers"),
        ("prefetch", "explicitly", "implicit, explicit", "explicit"),
        ("reduce_dtype", "fp16", "fp32, bf16", "bf16"),
        ("sync_each_batch", "maybe", "true or false", None),
        ("backward_prefetch", "before", "none, pre, post", None),
        ("forward_prefetch", "maybe", "true or false", None),
        ("use_orig_params", "maybe", "true or false", None),
        ("bucket_views", "maybe", "true or false", None),
        ("first_step", "maybe", "true or false", None),
        ("reduce_bucket_size", "aut", "whole number", None),
        ("overlap_comm", "maybe", "true or false", None),
        ("prefetch_bucket_size", -1, "whole number", None),
        ("param_persistence_threshold", "few", "whole number", None),
        ("max_live_parameters", "auto", "whole number", None),
        ("offload_optimizer", "gpu", "none, cpu", "cpu"),
        ("offload_param", "gpu", "none, cpu", "cpu"),
        ("context", 0, "whole number", None),
        ("context_exchange", "rng", "ring, all-gather, ulysses", "ring"),
        ("schedule", "1f1", "gpipe, 1f1b, interleaved, zero-bubble", "1f1b"),
        ("interleave", 0, "whole number", None),
        ("layers_per_stage", {}, "each stage's layers", None),
        ("expert", 0, "whole number", None),
        ("expert_tensor", 0, "whole number", None),
        ("routing", "wurst", "balanced, worst", "worst"),
        ("gpu", "80g", "80gb", "80gb"),
        ("name", " ", "some text on one line", None),
        ("family", "lama", "allowed: gpt, gpt-neox, llama", "llama"),
        ("sequense", 4096, "its fields: model, shape, name, family, sequence", "sequence"),
    ],
)
def test_each_field_names_itself_what_is_allowed_and_the_nearest(field, value, allowed, suggestion):
    (error,) = refused(**{field: value}).errors
    assert error.field == field
    assert allowed in error.allowed
    assert error.suggestion == suggestion
    assert error.message.startswith(f"{field}: {value!r} cannot be used")


def test_every_field_has_a_case_above():
    cases = test_each_field_names_itself_what_is_allowed_and_the_nearest.pytestmark[0].args[1]
    assert {case[0] for case in cases} >= set(DEFAULTS)


@pytest.mark.parametrize(
    ("run", "lacks", "has"),
    [
        ({"implementation": "torchtitan", "data": 8}, "reduce_bucket_size", "fsdp_units"),
        ({"implementation": "huggingface", "data": 8}, "fsdp_units", "bucket_views"),
        (
            {"implementation": "huggingface", "zero": 2},
            "prefetch_bucket_size",
            "reduce_bucket_size",
        ),
        (
            {"implementation": "huggingface", "zero": 3, "sharding": "deepspeed"},
            "prefetch",
            "max_live_parameters",
        ),
    ],
)
def test_fields_of_another_way_of_sharding_are_left_out(run, lacks, has):
    made = Run.from_json({"data": 8, **run})
    plain = made.to_json()
    assert plain[lacks] == DEFAULTS[lacks]
    assert plain[has] is not None
    assert Run.from_json(plain) == made
    assert lacks not in controls.normal({}, made)


def test_all_bad_fields_are_named_at_once():
    errors = refused(model="x", sequence="y", shape={"layers": 0}, tensor=0, gpu="z").errors
    assert {error.field for error in errors} == {"model", "sequence", "tensor", "gpu"}


@pytest.mark.parametrize(
    ("request_json", "field", "reason"),
    [
        ({"tensor": 3}, "tensor", "LLaMA 7B has 32"),
        ({"tensor": 64}, "tensor", "divisor of 32"),
        (
            {"tensor": 2, "sequence_parallel": True, "sequence": 4095},
            "sequence",
            "use a multiple of 2",
        ),
        ({"sequence_parallel": True}, "sequence_parallel", "set tensor to 2 or more"),
        ({"pipeline": 33}, "pipeline", "use 1 to 32"),
        ({"model": "gpt2", "sequence": 1025}, "sequence", "1 to 1,024 tokens"),
        ({"data": 1_048_576, "pipeline": 2}, "data", "at most 1,048,576 GPUs"),
        ({"shape": {"heads": 24}}, "heads", "divisor"),
        ({"attention": "flash"}, "attention", "the textbook has one way only"),
        ({"hold_logits": True}, "hold_logits", "the textbook has one way only"),
        ({"recompute": "matmuls"}, "recompute", "the textbook knows none, selective, full"),
        ({"sharding": "fsdp2"}, "sharding", "by ZeRO's stage alone"),
        ({"implementation": "huggingface", "model": "olmo-2-7b", "tensor": 8}, "tensor", "plans"),
        ({"implementation": "torchtitan", "pipeline": 8}, "pipeline", "the textbook's way"),
        (
            {"implementation": "huggingface", "loss": "chunked", "hold_logits": True},
            "hold_logits",
            "nothing to hold",
        ),
        ({"dropout": False}, "dropout", "the textbook has one way only"),
        (
            {"implementation": "huggingface", "optimizer": "muon", "optimizer_kernel": "foreach"},
            "optimizer_kernel",
            "for adamw alone; leave it out with muon",
        ),
        (
            {"implementation": "huggingface", "model": "mixtral-8x7b", "mlp": "fused"},
            "mlp",
            "experts run as grouped products",
        ),
        (
            {
                "implementation": "huggingface",
                "model": "gpt2",
                "sequence": 64,
                "norm_kernel": "unfused",
            },
            "norm_kernel",
            "has LayerNorms",
        ),
        (
            {"implementation": "huggingface", "model": "gemma-3-1b", "norm_kernel": "fused"},
            "norm_kernel",
            "use unfused",
        ),
        (
            {"implementation": "torchtitan", "dropout": True},
            "dropout",
            "models drop nothing",
        ),
        (
            {"implementation": "huggingface", "model": "deepseek-v3"},
            "implementation",
            "paper for DeepSeek-V3",
        ),
        ({"shape": {"layer": 8}}, "layer", "no such field"),
    ],
)
def test_what_cannot_be_together_is_refused_with_the_reason(request_json, field, reason):
    (error,) = refused(**request_json).errors
    assert error.field == field
    assert reason in error.message


def test_an_empty_request_is_the_chapters_example():
    run = Run.from_json({})
    assert run.to_json() == dict(DEFAULTS)


@pytest.mark.parametrize(
    ("way", "recipe"),
    [
        ({}, "mixed-adam"),
        ({"implementation": "huggingface", "data": 8}, "mixed-adam"),
        ({"implementation": "huggingface", "data": 8, "zero": 3}, "autocast-adam"),
        ({"implementation": "huggingface", "adapter": "lora"}, "autocast-adam"),
        ({"implementation": "torchtitan", "data": 8}, "autocast-adam"),
        ({"implementation": "megatron", "data": 8}, "mixed-adam-fp32-grad"),
        ({"implementation": "torchtitan", "data": 8, "recipe": "bf16-adam"}, "bf16-adam"),
    ],
)
def test_a_recipe_that_is_not_named_is_one_that_the_way_has(way, recipe):
    run = Run.from_json({"model": "llama-2-7b", **way})
    assert run.recipe.id == recipe
    assert Run.from_json(run.to_json()) == run


def test_text_as_people_write_it_is_taken():
    run = Run.from_json({"sequence": "4k", "micro_batch": "1,024", "zero": "3", "tensor": "8"})
    assert (run.sequence, run.micro_batch, run.layout.zero, run.layout.tensor) == (4096, 1024, 3, 8)


def test_a_changed_shape_is_kept_and_one_that_changes_nothing_is_not():
    assert Run.from_json({"shape": {"layers": 8}}).to_json()["shape"] == {"layers": 8}
    assert Run.from_json({"shape": {"layers": "32"}}).to_json()["shape"] == {}


def test_a_model_of_ones_own_reads_back():
    shape = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 1000}
    run = Run.from_json({"model": "custom", "shape": shape, "sequence": 16})
    assert Run.from_json(run.to_json()) == run
    assert run.model.head_dim == 16
