"""The door of a job that died: the pasted error explained, by the run that the page shows.

A request has the shown ``state`` (see :mod:`.controls`), the text under ``error``, ``turn``, 0 to
begin anew, and ``prefix``, of the calculator that asks. It is answered a slice at a time (see
:mod:`.slices`): whether all is ``done``, and then ``html``, empty for an empty text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from . import controls
from .errors import InputError, InputErrors
from .estimate import estimate
from .oom.explanation import explain_in_steps
from .render.oom_html import oom_html, unread
from .slices import Slices, Told

_slices = Slices()


def answer(request_json: str) -> str:
    """How far it is, or the explanation. A run that cannot be has none."""
    request = json.loads(request_json)
    try:
        told = _slices.told(request, lambda: _explained(request))
    except InputErrors:
        told = {"ok": False}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _explained(request: Mapping[str, Any]) -> Iterator[Told]:
    text = str(request["error"])
    state, _ = controls.known(controls.parse(request["state"]))
    run = controls.read(state)
    if not text.strip():
        yield {"html": ""}
        return
    try:
        found = yield from explain_in_steps(text, estimate(run))
    except InputError as nothing:
        yield {"html": unread(nothing.allowed)}
        return
    yield {"html": oom_html(found)}
