"""``training-memory diff``: which two runs are meant, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .errors import InputError, InputErrors
from .flags import Parser, run_parser
from .model import SHAPE_FIELDS
from .records import dataclass
from .request import read_request
from .run import Run

# For type checkers alone: help needs none of it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .diff import Difference

_ABOUT = (
    "Shows two runs side by side: what is set differently, the totals by kind of memory, and "
    "where their steps part, event by event, and why. A and B are files with a run or an estimate "
    "as JSON, or links of the calculator's page. Or say one run with flags, then -- and what is "
    "changed in it."
)
_EXAMPLES = """\
examples:
  training-memory diff before.json after.json
  training-memory diff --model llama-7b --sequence 4096 -- --recompute full
  training-memory diff run.json -- --micro-batch 2 --loss chunked --events
  training-memory diff '#model=llama-7b&sequence=4096' '#model=llama-7b&sequence=8192' --json
"""
_BETWEEN = "--"
#: Flags that say nothing of a run.
_ASIDE = frozenset(("help", "json", "units", "events"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one command was asked: two runs, and how to show the answer."""

    left: Run
    right: Run
    binary: bool
    json: bool
    events: bool


def parser(command: str) -> Parser:
    """The command's parser, for each side of the ``--``."""
    made = run_parser(command, description=_ABOUT, epilog=_EXAMPLES, takes=("a", "b"))
    made.add_argument(
        "--events", action="store_true", help="list every event that differs, in order"
    )
    made.usage = f"training-memory {command} A B | [A] [flag ...] -- [flag ...]"
    return made


def read(command: str, arguments: Sequence[str]) -> Asked | None:
    """The two runs; None where help was asked for.

    Raises :class:`InputErrors` with everything that cannot be.
    """
    first, second = _halves(arguments)
    given, errors = parser(command).read(first)
    changed, more = parser(command).read(second)
    if given.get("help") or changed.get("help"):
        return None
    errors += more
    errors += [
        InputError("argument", changed.pop(word), _FLAGS_ONLY)
        for word in ("a", "b")
        if word in changed
    ]
    if "b" in given and second:
        errors.append(InputError("argument", given["b"], _TWO_WAYS))
    elif "b" not in given and not changed.keys() - _ASIDE and not errors:
        errors.append(InputError("b", None, _NO_SECOND))
    units = changed.get("units", given.get("units"))
    events = given.pop("events", False) or changed.pop("events", False)
    as_json = given.pop("json", False) or changed.pop("json", False)
    word, other = given.pop("a", None), given.pop("b", None)
    if other is not None and given.keys() - _ASIDE:
        errors.append(InputError("argument", other, _TWO_WAYS))
    if errors:
        raise InputErrors(errors)
    shown = {"units": units} if units else {}
    base = _request("a", word) if word is not None else {}
    left = read_request({**_flags(base), **given, **shown})
    if other is not None:
        right = read_request({**_flags(_request("b", other)), **shown})
    else:
        right = read_request({**_flags(_after(left.run, changed)), **shown})
    return Asked(
        left=left.run, right=right.run, binary=left.binary, json=bool(as_json), events=bool(events)
    )


_FLAGS_ONLY = "after -- come flags that change the first run"
_TWO_WAYS = "name two runs, or one run and after -- the flags that change it, not both"
_NO_SECOND = (
    "a second run is needed: name it after the first, or say after -- what is changed, such as "
    "-- --recompute full"
)


def answer(asked: Asked) -> Difference:
    """The two runs, estimated and put side by side."""
    from .diff import diff
    from .estimate import estimate

    return diff(estimate(asked.left), estimate(asked.right))


def _after(run: Run, changed: Mapping[str, object]) -> dict[str, object]:
    """A run's JSON with flags' changes, as the page makes them: a model brings its own shape."""
    from . import controls

    state = controls.of_request(run.to_json())
    if "config" in changed or "run" in changed:
        # A file brings a model too, and is read with the flags.
        state = {name: value for name, value in state.items() if name not in _OF_A_MODEL}
        return {**state, **changed}
    fields = {name: value for name, value in changed.items() if name not in _ASIDE}
    return controls.changed(state, fields)


_OF_A_MODEL = frozenset(("model", *SHAPE_FIELDS))


def _halves(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    words = list(arguments)
    if _BETWEEN not in words:
        return words, []
    at = words.index(_BETWEEN)
    return words[:at], words[at + 1 :]


def _request(field: str, word: object) -> dict[str, object]:
    """The run's JSON that a word names: a link or its fragment, or a file."""
    from . import controls

    text = str(word)
    _, mark, fragment = text.partition("#")
    if mark and "=" in fragment:
        state = controls.parse(fragment)
        understood, unknown = controls.known(state)
        if unknown:
            names = ", ".join(unknown)
            raise InputError(field, text, f"the link says {names}, which means nothing here")
        return controls.read(understood).to_json()
    from .readers.json_file import read_object

    found = read_object(field, text)
    inner = found.get("run")
    return inner if "peak" in found and isinstance(inner, dict) else found


def _flags(request: Mapping[str, object]) -> dict[str, object]:
    """A run's JSON as flags would give it."""
    return dict(_flat(request))


def _flat(request: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in request.items():
        if name == "shape" and isinstance(value, dict):
            yield from value.items()
        elif name == "gpu" and value is None:
            yield name, "none"
        elif value is not None:
            yield name, value
