"""Megatron's steps against Megatron-Core itself, traced on fake tensors, and against real GPUs."""

from __future__ import annotations

from math import lcm

import pytest

from sweeps import sweep
from traced import rows_of
from training_memory.categories import Category
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.events import Phase, expand
from training_memory.megatron.buffers import buffer, part_weights
from training_memory.megatron.held import held_rows
from training_memory.megatron.shape import values
from training_memory.megatron.split import by_cost
from training_memory.rank import rank_at, ranks
from training_memory.run import Run
from training_memory.step import step
from training_memory.walk import opened

STEPS = rows_of("megatron-steps.csv")


def run_of(row) -> Run:
    shape = dict(pair.split("=") for pair in row["shape"].split())
    return Run.from_json(
        {
            "implementation": "megatron",
            "gpu": None,
            "model": row["model"],
            "shape": shape,
            **{
                name: int(row[name])
                for name in (
                    "sequence",
                    "micro_batch",
                    "micro_batches",
                    "tensor",
                    "pipeline",
                    "interleave",
                    "data",
                    "context",
                    "expert",
                )
            },
            "sequence_parallel": row["sequence_parallel"] == "yes",
            "zero": int(row["distributed_optimizer"] == "yes"),
            "recompute": row["recompute"],
            "loss": row["loss"],
            "dropout": row["dropout"] == "yes",
            "mtp_layers": int(row["mtp_layers"]),
            "routing": row["routing"],
            "permutation": row["permutation"] if row["permutation"] == "unfused" else None,
            "expert_tensor": int(row["expert_tensor"]) if row["expert"] != "1" else None,
        }
    )


def highest(row) -> dict[str, int]:
    """The peak of all forward and of all backward passes, played event by event."""
    run = run_of(row)
    total, found = 0, {"forward": 0, "backward": 0}
    for event, _ in expand(opened(step(run, rank_at(run, int(row["stage"]))))):
        total += event.bytes
        name = "backward" if event.phase is Phase.BACKWARD else "forward"
        if event.phase not in (Phase.BEFORE, Phase.OPTIMIZER):
            found[name] = max(found[name], total)
    return found


@pytest.mark.parametrize("row", sweep(STEPS), ids=lambda row: row["step"])
def test_a_stage_holds_what_megatron_holds(row):
    traced = {name: int(row[f"{name}_bytes"]) for name in ("forward", "backward")}
    assert highest(row) == traced


@pytest.mark.parametrize("row", sweep(STEPS), ids=lambda row: row["step"])
def test_a_stage_keeps_between_steps_what_megatron_keeps(row):
    run = run_of(row)
    rank = rank_at(run, int(row["stage"]))
    blocks = [one for part in range(rank.parts) for one in part_weights(run, rank, part)]
    assert sum(block.parameters for block in blocks) == int(row["parameters"])
    # The counter of a step's tokens is made by the step.
    rows = [one for one in held_rows(run, rank) if one.name != "token counter"]
    assert sum(one.bytes for one in rows) == int(row["persistent_bytes"])


GIB = 2**30
LLAMA_70B = ("llama-3-70b", {"layers": 12})
#: SimuMax's Llama 405B has 16 key-value heads (configs/models/llama3-405b.json).
LLAMA_405B = ("llama-3.1-405b", {"layers": 4, "kv_heads": 16})
#: SimuMax docs/b200/b200_release_v1.2_summary.md: torch.cuda.max_memory_allocated, the largest of
#: eight B200s, PyTorch 2.10, Transformer Engine 2.11: tensor, pipeline, data, context, tokens, GiB.
SIMUMAX = [
    (LLAMA_70B, 2, 1, 4, 1, 4096, 60.68),
    (LLAMA_70B, 4, 1, 2, 1, 4096, 39.07),
    (LLAMA_70B, 8, 1, 1, 1, 4096, 28.29),
    (LLAMA_70B, 1, 2, 4, 1, 4096, 66.55),
    (LLAMA_405B, 2, 1, 4, 1, 4096, 81.59),
    (LLAMA_405B, 4, 1, 2, 1, 4096, 52.89),
    (LLAMA_405B, 8, 1, 1, 1, 4096, 38.57),
    (LLAMA_405B, 1, 2, 4, 1, 4096, 87.08),
    (LLAMA_70B, 2, 1, 1, 4, 32768, 68.43),
    (LLAMA_70B, 1, 1, 1, 8, 32768, 104.51),
    (LLAMA_70B, 2, 1, 1, 4, 131072, 112.67),
    (LLAMA_70B, 1, 1, 1, 8, 131072, 147.99),
    (LLAMA_405B, 2, 1, 1, 4, 32768, 87.03),
    (LLAMA_405B, 1, 1, 1, 8, 32768, 139.22),
    (LLAMA_405B, 2, 1, 1, 4, 131072, 118.13),
]


