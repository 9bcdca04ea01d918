"""The door for taking an answer away: the text of a file, and what to call it.

A request has ``state`` (see :mod:`.controls`), ``format`` (see :data:`.render.export.EXPORTS`),
``page``, the address at which the calculator stands, ``turn``, 0 to begin anew, and ``prefix``, of
the calculator that asks. It is answered a slice at a time (see :mod:`.slices`): whether all is
``done``, and then the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import controls
from .errors import InputError, InputErrors
from .estimate import estimate
from .render.export import EXPORTS
from .slices import Slices, Told

_slices = Slices()


def answer(request_json: str) -> str:
    """How far it is, or the file's text, name and kind; or what is wrong with the state."""
    request = json.loads(request_json)
    try:
        told = _slices.told(request, lambda: _written(request))
    except (InputError, InputErrors) as error:
        told = {"ok": False, "said": str(error)}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _written(request: Mapping[str, Any]) -> Iterator[Told]:
    state, _ = controls.known(controls.parse(request["state"]))
    made = estimate(controls.read(state))
    export = EXPORTS[request["format"]]
    if export.needs:
        yield from made.needing()
    yield {
        "text": export.made(made, controls.is_binary(state), request["page"]),
        "name": f"training-memory-{_plain(made.run.model.name)}.{export.ending}",
        "kind": export.kind,
    }


def _plain(name: str) -> str:
    """A name in letters that every file system takes."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "run"
