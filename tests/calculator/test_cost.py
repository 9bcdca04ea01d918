"""The cost model: held against published rates, formulas and ratios."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from strategies import requests
from training_memory import gpus
from training_memory.cost import Cost, cost
from training_memory.run import Run


def ask(**request: object) -> Cost:
    return cost(Run.from_json(request))


def test_six_operations_a_parameter_and_twelve_lsh() -> None:
    """PaLM, arXiv:2204.02311, appendix B: 6·N + 12·L·H·Q·T a token."""
    found = ask(model="llama-7b", sequence=2048)
    tables = 32_000 * 4096  # the embedding is looked up, not multiplied with
    products = 6 * (6_738_415_616 - tables)
    norms = 6 * 65 * 4096  # counted as parameters; the final norm's is with the layers'
    attention = 12 * 32 * 4096 * 2048
    assert found.flops == 2048 * (products + attention)
    assert norms < products / 1000


def test_recomputing_every_layer_costs_about_a_third() -> None:
    """Korthikanti et al. 2022, arXiv:2205.05198, appendix A: 4/3 of the model's, at most."""
    found = ask(model="korthikanti-530b", sequence=2048, recompute="full")
    assert 0.32 < found.again_flops / found.flops < 1 / 3
    assert ask(model="korthikanti-530b", sequence=2048).again_flops == 0


def test_the_530b_model_of_korthikanti() -> None:
    """Its abstract: 54.2 % of the peak, and 42.1 % with every layer recomputed, on 2,240 A100."""
    common: dict[str, object] = {
        "model": "korthikanti-530b",
        "sequence": 2048,
        "tensor": 8,
        "pipeline": 35,
        "data": 8,
        "micro_batches": 280,
        "gpu": "a100-80gb",
    }
    selective = ask(**common, recompute="selective", sequence_parallel=True)
    full = ask(**common, recompute="full")
    rates = gpus.get("a100-80gb").rates
    assert rates
    reached = [one.flops / one.seconds / one.gpus / rates.flops for one in (selective, full)]
    # The least time gives the most that can be reached: above the measured, within a fifth.
    for found, measured in zip(reached, (0.542, 0.421), strict=True):
        assert measured < found < 1.2 * measured
    assert reached[0] / reached[1] == pytest.approx(0.542 / 0.421, rel=0.05)


def test_zeros_traffic() -> None:
    """ZeRO, arXiv:1910.02054, section 7: stages 0 to 2 send 2Ψ numbers, stage 3 sends 3Ψ."""
    sent = [ask(model="llama-7b", data=64, zero=zero).sent_bytes for zero in range(4)]
    each = 2 * 6_738_415_616 * 63 // 64
    assert sent == pytest.approx([2 * each, 2 * each, 2 * each, 3 * each], rel=1e-6)