@pytest.mark.parametrize(
    ("model", "tensor", "pipeline", "data", "context", "sequence", "gib"), SIMUMAX
)
def test_b200s_hold_what_is_counted(model, tensor, pipeline, data, context, sequence, gib):
    name, shape = model
    run = Run.from_json(
        {
            "implementation": "megatron",
            "model": name,
            "shape": shape,
            "sequence": sequence,
            "micro_batches": 4,
            "loss": "fused",
            "tensor": tensor,
            "sequence_parallel": tensor > 1,
            "pipeline": pipeline,
            "data": data,
            "context": context,
            "context_exchange": "ulysses" if context > 1 else "ring",
            "zero": 1,
            "gpu": None,
        }
    )
    counted = estimate(run).worst.peak_bytes / GIB
    # What kernels take for themselves (cuBLAS's workspaces) is not counted: less, but not by much.
    assert 0.998 * gib < counted < gib


@pytest.mark.parametrize(
    ("model", "pipeline", "data", "expert", "gib"),
    [
        # The same summary; simu_tools/megatron_scripts/scripts/run_pretrain_deepseekv2.sh: one
        # layer without experts, and each expert filled up to its even share of the tokens.
        ("deepseek-v2", 1, 8, 8, 45.63),
        ("deepseek-v2", 2, 4, 4, 44.70),
        ("deepseek-v3", 1, 8, 8, 104.30),
        ("deepseek-v3", 2, 4, 4, 114.00),
    ],
)
def test_b200s_hold_what_is_counted_of_deepseek(model, pipeline, data, expert, gib):
    run = Run.from_json(
        {
            "implementation": "megatron",
            "model": model,
            "shape": {"layers": 4, "dense_layers": 1},
            "sequence": 4096,
            "micro_batches": 4,
            "loss": "fused",
            "pipeline": pipeline,
            "data": data,
            "expert": expert,
            "zero": 1,
            "gpu": None,
        }
    )
    counted = estimate(run).worst.peak_bytes / GIB
    assert 0.993 * gib < counted < gib


@pytest.mark.parametrize("exchange", ["ring", "all-gather", "ulysses"])
def test_however_keys_are_exchanged_a_layer_keeps_its_share_of_the_sequence(exchange):
    def kept(**fields) -> int:
        request = {"implementation": "megatron", "model": "llama-3-8b", "gpu": None, **fields}
        return estimate(Run.from_json(request)).worst.totals[Category.ACTIVATIONS]

    alone = kept(sequence=4096)
    shared = kept(sequence=16384, context=4, context_exchange=exchange)
    # All but the ring keep the output twice, once as it was before it was put together.
    twice = 0 if exchange == "ring" else 32 * 4096 * 4096 * 2
    # What passes by counts as activations too: keys and values of four GPUs, outputs of as many.
    assert 0 <= shared - alone - twice < 4096 * 4096 * 2 * 8


def test_a_llama_3_8b_is_within_three_hundredths_of_what_was_measured():
    # SimuMax's README: about 43.95 GiB, by an older Transformer Engine, which made the empty
    # gradients anew each time instead of keeping one of each shape.
    run = Run.from_json(
        {
            "implementation": "megatron",
            "model": "llama-3-8b",
            "tensor": 2,
            "sequence_parallel": True,
            "data": 4,
            "zero": 1,
            "gpu": None,
        }
    )
    worst = estimate(run).worst
    assert worst.peak_bytes / GIB == pytest.approx(43.95, rel=0.03)


