"""An error explained, for a terminal."""

from __future__ import annotations

from ..oom.explanation import Explanation
from .oom import Part, parts
from .table import columns
from .terminal import Terminal


def oom_text(found: Explanation, terminal: Terminal) -> str:
    """The whole explanation in lines that ``terminal`` can show."""
    blocks = ["\n".join(_block(part, terminal)) for part in parts(found)]
    return "\n\n".join(blocks) + "\n"


def _block(part: Part, terminal: Terminal) -> list[str]:
    lines = [terminal.strong(terminal.shown(part.heading))]
    for sentence in part.sentences:
        lines += terminal.prose(sentence, first="  ")
    if part.facts:
        rows = [[f"    {name}", size] for name, size in part.facts]
        lines += [terminal.shown(line) for line in columns(rows, "<>")]
    for number, item in enumerate(part.items, 1):
        lines += terminal.prose(terminal.shown(f"{item.name}: {item.size}"), first=f"  {number}. ")
        if item.formula:
            lines += terminal.prose(item.formula, first="     ")
        for sentence in item.sentences:
            lines += terminal.prose(sentence, first="     ")
    return lines
