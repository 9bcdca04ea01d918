"""Plans in the prose: what a page can ask of the cheapest plan of a run, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from training_memory.estimate import estimate
from training_memory.fit import Fit, fitting
from training_memory.gpus import Gpu
from training_memory.moves import words
from training_memory.run import Run
from training_memory.spelling import spellings


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The answer of ``training-memory fit`` as prose asks for it.

    ``peak`` is the run's own and ``planned_peak`` the plan's; ``steps`` says the plan in words and
    ``lines`` how each library writes it. ``tokens_per_second`` is each GPU's at best.
    """

    gpus: int
    batch: int
    tried: int
    peak: int
    planned_peak: int
    steps: tuple[str, ...]
    lines: Mapping[str, str]
    tokens_per_second: int
    fewest: int
    longest: int
    largest: int
    gpu: Gpu


def plan(model: str, *, gpus: int, batch: int, **run: object) -> Planned:
    """The cheapest plan: ``plan("llama-2-70b", gpus=64, batch=1024, gpu="h100-80gb")``.

    Raises the calculator's ``InputErrors`` for a field that cannot be, and ``ValueError`` where no
    plan fits: a page that says one does would be wrong.
    """
    return _plan(model, gpus, batch, tuple(sorted(run.items())))


@lru_cache(maxsize=8)
def _plan(model: str, gpus: int, batch: int, run: tuple[tuple[str, object], ...]) -> Planned:
    before = estimate(Run.from_json({"model": model, **dict(run)}))
    *_, fit = fitting(before, gpus=gpus, batch=batch)
    assert isinstance(fit, Fit)
    found = fit.found
    limits = (found.fewest, found.longest, found.largest)
    if found.plan is None or before.run.gpu is None or None in limits:
        raise ValueError(f"no plan fits {model} on {gpus} GPUs with {batch} sequences a step")
    chosen = found.plan
    return Planned(
        gpus=gpus,
        batch=batch,
        tried=found.tried,
        peak=before.worst.peak_bytes,
        planned_peak=chosen.peak_bytes,
        steps=words(before.run, chosen.run),
        lines={one.library: "\n".join(one.lines) for one in spellings(chosen.fields, chosen.run)},
        tokens_per_second=round(chosen.cost.tokens_per_second / gpus),
        fewest=found.fewest or 0,
        longest=found.longest or 0,
        largest=found.largest or 0,
        gpu=before.run.gpu,
    )
