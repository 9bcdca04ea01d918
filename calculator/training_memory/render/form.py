"""The controls as HTML: native elements with their labels, drawn from the list of fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..controls import State, is_preset
from ..presets import PRESETS
from ..recorded_step import trained_parameters
from ..run import Run
from ..units import ratio, show_bytes
from .answer import ADAPTED, label
from .chooser import chooser
from .fields import FIELDS, IMPLEMENTATIONS, Field, Kind, Place, at
from .svg import escape
from .words import question

#: Folds within a fold, for what few runs say.
_BELOW: Mapping[Place, tuple[tuple[Place, str], ...]] = {
    Place.SHAPE: (
        (Place.DETAILS, "Norms and biases"),
        (Place.EXPERTS, "Experts"),
        (Place.LATENT, "Latent attention"),
    ),
    Place.SPLIT: ((Place.FSDP, "FSDP and DDP"), (Place.DEEPSPEED, "DeepSpeed")),
}


def shown(run: Run) -> dict[str, str]:
    """What each control holds for a run, by the field's name; flags are "true" or "false"."""
    values: dict[str, object] = {**run.to_json(), "gpu": run.gpu.id if run.gpu else "none"}
    return {
        field.name: _shown(
            field, values[field.name] if field.name in values else getattr(run.model, field.name)
        )
        for field in FIELDS
    }


