"""The animated step in a page of the site: its films, and the drawings that play over them."""

from __future__ import annotations

import json
import re

import calculator_page
from training_memory import controls, units
from training_memory.blocks.ledger import Recompute
from training_memory.film_door import pair
from training_memory.frames import to_json
from training_memory.presets import FIRST
from training_memory.render import form
from training_memory.render.answer import described
from training_memory.render.fields import BY_NAME
from training_memory.render.player import PREFIX, panels
from training_memory.render.result import WORKING
from training_memory.render.storyboard import storyboard
from training_memory.render.svg import escape, patterns
from training_memory.run import Run

#: The choices of another run, by their names in a run.
FIELDS = ("model", "sequence", "micro_batch", "micro_batches", "recipe", "recompute", "gpu")

#: What the second run does about recomputation, as its choice says it.
_BESIDE = {
    "": "no second run",
    Recompute.NONE: "nothing recomputed",
    Recompute.SELECTIVE: "selective recomputation",
    Recompute.FULL: "full recomputation",
}

#: How fast it plays, as times the speed at which Python lays a film out.
_SPEEDS = {"0.25": "¼×", "0.5": "½×", "1": "1×", "2": "2×", "4": "4×"}

# Python-Markdown hands a block of HTML through as long as no blank line ends it.
_BLANK = re.compile(r"\n\s*\n")


def step_player(preset: str = FIRST, *, beside: str = Recompute.FULL) -> str:
    """The player of a preset's step, with a second run in waiting that recomputes ``beside``.

    Raises the calculator's ``InputError`` for an unknown preset, ``FileNotFoundError`` where the
    runtime has not been laid out.
    """
    state = controls.of_preset(preset)
    run = controls.read(state)
    films = pair(state, Recompute(beside))
    drawn = panels(films)
    shown = controls.normal(state, run)
    data = json.dumps([to_json(one) for one in films], ensure_ascii=False, separators=(",", ":"))
    python = json.dumps(calculator_page.runtime_data(), separators=(",", ":"), sort_keys=True)
    html = (
        f'<section class="tm player" id="{PREFIX}" aria-label="The step, to play" data-count="1" '
        f'data-state="{escape(controls.address(shown))}" data-second="{beside}" '
        f'data-python="{escape(python)}">'
        f"{patterns(PREFIX)}{_form(run)}"
        f'<div class="player-screen">{WORKING}'
        f'<div class="player-stages" data-part="stages">{drawn.stages}</div>'
        f"{_RANGE}{_controls()}"
        f'<div class="player-nows" data-part="nows">{drawn.nows}</div>'
        '<p class="tm-hidden" role="status" data-told></p></div>'
        f'<div class="player-stills" data-part="stills">{storyboard(films[0])}</div>'
        # Not a script of a data type: instant navigation would run it, and the policy refuse it.
        f"<template data-films data-search-exclude>{escape(data, quote=False)}</template></section>"
    )
    if _BLANK.search(html):
        raise ValueError("the player's HTML has a blank line, at which Markdown would cut it")
    return html


def _form(run: Run) -> str:
    """The choice of another run, folded: the film comes first."""
    size = units.show_bytes(calculator_page.runtime_data()["size"])
    fields = tuple(BY_NAME[name] for name in FIELDS)
    return (
        '<details class="tm-fold player-run"><summary><b>Another run</b> '
        f'<span data-summary="run">{escape(described(run))}</span></summary>'
        f'<form class="player-form" id="{PREFIX}-form" autocomplete="off" aria-label="The run">'
        '<fieldset disabled><legend class="tm-hidden">The run</legend><div class="tm-fields">'
        f"{form.drawn(fields, form.shown(run), PREFIX)}</div></fieldset></form>"
        f'<p class="tm-note">Another run is made by Python in this page: your first change loads '
        f"it, {size}, once.</p></details>"
        '<p class="tm-status"><span role="status" data-said></span>'
        '<span data-progress aria-hidden="true"></span></p>'
    )


_RANGE = (
    '<input class="player-range" type="range" min="0" max="10000" step="1" value="0" disabled '
    'aria-label="Moment of the step" autocomplete="off">'
)


def _controls() -> str:
    speeds = "".join(
        f'<option value="{value}"{" selected" if value == "1" else ""}>{words}</option>'
        for value, words in _SPEEDS.items()
    )
    besides = "".join(
        f'<option value="{value}">{words}</option>' for value, words in _BESIDE.items()
    )
    return (
        '<div class="player-controls" role="group" aria-label="Play">'
        f'<button type="button" class="player-play" data-do="play" disabled>'
        f"{_icon('player-to-play', 'M1 0L10 5L1 10Z')}"
        f"{_icon('player-to-pause', 'M1 0H4V10H1ZM6 0H9V10H6Z')}"
        "<span data-words>Play</span></button>"
        '<button type="button" data-do="back" disabled>'
        f"{_icon('', 'M10 0L3 5L10 10ZM0 0H2V10H0Z')}<span>Back</span></button>"
        '<button type="button" data-do="forward" disabled>'
        f"{_icon('', 'M0 0L7 5L0 10ZM8 0H10V10H8Z')}<span>Forward</span></button>"
        f"{_choice('speed', 'Speed', speeds)}{_choice('beside', 'Beside it', besides)}</div>"
    )


def _choice(name: str, label: str, options: str) -> str:
    """A label and its choice; what it sets belongs to the form above."""
    its = f"{PREFIX}-{name}"
    return (
        f'<span class="player-choice player-{name}"><label for="{its}">{label}</label> '
        f'<select id="{its}" name="{name}" form="{PREFIX}-form" disabled>{options}</select></span>'
    )


def _icon(css: str, shape: str) -> str:
    return f'<svg class="{css}" viewBox="0 0 10 10" aria-hidden="true"><path d="{shape}"/></svg>'
