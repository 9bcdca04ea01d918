"""torchtitan's configurations in Python, read from their text and never run.

The files are written for these tests after torchtitan's ``models/*/config_registry.py`` and
``config/configs.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from training_memory.errors import InputErrors
from training_memory.readers.formats import read_files
from training_memory.readers.report import Standing
from training_memory.readers.resolve import Resolved
from training_memory.run import Run

REGISTRY = '''
# Configurations of one model.
from torchtitan.components.loss import ChunkedCELoss
from torchtitan.components.optimizer import OptimizersContainer, OptimizersInBackwardContainer
from torchtitan.config import ActivationCheckpointConfig, ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer

from . import model_registry

SEQUENCE = 8 * 1024


def llama3_8b() -> Trainer.Config:
    """One sequence on each GPU."""
    return Trainer.Config(
        hf_assets_path="./assets/hf/Llama-3.1-8B",
        model_spec=model_registry("8B"),
        optimizer=OptimizersContainer.Config(lr=3e-4),
        training=TrainingConfig(local_batch_size=1, seq_len=SEQUENCE, steps=1000),
        parallelism=ParallelismConfig(data_parallel_shard_degree=8),
        activation_checkpoint=ActivationCheckpointConfig(mode="selective"),
    )


def llama3_8b_lean() -> Trainer.Config:
    config = llama3_8b()
    config.optimizer = OptimizersInBackwardContainer.Config(lr=3e-4)
    config.loss = ChunkedCELoss.Config()
    config.activation_checkpoint.mode = "full"
    config.training.seq_len = 2 * config.training.seq_len
    for layer in config.model_spec.model.layers:
        layer.attention.mask_type = "block_causal"
    return config


def llama3_8b_of_the_cluster() -> Trainer.Config:
    import os

    config = llama3_8b()
    config.parallelism.data_parallel_shard_degree = int(os.environ["GPUS"])
    return config


def helper(x):
    return x
'''
SCRIPT = """torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b \\
  --training.local_batch_size 2
"""


def read(*files: tuple[str, str], **given: object) -> Resolved:
    return read_files(files, given)


def fields(*files: tuple[str, str]) -> dict[str, Any]:
    return dict(read(*files).fields)


def test_a_function_means_the_run_that_it_makes():
    found = fields(("registry.py::llama3_8b", REGISTRY))
    expected = {
        "implementation": "torchtitan",
        "model": "llama-3.1-8b",
        "sequence": 8192,
        "micro_batch": 1,
        "data": 8,
        "zero": 3,
        "recompute": "matmuls",  # torchtitan's selective recomputation
        "recipe": "autocast-adam",
        "optimizer": "adamw",
        "clip": True,
    }
    assert found.items() >= expected.items()
    assert Run.from_json(found).sequence == 8192


def test_what_a_function_changes_of_another_ones_configuration_is_followed():
    resolved = read(("registry.py::llama3_8b_lean", REGISTRY))
    found = dict(resolved.fields)
    assert (found["sequence"], found["recompute"], found["loss"]) == (16_384, "full", "chunked")
    assert found["optimizer_in_backward"] is True
    lost = {finding.key: finding for finding in resolved.report.of(Standing.LOST)}
    # What is not followed is said, not passed over.
    assert lost["lines that only a run can follow"].value.startswith("[line 31: for layer in")
    assert "8 chunks" in lost["loss._component_"].said
    # The other function's configuration is as it was.
    assert fields(("registry.py::llama3_8b", REGISTRY))["sequence"] == 8192


def test_what_only_the_job_knows_is_asked_for():
    resolved = read(("registry.py::llama3_8b_of_the_cluster", REGISTRY))
    asked = {finding.key: finding.said for finding in resolved.report.of(Standing.ASKED)}
    assert "is known only where it runs" in asked["parallelism.data_parallel_shard_degree"]


def test_a_script_says_which_function_and_its_flags_go_first():
    found = fields(("go.sh", SCRIPT), ("registry.py", REGISTRY))
    assert (found["model"], found["sequence"], found["micro_batch"]) == ("llama-3.1-8b", 8192, 2)
    alone = read(("go.sh", SCRIPT))
    (lost,) = (one for one in alone.report.of(Standing.LOST) if one.key == "config")
    assert "config_registry.py" in lost.said


def test_without_a_choice_the_names_are_listed():
    with pytest.raises(InputErrors, match=r"llama3_8b, llama3_8b_lean.*registry\.py::NAME"):
        read(("registry.py", REGISTRY))
    with pytest.raises(InputErrors, match="llama3_8b") as caught:
        read(("registry.py::llama3_8bb", REGISTRY))
    assert caught.value.errors[0].suggestion == "llama3_8b"


def test_what_starts_the_job_may_be_pasted_beside_the_file():
    start = ("pasted", "--module llama3 --config llama3_8b_lean")
    assert fields(start, ("config_registry.py", REGISTRY))["recompute"] == "full"


def test_one_function_needs_no_choice_and_no_name():
    one = REGISTRY[: REGISTRY.index("def llama3_8b_lean")]
    assert fields(("pasted text", one))["model"] == "llama-3.1-8b"


def test_nothing_of_a_file_is_run(tmp_path):
    """A line that would leave a file behind is a line like any other."""
    mark = tmp_path / "mark"
    trap = f'import pathlib\npathlib.Path({str(mark)!r}).write_text("run")\n{REGISTRY}'
    assert fields(("registry.py::llama3_8b", trap))["sequence"] == 8192
    assert not mark.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n  pass", "it is not Python that can be read"),
        ("import os\n", "no function in it returns a configuration"),
        (
            "def f() -> Config:\n    return Config(a=f(), b=f(), c=f())\n",
            "a configuration has fewer",
        ),
        ("x" * 600_000 + " = 1", "larger than 512 KiB"),
        ("(" * 10_000, "it is not Python that can be read"),
    ],
)
def test_a_file_that_makes_nothing_is_refused_in_plain_words(text, words):
    with pytest.raises(InputErrors, match=words):
        read(("a.py", text))


def test_a_files_own_warnings_are_not_repeated(capfd):
    text = REGISTRY + '\n\ndef unused():\n    return "\\d"\n'
    assert fields(("registry.py::llama3_8b", text))["sequence"] == 8192
    assert capfd.readouterr().err == ""


def test_sums_names_and_replaced_fields_are_worked_out():
    text = """
from dataclasses import replace
from torchtitan.trainer import Trainer

BATCH = 2
base = Trainer.Config(
    hf_assets_path="./assets/hf/Llama-3.1-8B",
    training=TrainingConfig(local_batch_size=BATCH, seq_len=4096 // 2, dtype="bfloat16"),
)


def llama3_8b() -> Trainer.Config:
    return replace(base, parallelism=ParallelismConfig(
        tensor_parallel_degree=BATCH ** 2, data_parallel_shard_degree=1
    ))
"""
    resolved = read(("a.py::llama3_8b", text))
    found = dict(resolved.fields)
    assert (found["micro_batch"], found["sequence"]) == (2, 2048)
    # A power is not worked out, and so it is asked for.
    asked = {finding.key for finding in resolved.report.of(Standing.ASKED)}
    assert "parallelism.tensor_parallel_degree" in asked
