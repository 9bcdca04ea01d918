"""``training-memory verify``: from arguments to exit status. PyTorch only where it measures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from .. import __version__
from ..blocks.ledger import TEXTBOOK
from ..errors import InputError, InputErrors
from ..flags import Parser, flag
from ..request import UNITS
from ..units import show_bytes
from . import plan as plans
from .plan import Plan, most_layers, peak_bytes
from .record import Machine, Record, plan_json, predicted_json
from .report import Report

#: Exit status where there is no PyTorch or no GPU, so that nothing was measured.
NO_GPU = 3
#: Exit status where the run does not fit the GPU, by the prediction or in fact.
DOES_NOT_FIT = 4

_ABOUT = (
    "Trains a model on this machine's GPU for a few steps, with nothing recomputed and with "
    "checkpointing, and puts what PyTorch allocates beside what the calculator predicts. The model "
    "learns nothing and is thrown away."
)
_EPILOG = f"""\
exit status: 0 measured (or shown, with --dry-run); 2 an argument cannot be used;
  {NO_GPU} no PyTorch or no CUDA device: the prediction alone is printed;
  {DOES_NOT_FIT} the run does not fit the GPU

examples:
  training-memory verify --output my-run.json
  training-memory verify --model llama-7b --layers 4 --recompute none full
  training-memory verify --dry-run
