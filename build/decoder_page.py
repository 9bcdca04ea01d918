"""The page "The Decoder": its numbers for the prose, its pictures, and the run in the page."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import calculator_page
import runtime
from content import ContentError
from decoder import DECODER, Cause
from decoder.data import ALPHABET
from decoder.training import SEQUENCES
from decoder_curve import GUESS, loss_curve, tape_curve
from decoder_door import PREFIX
from decoder_run import SEED, STEPS, counted
from decoder_tables import loss_text
from places import GENERATED, RUNTIME
from training_memory import units
from training_memory.render.svg import escape

#: How long a reader can have it train, in steps, and what is chosen first.
_CHOICES, _FIRST = (10, 20, 50, STEPS), 20

_HOW = "The Decoder's run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What the trainer counted and how it trained, by short names for the prose.

    ``counted``, ``read`` and ``formula`` are values for one sequence and one block. Of the
    difference, ``narrow`` and ``dropout`` are values that the formula alone has, ``norms`` and
    ``produced`` such as the trainer alone has; all four are positive. ``states`` are the numbers
    that outlive a step, for each parameter; ``fullest`` is the most on the tape in a step of
    ``sequences``. Losses are in nats, as text.
    """

    parameters: int
    sequence: int
    sequences: int
    counted: int
    read: int
    formula: int
    narrow: int
    dropout: int
    norms: int
    produced: int
    states: int
    fullest: int
    characters: int
    guess: str
    steps: int
    first_loss: str
    last_loss: str


def decoder_numbers() -> Numbers:
    """The numbers; those of the training are the committed table's."""
    count, comparison = counted()
    losses = _losses()
    parameters = count.states["weights"]
    return Numbers(
        parameters=parameters,
        sequence=DECODER.sequence,
        sequences=SEQUENCES,
        counted=comparison.counted_values,
        read=count.block_values_read,
        formula=comparison.textbook_values,
        narrow=-comparison.by_cause[Cause.WIDTH],
        dropout=-comparison.by_cause[Cause.DROPOUT],
        norms=comparison.by_cause[Cause.NORM],
        produced=comparison.by_cause[Cause.PRODUCED],
        states=sum(count.states.values()) // parameters,
        fullest=count.peak.values,
        characters=len(ALPHABET),
        guess=f"{GUESS:.2f}",
        steps=len(losses),
        first_loss=f"{losses[0]:.2f}",
        last_loss=f"{sum(losses[-10:]) / 10:.2f}",
    )


def decoder_figure(name: str) -> str:
    """One of the page's pictures as an HTML block: "losses" or "tape".

    Raises ValueError for another name.
    """
    if name == "losses":
        losses = _losses()
        drawn = loss_curve(losses, steps=len(losses), prefix="decoder-losses")
        words = (
            f"The loss of each of {len(losses)} steps, before its update. The dashed line is a "
            f"model to which all {len(ALPHABET)} characters are alike."
        )
    elif name == "tape":
        count, _ = counted()
        drawn = tape_curve(count.timeline, prefix="decoder-tape")
        words = (
            f"Values on the tape after each that is kept or freed, in one step of {SEQUENCES} "
            "sequences: two blocks and then the logits up, and the same way down."
        )
    else:
        raise ValueError(f"there is no figure {name!r}; there are losses, tape")
    return f'<figure class="figure">{drawn}<figcaption>{escape(words)}</figcaption></figure>'


def decoder_run() -> str:
    """The Decoder to run in the page: choices, a button, and a place for what comes of it.

    Raises ``FileNotFoundError`` where the runtime has not been laid out.
    """
    python = calculator_page.runtime_data()
    package = runtime.manifest(RUNTIME)["apart"]["decoder"]
    size = units.show_bytes(python["size"] + package["gzip_bytes"])
    data = {
        "python": _packed(python),
        "package": package["path"],
        "page": _packed(_said_by_the_page()),
    }
    attributes = " ".join(f'data-{name}="{escape(value)}"' for name, value in data.items())
    return (
        f'<section class="tm runner" id="{PREFIX}" aria-label="{_HOW}" {attributes}>'
        f"{_form(size)}{_RESULT}</section>"
    )


