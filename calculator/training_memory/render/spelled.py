"""Changes as the lines to write for other programs, for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..run import Run
from ..spelling import Spelling, spellings
from .svg import escape


def folds(fields: Mapping[str, object], after: Run) -> str:
    """A fold for each library that has anything to say of the changed ``fields``."""
    return "".join(
        f'<details class="tm-spelled"><summary>For {one.library}</summary>{_said(one)}</details>'
        for one in _saying(fields, after)
    )


def fold(fields: Mapping[str, object], after: Run, title: str) -> str:
    """The same in a single fold; ``title`` is the change's, for those who hear the page."""
    told = "".join(f"<dt>{one.library}</dt><dd>{_said(one)}</dd>" for one in _saying(fields, after))
    return (
        f'<details class="tm-spelled"><summary aria-label="Lines to write: {escape(title)}">'
        f"Lines to write</summary><dl>{told}</dl></details>"
    )


def lines(fields: Mapping[str, object], after: Run, margin: str) -> Iterator[str]:
    """The same as text: for each library its name and, further in, its lines."""
    for one in _saying(fields, after):
        yield f"{margin}{one.library}:"
        yield from (f"{margin}  {line}" for line in one.lines)
        yield from (f"{margin}  (no line for {lack})" for lack in one.lacks)


def _saying(fields: Mapping[str, object], after: Run) -> Iterator[Spelling]:
    return (one for one in spellings(fields, after) if one.lines or one.lacks)


def _said(one: Spelling) -> str:
    # Each line break by its number: a real one would end a block in a page's Markdown.
    written = "&#10;".join(map(escape, one.lines))
    code = f"<pre><code>{written}</code></pre>" if written else ""
    lacks = "".join(f"<li>No line for {escape(lack)}</li>" for lack in one.lacks)
    return code + (f'<ul class="tm-lacks">{lacks}</ul>' if lacks else "")
