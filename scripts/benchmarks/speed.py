"""How quick the calculator is, as ratios of medians taken in one run: `make bench` prints them."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

CALCULATOR = Path(__file__).resolve().parents[2] / "calculator"
sys.path.insert(0, str(CALCULATOR))

from training_memory import Run, catalog, estimate  # noqa: E402  # found through the line above

_CLOCK = time.process_time

_EIGHT = {"implementation": "huggingface", "data": 8}
_SPLIT = {"tensor": 2, "pipeline": 2, "data": 2}
#: Steps as libraries run them.
LIBRARIES: Mapping[str, Mapping[str, object]] = {
    "Hugging Face": {"implementation": "huggingface"},
    "torchtitan": {"implementation": "torchtitan"},
    "FSDP1": {**_EIGHT, "zero": 3, "sharding": "fsdp1"},
    "FSDP2": {**_EIGHT, "zero": 3, "sharding": "fsdp2"},
    "DeepSpeed stage 2": {**_EIGHT, "zero": 2, "sharding": "deepspeed"},
    "DeepSpeed stage 3": {**_EIGHT, "zero": 3, "sharding": "deepspeed"},
    "Megatron": {"implementation": "megatron", **_SPLIT},
    "nanotron": {"implementation": "nanotron", **_SPLIT},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two things measured turn by turn: the median of each, in seconds."""

    name: str
    first: str
    second: str
    first_seconds: float
    second_seconds: float

    @property
    def ratio(self) -> float:
        """The second's median over the first's."""
        return self.second_seconds / self.first_seconds

    def __str__(self) -> str:
        return (
            f"{self.name:<44} {self.first:>12} {self.first_seconds * 1e3:9.3f} ms   "
            f"{self.second:>12} {self.second_seconds * 1e3:9.3f} ms   ratio {self.ratio:5.2f}"
        )


def compare(
    name: str,
    first: tuple[str, Callable[[], object]],
    second: tuple[str, Callable[[], object]],
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Medians of ``rounds`` turns taken alternately, so that both meet the same noise.

    What runs in this process alone is best timed by its own ``clock``, ``time.process_time``,
    which stands still while other programs have the processor.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for taken, (_, work) in zip(times, (first, second), strict=True):
            start = clock()
            work()
            taken.append(clock() - start)
    return Comparison(
        name=name,
        first=first[0],
        second=second[0],
        first_seconds=statistics.median(times[0]),
        second_seconds=statistics.median(times[1]),
    )


def _asking(**request: object) -> Callable[[], object]:
    run = Run.from_json(request)
    return lambda: estimate(run)


def flatness(rounds: int = 300) -> Iterator[Comparison]:
    """Measure ``estimate`` over 8 and 800 layers, and over 1, 2 and 4,096 micro-batches.

    From 2 on a step has the further event that gradients are added to, so its tree is larger once.
    """
    for recompute in ("none", "selective", "full"):
        few, many = (_asking(recompute=recompute, shape={"layers": n}) for n in (8, 800))
        name = f"estimate, recompute {recompute}, layers"
        yield compare(name, ("8", few), ("800", many), rounds=rounds, clock=_CLOCK)
    for least in (2, 1):
        few, many = (_asking(recompute="full", micro_batches=n) for n in (least, 4096))
        sides = ((f"{least}", few), ("4,096", many))
        yield compare("estimate, micro-batches", *sides, rounds=rounds, clock=_CLOCK)


def flatness_of_libraries(rounds: int = 31) -> Iterator[Comparison]:
    """The same for steps as libraries run them, on one GPU and on eight."""
    for name, way in LIBRARIES.items():
        few, many = (_asking(**way, micro_batches=8, shape={"layers": n}) for n in (8, 800))
        sides = (("8", few), ("800", many))
        yield compare(f"estimate, {name}, layers", *sides, rounds=rounds, clock=_CLOCK)
        few, many = (_asking(**way, micro_batches=n) for n in (2, 4096))
        sides = (("2", few), ("4,096", many))
        yield compare(f"estimate, {name}, micro-batches", *sides, rounds=rounds, clock=_CLOCK)


def slowest_model(rounds: int = 40) -> tuple[str, float]:
    """The catalog's model whose ``estimate`` has the largest median, and that median in seconds."""
    medians = {}
    for model_id, model in catalog.models().items():
        sequence = min(model.positions or 4096, 4096)
        asked = _asking(model=model_id, sequence=sequence, recompute="full")
        both = compare("", ("", asked), ("", asked), rounds=rounds, clock=_CLOCK)
        medians[model_id] = both.first_seconds
    slowest = max(medians, key=medians.__getitem__)
    return slowest, medians[slowest]


def command_start(rounds: int = 25) -> Comparison:
    """The command line's answer against an interpreter that does nothing."""
    command = [sys.executable, "-m", "training_memory", "estimate", "--model", "llama-7b"]
    # A clean environment but for the path: nothing of a developer's set-up is measured.
    environment = {"PYTHONPATH": str(CALCULATOR)}

    def running(arguments: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run(
            arguments, env=environment, check=True, stdout=subprocess.DEVNULL
        )

    running(command)()  # compiles the modules once, as an installation does
    return compare(
        "command line",
        ("python -c pass", running([sys.executable, "-c", "pass"])),
        ("estimate", running(command)),
        rounds=rounds,
    )


def comparisons() -> Iterator[Comparison]:
    """All of them, each as soon as it is measured."""
    yield from flatness()
    yield from flatness_of_libraries()
    yield command_start()


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    arguments = parser.parse_args()
    rows = []
    for row in comparisons():
        rows.append(row)
        if not arguments.json:
            print(row, flush=True)
    model_id, seconds = slowest_model()
    if arguments.json:
        found = [{**asdict(row), "ratio": row.ratio} for row in rows]
        slowest = {"model": model_id, "seconds": seconds}
        print(json.dumps({"comparisons": found, "slowest": slowest}))
        return
    print(f"slowest model of the catalog: {model_id}, {seconds * 1e3:.3f} ms an estimate")


if __name__ == "__main__":
    main()
