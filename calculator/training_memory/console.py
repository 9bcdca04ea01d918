"""What is printed, and where: the answer, errors, and a stream whose reader had enough."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .errors import InputError

# For type checkers alone: a command imports what it needs when it runs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from .render.terminal import Terminal

BAD_INPUT = 2
PIPE_CLOSED = 141  # as a shell tells of a program whose reader had enough


def as_json(value: object) -> str:
    """A value as JSON, in letters that the stream can show."""
    import json

    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "") if sys.stdout else "ascii"
    return json.dumps(value, indent=2, ensure_ascii=encoding != "utf8") + "\n"


def terminal() -> Terminal:
    """What the stream is that answers are written to."""
    from .render.terminal import Terminal

    return Terminal.of(sys.stdout, os.environ) if sys.stdout else Terminal()


def write(text: str) -> int:
    """Print ``text`` and return the exit status."""
    stream = sys.stdout
    if stream is None:  # Closed by the caller, who wants no answer but the status.
        return 0
    text = terminal().shown(text)
    encoding = stream.encoding or "ascii"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _close(stream)
        return PIPE_CLOSED
    except OSError as error:
        _close(stream)
        return refuse("training-memory", [InputError("output", None, f"{error.strerror}")])
    return 0


def _close(stream: TextIO) -> None:
    """Point a stream that cannot be written to nowhere, or Python would try again as it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def refuse(program: str, errors: Sequence[InputError]) -> int:
    """Say on standard error what is wrong, a line each, and return the exit status."""
    lines = []
    for error in errors:
        hint = f" Did you mean {error.suggestion}?" if error.suggestion else ""
        if error.value is None:
            said = f"{error.allowed}."
        else:
            said = f"{_shortened(repr(error.value))} cannot be used; {error.allowed}."
        lines.append(f"{program}: {_shortened(error.field, 200)}: {said}{hint}\n")
    complain("".join(lines))
    return BAD_INPUT


def complain(text: str) -> int:
    """Write ``text`` on standard error, where anybody is listening."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
    except OSError:
        return BAD_INPUT
    return 0


def _shortened(text: str, longest: int = 80) -> str:
    """What was given, but no more of it than shows what is meant."""
    return text if len(text) <= longest else f"{text[: longest - 20]}...{text[-17:]}"
