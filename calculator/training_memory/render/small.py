"""A small live view: the answer, a few controls and the picture of what each GPU holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..controls import State, address, normal, read
from ..estimate import estimate
from .fields import FIELDS
from .form import drawn, shown
from .result import WORKING, parts
from .svg import escape, patterns


def small(
    state: State,
    names: Sequence[str],
    *,
    prefix: str,
    label: str,
    runtime: Mapping[str, object],
) -> str:
    """The calculator cut down to the controls called ``names``; the rest of the run stays.

    The same answer, bar and split as the whole calculator's, and the same script answers it.
    Raises ``ValueError`` for a name that is no control.
    """
    run = read(state)
    made = parts(estimate(run), prefix=prefix)
    by_name = {field.name: field for field in FIELDS}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise ValueError(f"no control is called {', '.join(unknown)}")
    chosen = tuple(by_name[name] for name in names)
    packed = json.dumps(runtime, separators=(",", ":"), sort_keys=True)
    return (
        f'<section class="tm tm-small" id="{prefix}" aria-label="{escape(label)}" '
        f'data-state="{escape(address(normal(state, run)))}" data-runtime="{escape(packed)}">'
        f'{patterns(prefix)}<div class="tm-body">'
        f'<div class="tm-answer"><output class="tm-sentence" id="{prefix}-answer" '
        f'for="{prefix}-form" tabindex="-1" aria-live="polite" aria-atomic="true" '
        f'data-part="answer">{made["answer"]}</output>'
        f'<div class="tm-stand"><p data-part="verdict">{made["verdict"]}</p>{WORKING}</div>'
        '<p class="tm-status"><span role="status" data-said></span>'
        '<span data-progress aria-hidden="true"></span></p></div>'
        f'<form class="tm-form" id="{prefix}-form" autocomplete="off" aria-label="{escape(label)}">'
        '<fieldset class="tm-controls" disabled>'
        f'<legend class="tm-hidden">{escape(label)}</legend>'
        f'<div class="tm-fields">{drawn(chosen, shown(run), prefix)}</div></fieldset></form>'
        f'<div class="tm-result"><figure class="tm-figure" data-part="bar">{made["bar"]}</figure>'
        f'<div data-part="split">{made["split"]}</div></div></div></section>'
    )
