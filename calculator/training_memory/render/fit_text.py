"""Whether a run fits and what would make it, as text for a terminal or a file."""

from __future__ import annotations

from ..fit import Change, Fit, Found
from ..moves import OFFLOADS, price, words
from ..need import Fits
from ..plans import Plan
from ..units import show_bytes
from . import costs, spelled
from .answer import described
from .cost_model import rates
from .plan import tried
from .table import fitting
from .terminal import Terminal

_MARGIN = "  "
#: How many single changes are shown.
_MOST = 12


def fit_text(
    fit: Fit, terminal: Terminal, *, binary: bool = False, every_line: bool = False
) -> str:
    """Every part of the answer in order, the verdict first.

    With ``every_line`` each single change has its lines to write, as the plan always has.
    """
    answered = _answered(fit, binary=binary)
    verdict = _verdict(fit, binary=binary)
    blocks = (
        terminal.prose(answered) if answered else (),
        terminal.prose(f"As it is: {verdict}" if answered else verdict),
        _single(fit, terminal, binary=binary, every_line=every_line),
        _plan(fit, terminal, binary=binary),
        _limits(fit.found, terminal),
        terminal.prose(
            "Times are the least that arithmetic and traffic allow, for ranking; a real step takes "
            f"longer. {rates(fit.before.run)}"
        ),
    )
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _answered(fit: Fit, *, binary: bool) -> str:
    """What was asked, in a line: whether so many GPUs do. "" where the run itself does on them."""
    run, found = fit.before.run, fit.found
    if fit.before.fits is Fits.YES and found.gpus == run.layout.gpus:
        return ""
    assert run.gpu is not None
    where = f"{_gpus(found.gpus)} ({run.gpu.name})"
    if found.plan is None:
        said = f"No: no plan fits on {where}"
        enough = "would be enough"
    else:
        yes = "Yes" if found.plan.fits is Fits.YES else "Just"
        peak = show_bytes(found.plan.peak_bytes, binary=binary)
        of = " of each" if found.gpus > 1 else ""
        said = f"{yes}: the cheapest plan on {where} needs {peak}{of}"
        enough = "are enough" if found.plan.fits is Fits.YES else "surely are enough"
    if found.fewest is None:
        return f"{said}; no number of GPUs that was tried surely is enough."
    if found.fewest == found.gpus:
        return f"{said}{'; fewer are not enough' if found.gpus > 1 else ''}."
    enough = enough.replace("are", "is") if found.fewest == 1 else enough
    return f"{said}; {_gpus(found.fewest)} {enough}."


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number:,} GPUs"


def _verdict(fit: Fit, *, binary: bool) -> str:
    run, room = fit.before.run, fit.before.room_bytes
    assert run.gpu is not None
    assert room is not None
    peak = show_bytes(fit.before.worst.peak_bytes, binary=binary)
    size = show_bytes(abs(room), binary=binary)
    said = {
        Fits.YES: f"It fits, with {size} left",
        Fits.TIGHT: f"It is tight: {size} are left, and what an allocator reserves may need more",
        Fits.NO: f"It does not fit: {size} too much"
        if room < 0
        else "It does not fit with what an allocator and CUDA need beside it",
    }[fit.before.fits or Fits.YES]
    return f"{described(run)}, needs {peak} of a GPU ({run.gpu.name}). {said}."


def _single(fit: Fit, terminal: Terminal, *, binary: bool, every_line: bool) -> list[str]:
    if not fit.changes:
        return []
    shown = fit.changes[:_MOST]
    rows = [["Single changes, best first", "saves", "needs", ""]]
    rows += [_row(change, binary=binary) for change in shown]
    head, *told = (f"{_MARGIN}{line}" for line in fitting(rows, "<>><", terminal.width, spare=()))
    lines = [terminal.strong(head)]
    for line, change in zip(told, shown, strict=True):
        paid = costs.of_change(change, binary=binary)
        lines += [line, *terminal.prose(paid, first=_MARGIN * 3)]
        if every_line:
            lines += spelled.lines(change.fields, change.run, _MARGIN * 3)
    if not every_line:
        lines.append(f"{_MARGIN}what to write for each: --lines")
    if (rest := len(fit.changes) - _MOST) > 0:
        lines.append(f"{_MARGIN}and {rest} more (--json lists all)")
    return lines


def _row(change: Change, *, binary: bool) -> list[str]:
    return [
        change.title,
        show_bytes(change.saved_bytes, binary=binary),
        show_bytes(change.peak_bytes, binary=binary),
        "" if not change.fits else "fits, tight" if change.tight else "fits",
    ]


def _plan(fit: Fit, terminal: Terminal, *, binary: bool) -> list[str]:
    found = fit.found
    gpus = _gpus(found.gpus)
    batch = "1 sequence" if found.batch == 1 else f"{found.batch:,} sequences"
    where = f"on {gpus} with {batch} a step"
    if found.plan is None:
        said = f"No plan fits {where}; {tried(found)}."
        if not found.allow and fit.before.run.implementation in OFFLOADS:
            said += (
                " Plans that train otherwise: --allow optimizer or --allow adapters; with the "
                "optimizer on the CPU: --allow cpu."
            )
        return terminal.prose(said)
    plan = found.plan
    lines = terminal.prose(
        f"The cheapest plan that {_surely(plan)} {where}, of {found.tried:,} (needs "
        f"{show_bytes(plan.peak_bytes, binary=binary)}; {costs.of_plan(plan.cost, binary=binary)}):"
    )
    steps = words(fit.before.run, plan.run) or ("The run as it is",)
    lines += [f"{_MARGIN}- {one}" for one in steps]
    if paid := price(fit.before.run, plan.run):
        lines += terminal.prose(f"paid with: {paid}", first=_MARGIN)
    for line in spelled.lines(plan.fields, plan.run, _MARGIN):
        lines += [line] if line.startswith(_MARGIN * 2) else ["", line]
    return lines


def _surely(plan: Plan) -> str:
    """Tight: an allocator may need more than there is, if its luck is bad."""
    return "fits" if plan.fits is Fits.YES else "fits, tightly,"


def _limits(found: Found, terminal: Terminal) -> list[str]:
    of = "the plan" if found.plan else "the run as it is"
    rows = [
        ("Fewest GPUs", "no number is enough" if found.fewest is None else f"{found.fewest:,}"),
        (
            "Longest sequence",
            "not even one token fits"
            if found.longest is None
            else f"{found.longest:,} tokens, of {of}",
        ),
        (
            "Largest micro-batch",
            "not even one sequence fits"
            if found.largest is None
            else f"{found.largest:,}, of {of}",
        ),
    ]
    width = max(len(name) for name, _ in rows) + 2
    return [
        line
        for name, said in rows
        for line in terminal.prose(said, first=f"{_MARGIN}{name:{width}}")
    ]
