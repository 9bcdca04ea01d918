"""The page on how Python starts: what it shows is what was recorded."""

import json

import pytest

from benchmarks.start import GOAL
from content import ContentError
from start_page import RECORD, STAGES, STARTS, read, start_measured, start_trace


def test_the_table_shows_the_recorded_times():
    found = read()
    table = start_trace()
    assert set(found["stages_ms"]) == set(STARTS)
    for words in STARTS.values():
        assert words in table
    for kind in STARTS:
        assert f"{found['stages_ms'][kind]['first answer']:,.0f}" in table
    assert table.count("\n") <= len(STAGES) + 1


def test_the_ratio_is_that_of_the_recorded_times():
    found = read()
    now, plain = found["stages_ms"]["now"], found["stages_ms"]["plain"]
    assert found["rounds"] >= 7
    assert found["ratio"] <= GOAL
    assert found["ratio"] == pytest.approx(now["first answer"] / plain["installed"], abs=0.001)
    assert f"{found['ratio']:.2f}" in start_measured()


def test_stages_that_a_start_does_not_reach_are_left_empty(tmp_path):
    record = tmp_path / "start.json"
    record.write_text(
        json.dumps({"stages_ms": {"plain": {"installed": 1234.5}, "before": {}, "now": {}}})
    )
    assert start_trace(record).splitlines()[2:] == [f"| {STAGES['installed']} | 1,234 |  |  |"]


def test_without_a_record_the_build_stops_and_says_what_makes_one(tmp_path):
    with pytest.raises(ContentError, match="--record"):
        start_trace(tmp_path / RECORD.name)
