"""The door for what takes longer than an answer and comes after it, a slice at a time.

A request has the answered ``state`` (see :mod:`.controls`), the ``parts`` that are wanted, in their
order, ``turn``, 0 to begin anew, and ``prefix``, what the ids of the calculator that asks begin
with. Each request goes on where the last one stopped and is answered with what was found meanwhile:
``html`` by its place on the page, ``notes`` by field, and whether all is ``done``. See
:mod:`.slices`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import controls
from .curves import curves_in_steps
from .diff import diff_in_steps
from .errors import InputErrors
from .estimate import Estimate, estimate
from .records import dataclass
from .render import result
from .render.advice import advice_in_steps
from .render.curve import figures
from .render.difference_html import difference_html
from .render.switched import switched_in_steps, switches_of
from .slices import Slices

#: What was found, or that nothing new was.
_Told = Mapping[str, Mapping[str, str]] | None

_slices = Slices()


def answer(request_json: str) -> str:
    """What another slice brought. A run that cannot be has no parts."""
    request = json.loads(request_json)
    wanted = request["parts"]
    question = json.dumps([request["state"], wanted])
    try:
        told, done = _slices.go_on(
            request["prefix"], question, request["turn"], lambda: _later(request)
        )
    except InputErrors:
        return json.dumps({"ok": False})
    found: dict[str, dict[str, str]] = {"html": {}, "notes": {}}
    for kind, parts in ((kind, parts) for one in told if one for kind, parts in one.items()):
        found[kind] |= parts
    answered = {"ok": True, "done": done, **found}
    return json.dumps(answered, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    made: Estimate
    state: controls.State
    binary: bool
    prefix: str


def _later(request: Mapping[str, Any]) -> Iterator[_Told]:
    state, _ = controls.known(controls.parse(request["state"]))
    run = controls.read(state)
    asked = _Asked(
        made=estimate(run),
        state=controls.normal(state, run),
        binary=controls.is_binary(state),
        prefix=request["prefix"],
    )
    yield None
    for part in request["parts"]:
        yield from _PARTS[part](asked)


def _difference(asked: _Asked) -> Iterator[_Told]:
    """The run beside the one that is pinned."""
    first = controls.pinned(asked.state)
    assert first is not None
    found = yield from diff_in_steps(estimate(first), asked.made)
    html = difference_html(found, asked.state, binary=asked.binary, prefix=asked.prefix)
    yield {"html": {"difference": html}}


def _need(asked: _Asked) -> Iterator[_Told]:
    """What must be free on the GPU, and by that whether the run fits."""
    yield from asked.made.needing()
    need = result.need(asked.made, binary=asked.binary)
    yield {"html": {"need": need, "verdict": result.verdict(asked.made, binary=asked.binary)}}


def _advice(asked: _Asked) -> Iterator[_Told]:
    html = yield from advice_in_steps(asked.made, binary=asked.binary)
    yield {"html": {"advice": html}}


def _curves(asked: _Asked) -> Iterator[_Told]:
    found = yield from curves_in_steps(asked.made.run)
    yield {"html": {"curves": figures(found, binary=asked.binary, prefix=asked.prefix)}}


def _switches(asked: _Asked) -> Iterator[_Told]:
    """What each switch of the implementation would change, one field after the other."""
    run = asked.made.run
    for name in switches_of(run):
        note = yield from switched_in_steps(name, run, asked.state, binary=asked.binary)
        yield {"notes": {name: note}}


_PARTS: Mapping[str, Callable[[_Asked], Iterator[_Told]]] = {
    "difference": _difference,
    "need": _need,
    "advice": _advice,
    "curves": _curves,
    "switches": _switches,
}
