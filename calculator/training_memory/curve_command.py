"""``training-memory curve``: the peak against sequence length, micro-batch or GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .curves import Along, Curve, along_gpus, along_micro_batch, along_sequence
from .errors import InputError, InputErrors
from .flags import Parser, run_parser
from .records import dataclass
from .request import read_request
from .run import Run
from .slices import finished

# For type checkers alone: most runs are read from no file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .readers.report import Report

#: What a curve can go along, as it is written on a command line.
ALONG = {str(one).replace("_", "-"): one for one in Along}
FORMATS = ("text", "json", "csv", "svg")
_MAKES = {
    Along.SEQUENCE: along_sequence,
    Along.MICRO_BATCH: along_micro_batch,
    Along.GPUS: along_gpus,
}
_ABOUT = (
    "Shows how the peak grows with the sequence length or the micro-batch, or falls with more GPUs "
    "that share the states, everything else as it is; where it crosses what the GPU has is named."
)
_EXAMPLES = """\
examples:
  training-memory curve --model llama-3-8b --data 8 --zero 3 --over sequence
  training-memory curve --model llama-2-70b --gpu h100-80gb --over gpus --format csv
  training-memory curve --run run.json --over micro-batch --format svg > curve.svg
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command was asked: a run, what its curve goes along, and how to show it."""

    run: Run
    along: Along
    format: str
    binary: bool
    report: Report | None


def parser(command: str) -> Parser:
    """The command's flags: a run's and its own."""
    made = run_parser(command, description=_ABOUT, epilog=_EXAMPLES)
    own = made.add_argument_group("the curve")
    own.add_argument("--over", metavar="WHAT", help=f"{', '.join(ALONG)} (usually sequence)")
    own.add_argument("--format", metavar="NAME", help=f"{', '.join(FORMATS)} (usually text)")
    return made


def read(given: Mapping[str, object], mistakes: Sequence[InputError]) -> Asked:
    """What the flags ask. Raises :class:`InputErrors` with everything that cannot be."""
    errors = list(mistakes)
    over = str(given.get("over", "sequence"))
    if over not in ALONG:
        errors.append(InputError.unknown_name("--over", over, tuple(ALONG)))
    usual = "json" if given.get("json") else "text"
    form = str(given.get("format", usual))
    if form not in FORMATS:
        errors.append(InputError.unknown_name("--format", form, FORMATS))
    elif given.get("json") and form != "json":
        errors.append(InputError("--json", None, f"--format {form} says otherwise; give one"))
    request = read_request(given, errors)
    return Asked(
        run=request.run,
        along=ALONG[over],
        format=form,
        binary=request.binary,
        report=request.report,
    )


def answer(asked: Asked) -> Curve:
    """The curve. Raises :class:`InputErrors` where it would have a single point."""
    curve = finished(_MAKES[asked.along](asked.run))
    if len(curve.points) > 1:
        return curve
    allowed = {
        Along.SEQUENCE: "this run can have one length only",
        Along.MICRO_BATCH: "this run can have one micro-batch only",
        Along.GPUS: "this run's replicas cannot share anything, so more of them change nothing",
    }[asked.along]
    over = next(name for name, along in ALONG.items() if along is asked.along)
    raise InputErrors([InputError("--over", over, allowed)])
