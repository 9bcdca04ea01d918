"""The same step with real numbers on the CPU, counted twice: by our tracker and by the allocator.

PyTorch's profiler sees every request to the CPU's allocator, also those inside operations. A CPU's
kernels are not a GPU's, so this says nothing of CUDA; it shows that fake tensors live and die as
real ones do, and that the tracker misses nothing that outlives an operation.
"""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from . import step as steps
from .backend import torch
from .case import Case

LLAMA = (
    ("layers", 3),
    ("hidden", 256),
    ("heads", 4),
    ("ffn", 688),
    ("vocabulary", 2048),
)
GPT = (("layers", 3), ("hidden", 256), ("heads", 4), ("vocabulary", 2048))
MODELS = (
    ("llama-7b", (*LLAMA, ("kv_heads", 4)), "flash"),
    ("llama-7b", (*LLAMA, ("kv_heads", 1)), "eager"),
    ("gpt2", GPT, "eager"),
)
OPTIMIZERS = {"none": "adamw-foreach", "full": "adamw-forloop"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One phase's peak by three ways of counting, in bytes."""

    phase: str
    fake: int
    real: int
    allocator: int


def real_cases() -> Iterator[Case]:
    """Small steps that a CPU takes in seconds."""
    precisions = ("fp32", "bf16", "autocast", "master", "master-fp32-grad")
    for (model, shape, attention), precision, recompute in product(
        MODELS, precisions, ("none", "full", "selective", "matmuls")
    ):
        yield Case(
            model=model,
            shape=shape,
            micro_batch=2,
            sequence=256,
            precision=precision,
            attention=attention,
            recompute=recompute,
            optimizer=OPTIMIZERS.get(recompute, "adamw-foreach"),
            clip=recompute == "none",
        )


def compare(case: Case) -> list[Agreement]:
    """Run the case three times on the CPU: fake and real under the tracker, real without it."""
    fake = steps.trace(case, device="cpu", rounding=1)
    real = steps.trace(case, device="cpu", rounding=1, fake=False)
    allocated = allocator_peaks(case)
    return [
        Agreement(
            phase=phase,
            fake=fake.peaks[phase].bytes,
            real=real.peaks[phase].bytes,
            allocator=allocated[phase],
        )
        for phase in fake.peaks
    ]


def allocator_peaks(case: Case) -> dict[str, int]:
    """The largest number of bytes that the CPU's allocator had given out in each phase."""
    profiler: Any = import_module("torch.profiler")
    for _ in range(3):
        gc.collect()
    marks: list[Any] = []

    def begin(phase: str) -> None:
        if marks:
            marks.pop().__exit__(None, None, None)
        marks.append(profiler.record_function(f"phase {phase}"))
        marks[-1].__enter__()

    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        torch.manual_seed(0)
        step = steps.Step(case, device="cpu")
        steps.run(step, begin)
        marks.pop().__exit__(None, None, None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return _peaks(events)


def _peaks(events: list[dict[str, Any]]) -> dict[str, int]:
    memory = sorted(
        (
            (event["ts"], event["args"]["Total Allocated"], event["args"]["Bytes"])
            for event in events
            if event.get("name") == "[memory]" and event["args"]["Device Type"] == 0
        ),
        key=lambda found: found[0],
    )
    # The profiler counts from the start of the process; what was there before is not the step's.
    before = memory[0][1] - memory[0][2]
    peaks: dict[str, int] = {}
    for event in events:
        name = str(event.get("name", ""))
        if not name.startswith("phase ") or event.get("ph") != "X":
            continue
        start, end = event["ts"], event["ts"] + event["dur"]
        totals = [total - before for at, total, _ in memory if start <= at <= end]
        held = [total - before for at, total, _ in memory if at < start][-1:]
        phase = name.removeprefix("phase ")
        peaks[phase] = max(totals + held + [peaks.get(phase, 0)])
    return peaks
