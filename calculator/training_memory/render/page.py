"""The calculator as a page shows it: answer, controls, picture and table, whole without scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..controls import State, address, normal, read
from ..curves import curves
from ..estimate import estimate
from ..run import Run
from .advice import advice
from .curve import figures
from .form import form
from .pin import to_pin
from .plan import planner
from .result import WORKING, parts
from .svg import escape, patterns
from .words import PEAK, UNITS, question


def calculator(
    state: State,
    *,
    prefix: str = "tm",
    runtime: Mapping[str, object] | None = None,
    size: str = "",
    label: str = "Calculator",
) -> str:
    """One calculator showing ``state``.

    ``prefix`` begins every id in it, so that a page can hold several. ``runtime`` tells the page's
    script where to find Python (see the page's ``runtime.js``) and ``size`` is what a reader is
    told of its download; without ``runtime`` the numbers stay as they are.
    """
    run = read(state)
    found = estimate(run)
    made = parts(found, prefix=prefix)
    shown = normal(state, run)
    return (
        f'<section class="tm" id="{prefix}" aria-label="{escape(label)}" '
        f'data-state="{escape(address(shown))}"{_runtime(runtime)}>'
        f'{patterns(prefix)}<div class="tm-body">'
        f'<output class="tm-sentence" id="{prefix}-answer" for="{prefix}-form" tabindex="-1" '
        f'aria-live="polite" aria-atomic="true" data-part="answer">{made["answer"]}</output>'
        f'<div class="tm-stand"><p data-part="verdict">{made["verdict"]}</p>{WORKING}</div>'
        f'<p class="tm-status"><span role="status" data-said>{_status(size)}</span>'
        '<span data-progress aria-hidden="true"></span><noscript> Changing them needs JavaScript.'
        "</noscript></p>"
        f"{form(run, shown, prefix=prefix)}"
        f'<div class="tm-result">{_died(prefix)}<div class="tm-reading" data-reading></div>'
        f"{_units(prefix)}"
        f'<figure class="tm-figure" data-part="bar">{made["bar"]}</figure>'
        f'<figure class="tm-figure" data-part="step">{made["step"]}</figure>'
        f'<div data-part="split">{made["split"]}</div>'
        f'<div data-part="need" data-work="Working out what must be free">{made["need"]}</div>'
        f'<div data-part="advice" data-work="Trying changes">{advice(found, usable=False)}</div>'
        f"{planner(prefix=prefix)}"
        f"{_curves(run, prefix=prefix)}"
        '<div data-part="difference" data-work="Comparing the two runs">'
        f"{to_pin(shown, usable=False)}</div>"
        f'<div data-part="table">{made["table"]}</div>'
        f'<div data-part="omitted">{made["omitted"]}</div>'
        f"{_actions()}</div></div></section>"
    )


def _curves(run: Run, *, prefix: str) -> str:
    return (
        '<details class="tm-curves" data-curves><summary>The peak against sequence length, '
        'micro-batch and GPUs</summary><div data-part="curves" data-work="Drawing the curves">'
        f"{figures(curves(run), prefix=prefix)}</div></details>"
    )


def _runtime(runtime: Mapping[str, object] | None) -> str:
    if runtime is None:
        return ""
    packed = json.dumps(runtime, separators=(",", ":"), sort_keys=True)
    return f' data-runtime="{escape(packed)}"'


def _status(size: str) -> str:
    """The line that says where the numbers come from; its words change, its place does not."""
    loads = f"; a change loads Python, {size}, once" if size else ""
    return f"Computed when the page was built{loads}."


def _died(prefix: str) -> str:
    """Where an error is pasted, and what it says stands; folded, since few jobs have just died."""
    return (
        '<details class="tm-died" data-key="died"><summary><b>My job died</b> '
        "<span>paste the error: which tensor was it?</span></summary>"
        f'<label for="{prefix}-error">The error, with the lines before it</label>'
        f'<textarea id="{prefix}-error" data-error rows="6" spellcheck="false" autocomplete="off" '
        f'autocapitalize="off" aria-describedby="{prefix}-error-note" disabled></textarea>'
        f'<p class="tm-caption" id="{prefix}-error-note">It is read in this page and goes nowhere. '
        "Set the run that died in the controls, and the tensor is named.</p>"
        '<div data-died aria-live="polite"></div></details>'
    )


def _units(prefix: str) -> str:
    peak = question("the peak", PEAK, f"{prefix}-peak-help")
    units = question("GB and GiB", UNITS, f"{prefix}-units-help")
    choices = "".join(
        f'<label><input type="radio" name="{prefix}-units" value="{unit}" data-name="units"'
        f"{' checked' if unit == 'GB' else ''} disabled> {unit}</label>"
        for unit in ("GB", "GiB")
    )
    return (
        f'<div class="tm-bar-head"><span class="tm-heading">What it is made of {peak}</span>'
        f'<fieldset class="tm-units"><legend class="tm-hidden">Unit of all sizes</legend>'
        f"{choices}{units}</fieldset></div>"
    )


#: What an answer is taken away as: what the script does, in which format, in words.
_ACTIONS = (
    ("link", "", "Copy link"),
    ("command", "", "Copy as command"),
    ("export", "json", "JSON"),
    ("export", "csv", "CSV"),
    ("export", "markdown", "Markdown"),
    ("export", "bibtex", "BibTeX"),
    ("export", "svg", "SVG picture"),
    ("export", "png", "PNG picture"),
)


def _format(form: str) -> str:
    return f' data-format="{form}"' if form else ""


def _actions() -> str:
    """One menu for everything that an answer can be taken away as."""
    buttons = "".join(
        f'<button type="button" class="tm-quiet" data-action="{action}"'
        f"{_format(form)} disabled>{words}</button>"
        for action, form, words in _ACTIONS
    )
    return (
        '<details class="tm-export" data-key="export"><summary>Export</summary>'
        f'<div class="tm-actions">{buttons}</div></details>'
        '<textarea class="tm-copy" readonly hidden aria-label="Text to copy"></textarea>'
    )
