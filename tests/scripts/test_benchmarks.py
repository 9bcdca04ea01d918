"""What ``make bench`` makes of its clocks: which way round a ratio is, what is set beside what."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import building, changes, plans, speed, start, tracker
from benchmarks.start import Trace
from training_memory import Run


class Clock:
    """A clock that goes on only when something is worked on."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.done = []
        for name in ("perf_counter", "process_time"):
            monkeypatch.setattr(time, name, lambda: self.now)

    def work(self, name, *seconds):
        """Something that takes so long the first time, the second time, and so on."""
        left = list(seconds)

        def take():
            self.done.append(name)
            self.now += left.pop(0)

        return take


def printed(module, monkeypatch, capsys, *flags):
    """What a benchmark prints."""
    monkeypatch.setattr(sys, "argv", ["benchmark", *flags])
    module.main()
    return capsys.readouterr().out


# The calculator by itself


def test_a_ratio_is_the_seconds_median_over_the_firsts(monkeypatch):
    clock = Clock(monkeypatch)
    works = clock.work("first", 2, 90, 2), clock.work("second", 6, 6, 0)
    sides = ("some", works[0]), ("many", works[1])
    found = speed.compare("a name", *sides, rounds=3, clock=lambda: clock.now)
    assert clock.done == ["first", "second"] * 3
    assert (found.first_seconds, found.second_seconds, found.ratio) == (2, 6, 3)
    told = "a name some 2000.000 ms many 6000.000 ms ratio 3.00"
    assert str(found).split() == told.split()


@pytest.fixture
def compared(monkeypatch):
    """What is compared with what: the name, and both with their labels."""
    found = []

    def compare(name, first, second, *, rounds, clock=time.perf_counter):
        # Another program's time is the wall's; this one's is told apart from what runs beside it.
        assert clock is (time.process_time if name.startswith("estimate") else time.perf_counter)
        found.append((name, first, second))
        return SimpleNamespace(first_seconds=rounds)

    monkeypatch.setattr(speed, "compare", compare)
    return found


def test_few_layers_and_micro_batches_are_set_beside_many(compared, monkeypatch):
    asked: list[Run] = []
    monkeypatch.setattr(speed, "estimate", asked.append)
    list(speed.flatness())
    assert len(compared) == 5
    list(speed.flatness_of_libraries())
    assert len(compared) == 5 + 2 * len(speed.LIBRARIES)
    for name, *sides in compared:
        for label, work in sides:
            work()
            run = asked.pop()
            number = run.model.layers if name.endswith("layers") else run.micro_batches
            assert label == f"{number:,}"
    pairs = {(first[0], second[0]) for _, first, second in compared}
    assert pairs == {("8", "800"), ("2", "4,096"), ("1", "4,096")}


def test_each_library_is_asked_in_its_own_way(compared, monkeypatch):
    asked: list[Run] = []
    monkeypatch.setattr(speed, "estimate", asked.append)
    list(speed.flatness_of_libraries())
    for _, (_, few), (_, many) in compared:
        few()
        many()
    found = {(run.implementation, run.sharding, run.layout.zero, run.layout.gpus) for run in asked}
    assert len(found) == len(speed.LIBRARIES)


def test_the_command_is_set_beside_an_interpreter_that_does_nothing(compared, monkeypatch):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    speed.command_start()
    ((_, first, second),) = compared
    ran.clear()
    first[1]()
    second[1]()
    assert (first[0], second[0]) == ("python -c pass", "estimate")
    assert ran[0] == [sys.executable, "-c", "pass"]
    assert ran[1][:4] == [sys.executable, "-m", "training_memory", "estimate"]


# PyTorch's fake tensors


def test_how_much_sooner_and_smaller_is_theirs_over_ours(monkeypatch, capsys):
    theirs = [(30.0, 4_000_000_000), (20.0, 2_000_000_000), (500.0, 3_000_000_000)]
    ours = [(9.0, 30_000_000), (0.5, 20_000_000), (0.5, 10_000_000)]

    def cost(python, arguments):
        if arguments == tracker.OURS:
            return *ours.pop(0), json.dumps({"peak": {"bytes": 1234}})
        return *theirs.pop(
            0
        ), "the peak of a forward pass 1,000 bytes\na peak of it all 1,234 bytes"

    monkeypatch.setattr(tracker, "missing", lambda python: "")
    monkeypatch.setattr(tracker, "cost", cost)
    told = printed(tracker, monkeypatch, capsys).splitlines()
    assert told[1].split() == ["calculator", "0.50", "s", "20", "MB", "peak", "1,234", "bytes"]
    theirs_told = "fake tensors 30.00 s 3000 MB peak 1,234 bytes"
    assert told[2].split() == theirs_told.split()
    assert told[3] == "  60 times sooner, with 150 times less memory"


