"""The command line answers in less than five times what an interpreter takes to do nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.speed import command_start

ROOT = Path(__file__).parents[2]
MOST = 5
ROUNDS = 4


def test_an_estimate_starts_in_under_five_bare_interpreters():
    # Ratios of medians taken turn by turn; the best of several rounds, since a busy machine can
    # only make a round worse.
    ratios = []
    for _ in range(ROUNDS):
        ratios.append(command_start(rounds=15).ratio)
        if ratios[-1] < MOST:
            return
    pytest.fail(f"an estimate took {ratios} times a bare interpreter, {MOST} are allowed")


@pytest.mark.parametrize("command", ["estimate", "explain", "models", "gpus", "--version"])
def test_nothing_that_is_slow_to_import_is_imported(command):
    slow = {"dataclasses", "inspect", "typing", "fractions", "decimal", "json", "pathlib"}
    slow |= {"difflib", "shutil", "tempfile", "textwrap", "tomllib", "importlib.metadata"}
    program = (
        "import sys; before = set(sys.modules); from training_memory.cli import main; "
        f"main([{command!r}]); print(*(set(sys.modules) - before), file=sys.stderr)"
    )
    # -S: what a site's own start-up files import is not ours.
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(ROOT / "calculator"), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not slow & set(ran.stderr.split())
