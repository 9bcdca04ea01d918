"""The door for taking an answer away: the text of a file, and what to call it.

A request has ``state`` (see :mod:`.controls`), ``format`` (see :data:`.render.export.EXPORTS`) and
``page``, the address at which the calculator stands.
"""

from __future__ import annotations

import json
import re

from . import controls
from .errors import InputError, InputErrors
from .estimate import estimate
from .render.export import EXPORTS


def answer(request_json: str) -> str:
    """The file's text, name and kind; or what is wrong with the state."""
    request = json.loads(request_json)
    try:
        state, _ = controls.known(controls.parse(request["state"]))
        run = controls.read(state)
    except (InputError, InputErrors) as error:
        return json.dumps({"ok": False, "said": str(error)}, ensure_ascii=False)
    export = EXPORTS[request["format"]]
    binary = controls.is_binary(state)
    told = {
        "ok": True,
        "text": export.made(estimate(run), binary, request.get("page", "")),
        "name": f"training-memory-{_plain(run.model.name)}.{export.ending}",
        "kind": export.kind,
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _plain(name: str) -> str:
    """A name in letters that every file system takes."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "run"
