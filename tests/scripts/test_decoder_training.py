"""The trainer trains, the same way every time; its Adam is the paper's; its report prints."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log, sqrt

import pytest

from decoder import Shape, losses, train
from decoder.__main__ import main
from decoder.adam import Adam
from decoder.data import ALPHABET, TEXT, decode, encode
from decoder.parameter import Parameter
from decoder.report import as_text, make_report


def test_the_loss_falls() -> None:
    losses = train(30)
    assert losses[0] == pytest.approx(log(len(ALPHABET)), abs=0.3)  # knows nothing yet
    assert sum(losses[-5:]) / 5 < losses[0] - 1.0


def test_the_same_seed_gives_the_same_losses_and_each_is_told() -> None:
    told: list[tuple[int, float]] = []
    losses = train(3, lambda step, loss: told.append((step, loss)), sequences=4, seed=7)
    assert told == list(enumerate(losses, start=1))
    assert losses == train(3, sequences=4, seed=7)
    assert losses != train(3, sequences=4, seed=8)


def test_losses_can_be_asked_for_one_by_one() -> None:
    one_by_one = losses(sequences=2, seed=3)
    assert [next(one_by_one) for _ in range(3)] == train(3, sequences=2, seed=3)
    with pytest.raises(ValueError, match=r"^vocabulary: 63 cannot be used"):
        losses(shape=Shape(vocabulary=63))


def test_a_vocabulary_too_small_for_the_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^vocabulary: 63 cannot be used"):
        train(1, shape=Shape(vocabulary=63))


def test_adam_by_hand() -> None:
    """Two steps of Algorithm 1 written out for one number."""
    parameter = Parameter("x", [[1.0]])
    adam = Adam([parameter], rate=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8)
    parameter.gradient = [[2.0]]
    adam.step()
    # m̂ = 2 and v̂ = 4: the first step is the rate, whatever the gradient's size.
    first = 1.0 - 0.1 * 2.0 / (2.0 + 1e-8)
    assert parameter.rows[0][0] == pytest.approx(first, rel=1e-14)
    parameter.gradient = [[-1.0]]
    adam.step()
    m = (0.9 * 0.2 - 0.1) / (1 - 0.81)
    v = (0.99 * 0.04 + 0.01) / (1 - 0.9801)
    assert parameter.rows[0][0] == pytest.approx(first - 0.1 * m / (sqrt(v) + 1e-8), rel=1e-12)


def test_the_alphabet_is_the_vocabulary_and_the_text_survives_it() -> None:
    assert len(ALPHABET) == len(set(ALPHABET)) == 64
    assert decode(encode(TEXT)) == TEXT
    with pytest.raises(ValueError, match=r"^'é' is not one of the Decoder's 64 characters$"):
        encode("é")


@pytest.mark.thorough
def test_the_report_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--steps", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["parameters"] == 5_376
    assert report["block"]["values"] == sum(row["values"] for row in report["block"]["rows"])
    assert report["comparison"]["difference"] == sum(report["comparison"]["by_cause"].values())
    assert report["step"]["timeline"][-1]["values"] == 0
    assert len(report["losses"]) == 2
    assert len(report["gradients"]) == 22


def test_the_report_as_tables() -> None:
    report = make_report(steps=2, elements=1)
    printed = as_text(report)
    (total,) = (line for line in printed.splitlines() if line.startswith("total"))
    assert total.split() == ["total", "2,320", "2,496", "−176"]
    (block,) = (line for line in printed.splitlines() if line.startswith("one block"))
    assert block.split()[-1] == "2,320"
    assert "block 2/FFN out weight" in printed
    assert "Training: 2 steps" in printed
    assert "Training: no steps" in as_text(replace(report, losses=()))


def test_a_negative_number_of_steps_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--steps", "-1"])
    assert "-1 cannot be used; give 0 or more" in capsys.readouterr().err
