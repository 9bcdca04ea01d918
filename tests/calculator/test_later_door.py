"""What takes longer than an answer: slices of it, whose answer it is, and what is left off."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import later
from training_memory import controls, recording, slices, web
from training_memory.curves import curves
from training_memory.estimate import estimate
from training_memory.render import result
from training_memory.render.advice import advice
from training_memory.render.curve import figures
from training_memory.slices import Slices, finished

TOO_LARGE = "model=llama-7b&sequence=4096&gpu=80gb&implementation=huggingface&recipe=autocast-adam"


class Clock:
    """Time that goes on only while work is done, whatever the machine does meanwhile."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def slowly(self, *seconds: float) -> Iterator[int]:
        """Work whose steps take so long each."""
        for at, one in enumerate(seconds):
            self.seconds += one
            yield at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which slices leave off."""
    clock = Clock()
    monkeypatch.setattr(slices, "perf_counter", clock)
    return clock


def test_slices_come_to_what_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = estimate(controls.read(controls.parse(TOO_LARGE)))
    wanted = {
        "need": result.need(made),
        "verdict": result.verdict(made),
        "advice": advice(made),
        "curves": figures(curves(made.run)),
    }
    for seconds in (0.0, 60.0):
        monkeypatch.setattr(slices, "SECONDS", seconds)
        assert later.whole(TOO_LARGE, "need", "advice", "curves") == wanted


@pytest.mark.thorough
def test_a_slice_leaves_off_long_before_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SECONDS", 0.0)
    monkeypatch.setattr(recording, "_known", {})
    turns = 0
    while not later.ask(turns, state=TOO_LARGE, parts=["need", "advice"])["done"]:
        turns += 1
    assert (
        turns > 1000
    )  # at least one for each node of 32 layers, and for each change that is tried


def test_a_part_comes_as_soon_as_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SECONDS", 0.0)
    order = []
    turn, done = 0, False
    while not done:
        told = later.ask(turn, state=TOO_LARGE, parts=["need", "advice"])
        order += list(told["html"])
        turn, done = turn + 1, told["done"]
    assert order == ["need", "verdict", "advice"]


def test_an_answer_in_between_is_not_kept_waiting_and_spoils_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = later.whole(TOO_LARGE, "advice", "curves")
    monkeypatch.setattr(slices, "SECONDS", 0.0)
    found: dict[str, str] = {}
    turn, done = 0, False
    while not done:
        told = later.ask(turn, state=TOO_LARGE, parts=["advice", "curves"])
        found |= told["html"]
        turn, done = turn + 1, told["done"]
        # Another run is answered in the middle of each; so is another calculator on the page.
        if turn % 20 == 0:
            assert json.loads(web.answer(json.dumps({"state": "model=gpt2&sequence=512"})))["ok"]
            assert later.ask(
                turn, state="model=gpt2&sequence=512", parts=["curves"], prefix="other"
            )["ok"]
    assert found == whole


def test_another_state_begins_anew(clock: Clock) -> None:
    slowly = clock.slowly
    work = Slices()
    assert work.go_on("tm", "one", 0, lambda: slowly(0.1, 0.1)) == ([0], False)
    # The first question was given up; it is not gone on with under the second's name.
    assert work.go_on("tm", "two", 1, lambda: slowly(0.1, 0, 0)) == ([0], False)
    assert work.go_on("tm", "two", 2, lambda: slowly(0.1, 0, 0)) == ([1, 2], True)
    assert work.go_on("tm", "one", 3, lambda: slowly(0.1, 0.1)) == ([0], False)


def test_a_slice_ends_with_the_step_in_which_its_time_is_up(clock: Clock) -> None:
    work = Slices()
    step = slices.SECONDS / 2.5
    assert work.go_on("tm", "x", 0, lambda: clock.slowly(*[step] * 100)) == ([0, 1, 2], False)
    assert clock.seconds == pytest.approx(3 * step)


def test_work_at_once_gives_its_result() -> None:
    def work() -> Iterator[None]:
        yield
        return 5  # type: ignore[return-value]  # a generator's result

    assert finished(work()) == 5  # type: ignore[arg-type]  # as above