def test_a_commands_cost_is_its_own_in_seconds_and_bytes():
    program = "import time; much = b'.' * 10**8; time.sleep(0.2); print(len(much))"
    seconds, memory, said = tracker.cost(sys.executable, ("-c", program))
    assert said == "100000000\n"
    assert seconds >= 0.2
    # Before it is itself, a command counts as what begins it.
    here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert 100_000_000 < memory < 300_000_000 + here
    with pytest.raises(RuntimeError, match="failed"):
        tracker.cost(sys.executable, ("-c", "raise SystemExit(3)"))


def test_where_pytorch_is_missing_it_is_told_how_it_is_got(monkeypatch, capsys):
    monkeypatch.setattr(tracker, "missing", lambda python: "torch is not installed")
    told = printed(tracker, monkeypatch, capsys, "--python", "a-python")
    assert "left out: torch is not installed (a-python)" in told
    assert "`make torch`" in told
    assert "make bench TORCH=/path/to/python" in told
    with pytest.raises(SystemExit, match="`make torch`"):
        printed(tracker, monkeypatch, capsys, "--json")


def test_a_python_that_is_not_there_is_told():
    assert "cannot be started" in tracker.missing("/no/such/python")


# The page's start


def traces(name, *milliseconds):
    return [Trace(stages_ms={"wanted": at / 2, name: at}) for at in milliseconds]


def test_the_starts_ratio_is_the_first_answer_over_the_plain_page(monkeypatch, capsys):
    found = {
        "plain": traces("installed", 2000, 1000, 9000),
        "before": traces("first answer", 1500, 1500, 1500),
        "now": traces("first answer", 600, 500, 8000),
    }
    told = start.report(found, "Chromium 1")
    assert told["ratio"] == 0.3
    assert (told["answered_ms"], told["plain_installed_ms"]) == (600, 2000)
    assert told["rounds"] == 3
    assert told["stages_ms"]["now"] == {"wanted": 300, "first answer": 600}
    monkeypatch.setattr(start, "measure", lambda rounds, say: (found, "Chromium 1"))
    assert (
        "first answer 600 ms, plain page installed 2000 ms: ratio 0.30 (goal 0.35 or less)"
    ) in printed(start, monkeypatch, capsys)


def test_each_start_is_measured_on_its_own_page_and_in_turn(monkeypatch):
    opened: list[Trace] = []
    said: list[str] = []

    def reached(page):
        return Trace(stages_ms={page: 0, "installed": 2000, "first answer": 700})

    @contextmanager
    def served(folder):
        yield "site/" if folder == Path("site") else "plain/"

    @contextmanager
    def browser():
        yield SimpleNamespace(version="12.3")

    def trace(_, address, *, without_memory=False):
        opened.append(reached(f"{address} without_memory={without_memory}"))
        return opened[-1]

    for name, stub in {
        "served": served,
        "opened": browser,
        "trace": trace,
        "make_plain": lambda into: None,
    }.items():
        monkeypatch.setattr(start, name, stub)
    found, name = start.measure(Path("site"), rounds=2, say=said.append)
    assert said == [f"round {turn} of 2: 700 ms, plain page 2000 ms" for turn in (1, 2)]
    assert name == "Chromium 12"
    pages = {
        "plain": "plain/ without_memory=False",
        "before": "site/calculator/ without_memory=True",
        "now": "site/calculator/ without_memory=False",
    }
    expected = {kind: reached(page) for kind, page in pages.items()}
    assert found == {kind: [one] * 2 for kind, one in expected.items()}
    assert opened == [*expected.values()] * 2


# Changes in the page


def test_the_95th_percentile_is_what_95_of_100_do_not_exceed():
    assert changes.percentile([float(value) for value in range(200, 0, -1)], 0.95) == 190
    assert changes.percentile([float(value) for value in range(1, 21)], 0.95) == 19
    assert changes.percentile([7.0], 0.95) == 7


def test_a_changes_two_times_are_told_apart(monkeypatch, capsys):
    found = [{"python_ms": at, "ms": 10 * at} for at in map(float, range(1, 101))]
    figures = changes._figures(found)
    assert figures == {
        "python_median_ms": 50.5,
        "python_95_ms": 95,
        "median_ms": 505,
        "all_95_ms": 950,
    }
    measured = {"way": "paper", "changes": 100, "controls": 9, "answered": 60, "all": figures}
    monkeypatch.setattr(changes, "measure", lambda *_, **__: {**measured, "runs": figures})
    told = printed(changes, monkeypatch, capsys, "--way", "paper")
    assert "paper: 100 changes of 9 controls, 60 of runs that can be" in told
    assert (
        "all changes: Python 50.5 ms, 95th percentile 95.0 ms (goal 16); "
        "input to paint 505.0 ms, 95th percentile 950.0 ms (goal 50)"
    ) in told


