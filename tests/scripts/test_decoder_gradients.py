"""The trainer's gradients: beside numerical derivatives, beside PyTorch, broken on purpose."""

from __future__ import annotations

import importlib.util

import pytest

from decoder import DECODER, Decoder, Shape, Tape, gradient_check, gradient_checks, operations

SMALL = Shape(layers=1, hidden=4, heads=2, ffn=6, sequence=3)

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)


@pytest.mark.thorough
def test_every_tensor_agrees_with_numerical_derivatives() -> None:
    checked = gradient_check(elements=4)
    assert [row.tensor for row in checked] == list(Decoder().parameters)
    for row in checked:
        assert row.elements == (row.values if len(row.shape) == 1 else 4), row.tensor
        assert row.max_relative_error < 1e-7, row
        assert row.direction_relative_error < 1e-7, row


def test_every_element_agrees_in_a_smaller_decoder() -> None:
    checked = gradient_check(elements=None, shape=SMALL, sequences=2, seed=1)
    assert sum(row.elements for row in checked) == Decoder(SMALL).parameter_count
    assert max(row.max_relative_error for row in checked) < 1e-6


def test_a_tensor_is_checked_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    forwards = 0
    forward = Decoder.forward

    def counted(model: Decoder, *rest: object) -> float:
        nonlocal forwards
        forwards += 1
        return forward(model, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Decoder, "forward", counted)
    checks = gradient_checks(elements=1, shape=SMALL)
    assert forwards == 0
    names = []
    for row in checks:
        names.append(row.tensor)
        # One pass for the gradients, then four for each element and for the random direction.
        assert forwards == 1 + 4 * (row.elements + 1)
        forwards = 1
    assert names == list(Decoder(SMALL).parameters)


def test_the_check_leaves_the_parameters_as_they_were() -> None:
    model = Decoder(SMALL, settled=False)
    before = {name: [list(row) for row in p.rows] for name, p in model.parameters.items()}
    gradient_check(elements=1, model=model)
    assert {name: p.rows for name, p in model.parameters.items()} == before


@pytest.mark.parametrize(
    ("helper", "replacement"),
    [
        # A GELU whose slope forgets how the distribution changes.
        ("_normal_density", lambda x: 0.0),
        # Attention going back with the queries in reverse; the linear layers do not notice.
        ("columns", lambda a: [list(c) for c in zip(*reversed(a), strict=True)]),
    ],
)
def test_the_check_finds_a_wrong_backward_pass(
    monkeypatch: pytest.MonkeyPatch, helper: str, replacement: object
) -> None:
    monkeypatch.setattr(operations, helper, replacement)
    errors = [row.max_relative_error for row in gradient_check(elements=2, shape=SMALL)]
    assert max(errors) > 1e-2


def test_gradients_add_up_over_a_batch() -> None:
    """The gradient for two sequences is the mean of the gradients for each."""
    model = Decoder(settled=False)
    lines = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]]
    targets = [[1, 4, 1, 5, 9, 2, 6, 5], [7, 1, 8, 2, 8, 1, 8, 2]]
    single = []
    losses = []
    for line, target in zip(lines, targets, strict=True):
        losses.append(model.gradients([line], [target]))
        single.append({name: p.gradient for name, p in model.parameters.items()})
    assert model.gradients(lines, targets) == pytest.approx(sum(losses) / 2, rel=1e-12)
    for name, parameter in model.parameters.items():
        for row, one, two in zip(parameter.gradient, single[0][name], single[1][name], strict=True):
            mean = [(x + y) / 2 for x, y in zip(one, two, strict=True)]
            assert row == pytest.approx(mean, rel=1e-9, abs=1e-15), name


def test_no_token_sees_what_comes_after_it() -> None:
    """Changing the last token leaves the loss of the tokens before it as it was."""
    model = Decoder(settled=False)
    line, other = [3, 1, 4, 1, 5, 9, 2, 6], [3, 1, 4, 1, 5, 9, 2, 7]
    logits = []
    for tokens in (line, other):
        tape = Tape()
        model.forward(tape, [tokens], [tokens])
        logits.append(tape.rows("head/logits"))
    assert logits[0][:-1] == logits[1][:-1]
    assert logits[0][-1] != logits[1][-1]
    assert len(logits[0]) == DECODER.sequence


@needs_torch
def test_pytorch_finds_the_same_loss_and_gradients() -> None:
    from decoder.check_against_torch import check

    found = check(sequences=4)
    assert [row.name for row in found] == ["loss", *Decoder().parameters]
    for row in found:
        assert row.agrees, row
