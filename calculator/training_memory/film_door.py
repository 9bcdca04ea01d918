"""The animated step's door: a run's film, or two runs' beside each other, for one request.

A request names and changes a run as the calculator's do (see :mod:`.web`); ``beside`` is the
recomputation of a second run that is the same in everything else, or "".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import controls
from .blocks.ledger import Recompute
from .controls import State
from .errors import InputError
from .estimate import estimate
from .frames import Film, film, to_json
from .render import form
from .render.answer import described
from .render.player import panels
from .render.storyboard import storyboard


def answer(request: Mapping[str, Any], state: State) -> dict[str, object]:
    """The films of ``state`` with their drawings, as plain values.

    Raises :class:`InputErrors` for a run that cannot be, and :class:`InputError` for a ``beside``.
    """
    run = controls.read(state)
    shown = controls.normal(state, run)
    binary = controls.is_binary(shown)
    films = pair(state, beside(request.get("beside", "")))
    drawn = panels(films, binary=binary)
    return {
        "ok": True,
        "run": run.to_json(),
        "films": [to_json(one, binary=binary) for one in films],
        "html": {
            "stages": drawn.stages,
            "nows": drawn.nows,
            "stills": storyboard(films[0], binary=binary),
        },
        "fields": form.shown(run),
        "notes": {},
        "summaries": {"run": described(run)},
        "text": {},
        "state": controls.address(shown),
    }


def beside(value: object) -> Recompute | None:
    """The second run's recomputation; None for no second run."""
    if value in ("", None):
        return None
    if value not in set(Recompute):
        raise InputError.unknown_name("beside", value, list(Recompute))
    return Recompute(str(value))


def pair(state: State, second: Recompute | None) -> Sequence[Film]:
    """The film of a run and, where it is to have company, of the same run recomputed otherwise."""
    wanted = [state] if second is None else [state, {**state, "recompute": str(second)}]
    return [film(estimate(controls.read(one))) for one in wanted]