# Building the site


def test_a_builds_stages_and_parts_are_read_from_what_it_says(monkeypatch):
    clock = Clock(monkeypatch)
    said = (
        "wheel      unchanged\n  mkdocs   9.8 s\npages      14.9 s\nsite/ is up to date (15.1 s)\n"
    )

    class Command:
        """Takes its time over the last line."""

        returncode = 0

        def __init__(self, *_, **__):
            self.stdout = self.lines()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def lines(self):
            yield from said.splitlines(keepends=True)
            told.append("the end")
            clock.now += 15.5

    told: list[str] = []
    monkeypatch.setattr(subprocess, "Popen", Command)
    built = building.build(Path(), "a page changed", told.append)
    assert (built.name, built.seconds) == ("a page changed", 15.5)
    assert built.stages == {"  mkdocs": 9.8, "pages": 14.9}
    # Each stage is told when it is over, not when all are.
    parts = ["    mkdocs   9.8 s", "  pages      14.9 s"]
    assert told == ["a page changed", *parts, "the end", "  in all     15.5 s"]
    said = "pages      unchanged\n"
    told.clear()
    assert building.build(Path(), "nothing changed", told.append).stages == {}
    assert told[-1] == "  in all     15.5 s, no stage ran"


def test_a_build_that_fails_is_not_timed(monkeypatch, tmp_path):
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "make_site.py").write_text("raise SystemExit(3)")
    with pytest.raises(subprocess.CalledProcessError):
        building.build(tmp_path, "from nothing", print)
    monkeypatch.setattr(building, "measure", lambda say: building.build(tmp_path, "it", say))
    monkeypatch.setattr(sys, "argv", ["building.py"])
    with pytest.raises(SystemExit, match="`make site`"):
        building.main()


def test_sources_are_copied_and_nothing_that_was_made_of_them(tmp_path):
    there = {"docs/a.md", "build/b.py", "node_modules/c.js", "site/d.html", ".venv/e", "Makefile"}
    for name in there:
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_text(name)
    building.copy_of(tmp_path / "from", tmp_path / "to")
    copied = {str(file.relative_to(tmp_path / "to")) for file in (tmp_path / "to").rglob("*")}
    assert copied == {"docs", "docs/a.md", "build", "build/b.py", "Makefile", "node_modules"}
    assert (tmp_path / "to" / "node_modules" / "c.js").read_text() == "node_modules/c.js"


def test_each_build_follows_the_change_it_is_named_for(monkeypatch, capsys):
    files = {
        "docs/papers.md": "a page changed",
        "calculator/web/near.js": "a script changed",
        "calculator/training_memory/units.py": "the calculator changed",
    }

    def copy_of(root, into):
        for name in files:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (into / name).write_text("")

    seen = {}

    def build(root, name, say):
        seen[name] = {file for file in files if (root / file).read_text()}
        say(f"{name} is built")
        return building.Build(name=name, seconds=1.5, stages={"pages": 1.25} if seen[name] else {})

    monkeypatch.setattr(building, "copy_of", copy_of)
    monkeypatch.setattr(building, "build", build)
    told = printed(building, monkeypatch, capsys).splitlines()
    changed: set[str] = set()
    assert list(seen) == ["from nothing", "nothing changed", *files.values()]
    for name, now in seen.items():
        assert {files[file] for file in now - changed} == {name} & set(files.values())
        changed |= now
    assert told == [f"{name} is built" for name in seen]
    (kept,) = map(json.loads, printed(building, monkeypatch, capsys, "--json").splitlines())
    assert [one["name"] for one in kept] == list(seen)


# Plans


def test_plans_a_second_are_plans_over_seconds(monkeypatch, capsys):
    monkeypatch.setattr(plans, "cold", lambda *_: (3000, 70, 1.5))
    monkeypatch.setattr(plans, "in_page", lambda: [(2.0, 4.0)] * len(plans.SEARCHES))
    told = printed(plans, monkeypatch, capsys, "--page").splitlines()
    assert len(told) == len(plans.SEARCHES)
    assert "3,000 plans, 2,000 a second (goal 1,000)" in told[0]
    assert "in the page 2.0 s (goal 3), 1,500 a second, all of the answer 4.0 s" in told[0]
