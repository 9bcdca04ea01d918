"""The same question asked of the calculator and of PyTorch's fake tensors: ``make bench``.

Each is a command of its own, from its start to its last line: how long it takes, and how much
memory it has at most. PyTorch runs the step on tensors that hold no data, as ``scripts/measure/``
does (see the README there); it may be in another environment: ``--python /path/to/python``, or
``make bench TORCH=/path/to/python``. ``make torch`` makes one that is found by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CALCULATOR, SCRIPTS = ROOT / "calculator", ROOT / "scripts"

MODEL, SEQUENCE = "llama-7b", 4096
QUESTION = f"{MODEL}, {SEQUENCE:,} tokens, Hugging Face under autocast, every layer recomputed"
ASKED = ("--model", MODEL, "--sequence", str(SEQUENCE), "--recompute", "full")
OURS = (
    *("-m", "training_memory", "estimate", *ASKED),
    *("--implementation", "huggingface", "--recipe", "autocast-adam"),
    *("--optimizer-kernel", "foreach", "--json"),
)
THEIRS = ("-m", "measure.trace", *ASKED, "--precision", "autocast", "--optimizer", "adamw-foreach")

REMEDY = (
    "`make torch` installs PyTorch and what else it takes (some GB) where `make bench` finds it;\n"
    "or name a Python that has them: make bench TORCH=/path/to/python"
)

_PEAK = re.compile(r"peak of .*? ([\d,]+) bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a command took: seconds, the most bytes it had, and the step's peak that it found."""

    seconds: float
    memory_bytes: int
    peak_bytes: int


def missing(python: str) -> str:
    """What the tracker needs and ``python`` lacks, or the empty text."""
    asked = "from measure import fake_cuda; print(fake_cuda.missing())"
    try:
        done = subprocess.run(
            [python, "-c", asked], env=_environment(), capture_output=True, text=True, check=False
        )
    except OSError as error:
        return f"it cannot be started, {error.strerror}"
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()[-200:]


def _environment() -> Mapping[str, str]:
    """Nothing of a developer's set-up but the way to programs, and one thread for both."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": f"{CALCULATOR}{os.pathsep}{SCRIPTS}",
        "OMP_NUM_THREADS": "1",
    }


def cost(python: str, arguments: tuple[str, ...]) -> tuple[float, int, str]:
    """Seconds, the most memory in bytes, and what was printed. Raises ``RuntimeError``."""
    start = time.perf_counter()
    with subprocess.Popen(
        [python, *arguments],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        assert running.stdout is not None
        said = running.stdout.read()
        # Of this child alone; the system adds up children that were waited for in another way.
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed ({running.returncode}): {said[-500:]}")
    scale = 1 if sys.platform == "darwin" else 1024
    return time.perf_counter() - start, used.ru_maxrss * scale, said


def ask(python: str, rounds: int) -> tuple[Cost, Cost]:
    """The calculator's and the tracker's medians, asked in turn."""
    ours: list[Cost] = []
    theirs: list[Cost] = []
    for _ in range(rounds):
        seconds, memory, said = cost(sys.executable, OURS)
        peak = json.loads(said)["peak"]["bytes"]
        ours.append(Cost(seconds=seconds, memory_bytes=memory, peak_bytes=peak))
        seconds, memory, said = cost(python, THEIRS)
        peak = max(int(size.replace(",", "")) for size in _PEAK.findall(said))
        theirs.append(Cost(seconds=seconds, memory_bytes=memory, peak_bytes=peak))
    return _median(ours), _median(theirs)


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        seconds=statistics.median(one.seconds for one in costs),
        memory_bytes=int(statistics.median(one.memory_bytes for one in costs)),
        peak_bytes=costs[0].peak_bytes,
    )


def main() -> None:
    """Print every figure, or why there is none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    if why := missing(options.python):
        told = f"PyTorch's fake tensors are left out: {why} ({options.python}).\n{REMEDY}"
        if options.json:
            sys.exit(told)
        print(told)
        return
    ours, theirs = ask(options.python, options.rounds)
    if options.json:
        print(json.dumps({"calculator": asdict(ours), "tracker": asdict(theirs)}))
        return
    print(QUESTION)
    for name, one in (("calculator", ours), ("fake tensors", theirs)):
        print(
            f"  {name:<14} {one.seconds:8.2f} s   {one.memory_bytes / 1e6:8.0f} MB   "
            f"peak {one.peak_bytes:,} bytes"
        )
    print(
        f"  {theirs.seconds / ours.seconds:.0f} times sooner, with "
        f"{theirs.memory_bytes / ours.memory_bytes:.0f} times less memory"
    )


if __name__ == "__main__":
    main()
