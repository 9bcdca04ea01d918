"""The calculator in a page of the site, with its default answer already drawn."""

from __future__ import annotations

import re

import runtime
from places import RUNTIME
from training_memory import controls, units
from training_memory.presets import FIRST
from training_memory.render import page

# Python-Markdown hands a block of HTML through as long as no blank line ends it.
_BLANK = re.compile(r"\n\s*\n")


def calculator(preset: str = FIRST, *, name: str = "tm") -> str:
    """The calculator's HTML showing ``preset``; ``name`` begins its ids, should a page have several.

    Raises the calculator's ``InputError`` for an unknown preset, ``FileNotFoundError`` where the
    runtime has not been laid out.
    """
    manifest = runtime.manifest(RUNTIME)
    html = page.calculator(
        controls.of_preset(preset),
        prefix=name,
        runtime={
            "pyodide": manifest["pyodide"]["base"],
            "package": manifest["package"]["path"],
            "files": {file["path"]: file["bytes"] for file in manifest["files"]},
            "size": manifest["gzip_bytes"],
        },
        size=units.show_bytes(manifest["gzip_bytes"]),
    )
    if _BLANK.search(html):
        raise ValueError("the calculator's HTML has a blank line, at which Markdown would cut it")
    return html