"""
_DEVICE = re.compile(r"cuda(:\d+)?")

Say = Callable[[str], object]


def verify(arguments: Sequence[str], *, say: Say, complain: Say) -> int:
    """The whole command: ``say`` writes its answer, ``complain`` what stands in the way of one.

    Returns the exit status. Raises :class:`InputErrors` for arguments that cannot be used.
    """
    parser = _parser()
    given, errors = parser.read(arguments)
    if given.get("help"):
        say(parser.format_help())
        return 0
    plan, output = _planned(given, errors)
    report = Report(binary=given.get("units") == UNITS[1])
    as_json = bool(given.get("json"))
    tell: Say = _silent if as_json else say
    tell(report.opening(plan))
    if given.get("dry_run"):
        _predict(plan, report, say, as_json=as_json)
        return 0
    return _measure(
        plan,
        report,
        tell,
        say,
        complain,
        device=str(given["device"]),
        output=output,
        as_json=as_json,
    )


def _parser() -> Parser:
    parser = Parser("verify", "[flag ...]", description=_ABOUT, epilog=_EPILOG)
    parser.add_argument(
        "--model", metavar="ID", default=plans.DEFAULT_MODEL, help="usually %(default)s: 12 layers"
    )
    parser.add_argument("--layers", metavar="N", help="so many layers instead of the model's own")
    parser.add_argument(
        "--sequence", metavar="TOKENS", default=plans.DEFAULT_SEQUENCE, help="usually %(default)s"
    )
    parser.add_argument(
        "--micro-batch",
        metavar="N",
        default=plans.DEFAULT_MICRO_BATCH,
        help="sequences in the batch, usually %(default)s",
    )
    parser.add_argument(
        "--recompute",
        nargs="+",
        metavar="NAME",
        default=list(TEXTBOOK),
        help="none, selective, full: one run each, usually all three",
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        default=plans.DEFAULT_STEPS,
        help="training steps, usually %(default)s",
    )
    parser.add_argument(
        "--device", default="cuda", help="usually %(default)s; cuda:1 is the second"
    )
    parser.add_argument("--output", metavar="FILE", help="write the measurements as JSON, to keep")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be run")
    parser.add_argument("--units", metavar="UNIT", help="GB (10^9 bytes, the usual) or GiB (2^30)")
    return parser


def _planned(given: dict[str, object], errors: list[InputError]) -> tuple[Plan, Path | None]:
    """The plan and the file to write. Raises :class:`InputErrors` with all that is wrong."""
    if errors:
        raise InputErrors(errors)
    device = str(given["device"])
    if not _DEVICE.fullmatch(device):
        allowed = "only the memory of a CUDA device can be measured: cuda, cuda:0, cuda:1 ..."
        errors.append(InputError("device", device, allowed))
    output = Path(str(given["output"])) if "output" in given else None
    # Before the run and not after it: minutes of measuring are not to be lost for a missing folder.
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        allowed = "a file in a folder that exists"
        errors.append(InputError("output", str(output), allowed))
    if given.get("units", UNITS[0]) not in UNITS:
        errors.append(InputError.unknown_name("units", given["units"], UNITS))
    recompute = given["recompute"]
    assert isinstance(recompute, list)
    try:
        plan = Plan.of(
            model=given["model"],
            layers=given.get("layers"),
            sequence=given["sequence"],
            micro_batch=given["micro_batch"],
            recompute=recompute,
            steps=given["steps"],
        )
    except InputErrors as found:
        errors += found.errors
    if errors:
        raise InputErrors([_as_flag(error) for error in errors])
    return plan, output


def _as_flag(error: InputError) -> InputError:
    """The same under the name by which it was given: ``--micro-batch``."""
    return InputError(flag(error.field), error.value, error.allowed, suggestion=error.suggestion)


def _silent(text: str) -> None:
    """Says nothing: with --json the answer is the JSON alone."""


def _predict(plan: Plan, report: Report, say: Say, *, as_json: bool) -> None:
    """The prediction of every run, without measuring."""
    if as_json:
        predictions = [
            {"recompute": str(run.recompute), "predicted": predicted_json(run)} for run in plan.runs
        ]
        say(_json({**plan_json(plan), "predictions": predictions}))
        return
    for run in plan.runs:
        say("\n" + report.prediction(run))


def _measure(
    plan: Plan,
    report: Report,
    tell: Say,
    say: Say,
    complain: Say,
    *,
    device: str,
    output: Path | None,
    as_json: bool,
) -> int:
    try:
        from . import measuring
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        complain("PyTorch is not installed (pip install torch brings it)")
        return _prediction_alone(plan, report, say, complain, as_json=as_json)
    try:
        chosen = measuring.chosen_device(device)
    except measuring.NoGpu as why:
        complain(f"no CUDA device: {why}")
        return _prediction_alone(plan, report, say, complain, as_json=as_json)
    found = measuring.machine(chosen)
    tell(report.machine(found))
    if plan.largest_bytes > found.free_bytes:
        complain(_too_large(plan, found))
        return DOES_NOT_FIT
    measurements = []
    for run in plan.runs:
        try:
            one = measuring.measure(run, steps=plan.steps, device=chosen)
        except measuring.OutOfMemory as why:
            complain(
                f"the run with recomputation {run.recompute} was predicted to need "
                f"{show_bytes(peak_bytes(run))} of {show_bytes(found.free_bytes)} free and ran out "
                f"of memory: {why}. {_advice(plan, found)}"
            )
            return DOES_NOT_FIT
        measurements.append(one)
        tell("\n" + report.comparison(one))
        tell(report.differences(run))
    record = Record(
        day=_today(),
        version=__version__,
        machine=found,
        plan=plan,
        measurements=tuple(measurements),
    )
    text = _json(record.to_json())
    if as_json:
        say(text)
    if output is not None:
        output.write_text(text, encoding="utf-8")
        tell(f'\nWritten to {output}. The page "On a real GPU" says how to contribute it.\n')
    return 0


def _prediction_alone(plan: Plan, report: Report, say: Say, complain: Say, *, as_json: bool) -> int:
    complain("nothing was measured; the prediction alone is:")
    _predict(plan, report, say, as_json=as_json)
    return NO_GPU


def _too_large(plan: Plan, found: Machine) -> str:
    """Which runs are predicted not to fit, and what would."""
    free = found.free_bytes
    needs = ", ".join(f"{run.recompute} {show_bytes(peak_bytes(run))}" for run in plan.runs)
    return (
        f"the prediction is more than the {show_bytes(free)} that are free on {found.gpu} "
        f"(recomputation {needs}), so nothing was run. {_advice(plan, found)}"
    )


def _advice(plan: Plan, found: Machine) -> str:
    free = found.free_bytes
    largest = max(plan.runs, key=peak_bytes)
    fitting = [str(run.recompute) for run in plan.runs if peak_bytes(run) <= free]
    layers = most_layers(largest, free)
    ways = []
    if 0 < layers < largest.model.layers:
        ways.append(f"--layers {layers}")
    if 0 < len(fitting) < len(plan.runs):
        ways.append(f"--recompute {' '.join(fitting)}")
    if largest.micro_batch > 1:
        ways.append("a smaller --micro-batch")
    ways.append("a smaller --model" if not ways else "a shorter --sequence")
    return f"Try {' or '.join(ways)}."


def _today() -> date:
    return datetime.now(UTC).date()


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