@pytest.mark.parametrize(
    ("tensor", "parallel", "expected"), [(1, False, 34), (8, False, 10 + 24 / 8), (8, True, 34 / 8)]
)
def test_a_gpts_layer_keeps_what_korthikanti_et_al_count(tensor, parallel, expected):
    # arXiv:2205.05198, Table 2, without the scores that a fused kernel never keeps.
    def kept(layers: int) -> int:
        request = {
            "implementation": "megatron",
            "model": "korthikanti-22b",
            "shape": {"layers": layers},
            "sequence": 2048,
            "micro_batch": 4,
            "tensor": tensor,
            "sequence_parallel": parallel,
            "gpu": None,
        }
        return estimate(Run.from_json(request)).worst.totals[Category.ACTIVATIONS]

    rows = 2048 * 4
    # Beside the paper's: two norms' means and deviations, attention's sums, random states.
    own = rows // tensor if parallel else rows
    spread = 4 * 4 * own + 4 * rows * 64 // tensor + 512
    assert kept(3) - kept(2) == expected * rows * 6144 + spread


def test_deepseek_v3s_further_layer_has_as_many_parameters_as_published():
    # deepseek-ai/DeepSeek-V3, README_WEIGHTS.md: beside the main model's 671 B "11.5B unique
    # parameters", without the embedding and the head that both share.
    def parameters(further: int) -> int:
        run = Run.from_json(
            {
                "implementation": "megatron",
                "model": "deepseek-v3",
                "mtp_layers": further,
                "gpu": None,
            }
        )
        return rank_at(run, 0).parameters

    assert (parameters(1) - parameters(0)) / 1e9 == pytest.approx(11.5, rel=0.01)


def test_a_further_loss_has_logits_of_its_own():
    # s·b·V numbers in 16 bits, and their 32-bit softmax, until the backward pass.
    def peak(further: int, vocabulary: int) -> int:
        request = {
            "implementation": "megatron",
            "model": "llama-3-8b",
            "shape": {"layers": 1, "vocabulary": vocabulary},
            "recompute": "full",
            "mtp_layers": further,
            "gpu": None,
        }
        return estimate(Run.from_json(request)).worst.totals[Category.LOGITS]

    each = [(peak(further, 256_000) - peak(further, 128_000)) for further in (0, 1)]
    assert each[1] == 2 * each[0]


