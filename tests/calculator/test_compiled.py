"""A plain Llama under torch.compile: what it keeps is what PyTorch's partitioner keeps."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiled_tables import recorded
from traced import rows_of
from training_memory.derivation import derive
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.kept import kept_rows
from training_memory.recorded_step import held_rows
from training_memory.run import Run
from training_memory.walk import by_category, walk_expanded

CASES: dict[str, list[dict[str, str]]] = defaultdict(list)
for _row in rows_of("compiled.csv"):
    CASES[_row["case"]].append(_row)
LAYERS = [rows for rows in CASES.values() if rows[0]["what"] == "layer"]
LOSSES = [rows for rows in CASES.values() if rows[0]["what"] == "loss"]


def of_case(row):
    """A traced case's recording and numbers."""
    return recorded(row, "layers-and-loss" if row["what"] == "loss" else "layers")


def test_there_are_cases_to_be_held_against():
    assert len(LAYERS) >= 60
    assert len(LOSSES) >= 15


@pytest.mark.parametrize("rows", LAYERS, ids=lambda rows: rows[0]["case"])
def test_a_layer_keeps_the_tensors_that_the_partitioner_keeps(rows):
    found = kept_rows(*of_case(rows[0]))
    assert Counter((one.kind, one.dtype, one.bytes) for one in found) == Counter(
        (row["kind"], row["dtype"], int(row["bytes"])) for row in rows
    )
    assert all(why.endswith(".") for one in found for why in one.why)


@pytest.mark.parametrize("rows", LOSSES, ids=lambda rows: rows[0]["case"])
def test_the_loss_keeps_the_tensors_that_the_partitioner_keeps(rows):
    recording, values = of_case(rows[0])
    found = [
        facts
        for facts in recording.facts
        if any(use.operation == "compiled loss" for use in facts.uses)
    ]
    assert Counter((one.dtype, one.bytes.evaluate(values)) for one in found) == Counter(
        (row["dtype"], int(row["bytes"])) for row in rows
    )


@st.composite
def requests(draw: st.DrawFn) -> dict[str, object]:
    compiled = draw(st.sampled_from(["layers", "layers-and-loss"]))
    data = draw(st.sampled_from([1, 8]))
    recipes = ["fp32-adam", "autocast-adam", "bf16-adam", *(["mixed-adam"] if data == 1 else [])]
    chunks = compiled == "layers" and data == 1
    loss = draw(st.sampled_from(["full", "chunked"])) if chunks else "full"
    return {
        "implementation": "torchtitan",
        "model": draw(st.sampled_from(["llama-7b", "llama-3.2-1b"])),
        "shape": {"layers": draw(st.integers(1, 9))},
        "sequence": draw(st.integers(1, 1024)),
        "micro_batch": draw(st.integers(1, 4)),
        "micro_batches": draw(st.integers(1, 3)),
        "recipe": draw(st.sampled_from(recipes)),
        "recompute": draw(st.sampled_from(["none", "full", "matmuls"])),
        "loss": loss,
        "data": data,
        "compile": compiled,
    }


@pytest.mark.thorough
@given(requests())
@settings(max_examples=25, deadline=None)
def test_for_any_compiled_run(request_json):
    """The quick walk is the slow one's; every byte is freed or persistent; derivations add up."""
    found = estimate(Run.from_json(request_json))
    worst = found.worst
    assert walk_expanded(worst.tree) == worst.segment
    for category, size in by_category(worst.segment.remains).items():
        stays = sum(row.bytes for row in held_rows(found.run) if row.category is category)
        assert size == stays, category
    for entry in derive(found.run, worst):
        assert entry.formula.evaluate(entry.values) == entry.total_bytes, entry.category
        assert all(line.why and line.where for line in entry.lines)
    assert Run.from_json(found.run.to_json()) == found.run


def test_it_saves_what_torchtune_measured():
    # torchtune's README, "Optimization flags": 60.0 GiB, with its layers compiled 51.0.
    run = {
        "implementation": "torchtitan",
        "model": "llama-3.2-3b",
        "sequence": 4096,
        "micro_batch": 2,
        "recipe": "bf16-adam",
        "norm_kernel": "unfused",
    }
    plain, compiled = (
        estimate(Run.from_json({**run, "compile": way})).worst.peak_bytes
        for way in ("none", "layers")
    )
    assert abs((plain - compiled) / 2**30 - 9.0) < 0.3


@pytest.mark.parametrize(
    ("request_json", "field"),
    [
        ({"implementation": "huggingface", "compile": "layers"}, "compile"),
        ({"implementation": "paper", "compile": "layers"}, "compile"),
        ({"implementation": "megatron", "compile": "layers"}, "compile"),
        ({"implementation": "torchtitan", "compile": "everything"}, "compile"),
        ({"implementation": "torchtitan", "compile": "layers", "attention": "eager"}, "attention"),
        ({"implementation": "torchtitan", "compile": "layers", "mlp": "fused"}, "mlp"),
        ({"implementation": "torchtitan", "compile": "layers", "offload": "saved"}, "offload"),
        (
            {"implementation": "torchtitan", "compile": "layers", "recompute": "selective"},
            "recompute",
        ),
        (
            {"implementation": "torchtitan", "compile": "layers-and-loss", "loss": "chunked"},
            "loss",
        ),
        ({"implementation": "torchtitan", "compile": "layers", "tensor": 2}, "compile"),
    ],
)
def test_what_cannot_be_compiled_is_refused(request_json, field):
    with pytest.raises(InputErrors) as caught:
        Run.from_json({"model": "llama-3.2-1b", "sequence": 512, **request_json})
    assert field in [error.field for error in caught.value.errors]
