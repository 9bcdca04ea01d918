"""Contributed GPU runs on their page: shown with today's prediction, checked, or "pending"."""

import json
from datetime import date

import pytest

from content import ContentError
from gpu_page import RUNS, gpu_differences, gpu_runs
from gpu_records import record
from training_memory.units import show_bytes
from training_memory.verify.differences import known
from training_memory.verify.plan import Plan, peak_bytes
from training_memory.verify.reading import read_record


def contribute(folder, name, made):
    (folder / name).write_text(json.dumps(made.to_json()), encoding="utf-8")


def rows_of(markdown):
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_while_there_is_none_it_says_pending_and_nothing_else(tmp_path):
    assert gpu_runs(tmp_path) == "pending"


def test_every_run_in_the_repository_can_be_shown():
    assert gpu_runs(RUNS)


def test_a_note_beside_the_runs_is_not_a_run(tmp_path):
    (tmp_path / "README.md").write_text("# Notes\n")
    assert gpu_runs(tmp_path) == "pending"


def test_a_run_has_a_row_for_each_way_of_recomputing(tmp_path):
    contribute(tmp_path, "a.json", record(more_bytes=10**8))
    head, _, *rows = rows_of(gpu_runs(tmp_path))[:5]
    assert head[2:] == ["Recomputed", "Predicted", "Allocated", "Error"]
    assert [row[2] for row in rows] == ["none", "selective", "full"]
    for row, run in zip(rows, Plan.of().runs, strict=True):
        peak = peak_bytes(run)
        assert row[3:5] == [show_bytes(peak, digits=2), show_bytes(peak + 10**8, digits=2)]
        assert float(row[5].removesuffix(" %").replace("−", "-")) == pytest.approx(
            -100 * 10**8 / (peak + 10**8), abs=0.05
        )


def test_it_also_has_its_moments_to_unfold(tmp_path):
    contribute(tmp_path, "a.json", record(recompute=["none"]))
    markdown = gpu_runs(tmp_path)
    assert '<details class="gpu-run" markdown="1">' in markdown
    assert "| after the forward pass | 7.28 GB | 7.28 GB | ±0.0 % |" in markdown
    assert "Reserved at most 7.36 GB, outside the allocator 500.0 MB" in markdown
    assert "PyTorch 2.13.0, CUDA 12.4, driver 550.54.15, Linux x86&#95;64" in markdown


def test_the_newest_comes_first(tmp_path):
    contribute(tmp_path, "a.json", record(day=date(2026, 1, 1), recompute=["full"]))
    contribute(tmp_path, "b.json", record(day=date(2026, 3, 1), recompute=["full"]))
    markdown = gpu_runs(tmp_path)
    assert 0 < markdown.index("2026-03-01") < markdown.index("2026-01-01")


def test_the_prediction_is_the_calculators_and_not_the_files(tmp_path):
    value = record(recompute=["none"]).to_json()
    honest = gpu_runs_of(tmp_path, value)
    value["measurements"][0]["predicted"] = {"peak_bytes": 1}  # type: ignore[index]  # it is a list
    assert gpu_runs_of(tmp_path, value) == honest


def gpu_runs_of(folder, value):
    (folder / "a.json").write_text(json.dumps(value), encoding="utf-8")
    return gpu_runs(folder)


def test_a_bad_file_stops_the_build_by_its_name_and_fault(tmp_path):
    contribute(tmp_path, "good.json", record())
    bad = record().to_json()
    bad["steps"] = 0
    (tmp_path / "bad.json").write_text(json.dumps(bad), encoding="utf-8")
    (tmp_path / "cut.json").write_text('{"format": 1', encoding="utf-8")
    with pytest.raises(ContentError) as caught:
        gpu_runs(tmp_path)
    said = str(caught.value)
    assert "bad.json: steps: 0 cannot be used" in said
    assert "cut.json: this is not JSON" in said
    assert "good.json" not in said


def test_a_contributors_words_stay_words(tmp_path):
    value = record(recompute=["none"]).to_json()
    value["machine"]["gpu"] = "<b>*x*</b> | [y](z) {{ 1 }}"  # type: ignore[index]  # a dict
    read_record(value)
    shown = gpu_runs_of(tmp_path, value)
    for piece in ("<b>", "*x*", "[y]", "{{"):
        assert piece not in shown
    assert "&#60;b&#62;" in shown
    assert len({len(row) for row in rows_of(shown)[:3]}) == 1  # the bar made no column


def test_the_differences_are_those_of_the_default_run():
    (run,) = Plan.of(recompute=["none"]).runs
    _, _, *rows = rows_of(gpu_differences())
    assert [row[1] for row in rows] == [one.what for one in known(run)]
    assert [row[0].lstrip("+−") for row in rows] == [
        show_bytes(abs(one.bytes)) for one in known(run)
    ]