def _shown(field: Field, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if field.kind is Kind.NUMBER and isinstance(value, int) else str(value)


def title(run: Run, state: State) -> str:
    """What the run is called: its preset's name, or its model's, and whether it was changed."""
    preset = PRESETS.get(str(state.get("preset")))
    if preset is None:
        return label(run)
    return preset.name if is_preset(state, run) else f"{preset.name}, changed"


def summaries(run: Run) -> dict[str, str]:
    """What each folded part of the form holds."""
    model, layout = run.model, run.layout
    shape = [
        f"{model.layers:,} layers",
        f"{model.hidden:,} wide",
        f"{_rounded(model.parameters.total)} parameters",
    ]
    if model.experts:
        shape.insert(2, f"{model.experts:,} experts")
    split = ["one GPU"] if layout.gpus == 1 else [f"{layout.gpus:,} GPUs"]
    if layout.data > 1:
        split.append(f"ZeRO-{layout.zero}" if layout.zero else f"{layout.data:,} replicas")
    if layout.tensor > 1:
        split.append(f"tensor {layout.tensor:,}")
    if layout.context > 1:
        split.append(f"context {layout.context:,}")
    if layout.pipeline > 1:
        split.append(f"{layout.pipeline:,} stages")
    if layout.expert > 1:
        split.append(f"experts over {layout.expert:,}")
    if run.micro_batches > 1:
        split.append(f"{run.micro_batches:,} micro-batches")
    return {
        Place.SHAPE: ", ".join(shape),
        Place.SPLIT: ", ".join(split),
        Place.IMPLEMENTATION: IMPLEMENTATIONS[run.implementation],
        Place.TUNING: _trained(run),
    }


def _trained(run: Run) -> str:
    """What is trained: all weights, or so many parameters in adapters."""
    tuning = run.tuning
    if tuning.trains_all:
        return "all weights"
    return f"{ADAPTED[tuning.adapter]}, {_rounded(trained_parameters(run))} parameters"


def _rounded(count: int) -> str:
    """A count to three digits: 6.74 billion, 46.7 billion, 175 billion."""
    for name, size in (("billion", 10**9), ("million", 10**6)):
        if count >= size:
            digits = 2 if count < 10 * size else 1 if count < 100 * size else 0
            return f"{ratio(count, size, digits)} {name}"
    return f"{count:,}"


def notes(run: Run, *, binary: bool = False) -> dict[str, str]:
    """What stands under a control about the value in it."""
    gpu = run.gpu
    if gpu is None:
        return {"gpu": ""}
    if gpu.usable_bytes is None:
        return {"gpu": "by name; what PyTorch sees is not published"}
    usable = show_bytes(gpu.usable_bytes, binary=binary)
    return {"gpu": f"by name; PyTorch sees {usable}"}


def form(run: Run, state: State, *, prefix: str) -> str:
    """All controls, holding ``run``. Disabled until a script that can answer takes them over."""
    values, said, under = shown(run), summaries(run), notes(run)
    groups = "".join(
        _fold(place, heading, said[place], _folded(place, values, prefix), prefix)
        for place, heading in (
            (Place.SHAPE, "Shape"),
            (Place.SPLIT, "Split over GPUs"),
            (Place.IMPLEMENTATION, "Implementation"),
            (Place.TUNING, "Fine-tuning"),
        )
    )
    return (
        f'<form class="tm-form" id="{prefix}-form" autocomplete="off" aria-label="The run" '
        # Every model's name and every choice would be found in each page that has the controls.
        "data-search-exclude>"
        '<fieldset class="tm-controls" disabled><legend class="tm-hidden">The run</legend>'
        f"{_presets(run, state)}"
        f'<div class="tm-fields">{drawn(at(Place.OPEN), values, prefix, under)}</div>'
        f'<div class="tm-folds">{groups}{chooser(prefix)}</div></fieldset></form>'
    )


def _presets(run: Run, state: State) -> str:
    buttons = "".join(
        f'<button type="button" class="tm-preset" data-preset="{preset.id}">'
        f"{escape(preset.name)}</button>"
        for preset in PRESETS.values()
    )
    return (
        f'<div class="tm-title"><b class="tm-heading" data-text="title">'
        f"{escape(title(run, state))}</b>"
        '<button type="button" class="tm-quiet" data-action="reset">Reset</button></div>'
        f'<div class="tm-presets" role="group" aria-label="Start from an example">Start from'
        f"{buttons}</div>"
    )


def _fold(place: Place, heading: str, summary: str, inside: str, prefix: str) -> str:
    return (
        f'<details class="tm-fold" data-key="{place}"><summary><b>{heading}</b> '
        f'<span data-summary="{place}" id="{prefix}-summary-{place}">{escape(summary)}</span>'
        f"</summary>{inside}</details>"
    )


def _folded(place: Place, values: Mapping[str, str], prefix: str) -> str:
    inside = f'<div class="tm-fields">{drawn(at(place), values, prefix)}</div>'
    return inside + "".join(
        f'<details class="tm-subfold" data-key="{below}"><summary>{heading}</summary>'
        f'<div class="tm-fields">{drawn(at(below), values, prefix)}</div></details>'
        for below, heading in _BELOW.get(place, ())
    )


def drawn(
    fields: tuple[Field, ...],
    values: Mapping[str, str],
    prefix: str,
    under: Mapping[str, str] | None = None,
) -> str:
    """Some of the controls, holding ``values``, with what stands under each in ``under``."""
    return "".join(
        _field(field, values[field.name], prefix, (under or {}).get(field.name, ""))
        for field in fields
    )


def _field(field: Field, value: str, prefix: str, note: str) -> str:
    """A label with its question mark, the control, and the place for a note or a reason."""
    name = f"{prefix}-{field.name}"
    symbol = f' <i class="tm-symbol">{field.symbol}</i>' if field.symbol else ""
    controls = {
        Kind.NUMBER: _number,
        Kind.CHOICE: _choice,
        Kind.FLAG: _flag,
        Kind.TEXT: _text,
    }
    words = f'<label for="{name}">{escape(field.label)}{symbol}</label>'
    help_ = question(field.label.lower(), field.meaning, f"{name}-help")
    control = controls[field.kind](field, value, name)
    head = f'<div class="tm-label">{words}{help_}</div>'
    body = f"{control}{head}" if field.kind is Kind.FLAG else f"{head}{control}"
    return (
        f'<div class="tm-field tm-field-{field.kind}" data-field="{field.name}">{body}'
        f'<p class="tm-note" id="{name}-note">{escape(note)}</p></div>'
    )


def _number(field: Field, value: str, name: str) -> str:
    what = escape(field.label.lower())
    return (
        '<div class="tm-stepper">'
        f'<button type="button" tabindex="-1" data-step="-1" aria-label="Halve {what}">−</button>'
        f'<input id="{name}" name="{field.name}" type="text" inputmode="numeric" spellcheck="false"'
        f' autocomplete="off" value="{escape(value)}" aria-describedby="{name}-note">'
        f'<button type="button" tabindex="-1" data-step="1" aria-label="Double {what}">+</button>'
        "</div>"
    )


def _text(field: Field, value: str, name: str) -> str:
    return (
        f'<input id="{name}" name="{field.name}" type="text" spellcheck="false" maxlength="200" '
        f'autocomplete="off" value="{escape(value)}" aria-describedby="{name}-note">'
    )


def _choice(field: Field, value: str, name: str) -> str:
    return (
        f'<select id="{name}" name="{field.name}" aria-describedby="{name}-note">'
        f"{''.join(_options(field, value))}</select>"
    )


def _options(field: Field, value: str) -> Iterator[str]:
    assert field.choices is not None
    for heading, options in field.choices().items():
        listed = "".join(
            f'<option value="{one}"{" selected" if one == value else ""}>{escape(words)}</option>'
            for one, words in options
        )
        yield f'<optgroup label="{escape(heading)}">{listed}</optgroup>' if heading else listed


def _flag(field: Field, value: str, name: str) -> str:
    checked = " checked" if value == "true" else ""
    return (
        f'<input id="{name}" name="{field.name}" type="checkbox" aria-describedby="{name}-note"'
        f"{checked}>"
    )