def _said_by_the_page() -> dict[str, object]:
    """What the page's own tables say, for a reader's run to be compared with."""
    _, comparison = counted()
    return {
        "counted": comparison.counted_values,
        "textbook": comparison.textbook_values,
        "seed": SEED,
        "losses": [loss_text(loss) for loss in _losses()],
    }


def _losses(folder: Path = GENERATED) -> list[float]:
    file = folder / "decoder-loss.csv"
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            found = [float(row["loss_nats"]) for row in csv.DictReader(lines)]
    except FileNotFoundError as error:
        raise ContentError(f"{file.name} is missing; `make tables` makes it") from error
    if not found:
        raise ContentError(f"{file.name} has no step; `make tables` makes it")
    return found


def _packed(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _form(size: str) -> str:
    choices = "".join(
        f'<option value="{steps}"{" selected" if steps == _FIRST else ""}>{steps} steps</option>'
        for steps in _CHOICES
    )
    return (
        f'<form class="runner-form" id="{PREFIX}-form" autocomplete="off" aria-label="{_HOW}">'
        f'<fieldset class="tm-controls" disabled><legend class="tm-hidden">{_HOW}</legend>'
        '<div class="runner-fields">'
        '<div class="tm-field" data-field="steps"><div class="tm-label">'
        f'<label for="{PREFIX}-steps">Train</label></div>'
        f'<select id="{PREFIX}-steps" name="steps" aria-describedby="{PREFIX}-steps-note">'
        f'{choices}</select><p class="tm-note" id="{PREFIX}-steps-note"></p></div>'
        '<div class="tm-field" data-field="seed"><div class="tm-label">'
        f'<label for="{PREFIX}-seed">Random seed</label></div>'
        f'<input type="text" inputmode="numeric" id="{PREFIX}-seed" name="seed" value="{SEED}" '
        f'aria-describedby="{PREFIX}-seed-note">'
        f'<p class="tm-note" id="{PREFIX}-seed-note"></p></div>'
        '<div class="runner-buttons">'
        '<button type="submit" class="runner-go">Run a real backward pass and count</button>'
        '<button type="button" class="tm-quiet runner-stop" hidden>Stop</button></div></div>'
        "</fieldset></form>"
        f'<p class="tm-status"><span role="status" data-said>Nothing runs until you ask for it. '
        f"The button loads Python into this page, {escape(size)}, once.</span> "
        '<span data-progress aria-hidden="true"></span></p>'
        "<noscript><p>This part needs scripts. All tables on this page are there without them: the "
        "same program made them when the page was built.</p></noscript>"
        f'<progress class="runner-bar" max="1" value="0" aria-label="{_HOW}" hidden></progress>'
    )


def _table(part: str, label: str, *, reasons: bool = False) -> str:
    return (
        f'<div class="table-scroll" role="region" tabindex="0" aria-label="{label}, from this run" '
        f'data-part="{part}"{" data-reasons" if reasons else ""}></div>'
    )


def _fold(label: str, *tables: str) -> str:
    return f"<details hidden><summary>{label}</summary>{''.join(tables)}</details>"


_RESULT = (
    '<div class="runner-result" hidden>'
    '<figure data-part="curve"></figure>'
    '<div class="runner-verdict" data-part="verdict" aria-live="polite"></div>'
    f"{_table('kept', 'The count and the formula')}"
    f"{_fold('What was kept, by name', _table('tape', 'What was kept', reasons=True))}"
    f"{_fold('Row by row', _table('rows', 'Row by row', reasons=True), _table('causes', 'Causes'))}"
    f"{_fold('The gradients', _table('gradients', 'The gradients'))}</div>"
)
