"""The parts of an answer, each a piece of HTML by the name of its place on the page."""

from __future__ import annotations

import re

from ..estimate import Estimate
from ..need import Fits
from ..units import show_bytes
from . import need as needed
from .answer import answer
from .bar import bar
from .html_table import table
from .split import split
from .step import step
from .svg import escape

_SIZE = re.compile(r"(\d) ([kMGT]i?B)\b")


#: The line of long work that is under way, for a script to fill in.
WORKING = (
    '<p class="tm-work"><span role="status" data-working></span> <button type="button" '
    'class="tm-quiet" data-stop aria-keyshortcuts="Escape" hidden>Stop</button></p>'
)


def parts(
    estimate: Estimate, *, binary: bool = False, prefix: str = "tm", full: bool = True
) -> dict[str, str]:
    """Every part of the answer to one run; unless ``full`` only what is found at once."""
    full = full or needed.quickly(estimate)
    return {
        "answer": sentence(estimate, binary=binary),
        "verdict": verdict(estimate, binary=binary, full=full),
        "need": need(estimate, binary=binary, full=full),
        "bar": bar(estimate, binary=binary, prefix=prefix),
        "step": step(estimate, binary=binary, prefix=prefix),
        "split": split(estimate, binary=binary, prefix=prefix),
        "table": table(estimate, binary=binary, prefix=prefix),
        "omitted": omitted(estimate),
    }


def sentence(estimate: Estimate, *, binary: bool = False) -> str:
    """The answer's sentences, with the number that is the answer marked."""
    said = escape(answer(estimate, binary=binary))
    needed = show_bytes(estimate.worst.peak_bytes, binary=binary)
    return unbroken(said.replace(f"needs {needed}", f"needs <strong>{needed}</strong>", 1))


def unbroken(words: str) -> str:
    """The same words with their sizes kept on one line each."""
    return _SIZE.sub("\\1\u00a0\\2", words)


def need(estimate: Estimate, *, binary: bool = False, full: bool = True) -> str:
    """What must be free on the GPU; unless ``full`` only that it is more than the peak."""
    if not full:
        return '<p class="tm-need">To be free on the GPU: the peak, and more.</p>'
    bounds = needed.bounds(estimate.need, binary=binary)
    said = escape(needed.made_of(estimate.need, binary=binary))
    return unbroken(f'<p class="tm-need">To be free on the GPU: <b>{bounds}</b>. {said}</p>')


def verdict(estimate: Estimate, *, binary: bool = False, full: bool = True) -> str:
    """Whether it fits, and how much room is left or missing."""
    room, gpu = estimate.room_bytes, estimate.run.gpu
    if room is None or gpu is None:
        return '<span class="tm-verdict">No GPU chosen, so nothing to fit into.</span>'
    size = show_bytes(abs(room), binary=binary)
    if room < 0:
        words = f"<b>Does not fit</b> {size} too much for {_the(gpu.name)}"
        return unbroken(f'<span class="tm-verdict tm-too-much">{words}</span>')
    if full and (but := needed.verdict(estimate)):
        tight = estimate.fits is Fits.TIGHT
        word, css = ("Tight", "tm-tight") if tight else ("Does not fit", "tm-too-much")
        helps = f" {needed.helps(estimate.need, binary=binary)}" if tight else ""
        return unbroken(
            f'<span class="tm-verdict {css}"><b>{word}</b> {size} left beside the peak, but '
            f"{escape(but)}.{helps}</span>"
        )
    words = f"<b>Fits</b> {size} of {_the(gpu.name)} left"
    return unbroken(f'<span class="tm-verdict tm-fits">{words}</span>')


def _the(name: str) -> str:
    return f"the {escape(name)}"


def omitted(estimate: Estimate) -> str:
    """What the accounting leaves out, folded behind how much of it there is."""
    items = "".join(f"<li>{escape(one)}</li>" for one in estimate.omitted)
    return (
        f'<details class="tm-omitted" data-key="omitted"><summary>{len(estimate.omitted)} things '
        f"this leaves out</summary><ul>{items}</ul></details>"
    )
