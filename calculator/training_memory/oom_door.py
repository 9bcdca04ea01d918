"""The door of a job that died: the pasted error explained, by the run that the page shows.

A request names a run as the calculator's do (see :mod:`.web`) and carries the text under ``error``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import controls
from .controls import State
from .errors import InputError
from .estimate import estimate
from .oom import explain
from .render.oom_html import oom_html, unread


def answer(request: Mapping[str, Any], state: State) -> dict[str, object]:
    """The explanation as a piece of the page, empty for an empty text.

    Raises :class:`InputErrors` for a run that cannot be.
    """
    text = str(request.get("error", ""))
    run = controls.read(state)
    if not text.strip():
        return {"ok": True, "html": {"died": ""}}
    try:
        found = explain(text, estimate(run))
    except InputError as nothing:
        return {"ok": True, "html": {"died": unread(nothing.allowed)}}
    return {"ok": True, "html": {"died": oom_html(found)}, "explanation": found.to_json()}
