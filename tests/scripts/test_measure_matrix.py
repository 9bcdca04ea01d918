"""Which steps are traced: every pair of choices, in an order that never changes."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from measure import blocks, matrix
from measure.case import Case
from training_memory import catalog


@pytest.fixture(scope="module")
def rows():
    return matrix.rows()


def test_every_pair_of_choices_is_in_a_row(rows):
    missing = []
    for (first, firsts), (second, seconds) in combinations(matrix.FACTORS.items(), 2):
        met = {(row[first], row[second]) for row in rows}
        missing += [
            (first, a, second, b)
            for a, b in product(firsts, seconds)
            if (a, b) not in met and matrix.allowed({first: a, second: b})
        ]
    assert missing == []


@pytest.mark.parametrize("names", matrix.TRIPLES, ids=" ".join)
def test_every_three_that_meet_often_are_in_a_row(rows, names):
    met = {tuple(row[name] for name in names) for row in rows}
    wanted = {
        choices
        for choices in product(*(matrix.FACTORS[name] for name in names))
        if matrix.allowed(dict(zip(names, choices, strict=True)))
    }
    assert wanted <= met


def test_what_cannot_go_together_is_in_no_row(rows):
    assert all(matrix.allowed(row) for row in rows)
    assert not any(row["model"] == "gemma-2-2b" and row["attention"] == "flash" for row in rows)


def test_no_row_is_there_twice_and_the_order_is_fixed(rows):
    assert len({tuple(row.items()) for row in rows}) == len(rows) >= 160
    assert matrix.rows() == rows
    assert rows[: len(matrix.chosen())] == matrix.chosen()


def test_models_span_from_124_million_to_8_billion():
    sizes = {
        case.model: catalog.get(case.model).parameters.total for case in matrix.MODELS.values()
    }
    assert len(sizes) >= 6
    assert min(sizes.values()) == 124_439_808
    assert 8e9 < max(sizes.values()) < 9e9


def test_a_case_survives_its_row():
    for case in (*matrix.cases(), *(case for _, _, case in blocks.block_cases())):
        assert Case.from_row(case.to_row()) == case


@pytest.mark.parametrize(
    ("field", "value"),
    [("precision", "fp8"), ("attention", "flashy"), ("optimizer", "adam"), ("loss", "none")],
)
def test_an_unknown_choice_is_refused_with_its_name(field, value):
    with pytest.raises(ValueError, match=f"{field} '{value}': allowed: "):
        Case(model="gpt2", micro_batch=1, sequence=8, **{field: value})


def test_logits_that_never_exist_cannot_be_held():
    with pytest.raises(ValueError, match="hold_logits"):
        Case(model="gpt2", micro_batch=1, sequence=8, loss="chunked", hold_logits=True)


def test_block_sizes_tell_symbols_apart():
    for size in blocks.SIZES.values():
        numbers = [size[name] for name in ("sequence", "hidden", "ffn", "head_dim", "heads")]
        assert len(set(numbers)) == len(numbers)
    first, second, third = blocks.SIZES.values()
    assert first["heads"] // first["kv_heads"] != second["heads"] // second["kv_heads"] > 1
    assert third["heads"] == third["kv_heads"]
