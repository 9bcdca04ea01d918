"""The planner of the page: what it asks, and the cheapest plan with the lines to write for it."""

from __future__ import annotations

from ..controls import address
from ..fit import Found
from ..moves import Allow, price, words
from ..need import Fits
from ..units import show_bytes
from . import cost_model, costs, spelled
from .svg import escape

#: How many GPUs the page offers to plan for.
_GPUS = 8


def planner(*, prefix: str = "tm", usable: bool = False) -> str:
    """The question: how many GPUs, how many sequences a step; a script answers it."""
    disabled = "" if usable else " disabled"
    return (
        f'<details class="tm-planner" data-planner><summary>Find the cheapest plan that fits'
        '</summary><div class="tm-plan-ask">'
        f'<label for="{prefix}-plan-gpus">GPUs</label>'
        f'<input id="{prefix}-plan-gpus" type="number" min="1" step="1" value="{_GPUS}" '
        f"data-plan-gpus{disabled}>"
        f'<label for="{prefix}-plan-batch">Sequences a step</label>'
        f'<input id="{prefix}-plan-batch" type="number" min="1" step="1" placeholder="as now" '
        f"data-plan-batch{disabled}>"
        f"{_allowing(prefix, disabled)}"
        f'<button type="button" class="tm-quiet" data-plan="find"{disabled}>Find a plan</button>'
        f'<button type="button" class="tm-quiet" data-plan="stop" hidden>Stop looking'
        "</button></div>"
        '<p class="tm-caption" role="status" data-plan-said>Every split over the GPUs, micro-batch '
        "and way to recompute or offload is tried; the quickest that fits is shown.</p>"
        "<div data-plan-found></div></details>"
    )


_ALLOWING = {
    Allow.OPTIMIZER: "8-bit AdamW",
    Allow.ADAPTERS: "LoRA or QLoRA",
    Allow.CPU: "the optimizer on the CPU",
}


def _allowing(prefix: str, disabled: str) -> str:
    """What a plan may change of the training, if none fits that trains the same."""
    boxes = "".join(
        f'<label for="{prefix}-plan-{allow}"><input id="{prefix}-plan-{allow}" type="checkbox" '
        f'data-plan-allow="{allow}"{disabled}> {words}</label>'
        for allow, words in _ALLOWING.items()
    )
    return f'<span class="tm-plan-allow">If nothing else fits, also {boxes}</span>'


def found(answer: Found, *, binary: bool = False) -> str:
    """The answer to the question."""
    return f"{_plan(answer, binary=binary)}{_limits(answer)}"


def tried(answer: Found) -> str:
    """How many plans were tried where none fits, and what needed no trying."""
    said = f"{answer.tried:,} were tried"
    if not answer.too_large:
        return said
    ways = "1 way" if answer.too_large == 1 else f"{answer.too_large:,} ways"
    return f"{said}, and in {ways} to split it what stays from step to step is too much by itself"


def _plan(answer: Found, *, binary: bool) -> str:
    gpus = "1 GPU" if answer.gpus == 1 else f"{answer.gpus:,} GPUs"
    batch = "1 sequence" if answer.batch == 1 else f"{answer.batch:,} sequences"
    plan = answer.plan
    if plan is None:
        return f"<p>No plan fits on {gpus} with {batch} a step; {tried(answer)}.</p>"
    steps = words(answer.run, plan.run) or ("The run as it is",)
    listed = "".join(f"<li>{escape(one)}</li>" for one in steps)
    price_ = price(answer.run, plan.run)
    paid = f" Paid with: {escape(price_)}." if price_ else ""
    needs = show_bytes(plan.peak_bytes, binary=binary)
    fields = {name: "" if value is None else value for name, value in plan.fields.items()}
    apply = (
        f'<button type="button" class="tm-quiet" data-set="{escape(address(fields))}" '
        'aria-label="Apply this plan">Apply</button>'
        if fields
        else ""
    )
    tight = "" if plan.fits is Fits.YES else ", tight"
    return (
        f'<p class="tm-heading">The cheapest of {answer.tried:,} on {gpus}, {batch} a step'
        f"{tight}</p>"
        f'<ul class="tm-plan-steps">{listed}</ul>'
        f'<p class="tm-caption">Needs {needs}; {escape(costs.of_plan(plan.cost, binary=binary))}. '
        "The time is the least that arithmetic and traffic allow; a real step takes "
        f"longer.{paid}</p>{apply}{spelled.folds(plan.fields, plan.run)}{cost_model.fold(plan.run)}"
    )


def _fewest(answer: Found) -> str:
    if answer.fewest is None:
        return "no number is enough" if answer.done else "…"
    return f"{answer.fewest:,}"


def _limits(answer: Found) -> str:
    of = "with this plan" if answer.plan else "as the run is"
    facts = {
        "Fewest GPUs": _fewest(answer),
        f"Longest sequence {of}": "not even one token fits"
        if answer.longest is None
        else f"{answer.longest:,} tokens",
        f"Largest micro-batch {of}": "not even one sequence fits"
        if answer.largest is None
        else f"{answer.largest:,}",
    }
    items = "".join(f"<div><dt>{name}</dt><dd>{said}</dd></div>" for name, said in facts.items())
    return f'<dl class="tm-limits">{items}</dl>'
