"""The calculator in a page of the site, with its default answer already drawn."""

from __future__ import annotations

import re
from typing import Any

import runtime
from places import RUNTIME
from training_memory import controls, units
from training_memory.presets import FIRST
from training_memory.render import page, small

# Python-Markdown hands a block of HTML through as long as no blank line ends it.
_BLANK = re.compile(r"\n\s*\n")


def runtime_data() -> dict[str, Any]:
    """What a page's script must know to start Python there; see Manifest in web/runtime.js.

    ``size`` is the bytes that travel, compressed. Raises ``FileNotFoundError`` where the runtime
    has not been laid out.
    """
    manifest = runtime.manifest(RUNTIME)
    return {
        "pyodide": manifest["pyodide"]["base"],
        "info": manifest["pyodide"]["info"],
        "library": manifest["library"],
        "package": manifest["package"]["path"],
        "files": manifest["apart"]["files"]["path"],
        "snapshot": manifest["snapshot"],
        "starts": {kind: start["files"] for kind, start in manifest["starts"].items()},
        "size": manifest["starts"]["quick"]["gzip_bytes"],
    }


def calculator(preset: str = FIRST, *, name: str = "tm") -> str:
    """The calculator's HTML showing ``preset``; ``name`` begins its ids on a page with several.

    Raises the calculator's ``InputError`` for an unknown preset, and as :func:`runtime_data`.
    """
    data = runtime_data()
    html = page.calculator(
        controls.of_preset(preset),
        prefix=name,
        runtime=data,
        size=units.show_bytes(data["size"]),
    )
    return _whole(html)


def small_calculator(name: str, label: str, fields: list[str], **run: object) -> str:
    """A small live view of a run with the controls called ``fields``; ``name`` begins its ids.

    Raises the calculator's ``InputErrors`` for a run that cannot be, ``ValueError`` for a name that
    is no control, and as :func:`runtime_data`.
    """
    return _whole(small.small(run, fields, prefix=name, label=label, runtime=runtime_data()))


def _whole(html: str) -> str:
    if _BLANK.search(html):
        raise ValueError("the calculator's HTML has a blank line, at which Markdown would cut it")
    return html
