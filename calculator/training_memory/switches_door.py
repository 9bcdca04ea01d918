"""The door behind the controls of an implementation: what each switch would change.

A request names a run as the calculator's do (see :mod:`.web`) and the field to go on ``from``, ""
for the first. One field is answered at a time, so that what a reader does meanwhile need not wait
for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import controls
from .controls import State
from .render.switched import switched, switches_of


def answer(request: Mapping[str, Any], state: State) -> dict[str, object]:
    """The note of one field, and the ``next`` field, "" after the last.

    Raises :class:`InputErrors` for a run that cannot be.
    """
    run = controls.read(state)
    names = switches_of(run)
    name = request.get("from") or names[0]
    place = names.index(name) + 1 if name in names else len(names)
    return {
        "ok": True,
        "notes": {
            one: switched(one, run, state, binary=controls.is_binary(state))
            for one in names[place - 1 : place]
        },
        "next": names[place] if place < len(names) else "",
    }
