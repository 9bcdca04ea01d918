"""The animated step's door: a run's film, or two runs' beside each other.

A request names and changes a run as the calculator's do (see :mod:`.web`); ``beside`` is the
recomputation of a second run that is the same in everything else, or "". It is answered a slice
at a time (see :mod:`.slices`): ``turn`` is 0 to begin anew, ``prefix`` who asks, and the answer
whether all is ``done``, and then the films.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from .slices import Slices, Told, Work, finished
from .web import answering

_slices = Slices()


def answer(request_json: str) -> str:
    """How far it is, the films of a run with their drawings, or every error at once."""
    return answering(
        request_json,
        lambda request, state: _slices.told(request, lambda: _made(request, state)),
    )


def _made(request: Mapping[str, Any], state: State) -> Iterator[Told]:
    run = controls.read(state)
    shown = controls.normal(state, run)
    binary = controls.is_binary(shown)
    films = yield from _pair(state, beside(request["beside"]))
    drawn = panels(films, binary=binary)
    yield None
    stills = storyboard(films[0], binary=binary)
    yield {
        "run": run.to_json(),
        "films": [to_json(one, binary=binary) for one in films],
        "html": {"stages": drawn.stages, "nows": drawn.nows, "stills": stills},
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
    return finished(_pair(state, second))


def _pair(state: State, second: Recompute | None) -> Work[Sequence[Film]]:
    wanted = [state] if second is None else [state, {**state, "recompute": str(second)}]
    films = []
    for one in wanted:
        made = estimate(controls.read(one))
        yield
        films.append(film(made))
        yield
    return films
