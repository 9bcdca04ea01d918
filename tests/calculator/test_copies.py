"""Copies to the CPU and back: as a recording has them, timed, and a bound that needs none."""

from __future__ import annotations

from math import prod

import pytest

from training_memory import gpus
from training_memory.copies import copied_bytes, least_copied_bytes
from training_memory.cost import cost
from training_memory.estimate import estimate
from training_memory.fit import changes
from training_memory.run import Run
from training_memory.spelling import spellings

COMMON: dict[str, object] = {
    "model": "llama-3.2-1b",
    "implementation": "huggingface",
    "sequence": 2048,
    "micro_batch": 2,
    "gpu": "rtx-4090-24gb",
}


def ask(**request: object) -> Run:
    return Run.from_json({**COMMON, **request})


@pytest.mark.parametrize(("recipe", "item_bytes"), [("bf16-adam", 2), ("autocast-adam", 4)])
def test_checkpoints_are_every_layers_input(recipe: str, item_bytes: int) -> None:
    run = ask(recipe=recipe, recompute="full", offload="checkpoints")
    assert copied_bytes(run) == 2 * prod((16, 2 * 2048, 2048, item_bytes))
    assert copied_bytes(ask(recipe=recipe, recompute="full")) == 0


@pytest.mark.parametrize("model", ["llama-3.2-1b", "gpt2", "qwen2.5-0.5b"])
@pytest.mark.parametrize("recipe", ["bf16-adam", "autocast-adam", "fp32-adam"])
@pytest.mark.parametrize(
    ("recompute", "offload"),
    [(value, "saved") for value in ("none", "selective", "matmuls", "full")]
    + [("full", "checkpoints")],
)
def test_the_bound(model: str, recipe: str, recompute: str, offload: str) -> None:
    run = ask(model=model, recipe=recipe, recompute=recompute, offload=offload, sequence=512)
    assert 0 < least_copied_bytes(run) <= copied_bytes(run)
    assert cost(run, at_least=True).seconds <= cost(run).seconds


def test_a_step_waits_for_its_copies() -> None:
    """PCIe 4.0 x16: 32 GB a second each way, and the stream that computes does the copying."""
    plain = ask(recipe="bf16-adam", recompute="full", micro_batches=3)
    away = ask(recipe="bf16-adam", recompute="full", micro_batches=3, offload="checkpoints")
    found = cost(away)
    rates = gpus.get("rtx-4090-24gb").rates
    assert rates is not None
    assert rates.host_bytes == 32 * 10**9
    assert found.copied_bytes == 3 * copied_bytes(away)
    assert found.seconds - cost(plain).seconds == pytest.approx(found.copied_bytes / 32e9)


def test_an_optimizer_on_the_cpu_is_sent_gradients_and_sends_weights() -> None:
    """ZeRO-Offload: 2 bytes a parameter each way, over the replicas, which share them."""
    common: dict[str, object] = {"recipe": "mixed-adam", "data": 4, "zero": 2}
    plain, away = ask(**common), ask(**common, offload_optimizer="cpu")
    each = 2 * plain.model.parameters.total // 4
    assert cost(away).copied_bytes == 2 * each
    assert cost(away).seconds - cost(plain).seconds == pytest.approx(each / 32e9)
    (change,) = [one for one in changes(estimate(plain)) if "offload_optimizer" in one.fields]
    assert change.title == "The optimizer and its states on the CPU"
    assert change.price == "the CPU's own step is not timed"
    told = {one.library: one for one in spellings(change.fields, change.run)}
    wanted = '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},'
    assert wanted in told["DeepSpeed"].lines
    assert wanted in told["Hugging Face"].lines


def test_everything_saved_copies_weights_as_well() -> None:
    few = ask(recipe="bf16-adam", offload="saved", sequence=16, micro_batch=1)
    # 16 layers' products: 60,817,408 weights each, in 16 bits, there and back.
    assert copied_bytes(few) > 2 * 2 * 16 * 60_817_408