def test_megatron_bridges_count_of_parameters_is_ours_with_norms_divided():
    # Megatron-Bridge's test of its memory formula: 3,400 parameters at 6 + 12/4 bytes, 30,600. The
    # formula divides the norms by tensor and pipeline parallelism, though each GPU has them whole.
    shape = {
        "layers": 4,
        "hidden": 16,
        "heads": 4,
        "kv_heads": 4,
        "head_dim": 4,
        "ffn": 64,
        "vocabulary": 32,
        "positions": 0,
        "norm": "layernorm",
        "norm_bias": True,
        "gated": False,
        "tied": True,
        "qkv_bias": False,
        "output_bias": False,
        "mlp_bias": False,
    }
    run = Run.from_json(
        {
            "model": "custom",
            "shape": shape,
            "sequence": 8,
            "tensor": 2,
            "pipeline": 2,
            "data": 4,
            "zero": 1,
            "recipe": "mixed-adam-fp32-grad",
            "gpu": None,
        }
    )
    model, layout = run.model, run.layout
    embedding = model.vocabulary * model.hidden
    layers = model.parameters.total - embedding
    theirs = (layers // layout.pipeline + embedding) // layout.tensor
    assert theirs == 3_400
    states = run.recipe.states
    each = sum(
        state.item_bytes / (layout.data if state.zero_stage <= layout.zero else 1)
        for state in states
    )
    assert theirs * each == 30_600
    # What a GPU has beyond that: of its two layers' norms the other half.
    norms = 2 * 2 * 2 * model.hidden
    final = 2 * model.hidden
    assert rank_at(run, 0).parameters == theirs + norms // 2 - final // 4
    # And on Megatron's own stages, where the vocabulary is filled up to 256 rows.
    filled = Run.from_json(
        {
            **run.to_json(),
            "implementation": "megatron",
            "shape": {**shape, "vocabulary": 256},
            "dropout": False,
        }
    )
    more = (256 - 32) // 2 * model.hidden
    held = [
        sum(block.parameters for block in part_weights(filled, rank_at(filled, stage)))
        for stage in range(2)
    ]
    assert held == [
        theirs + more + norms // 2 - final // 4,
        theirs + more + norms // 2 + final * 3 // 4,
    ]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"zero": 2}, "zero"),
        ({"recipe": "fp32-adam"}, "recipe"),
        ({"recompute": "matmuls"}, "recompute"),
        ({"attention": "eager"}, "attention"),
        ({"optimizer": "muon"}, "optimizer"),
        ({"loss": "chunked"}, "loss"),
        ({"hold_logits": True}, "hold_logits"),
        ({"mlp": "unfused"}, "mlp"),
        ({"model": "pythia-1.4b"}, "implementation"),
        ({"model": "phi-3-small"}, "implementation"),
        ({"model": "gpt2", "context": 2}, "context"),
        ({"mtp_layers": 1, "context": 2}, "context"),
        ({"permutation": "unfused"}, "permutation"),
        (
            {"model": "deepseek-v2", "context": 2, "context_exchange": "all-gather"},
            "context_exchange",
        ),
        ({"model": "gpt2", "shape": {"activation": "relu"}}, "implementation"),
        ({"model": "gpt2", "shape": {"qkv_bias": False}}, "implementation"),
        ({"model": "gpt2", "shape": {"output_bias": False}}, "implementation"),
        ({"model": "gpt2", "shape": {"norm_bias": False}}, "implementation"),
        (
            {
                "model": "mixtral-8x7b",
                "shape": {"mlp_bias": True, "qkv_bias": True, "output_bias": True},
            },
            "implementation",
        ),
        ({"tensor": 16}, "tensor"),
        ({"pipeline": 3}, "pipeline"),
        ({"pipeline": 2, "schedule": "zero-bubble"}, "schedule"),
        ({"pipeline": 2, "interleave": 2, "micro_batches": 3}, "micro_batches"),
        ({"model": "gemma-2-2b"}, "implementation"),
        ({"model": "mixtral-8x7b", "tensor": 2}, "sequence_parallel"),
        ({"model": "mixtral-8x7b", "data": 3, "expert_tensor": 3}, "expert_tensor"),
        ({"model": "mixtral-8x7b", "data": 16, "expert": 16}, "expert"),
        ({"model": "mixtral-8x7b", "implementation": "nanotron"}, "implementation"),
        (
            {"model": "mixtral-8x7b", "implementation": "paper", "routing": "worst"},
            "routing",
        ),
        ({"routing": "worst"}, "routing"),
        ({"model": "deepseek-v3", "implementation": "nanotron"}, "implementation"),
    ],
)
def test_what_megatron_has_not_is_refused_by_name(fields, named):
    with pytest.raises(InputErrors) as caught:
        Run.from_json({"model": "llama-3-8b", "implementation": "megatron", **fields})
    assert named in {error.field for error in caught.value.errors}


MIXTRAL = {
    "implementation": "megatron",
    "model": "mixtral-8x7b",
    "gpu": None,
    "data": 8,
    "expert": 8,
    "zero": 1,
}


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        # With one expert on a GPU every token can choose it, of two that each may choose; with four
        # of the eight, both of its choices. With all, there is nothing to be unlucky with.
        ({"expert": 8}, 8 / 2),
        ({"expert": 2}, 2),
        ({"expert": 1}, 1),
    ],
)
def test_at_worst_every_token_that_can_comes_to_a_gpu(fields, times):
    come = [
        values(Run.from_json({**MIXTRAL, **fields, "routing": routing}))["D"]
        for routing in ("balanced", "worst")
    ]
    assert come[0] == 4096 * 2
    assert come[1] == come[0] * times


def test_the_worst_routing_needs_more_and_says_so():
    even, worst = (
        estimate(Run.from_json({**MIXTRAL, "routing": routing}))
        for routing in ("balanced", "worst")
    )
    assert worst.worst.peak_bytes > even.worst.peak_bytes
    assert any("Uneven routing" in said for said in even.omitted)
    assert not any("Uneven routing" in said for said in worst.omitted)


def test_a_stage_of_experts_is_not_taken_for_one_without():
    # Two layers a stage, three without experts: the third stage is the first that has two with.
    run = Run.from_json(
        {
            "implementation": "megatron",
            "model": "deepseek-v3",
            "shape": {"layers": 60},
            "pipeline": 30,
            "micro_batches": 30,
            "data": 8,
            "expert": 8,
            "zero": 1,
            "gpu": None,
        }
    )
    answer = estimate(run)
    assert [one.rank.stage for one in answer.ranks] == [0, 1, 2, 29]
    assert answer.worst.rank.stage == 2


