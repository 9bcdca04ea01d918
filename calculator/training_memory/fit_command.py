"""``training-memory fit``: whether a run fits, and what would make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .errors import InputError, InputErrors
from .estimate import estimate
from .fit import Fit, batch_for, fitting
from .flags import Parser, run_parser
from .moves import Allow
from .plans import Progress
from .records import dataclass
from .request import read_request
from .run import Run
from .units import parse_count

# For type checkers alone: most runs are read from no file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .readers.report import Report

_ABOUT = (
    "Says whether a run fits its GPU, what each single change saves and costs, the cheapest plan "
    "that fits with the lines to write for it, the fewest GPUs, and the longest sequence and "
    "largest micro-batch that fit. The sequences of a step stay as many, unless told otherwise."
)
_EXAMPLES = """\
examples:
  training-memory fit --model llama-2-70b --gpus 64 --device h100-80gb --global-batch 1024
  training-memory fit --model llama-3-8b --micro-batch 8 --implementation huggingface
  training-memory fit --model llama-3-8b --implementation huggingface --allow adapters
  training-memory fit --run run.json --device h200-141gb --json
"""
_MOST_GPUS = 65_536
_MOST_BATCH = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command was asked: a run, what to plan for, and how to show the answer."""

    run: Run
    gpus: int
    batch: int
    allow: tuple[Allow, ...]
    binary: bool
    every_line: bool
    json: bool
    report: Report | None


def parser(command: str) -> Parser:
    """The command's flags: a run's and its own."""
    made = run_parser(command, description=_ABOUT, epilog=_EXAMPLES)
    own = made.add_argument_group("what to look for")
    own.add_argument("--gpus", metavar="N", help="GPUs to plan for (usually as many as the run's)")
    own.add_argument("--device", metavar="ID", help="the same as --gpu")
    own.add_argument(
        "--global-batch",
        metavar="N",
        help="sequences of a step on all GPUs together (usually the run's; one a GPU where that "
        "is 1)",
    )
    own.add_argument(
        "--allow",
        action="append",
        metavar="WHAT",
        help="what a plan may change beside if none fits otherwise: "
        f"{', '.join(Allow)} (8-bit AdamW; LoRA and QLoRA; the optimizer on the CPU); may be "
        "given twice",
    )
    own.add_argument(
        "--lines",
        action="store_true",
        help="each single change's lines to write as well, as the plan has them",
    )
    return made


def read(given: Mapping[str, object], mistakes: Sequence[InputError]) -> Asked:
    """What the flags ask. Raises :class:`InputErrors` with everything that cannot be."""
    errors = list(mistakes)
    flags = dict(given)
    if "device" in flags:
        if "gpu" in flags:
            errors.append(InputError("--device", None, "name a GPU with --gpu or --device, once"))
        flags["gpu"] = flags["device"]
    numbers = {
        name: _count(flags, name, most, errors)
        for name, most in (("gpus", _MOST_GPUS), ("global_batch", _MOST_BATCH))
    }
    allow = tuple(_allowed(flags.get("allow"), errors))
    named = "--device" if "device" in given else "--gpu"
    try:
        request = read_request(flags, errors)
    except InputErrors as found:
        raise InputErrors([_named(error, named) for error in found.errors]) from None
    run = request.run
    if run.gpu is None:
        allowed = "name a GPU to fit into, see training-memory gpus"
        raise InputErrors([InputError(named, None, allowed)])
    gpus = numbers["gpus"] or run.layout.gpus
    return Asked(
        run=run,
        gpus=gpus,
        batch=numbers["global_batch"] or batch_for(run, gpus),
        allow=allow,
        binary=request.binary,
        every_line=flags.get("lines") is True,
        json=request.json,
        report=request.report,
    )


def _allowed(given: object, errors: list[InputError]) -> Iterator[Allow]:
    words = [word for one in given for word in one.split(",")] if isinstance(given, list) else []
    for word in dict.fromkeys(words):
        if word in list(Allow):
            yield Allow(word)
        else:
            errors.append(InputError.unknown_name("--allow", word, tuple(Allow)))


def _named(error: InputError, gpu: str) -> InputError:
    """An error under the flag that the GPU was given by."""
    if error.field != "--gpu":
        return error
    return InputError(gpu, error.value, error.allowed, suggestion=error.suggestion)


def _count(
    flags: Mapping[str, object], name: str, most: int, errors: list[InputError]
) -> int | None:
    if name not in flags:
        return None
    try:
        return parse_count(f"--{name.replace('_', '-')}", flags[name], most=most)
    except InputError as error:
        errors.append(error)
        return None


def answer(asked: Asked, tell: Callable[[Progress], None]) -> Fit:
    """The whole answer; ``tell`` hears of the search for a plan."""
    found: Fit | None = None
    for one in fitting(estimate(asked.run), gpus=asked.gpus, batch=asked.batch, allow=asked.allow):
        if isinstance(one, Fit):
            found = one
        else:
            tell(one)
    assert found is not None
    return found
