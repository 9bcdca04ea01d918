"""Recorded steps against PyTorch, traced on fake tensors by scripts/measure: equal to the byte."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from sweeps import sweep
from traced import Case, rows_of, steps_of
from training_memory.kept import Kind, kept_rows
from training_memory.recording import record

STEPS = rows_of("steps.csv")
PEAKS: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
for _peak in rows_of("step-peaks.csv"):
    PEAKS[_peak["step"]][_peak["phase"]] = _peak
BLOCKS = rows_of("blocks.csv")
TENSORS: dict[str, list[dict[str, str]]] = defaultdict(list)
for _tensor in rows_of("block-tensors.csv"):
    TENSORS[_tensor["block"]].append(_tensor)

SWITCHED = (
    "implementation",
    "precision",
    "attention",
    "recompute",
    "norm",
    "mlp",
    "dropout",
)


def test_there_are_rows_to_be_held_against():
    assert len(STEPS) >= 200
    assert len(BLOCKS) >= 170


@pytest.mark.parametrize("row", sweep(STEPS), ids=lambda row: row["step"])
def test_every_phase_peaks_where_and_as_high_as_in_pytorch(row):
    found = Case(row).highest()
    for phase, traced in PEAKS[row["step"]].items():
        ours = found[phase]
        assert ours.bytes == int(traced["bytes"]), phase
        if traced["operation"].startswith("start of"):
            # Nothing is taken in the whole phase.
            assert ours.moment.startswith("the start of")
            continue
        place = traced["moment"].rpartition(": ")[2]
        assert {"clip": "clipping", "step": "optimizer's step"}.get(place, place) in ours.moment
        if traced["layer"]:
            assert ours.layer == int(traced["layer"]) + 1


@pytest.mark.parametrize("row", steps_of("scratch-steps.json"))
def test_attentions_scratch_memory_is_counted_where_it_is_asked_for(row):
    found = Case(row, scratch=True).highest()["backward"]
    assert found.bytes == row["peaks"]["backward"]
    assert "attention" in found.moment
    assert Case(row).highest()["backward"].bytes < found.bytes


@pytest.mark.parametrize(
    "row", steps_of("more-steps.json"), ids=lambda row: "-".join(map(str, list(row.values())[7:12]))
)
def test_families_outside_the_matrix_peak_as_in_pytorch(row):
    found = Case(row).highest()
    assert {phase: found[phase].bytes for phase in row["peaks"]} == row["peaks"]


@pytest.mark.parametrize(
    "row",
    sweep(steps_of("switch-steps.json")),
    ids=lambda row: "-".join(str(row[name]) for name in ("model", *SWITCHED)),
)
def test_norms_gates_and_dropouts_exchanged_peak_as_in_pytorch(row):
    found = Case(row).highest()
    assert {phase: found[phase].bytes for phase in row["peaks"]} == row["peaks"]


@pytest.mark.parametrize("row", sweep(BLOCKS), ids=lambda row: row["block"])
def test_a_layer_keeps_the_tensors_that_pytorch_keeps(row):
    case = Case({**row, "shape": row["shape"] + " layers=3"})
    ours = kept_rows(record(case.structure, 3), case.values)
    # What all layers share is marked apart; a table that belongs to the model takes nothing here.
    kept = Counter((one.kind, one.dtype, one.bytes) for one in ours if one.kind is not Kind.SHARED)
    assert kept == Counter(
        (one["kind"], one["dtype"], int(one["bytes"]))
        for one in TENSORS[row["block"]]
        if one["kind"] != "shared"
    )
    shared = sum(one.bytes for one in ours if one.kind is Kind.SHARED)
    if row["family"] != "plain-llama":
        assert shared == int(row["shared_bytes"])


@pytest.mark.parametrize("row", BLOCKS[::9], ids=lambda row: row["block"])
def test_every_kept_tensor_says_what_needs_it_and_why(row):
    case = Case({**row, "shape": row["shape"] + " layers=3"})
    for one in kept_rows(record(case.structure, 3), case.values):
        assert one.saved_by
        assert one.why
        assert all(why.endswith(".") for why in one.why)
        assert one.formula.evaluate(case.values) == one.bytes
