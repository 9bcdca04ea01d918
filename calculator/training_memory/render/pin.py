"""Before anything is compared: the button that pins a run."""

from __future__ import annotations

from collections.abc import Iterable

from ..controls import PIN, State, pin, setting
from ..errors import InputError
from .svg import escape


def to_pin(state: State, *, usable: bool = True) -> str:
    """The button that pins the run shown; it can be used at once if ``usable``."""
    return (
        '<p class="tm-heading">Compare</p><p class="tm-caption">Pin this run, then change it: both '
        "stand side by side here, with what differs.</p>"
        f'<div class="tm-actions">{_button(pin(state), "Pin this run", usable=usable)}</div>'
    )


def unpin() -> str:
    """The button that lets go of the pinned run."""
    return _button("", "Unpin", usable=True)


def unpinnable(errors: Iterable[InputError]) -> str:
    """What is said of a pinned run that cannot be, as in a link of another version."""
    reasons = " ".join(error.message for error in errors)
    return (
        '<p class="tm-heading">Compare</p><p class="tm-caption">The pinned run cannot be: '
        f'{escape(reasons)}</p><div class="tm-actions">{unpin()}</div>'
    )


def _button(value: str, words: str, *, usable: bool) -> str:
    change = escape(setting(PIN, value))
    disabled = "" if usable else " disabled"
    return f'<button type="button" class="tm-quiet" data-set="{change}"{disabled}>{words}</button>'
