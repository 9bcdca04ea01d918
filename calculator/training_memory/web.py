"""The page's door: one JSON string in, one out. The page's script knows no field and no formula.

A request begins with a run, as ``run`` (JSON of a run) or as ``state`` (see :mod:`.controls`),
and may change it: ``set`` fields as typed, then ``step`` numbers by doublings. ``units`` is "GB" or
"GiB", ``prefix`` what the ids on the page begin with. What takes longer than an answer is named
under ``later``, and :mod:`.later_door` gives it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import controls
from .errors import InputError, InputErrors, shortened
from .estimate import Estimate, estimate
from .render import form
from .render.fields import FIELDS, Kind
from .render.need import quickly
from .render.pin import to_pin, unpinnable
from .render.result import parts
from .run import Run


def answer(request_json: str) -> str:
    """The answer to a request: ``ok``, and either the answer's parts or every error at once."""
    return answering(request_json, _answer)


def answering(
    request_json: str,
    door: Callable[[Mapping[str, Any], controls.State], Mapping[str, object]],
) -> str:
    """What a door says to a request for a changed run, or every error at once."""
    request = json.loads(request_json)
    stepped: dict[str, str] = {}
    try:
        found = door(request, _state(request, stepped))
    except InputErrors as errors:
        found = _refused(errors.errors, {**_linked(request, errors.errors), **stepped})
    except InputError as error:
        found = _refused([error], {**_linked(request, [error]), **stepped})
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _linked(request: Mapping[str, Any], errors: Sequence[InputError]) -> dict[str, str]:
    """The numbers and choices that a link gives and that cannot be, to stand in their fields."""
    state = controls.parse(request.get("state", ""))
    fields = {field.name for field in FIELDS if field.kind is not Kind.FLAG}
    return {
        error.field: str(state[error.field])
        for error in errors
        if error.field in fields & state.keys() and error.field not in request.get("set", {})
    }


def _shortened(request: Mapping[str, Any], run: Run) -> dict[str, str]:
    """Says that a model just chosen ended the sequence where its learned positions end."""
    chosen = request.get("set", {})
    if "model" not in chosen or "sequence" in chosen or not run.model.positions:
        return {}
    before = controls.parse(request.get("state", "")).get("sequence", run.sequence)
    if before == str(run.sequence) or run.sequence != run.model.positions:
        return {}
    return {"sequence": f"as far as {run.model.name}'s learned positions go"}


def _answer(request: Mapping[str, Any], asked: controls.State) -> dict[str, object]:
    run = controls.read(asked)
    made = estimate(run)
    state = controls.normal(asked, run)
    binary = controls.is_binary(state)
    prefix = request.get("prefix", "tm")
    html = parts(made, binary=binary, prefix=prefix, full=False)
    later = [] if quickly(made) else ["need"]
    if (made.room_bytes or 0) < 0:
        later.append("advice")
    else:
        html["advice"] = ""  # a run that fits needs none
    if pinned := _pin(state):
        html["difference"] = pinned
    else:
        later.append("difference")
    return {
        "ok": True,
        "run": run.to_json(),
        "estimate": made.to_json(full=False),
        "html": html,
        "later": later,
        "text": _texts(made, state),
        "summaries": form.summaries(run),
        "fields": {**form.shown(run), controls.UNITS: controls.UNIT_NAMES[binary]},
        "notes": {**form.notes(run, binary=binary), **_shortened(request, run)},
        "state": controls.address(state),
        "unread": _unread(request),
    }


def _pin(state: controls.State) -> str:
    """The button that pins the run, or why what is pinned is none; "" where another one is."""
    try:
        return "" if controls.pinned(state) else to_pin(state)
    except InputErrors as errors:
        return unpinnable(errors.errors)


def _unread(request: Mapping[str, Any]) -> str:
    """Says what an address carries that is not understood; nothing where all of it is."""
    _, unknown = controls.known(controls.parse(request.get("state", "")))
    if not unknown:
        return ""
    listed = shortened(", ".join(f"{name}={value}" for name, value in unknown.items()))
    return f"The address also says {listed}, which means nothing here; the rest of it is shown."


def _state(request: Mapping[str, Any], stepped: dict[str, str]) -> controls.State:
    """What the reader wants to see: where the request begins, with its changes.

    ``stepped`` is told what each number that was stepped has become, to be shown even if refused.
    """
    if "state" in request:
        state, _ = controls.known(controls.parse(request["state"]))
    else:
        state = controls.of_request(request.get("run", {}))
    if "units" in request:
        state[controls.UNITS] = request["units"]
    state = controls.changed(state, request.get("set", {}))
    for field, times in request.get("step", {}).items():
        state = controls.stepped(state, field, times)
        stepped[field] = f"{state[field]:,}"
    return state


def _texts(made: Estimate, state: controls.State) -> dict[str, str]:
    """The answer's plain texts: what to call it, and what its buttons copy."""
    return {
        "title": form.title(made.run, state),
        "command": command(state),
    }


def command(state: controls.State) -> str:
    """The command line that gives the answer to a state in its normal form."""
    words = ["training-memory estimate"]
    for name, value in state.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif name not in (controls.PRESET, controls.PIN):
            words.append(f"--{option} {value}")
    return " ".join(words)


def _refused(errors: Sequence[InputError], stepped: Mapping[str, str]) -> dict[str, object]:
    return {"ok": False, "errors": [_error(error) for error in errors], "stepped": dict(stepped)}


def _error(error: InputError) -> dict[str, object]:
    """An error with the words that stand beside its control, which has a name already."""
    found = error.to_json()
    hint = f" Did you mean {error.suggestion}?" if error.suggestion else ""
    return {**found, "reason": f"{found['value']} cannot be used: {error.allowed}.{hint}"}