@pytest.mark.parametrize("shared_out", [True, False])
@pytest.mark.parametrize("replicas", [1, 2, 3, 8, 64])
def test_a_buffers_pieces_are_those_of_each_parameter_laid_down(replicas, shared_out):
    run = Run.from_json({**MIXTRAL, "shape": {"layers": 3, "hidden": 128, "vocabulary": 500}})
    blocks = part_weights(run, rank_at(run, 0))
    found = buffer(blocks, replicas=replicas, shared_out=shared_out)
    # Every parameter by itself, the last first (Megatron-Core's _ParamAndGradBuffer).
    weights = [
        weight
        for block in blocks
        for _ in range(block.times)
        for count, weight in block.weights
        for _ in range(count)
    ]
    end, pieces = 0, []
    for weight in reversed(weights):
        begin = -(-end // 64) * 64 if shared_out else end
        end = begin + weight.numel
        if (piece := min(end, found.share) - begin) > 0:
            pieces.append(piece)
    assert found.numel - end in range(lcm(128, replicas) if shared_out else 1)
    assert sorted(n for times, n in found.pieces() for _ in range(times)) == sorted(pieces)


def test_a_stage_of_many_layers_is_worked_out_like_one_of_few():
    run = Run.from_json({**MIXTRAL, "shape": {"layers": 100_000}})
    rank = rank_at(run, 0)
    assert len(part_weights(run, rank)) == 3
    # What a layer adds, it adds each time.
    sizes = [
        estimate(Run.from_json({**MIXTRAL, "shape": {"layers": n}, "zero": 0})).worst.peak_bytes
        for n in (99_998, 99_999, 100_000)
    ]
    assert sizes[2] - sizes[1] == pytest.approx(sizes[1] - sizes[0], abs=2048)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        # Published with nanotron's benchmark for its llama-1B: the first stage's layers.
        (2, (14, 10)),
        (4, (7, 7, 6, 4)),
        (8, (4, 3, 3, 4, 3, 3, 4, 0)),
    ],
)
def test_nanotron_spreads_layers_by_cost(stages, expected):
    run = Run.from_json({**NANOTRON, "pipeline": stages, "micro_batches": 8})
    assert by_cost(run.model, stages) == expected
    assert ranks(run)[0].layers == expected[0]


NANOTRON = {
    "implementation": "nanotron",
    "model": "llama-7b",
    "shape": {
        "layers": 24,
        "hidden": 2048,
        "heads": 32,
        "kv_heads": 32,
        "head_dim": 64,
        "ffn": 4096,
        "vocabulary": 50257,
        "tied": True,
    },
    "gpu": None,
}


def test_nanotron_keeps_what_its_tensor_parallel_gpus_gather():
    # Known of its published runs: gathered inputs, 4 bytes for each token and feature, are on every
    # GPU, whatever the tensor-parallel degree.
    kept = {
        tensor: estimate(
            Run.from_json({**NANOTRON, "tensor": tensor, "sequence_parallel": True})
        ).worst.totals[Category.ACTIVATIONS]
        for tensor in (2, 4, 8)
    }
    unit = 24 * 4096 * 2048
    # Whatever is divided goes down by as much again; what is not stays.
    undivided = 2 * kept[4] - kept[2]
    assert undivided / unit == pytest.approx(4, rel=0.05)
    assert 2 * kept[8] - kept[4] == pytest.approx(undivided, rel=0.01)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"recompute": "full"}, "recompute"),
        ({"loss": "fused"}, "loss"),
        ({"pipeline": 2, "interleave": 2, "micro_batches": 2}, "interleave"),
        ({"recompute": "matmuls"}, "recompute"),
        ({"recipe": "mixed-adam"}, "recipe"),
        ({"recipe": "fp32-adam"}, "recipe"),
        ({"zero": 3}, "zero"),
        ({"dropout": True}, "dropout"),
        ({"mtp_layers": 1}, "mtp_layers"),
        ({"model": "gpt2"}, "implementation"),
    ],
)
def test_what_is_not_followed_of_nanotron_is_refused_by_name(fields, named):
    with pytest.raises(InputErrors) as caught:
        Run.from_json({**NANOTRON, **fields})
    (error,) = (error for error in caught.value.errors if error.field == named)
    assert "nanotron" in error.allowed
    assert "Megatron" not in error.allowed
