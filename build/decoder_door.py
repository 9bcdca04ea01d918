"""The Decoder's door in a page: one JSON string in, one out, a little work for each.

``{"do": "begin", "steps", "seed", "page"}`` makes a run ready; ``{"do": "next", "run"}`` does its
next piece (a training step, the count, one tensor's gradient) and is sent again until ``done``;
``{"do": "stop", "run"}`` ends it early. A run that has ended, or was another Python's, which broke,
is not ``ok``, without an error. Between two pieces nothing runs, so the same Python can answer the
rest of the page, and a reader can stop. ``page`` is what the page says of its own run, with which
this one is compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count as from_one
from itertools import islice
from typing import Any

import decoder_tables as tables
from decoder import Checked, Comparison, Decoder, compare, count_step, gradient_checks, losses
from decoder.training import SEQUENCES
from decoder_curve import loss_curve
from training_memory.blocks.paper import LAYER
from training_memory.errors import InputError, InputErrors
from training_memory.render.svg import escape
from training_memory.units import parse_count

PREFIX = "decoder-run"
"""What the ids begin with of what is shown."""

ELEMENTS = 2
"""Elements of each matrix whose gradient is checked; a reader waits for each."""

MOST_STEPS = 500
_MOST_SEED = 999_999

#: What a run begins with on the page: nothing of the last one.
_NOTHING = dict.fromkeys(("curve", "verdict", "kept", "tape", "rows", "causes", "gradients"), "")

#: An error above this power of ten is no rounding.
_AGREES = -6

_numbers = from_one(1)
_runs: dict[int, Iterator[dict[str, object]]] = {}


def answer(request_json: str) -> str:
    """The answer to a request: ``ok`` with what to show, or every error at once.

    ``html`` holds parts by their names on the page, ``said`` a sentence for the status line,
    ``progress`` what changes too often to be read aloud, ``share`` how much is done, 0 to 1.
    """
    request = json.loads(request_json)
    try:
        found = _DOORS[request["do"]](request)
    except InputErrors as errors:
        found = {"ok": False, "errors": [_error(one) for one in errors.errors]}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _begin(request: dict[str, Any]) -> dict[str, object]:
    steps, seed = _read(request)
    _runs.clear()  # whoever begins anew has left the last one
    run = next(_numbers)
    _runs[run] = _work(steps, seed, request["page"])
    return {"ok": True, "run": run, **_piece(share=0, said="The run begins.", html=_NOTHING)}


def _next(request: dict[str, Any]) -> dict[str, object]:
    run = request["run"]
    if run not in _runs:
        return {"ok": False, "errors": []}
    piece = next(_runs[run])
    if piece["done"]:
        del _runs[run]
    return {"ok": True, "run": run, **piece}


def _stop(request: dict[str, Any]) -> dict[str, object]:
    run = request["run"]
    _runs.pop(run, None)
    return {"ok": True, "run": run, **_piece(share=0, said="Stopped by you.", done=True)}


_DOORS = {"begin": _begin, "next": _next, "stop": _stop}


def _read(request: dict[str, Any]) -> tuple[int, int]:
    found, errors = [], []
    for field, least, most in (("steps", 1, MOST_STEPS), ("seed", 0, _MOST_SEED)):
        try:
            found.append(parse_count(field, request[field], least=least, most=most))
        except InputError as error:
            errors.append(error)
    if errors:
        raise InputErrors(errors)
    steps, seed = found
    return steps, seed


def _error(error: InputError) -> dict[str, object]:
    return {"field": error.field, "reason": f"{error.value} cannot be used: {error.allowed}."}


def _work(steps: int, seed: int, page: dict[str, Any]) -> Iterator[dict[str, object]]:
    """The whole run, a piece at a time."""
    tensors = len(Decoder().parameters)
    pieces = steps + 1 + tensors
    beside = tuple(map(float, page["losses"])) if seed == page["seed"] else ()
    made: list[float] = []
    for loss in islice(losses(seed=seed), steps):
        made.append(loss)
        yield _piece(
            share=len(made) / pieces,
            said=f"Training, {SEQUENCES} sequences a step.",
            progress=f"Step {len(made)} of {steps}, loss {tables.loss_text(loss)}",
            html={"curve": loss_curve(made, steps=steps, prefix=PREFIX, beside=beside)},
        )

    counted = count_step(sequences=SEQUENCES, seed=seed)
    comparison = compare(LAYER.rows, counted=counted.block)
    shown = {
        "kept": tables.kept(counted, comparison).html(),
        "tape": tables.tape(counted).html(),
        "rows": tables.rows(comparison).html(),
        "causes": tables.causes(comparison).html(),
    }
    said = _count_said(comparison, page)
    yield _piece(
        share=(steps + 1) / pieces,
        said=f"One step's tape is counted: {comparison.counted_values:,} values. "
        "Now its gradients are checked.",
        html={**shown, "verdict": said},
    )

    checked: list[Checked] = []
    for one in gradient_checks(elements=ELEMENTS, seed=seed):
        checked.append(one)
        done = len(checked) == tensors
        said += _gradients_said(checked) + _losses_said(made, beside) if done else ""
        yield _piece(
            share=(steps + 1 + len(checked)) / pieces,
            said="Done: counted, checked and trained in this page."
            if done
            else "Checking gradients, one tensor after the other.",
            progress="" if done else f"Tensor {len(checked)} of {tensors}",
            html={"gradients": tables.gradients(checked).html(), "verdict": said} if done else {},
            done=done,
        )


def _piece(
    *,
    share: float,
    said: str,
    progress: str = "",
    html: dict[str, str] | None = None,
    done: bool = False,
) -> dict[str, object]:
    return {
        "share": round(share, 4),
        "said": said,
        "progress": progress,
        "html": html or {},
        "done": done,
    }


def _count_said(found: Comparison, page: dict[str, Any]) -> str:
    here = (found.counted_values, found.textbook_values)
    there = (page["counted"], page["textbook"])
    words = f"{here[0]:,} values kept, {here[1]:,} by the formula."
    if here == there:
        return _verdict(
            True, words, "Counted in this browser just now; this page's table has the same."
        )
    return _verdict(False, words, f"But this page's table has {there[0]:,} and {there[1]:,}.")


def _gradients_said(checked: Sequence[Checked]) -> str:
    worst = max(
        tables.bound(max(one.max_relative_error, one.direction_relative_error)) for one in checked
    )
    values = sum(one.elements for one in checked)
    return _verdict(
        worst <= _AGREES,
        f"{len(checked)} tensors' gradients agree." if worst <= _AGREES else "A gradient is wrong.",
        f"{values:,} elements and a random direction through each tensor, against numerical "
        f"derivatives: errors below {tables.power(worst)}.",
    )


def _losses_said(made: Sequence[float], beside: Sequence[float]) -> str:
    fell = f"The loss went from {tables.loss_text(made[0])} to {tables.loss_text(made[-1])}."
    pairs = list(zip(made, beside, strict=False))
    off = [
        step for step, (one, other) in enumerate(pairs, start=1)
        if tables.loss_text(one) != tables.loss_text(other)
    ]  # fmt: skip
    if not pairs:
        return _verdict(
            None, fell, "Weights and passages were drawn anew, so they are this run's own."
        )
    if off:
        return _verdict(
            False, fell, f"Step {off[0]} is the first that differs from this page's run."
        )
    return _verdict(
        True, fell, f"Steps 1 to {len(pairs)} are those of this page's run, to three decimals."
    )


def _verdict(good: bool | None, words: str, more: str) -> str:
    css = {True: "tm-verdict tm-fits", False: "tm-verdict tm-too-much", None: ""}[good]
    return f'<p class="{css}"><b>{escape(words)}</b> {escape(more)}</p>'