def test_tensor_parallelism_sums_four_times_a_layer() -> None:
    """Shoeybi et al., arXiv:1909.08053, section 3; a ring sends 2(n - 1)/n (NCCL tests)."""
    found = ask(model="llama-7b", sequence=2048, tensor=8)
    assert found.sent_bytes == 32 * 4 * (2 * 7 * 2 * 2048 * 4096 // 8)
    split = ask(model="llama-7b", sequence=2048, tensor=8, sequence_parallel=True)
    assert split.sent_bytes == found.sent_bytes


def test_a_pipelines_bubble() -> None:
    """Narayanan et al., arXiv:2104.04473, section 2.2: (p - 1)/m of the work is waited."""
    found = ask(model="llama-7b", pipeline=8, micro_batches=32)
    assert found.waited / (found.turns - found.waited) == 7 / 32


@given(requests())
@settings(max_examples=60, deadline=None)
def test_for_any_run(request_json: dict[str, object]) -> None:
    run = Run.from_json(request_json)
    found = cost(run)
    assert found.seconds > 0
    assert 0 <= found.again_flops < found.flops
    assert 0 <= found.waited < found.turns
    assert (found.sent_bytes > 0) == (run.layout.gpus > 1)
    # Nothing is quicker than every GPU at its full rate.
    rates = (run.gpu.rates if run.gpu else None) or gpus.get(gpus.DEFAULT).rates
    assert rates
    assert found.flops / found.seconds <= rates.flops * found.gpus


def test_parts_of_a_model_on_a_stage_wait_less() -> None:
    """Narayanan et al., section 2.2.2: with v parts (p - 1)/(v·m) is waited."""
    common: dict[str, object] = {"model": "llama-7b", "pipeline": 8, "micro_batches": 32}
    plain, cut = ask(**common), ask(**common, interleave=2)
    assert cut.waited / (cut.turns - cut.waited) == 7 / 64
    assert cut.seconds < plain.seconds
    assert cut.sent_bytes > plain.sent_bytes


def test_adapters_have_no_gradients_of_frozen_weights() -> None:
    """Forward and one product backward, 4·N, where every weight trained takes 6·N."""
    common: dict[str, object] = {
        "model": "llama-3-8b",
        "sequence": 512,
        "implementation": "huggingface",
        "recipe": "autocast-adam",
    }
    full, lora = ask(**common), ask(**common, adapter="lora")
    attention = 12 * 32 * 4096 * 512 * 512
    assert (lora.flops - attention) * 3 == (full.flops - attention) * 2


def test_gpus_that_share_a_sequence_share_its_arithmetic() -> None:
    long: dict[str, object] = {"model": "llama-3-8b", "sequence": 131_072}
    alone, shared = ask(**long), ask(**long, context=8)
    assert shared.flops == alone.flops
    assert alone.seconds / 8 <= shared.seconds < alone.seconds / 4


# --- published speeds -----------------------------------------------------------------------------
# The model gives the least time, from products and traffic alone. Kernels that are bound by memory
# and the time to launch any are not in it; they weigh more the smaller a model's products are. So a
# measured step takes longer than predicted, by a factor that falls from the smallest model to the
# largest: that is the tolerance here. What the model is for is the ratio of two ways to run the
# same step, and that is held much closer.

#: Korthikanti et al. 2022, arXiv:2205.05198, table 5: seconds of an iteration with every layer
#: recomputed, and with sequence parallelism and attention alone recomputed. Model, GPUs that share
#: a layer, stages, parts on each, sequences.
KORTHIKANTI = (
    ("korthikanti-22b", 8, 1, 1, 4, 1.42, 1.10),
    ("korthikanti-175b", 8, 8, 3, 64, 18.13, 13.75),
    ("korthikanti-530b", 8, 35, 3, 280, 49.05, 37.83),
    ("korthikanti-1t", 8, 64, 1, 512, 94.42, 71.49),
)


@pytest.mark.parametrize(
    ("model", "tensor", "stages", "parts", "batch", "full", "less"), KORTHIKANTI
)
def test_korthikantis_iterations(
    model: str, tensor: int, stages: int, parts: int, batch: int, full: float, less: float
) -> None:
    at_a_time = 4 if stages == 1 else 1
    common: dict[str, object] = {
        "model": model,
        "sequence": 2048,
        "tensor": tensor,
        "pipeline": stages,
        "interleave": parts,
        "micro_batch": at_a_time,
        "micro_batches": batch // at_a_time,
        "gpu": "a100-80gb",
    }
    slow = ask(**common, recompute="full").seconds
    quick = ask(**common, recompute="selective", sequence_parallel=True).seconds
    most = 1.6 if stages == 1 else 1.35
    for predicted, measured in ((slow, full), (quick, less)):
        assert predicted < measured < most * predicted
    assert slow / quick == pytest.approx(full / less, rel=0.04 if stages == 1 else 0.015)


#: Narayanan et al. 2021, arXiv:2104.04473, table 1: 10^12 operations a second on each A100, every
#: layer recomputed. Heads, hidden size, layers, GPUs that share a layer, stages, GPUs, sequences.
NARAYANAN = (
    (24, 2304, 24, 1, 1, 32, 512, 137),
    (32, 3072, 30, 2, 1, 64, 512, 138),
    (32, 4096, 36, 4, 1, 128, 512, 142),
    (48, 6144, 40, 8, 1, 256, 1024, 135),
    (64, 8192, 48, 8, 2, 512, 1536, 138),
    (80, 10240, 60, 8, 4, 1024, 1792, 140),
    (96, 12288, 80, 8, 8, 1536, 2304, 148),
    (128, 16384, 96, 8, 16, 1920, 2160, 155),
)


@pytest.mark.parametrize(
    ("heads", "hidden", "layers", "tensor", "stages", "gpus_", "batch", "measured"), NARAYANAN
)
def test_narayanans_weak_scaling(
    heads: int,
    hidden: int,
    layers: int,
    tensor: int,
    stages: int,
    gpus_: int,
    batch: int,
    measured: float,
) -> None:
    replicas = gpus_ // tensor // stages
    found = ask(
        model="korthikanti-22b",
        shape={
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "kv_heads": heads,
            "head_dim": hidden // heads,
            "ffn": 4 * hidden,
        },
        sequence=2048,
        tensor=tensor,
        pipeline=stages,
        data=replicas,
        micro_batches=batch // replicas,
        recompute="full",
        gpu="a100-80gb",
    )
    reached = (found.flops + found.again_flops) / found.seconds / found.gpus / 1e12
    assert measured < reached < 1.7 * measured


#: pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3: tokens a second
#: on each H100, Llama 3.1 8B under FSDP2 on 8 and 128 GPUs, without and with torch.compile. These
#: H100s are held to 500 W of 700 (its section on hardware), which the data sheet's rate is not.
TORCHTITAN = ((8, 5762, 6667), (128, 5605, 6514))


@pytest.mark.parametrize(("replicas", "plain", "compiled"), TORCHTITAN)
def test_torchtitans_llama(replicas: int, plain: float, compiled: float) -> None:
    found = ask(
        model="llama-3-8b",
        implementation="torchtitan",
        recipe="autocast-adam",
        sequence=8192,
        micro_batch=2,
        data=replicas,
        zero=3,
        recompute="matmuls",
        gpu="h100-80gb",
    )
    each = found.tokens_per_second / found.gpus
    assert plain < compiled < each < 2.2 * plain


def test_torchtitan_on_16_times_as_many_gpus_is_as_quick_on_each() -> None:
    """Measured 97 % as quick, by the same tables; what is sent hides behind what is computed."""
    common: dict[str, object] = {
        "model": "llama-3-8b",
        "implementation": "torchtitan",
        "recipe": "autocast-adam",
        "sequence": 8192,
        "micro_batch": 2,
        "zero": 3,
        "recompute": "matmuls",
        "gpu": "h100-80gb",
    }
    few, many = (ask(**common, data=replicas) for replicas in (8, 128))
    predicted = many.tokens_per_second / many.gpus / (few.tokens_per_second / few.gpus)
    assert predicted == pytest.approx(5605 / 5762, rel=0.03)
