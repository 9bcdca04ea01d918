"""The trainer's count beside the textbook's ledger, row by row."""

from __future__ import annotations

from collections import Counter

import pytest

from decoder import Cause, Shape, compare, count_kept
from training_memory.blocks.ledger import Row
from training_memory.blocks.paper import LAYER


def test_the_totals_and_their_difference() -> None:
    comparison = compare(LAYER.rows)
    assert comparison.counted_values == 2_320
    assert comparison.textbook_values == 2_496
    assert comparison.difference == -176
    assert LAYER.kept_bytes().evaluate({"s": 8, "b": 1, "h": 16, "a": 2}) == 2 * 2_496


def test_every_row_of_both_ledgers_is_there_once() -> None:
    pairs = compare(LAYER.rows).pairs
    counted = Counter(pair.counted for pair in pairs if pair.counted is not None)
    textbook = Counter(pair.textbook for pair in pairs if pair.textbook is not None)
    assert counted == Counter(row.name for row in count_kept())
    assert textbook == Counter(row.name for row in LAYER.rows)
    assert all(pair.reason.endswith(".") for pair in pairs)


def test_the_causes_add_up() -> None:
    comparison = compare(LAYER.rows)
    assert comparison.by_cause == {
        Cause.SAME: 0,
        Cause.WIDTH: -512,
        Cause.DROPOUT: -320,
        Cause.NORM: 272,
        Cause.PRODUCED: 384,
    }
    assert sum(comparison.by_cause.values()) == comparison.difference


def test_rows_said_to_be_the_same_are() -> None:
    for shape in (Shape(), Shape(hidden=8, heads=4, ffn=24, sequence=6, layers=1)):
        for pair in compare(LAYER.rows, shape=shape).pairs:
            if pair.cause is Cause.SAME:
                assert pair.difference == 0, pair
            assert (pair.counted is None) is (pair.counted_values == 0)
            assert (pair.textbook is None) is (pair.textbook_values == 0)


def test_what_the_tape_keeps_for_nothing_is_what_backward_does_not_read() -> None:
    unread = {row.name for row in count_kept() if not row.read}
    produced = {pair.counted for pair in compare(LAYER.rows).pairs if pair.cause is Cause.PRODUCED}
    # The two that are unread but not superfluous: a norm can start from its input instead.
    assert unread - produced == {"input", "residual sum"}
    assert produced <= unread


def test_a_wide_ffn_leaves_only_dropout_and_the_tape() -> None:
    comparison = compare(LAYER.rows, shape=Shape(ffn=64))
    assert comparison.by_cause[Cause.WIDTH] == 0
    assert comparison.difference == -320 + 272 + 384


@pytest.mark.parametrize("removed", [LAYER.rows[0].name, LAYER.rows[-1].name])
def test_a_missing_row_is_named(removed: str) -> None:
    rows = [row for row in LAYER.rows if row.name != removed]
    with pytest.raises(ValueError, match=f"lacks rows that are compared: {removed}"):
        compare(rows)


def test_an_unknown_row_is_named() -> None:
    first = LAYER.rows[0]
    extra = Row(
        name="something new",
        module=first.module,
        shape=first.shape,
        item_bytes=2,
        split=first.split,
        part=first.part,
        why=first.why,
        where=first.where,
    )
    with pytest.raises(ValueError, match="nothing is paired with: something new"):
        compare([*LAYER.rows, extra])


def test_half_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="an odd number of bytes"):
        compare(LAYER.rows, shape=Shape(layers=1, hidden=3, heads=1, ffn=6, sequence=3))
