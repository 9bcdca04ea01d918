"""What a file says twice, and what it says in another file's words: both are told."""

from __future__ import annotations

import pytest

from training_memory.cli import main
from training_memory.errors import InputErrors
from training_memory.readers.formats import read_files
from training_memory.readers.report import Finding, Standing
from training_memory.readers.resolve import Resolved

TRAINER = """\
output_dir: out
learning_rate: 1e-5
model_name_or_path: meta-llama/Llama-3.1-8B
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""


def read(name: str, text: str, **given: object) -> Resolved:
    return read_files([(name, text)], given)


def asked(resolved: Resolved, key: str) -> Finding:
    (one,) = (found for found in resolved.report.of(Standing.ASKED) if found.key == key)
    return one


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("a.yaml", f"{TRAINER}per_device_train_batch_size: 8\n", "per_device_train_batch_size"),
        (
            "a.json",
            (
                '{"output_dir": "x", "per_device_train_batch_size": 2, "learning_rate": 1, '
                '"per_device_train_batch_size": 8}'
            ),
            "per_device_train_batch_size",
        ),
        (
            "a.sh",
            (
                "python train.py --output_dir x --learning_rate 1 --per_device_train_batch_size 2 "
                "--per_device_train_batch_size 8"
            ),
            "per_device_train_batch_size",
        ),
    ],
)
def test_a_key_that_stands_twice_is_told_and_the_last_is_taken(name, text, key):
    resolved = read(name, text)
    assert resolved.fields["micro_batch"] == 8
    assert "more than once" in asked(resolved, key).said
    assert "--micro-batch" in asked(resolved, key).said


def test_keys_that_stand_twice_deep_in_a_file_are_told():
    text = (
        f"{TRAINER}fsdp_config:\n  activation_checkpointing: true\n  activation_checkpointing: no\n"
    )
    assert (
        "more than once" in asked(read("a.yaml", text), "fsdp_config.activation_checkpointing").said
    )
    engine = '{"zero_optimization": {"stage": 2, "stage": 3}, "steps_per_print": 1}'
    assert read("ds.json", engine).fields["zero"] == 3
    assert "more than once" in asked(read("ds.json", engine), "zero_optimization.stage").said


def test_what_an_anchor_brings_in_may_be_said_again():
    """A merge (<<) is overridden by the mapping's own keys: that is what it is for."""
    text = f"base: &base\n  activation_checkpointing: true\n{TRAINER}fsdp_config:\n  <<: *base\n"
    found = read("a.yaml", f"{text}  activation_checkpointing: false\n")
    assert not [one for one in found.report.findings if "more than once" in one.said]
    assert found.fields.get("recompute", "none") == "none"
    assert read("a.yaml", text).fields["recompute"] == "full"


def test_toml_itself_refuses_a_key_twice():
    with pytest.raises(InputErrors, match="overwrite"):
        read("a.toml", "[training]\nseq_len = 1\nseq_len = 2\n")


def test_two_spellings_of_one_key_that_differ_are_told():
    resolved = read("a.yaml", f"{TRAINER}per_gpu_train_batch_size: 16\n")
    said = asked(resolved, "per_gpu_train_batch_size").said
    assert "per_device_train_batch_size stands in the file as well" in said
    same = read("a.yaml", f"{TRAINER}per_gpu_train_batch_size: 2\n")
    assert not [one for one in same.report.findings if "as well" in one.said]


def test_a_run_of_the_calculators_own_is_refused(tmp_path, capsys):
    run = tmp_path / "run.json"
    run.write_text('{"model": "llama-7b", "sequence": 1, "sequence": 2}', encoding="utf-8")
    assert main(["estimate", "--run", str(run)]) == 2
    assert "it says sequence twice; keep one of them" in capsys.readouterr().err


ENGINE = """\
deepspeed:
  train_micro_batch_size_per_gpu: auto
  bf16: {enabled: auto}
  zero_optimization:
    stage: 3
"""


def test_a_deepspeed_configuration_within_a_trainers_is_read_as_one():
    resolved = read("a.yaml", TRAINER + ENGINE, data=8)
    together = read_files(
        [
            ("a.yaml", f"{TRAINER}deepspeed: ds.json\n"),
            (
                "ds.json",
                (
                    '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, '
                    '"zero_optimization": {"stage": 3}}'
                ),
            ),
        ],
        {"data": 8},
    )
    assert resolved.fields == together.fields
    assert (resolved.fields["zero"], resolved.fields["recipe"]) == (3, "mixed-adam")
    assert resolved.report.files["deepspeed in a.yaml"] == "DeepSpeed configuration"


@pytest.mark.parametrize("form", ["huggingface", "trl", "axolotl", "llamafactory"])
def test_every_trainer_that_takes_a_deepspeed_configuration_may_hold_it(form):
    text = '{"deepspeed": {"zero_optimization": {"stage": 2}, "no_such_key": 1}}'
    resolved = read(f"{form}:a.json", text, data=4)
    assert resolved.fields["zero"] == 2
    (unknown,) = resolved.report.of(Standing.UNKNOWN)
    assert (unknown.key, unknown.file) == ("no_such_key", "deepspeed in a.json")


def test_a_flag_may_hold_it_as_json():
    script = """python train.py --output_dir x --learning_rate 1 --per_device_train_batch_size 1 \\
  --deepspeed '{"zero_optimization": {"stage": 1}}'
"""
    assert read("go.sh", script, data=2).fields["zero"] == 1
