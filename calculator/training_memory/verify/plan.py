"""What a check runs: one run for each way of recomputing, and with how many layers it would fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from .. import catalog
from ..blocks.ledger import TEXTBOOK, Recompute
from ..errors import InputError, InputErrors
from ..estimate import estimate
from ..model import Model
from ..records import dataclass
from ..run import Run
from ..units import parse_count

#: A 12-layer GPT whose layer is the textbook's, small enough for most GPUs.
DEFAULT_MODEL = "gpt2"
DEFAULT_SEQUENCE = 1024
DEFAULT_MICRO_BATCH = 4
DEFAULT_STEPS = 3
MOST_STEPS = 1000


def dropout_of(model: Model) -> float:
    """The share that dropout drops: as GPT-2 was trained; later families train without."""
    return 0.1 if model.family == "gpt" else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The runs of a check, alike but for what they recompute, and how many steps of each."""

    runs: tuple[Run, ...]
    steps: int

    @classmethod
    def of(
        cls,
        *,
        model: object = DEFAULT_MODEL,
        layers: object = None,
        sequence: object = DEFAULT_SEQUENCE,
        micro_batch: object = DEFAULT_MICRO_BATCH,
        recompute: Sequence[object] = TEXTBOOK,
        steps: object = DEFAULT_STEPS,
    ) -> Plan:
        """The plan for these values, as a person gives them.

        Raises :class:`InputErrors` with every value that cannot be.
        """
        errors: list[InputError] = []
        runs: dict[Recompute, Run] = {}
        shape = {} if layers is None else _fewer_layers(model, layers)
        for policy in recompute:
            request: Mapping[str, object] = {
                "model": model,
                "shape": shape,
                "sequence": sequence,
                "micro_batch": micro_batch,
                "recipe": "mixed-adam",
                "recompute": policy,
                "gpu": None,
            }
            if policy not in TEXTBOOK:
                errors.append(InputError.unknown_name("recompute", policy, TEXTBOOK))
                continue
            try:
                run = Run.from_json(request)
            except InputErrors as found:
                known = {error.message for error in errors}
                errors += [error for error in found.errors if error.message not in known]
            else:
                runs.setdefault(run.recompute, run)
        if not recompute:
            errors.append(
                InputError("recompute", [], "allowed: one or more of none, selective, full")
            )
        count = 0
        try:
            count = parse_count("steps", steps, most=MOST_STEPS)
        except InputError as error:
            errors.append(error)
        if errors:
            raise InputErrors(errors)
        return cls(runs=tuple(runs.values()), steps=count)

    @property
    def run(self) -> Run:
        """The first of the runs: they share everything but their recomputation."""
        return self.runs[0]

    @property
    def largest_bytes(self) -> int:
        """The highest peak predicted for any of the runs."""
        return max(peak_bytes(run) for run in self.runs)


def peak_bytes(run: Run) -> int:
    """The peak that the calculator predicts for a run on one GPU."""
    return estimate(run).worst.peak_bytes


def most_layers(run: Run, room_bytes: int) -> int:
    """With how many layers, of those it has, the run is predicted to fit; 0 if with none."""
    fits, too_many = 0, run.model.layers + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if peak_bytes(_with_layers(run, middle)) <= room_bytes:
            fits = middle
        else:
            too_many = middle
    return fits


def _with_layers(run: Run, layers: int) -> Run:
    shape = {**run.shape, **_fewer_layers(run.model.id, layers)}
    return Run.from_json({**run.to_json(), "shape": shape})


def _fewer_layers(model_id: object, layers: object) -> dict[str, object]:
    """The shape's change to ``layers``; the first layers stay those without experts."""
    shape: dict[str, object] = {"layers": layers}
    model = catalog.models().get(model_id) if isinstance(model_id, str) else None
    if model and model.dense_layers:
        with suppress(InputError):  # the run made of this shape says what is wrong with it
            shape["dense_layers"] = min(model.dense_layers, parse_count("layers", layers))
    return shape
