"""How Python starts in a page, as a table: recorded by ``scripts/benchmarks/start.py --record``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from content import ContentError
from places import DOCS

RECORD = DOCS / "data" / "start.json"

#: What is shown of a start, by the marks that it leaves, and what each means.
STAGES = {
    "wanted": "Python is wanted",
    "asked for": "its worker runs",
    "compiled": "WebAssembly is compiled",
    "memory arrived": "Python's memory is here, unpacked",
    "module made": "its module is made",
    "started": "Python runs",
    "installed": "the calculator's wheel is unpacked",
    "calculator imported": "the calculator is imported",
    "first answer": "the first answer is there",
}
#: The starts that are set side by side, the slowest first.
STARTS = {
    "plain": "Bare page",
    "before": "Plain start",
    "now": "From memory",
}


def read(record: Path = RECORD) -> dict[str, Any]:
    """What was recorded. Raises :class:`content.ContentError` where nothing was."""
    try:
        found: dict[str, Any] = json.loads(record.read_bytes())
    except (FileNotFoundError, json.JSONDecodeError) as error:
        raise ContentError(
            f"{record.name}: {error}; "
            "`.venv/bin/python scripts/benchmarks/start.py --record` writes it"
        ) from error
    return found


def start_trace(record: Path = RECORD) -> str:
    """A Markdown table: when each start reached each stage, in milliseconds."""
    found = read(record)
    lines = [
        "| " + " | ".join(["Milliseconds", *STARTS.values()]) + " |",
        "|:--|" + "--:|" * len(STARTS),
    ]
    for stage, words in STAGES.items():
        times = [found["stages_ms"][start].get(stage) for start in STARTS]
        if any(time is not None for time in times):
            shown = ("" if time is None else f"{time:,.0f}" for time in times)
            lines.append(f"| {words} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def start_measured(record: Path = RECORD) -> str:
    """How the starts were measured, and the one ratio that is aimed at, as a sentence."""
    found = read(record)
    return (
        f"Medians of {found['rounds']} starts of each kind in turn, in {found['browser']} on "
        f"{found['machine']}, each in a new window without a cache. From memory, the first answer "
        f"comes after {found['ratio']:.2f} of the time in which the bare page has "
        "only unpacked the wheel."
    )
