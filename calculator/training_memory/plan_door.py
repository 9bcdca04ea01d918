"""The planner's door: the cheapest plan that fits, looked for a slice at a time.

The page's Python answers one request after another, so a search is cut into slices: each request
for the same question goes on where the last one stopped, for about :data:`SLICE_SECONDS`, and tells
how far it is. Whatever else the page asks in between is answered at once, and a search is given up
by asking no more. A request has ``state`` (see :mod:`.controls`), ``gpus`` and ``batch`` as typed
("" for as many as the run has), ``allow``, a list of what plans may change (:class:`.moves.Allow`),
and ``turn``, 0 to begin anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any

from . import controls
from .errors import InputError, InputErrors
from .fit import Found, batch_for, finding
from .moves import Allow
from .plans import Progress
from .render.plan import found
from .slices import SECONDS
from .units import parse_count

SLICE_SECONDS = SECONDS
_MOST_GPUS = 65_536
_MOST_BATCH = 2**20

#: The question that is being looked into, and the search.
_open: tuple[str, Iterator[Progress | Found]] | None = None


def answer(request_json: str) -> str:
    """How far the search is, or what it found, or every error at once."""
    request = json.loads(request_json)
    try:
        told = _answer(request)
    except InputErrors as errors:
        told = {"ok": False, "said": " ".join(_said(error) for error in errors.errors)}
    except InputError as error:
        told = {"ok": False, "said": _said(error)}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _said(error: InputError) -> str:
    value = "" if error.value is None else f" {error.value} cannot be used:"
    return f"{error.field}:{value} {error.allowed}."


def _answer(request: Mapping[str, Any]) -> dict[str, object]:
    global _open  # one search at a time, and it outlives a request
    key = json.dumps([request.get(name) for name in ("state", "gpus", "batch", "allow")])
    if request.get("turn") == 0 or _open is None or _open[0] != key:
        _open = (key, _search(request))
    told = _slice(_open[1])
    if isinstance(told, Progress):
        return {"ok": True, "done": False, "said": _progress(told)}
    if told.done:
        _open = None
    binary = controls.is_binary(controls.parse(request["state"]))
    said = "Found." if told.done else "Looking for the fewest GPUs …"
    return {"ok": True, "done": told.done, "said": said, "html": found(told, binary=binary)}


def _search(request: Mapping[str, Any]) -> Iterator[Progress | Found]:
    """The search that a request asks for. Raises :class:`InputError` for numbers that cannot be."""
    state, _ = controls.known(controls.parse(request["state"]))
    run = controls.read(state)
    if run.gpu is None:
        raise InputError("GPU", None, "choose one for the plan to fit into")
    gpus = _number(request, "gpus", "GPUs", _MOST_GPUS) or run.layout.gpus
    batch = _number(request, "batch", "Sequences a step", _MOST_BATCH) or batch_for(run, gpus)
    allow = tuple(map(Allow, request.get("allow", ())))
    return finding(run, gpus=gpus, batch=batch, allow=allow)


def _number(request: Mapping[str, Any], name: str, label: str, most: int) -> int | None:
    typed = str(request.get(name, "")).strip()
    return parse_count(label, typed, most=most) if typed else None


def _slice(search: Iterator[Progress | Found]) -> Progress | Found:
    """Go on for a slice's time, or to the end."""
    end = perf_counter() + SLICE_SECONDS
    for told in search:
        if isinstance(told, Found) or perf_counter() > end:
            return told
    raise AssertionError("a search ends with what it found")


def _progress(told: Progress | Found) -> str:
    assert isinstance(told, Progress)
    if told.done:
        return f"{told.tried:,} plans tried; looking for the fewest GPUs …"
    if told.estimated:
        return f"{told.tried:,} plans tried, {told.estimated:,} estimated …"
    return f"{told.tried:,} plans tried …"
