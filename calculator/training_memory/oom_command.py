"""``training-memory oom``: what its flags mean, and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .errors import InputError
from .flags import Parser, run_parser
from .records import dataclass
from .request import Request, read_request

# For type checkers alone: help needs none of it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .oom import Explanation

_ABOUT = (
    "Explains an out-of-memory error of PyTorch, JAX, NCCL or a library: what it says, and whether "
    "it was fragmentation, another process or truly too much. With the run that died (any flag of "
    "it), which tensor of its step asked for so many bytes, and the smallest change that avoids "
    "it. FILE is the log; - or nothing is standard input."
)
_EXAMPLES = """\
examples:
  training-memory oom error.txt
  training-memory oom error.txt --model llama-3-8b --sequence 8192 --implementation huggingface
  my-training-script 2>&1 | training-memory oom - --run run.json
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one command was asked: the log's path, and the run where one was named."""

    path: str
    request: Request
    has_run: bool

    @property
    def json(self) -> bool:
        """Whether the answer is to be JSON."""
        return self.request.json


def parser(command: str) -> Parser:
    """The command's parser."""
    return run_parser(command, description=_ABOUT, epilog=_EXAMPLES, takes=("file",))


def read(given: Mapping[str, object], mistakes: Iterable[InputError] = ()) -> Asked:
    """What flags ask for. Raises :class:`InputErrors` with everything that cannot be."""
    path = str(given.get("file", "-"))
    mistakes = list(mistakes)
    configs = given.get("config")
    files = [*(configs if isinstance(configs, list) else ()), given.get("run")]
    if path == "-" and "-" in files:
        allowed = "standard input holds one file: name the log's, or the run's"
        mistakes.append(InputError("file", None, allowed))
    # A run is meant where something of it was said.
    has_run = bool(given.keys() - {"file", "help", "json", "units"})
    return Asked(path=path, request=read_request(given, mistakes), has_run=has_run)


def answer(asked: Asked) -> Explanation:
    """The explanation. Raises :class:`InputError` for a log that cannot be read or has no error."""
    from .estimate import estimate
    from .oom import explain
    from .readers.log_file import read_log

    text = read_log("file", asked.path)
    return explain(text, estimate(asked.request.run) if asked.has_run else None)
