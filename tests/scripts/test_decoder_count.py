"""What the trainer keeps: counted, needed or not, and freed."""

from __future__ import annotations

from math import isnan, nan, prod

import pytest

from decoder import DECODER, Decoder, Shape, Tape, count_kept, count_step
from decoder.matrix import count
from training_memory import catalog

INPUTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]]
TARGETS = [[1, 4, 1, 5, 9, 2, 6, 5], [7, 1, 8, 2, 8, 1, 8, 2]]

# The values of one block for one sequence of 8, a line each, as the reference model defines them.
KEPT = {
    "input": 128,
    "norm 1 normalised": 128,
    "norm 1 inverse deviation": 8,
    "norm 1 output": 128,
    "queries": 128,
    "keys": 128,
    "values": 128,
    "scores": 128,
    "weights": 128,
    "context": 128,
    "projection output": 128,
    "residual sum": 128,
    "norm 2 normalised": 128,
    "norm 2 inverse deviation": 8,
    "norm 2 output": 128,
    "FFN pre-activation": 256,
    "FFN activation": 256,
    "FFN output": 128,
}
NOT_READ = {"input", "scores", "projection output", "residual sum", "FFN output"}


def test_parameters_are_those_of_the_catalog() -> None:
    model = Decoder()
    assert model.parameter_count == 5_376
    assert model.parameter_count == catalog.get("decoder").parameters.total


def test_a_block_keeps_2320_values_for_a_sequence() -> None:
    rows = count_kept()
    assert {row.name: row.values for row in rows} == KEPT
    assert sum(row.values for row in rows) == 2_320


@pytest.mark.parametrize("sequences", [1, 3, 16])
def test_the_count_for_a_sequence_is_the_same_in_any_batch(sequences: int) -> None:
    assert count_step(sequences=sequences).block_values == 2_320


def test_counted_values_fill_their_shapes() -> None:
    """The shape is stated when a value is made; the count looks at the numbers themselves."""
    counted = count_step(sequences=2)
    for row in (*counted.block, *counted.head):
        assert row.values == prod(row.shape), row.name


def test_backward_reads_all_but_five_values_and_says_why() -> None:
    rows = count_kept()
    assert {row.name for row in rows if not row.read} == NOT_READ
    assert sum(row.values for row in rows if row.read) == 1_680
    for row in rows:
        assert row.why.startswith("not read: ") is not row.read, row.name


def test_a_value_is_needed_exactly_if_it_is_read() -> None:
    """Each value in turn is overwritten with not-a-number between forward and backward.

    The gradients must be spoilt by those that were counted as read, and by no other.
    """
    clean = _gradients()
    assert not any(map(isnan, clean))
    for row in count_kept():
        for layer in range(1, DECODER.layers + 1):
            spoilt = _gradients(spoil=f"block {layer}/{row.name}")
            if row.read:
                assert any(map(isnan, spoilt)), row.name
            else:
                assert spoilt == clean, row.name


def _gradients(spoil: str | None = None) -> list[float]:
    """Every parameter's gradient in one line, with one kept value lost before the backward pass."""
    model = Decoder(settled=False)
    tape = Tape()
    model.forward(tape, INPUTS, TARGETS)
    if spoil is not None:
        for row in tape.kept[spoil].rows:
            row[:] = [nan] * len(row)
    tape.backward()
    return [x for p in model.parameters.values() for row in p.gradient for x in row]


def test_the_tape_fills_up_and_empties() -> None:
    tape = Tape()
    model = Decoder()
    model.forward(tape, INPUTS, TARGETS)
    held = sum(count(value.rows) for value in tape.kept.values())
    assert tape.timeline[-1].values == held
    tape.backward()
    assert not tape.kept
    assert tape.timeline[-1].values == 0
    assert max(moment.values for moment in tape.timeline) == held
    # Two blocks, and the head's input, logits and probabilities.
    assert held == len(INPUTS) * (2 * 2_320 + 128 + 512 + 512)


def test_the_peak_is_the_turning_point() -> None:
    counted = count_step(sequences=2)
    turning_point = counted.timeline.index(counted.peak)
    assert all(moment.action == "keep" for moment in counted.timeline[: turning_point + 1])
    assert all(moment.action == "free" for moment in counted.timeline[turning_point + 1 :])


def test_states_are_four_values_a_parameter() -> None:
    """At four bytes each these are FP32 Adam's 16 bytes a parameter."""
    states = count_step().states
    assert states == dict.fromkeys(
        ("weights", "gradients", "first moments", "second moments"), 5_376
    )
    assert sum(states.values()) * 4 == 86_016


def test_a_name_is_kept_once() -> None:
    tape = Tape()
    tape.keep("x", (1,), [[1.0]])
    with pytest.raises(ValueError, match="'x' is on the tape already"):
        tape.keep("x", (1,), [[2.0]])


@pytest.mark.parametrize(
    ("field", "shape"),
    [("heads", {"hidden": 16, "heads": 3}), ("layers", {"layers": 0}), ("ffn", {"ffn": -1})],
)
def test_a_shape_that_cannot_be_is_refused(field: str, shape: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        Shape(**shape)
