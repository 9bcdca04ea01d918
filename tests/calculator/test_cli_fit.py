"""``training-memory fit``: the answer in words and as JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training_memory.cli import main
from training_memory.estimate import estimate
from training_memory.run import Run


def fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["fit", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_can_i_train_70b_on_64_of_these(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "llama-2-70b", "--gpus", "64", "--device", "h100-80gb")
    status, out, err = fit(capsys, *asked, "--global-batch", "1k")
    assert (status, err) == (0, "")
    words = " ".join(out.split())
    assert words.startswith("Yes: the cheapest plan on 64 GPUs (NVIDIA H100 80 GB) needs ")
    assert "; 16 GPUs are enough. As it is: Llama 2 70B at 4,096 tokens" in words
    assert "nothing recomputed, needs 1.5 TB of a GPU" in words
    assert "It does not fit: " in words
    assert "The cheapest plan that fits on 64 GPUs with 1,024 sequences a step" in words
    assert "Fewest GPUs 16" in words
    for library in ("Hugging Face:", "DeepSpeed:", "torchtitan:", "Megatron:"):
        assert library in words
    assert "--global-batch-size 1024" in words
    assert max(map(len, out.splitlines())) <= 160  # lines to write are never broken


def test_json_has_it_all_and_its_plan_fits(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = fit(capsys, "--model", "llama-3-8b", "--gpus", "8", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["fits"] == "no"
    assert found["plan"]["fits"] == "yes"
    assert found["changes"]
    plan = estimate(Run.from_json(found["plan"]["run"]))
    assert plan.worst.peak_bytes == found["plan"]["peak_bytes"] <= found["capacity_bytes"]
    assert plan.run.layout.gpus == found["gpus"] == 8
    assert found["fewest_gpus"] <= 8


def test_a_plan_may_change_the_training_where_that_is_allowed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--model", "llama-3-8b", "--implementation", "huggingface", "--sequence", "2048")
    device = ("--recipe", "autocast-adam", "--device", "rtx-4090-24gb")
    _, out, _ = fit(capsys, *asked, *device)
    assert "No plan fits on 1 GPU" in " ".join(out.split())
    assert "--allow optimizer or --allow adapters" in " ".join(out.split())
    _, out, _ = fit(capsys, *asked, *device, "--allow", "optimizer,adapters")
    plan = out.split("The cheapest plan that fits")[1]
    assert "- QLoRA: adapters beside frozen weights in 4 bits" in plan
    assert "the weights themselves are not trained" in " ".join(plan.split())
    _, out, _ = fit(capsys, *asked, *device, "--allow", "adapters", "--json")
    assert json.loads(out)["allowed"] == ["adapters"]


def test_every_single_change_can_be_written_down(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "llama-3-8b", "--implementation", "huggingface", "--micro-batch", "4")
    _, plain, _ = fit(capsys, *asked)
    _, told, _ = fit(capsys, *asked, "--lines")
    _, as_json, _ = fit(capsys, *asked, "--json")
    assert "what to write for each: --lines" in plain
    assert "what to write for each" not in told
    shown = told.split("No plan fits")[0].split("The cheapest plan")[0]
    assert shown.count("      Hugging Face:\n") == 12  # as many as are shown
    assert '        "zero_optimization": {"stage": 3},\n' in shown
    for change in json.loads(as_json)["changes"]:
        assert [one["library"] for one in change["lines"]] == [
            "Hugging Face",
            "DeepSpeed",
            "torchtitan",
            "Megatron",
        ]
        assert all(one["lines"] or one["lacks"] for one in change["lines"]), change["title"]


def test_a_run_that_fits_keeps_its_ways(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = fit(capsys, "--model", "gpt2", "--sequence", "1024")
    assert status == 0
    assert out.startswith("GPT-2 at 1,024 tokens, ")
    assert "It fits, with" in out
    assert "- The run as it is" in out


def test_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = fit(capsys, "--model", "llama-7b", "--device", "t4-16gb")
    assert status == 0
    words = " ".join(out.split())
    assert words.startswith("No: no plan fits on 1 GPU (NVIDIA T4 16 GB); 16 GPUs would be enough.")
    assert "No plan fits on 1 GPU with 1 sequence a step" in words
    assert "not even one token fits" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--device nosuch", "--device: 'nosuch' cannot be used; allowed: 80gb"),
        ("--gpu 80gb --device 80gb", "--device: name a GPU with --gpu or --device, once"),
        ("--gpu none", "--gpu: name a GPU to fit into"),
        ("--allow adapter", "--allow: 'adapter' cannot be used"),
        ("--gpus 0", "--gpus: '0' cannot be used"),
        ("--gpus many --global-batch few", "--global-batch: 'few' cannot be used"),
        ("--tensor 3", "tensor parallelism gives each GPU whole attention heads"),
    ],
)
def test_a_mistake_is_named(capsys: pytest.CaptureFixture[str], arguments: str, said: str) -> None:
    status, out, err = fit(capsys, *arguments.split())
    assert (status, out) == (2, "")
    assert said in err


@pytest.mark.thorough
def test_what_a_file_says_and_the_answer_leaves_out_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "train.yaml.json"
    config.write_text(
        json.dumps(
            {
                "train_micro_batch_size_per_gpu": 2,
                "gradient_accumulation_steps": 4,
                "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}},
            }
        )
    )
    asked = ("--model", "llama-3-8b", "--config", str(config), "--gpus", "8")
    status, out, err = fit(capsys, *asked)
    assert (status, err) == (0, "")
    assert "on 8 GPUs with" in " ".join(out.split())
    _, plain, _ = fit(capsys, *asked, "--json")
    assert json.loads(plain)["reading"]
