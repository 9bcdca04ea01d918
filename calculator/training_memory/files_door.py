"""The door for a reader's own files: read in the page, which sends them nowhere.

A request has ``files``, each with its ``name`` and ``text``, ``state``, what the calculator shows
(see :mod:`.controls`), and ``data``, how many replicas there are where no file says so, or "". What
comes back is the state that the files mean, and what became of each of their keys. Of what is shown
stay the GPU and the units, of which no file tells, and the model where no file gives one.

A page fetches this module with the readers and PyYAML when somebody has a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from . import catalog, controls
from .errors import InputError, InputErrors
from .model import SHAPE_FIELDS
from .readers.formats import read_files
from .readers.report import Report
from .readers.resolve import Resolved
from .readers.stand_in import textbook
from .render.files import REFUSED, reading, refused, summary
from .units import parse_count

#: Far more than any configuration; what is larger is a model's weights, dropped by mistake.
MOST_LETTERS = 2**20


def answer(request_json: str) -> str:
    """The state and the report, or every error at once."""
    request = json.loads(request_json)
    try:
        told = _answer(request)
    except InputErrors as errors:
        told = {"ok": False, "said": REFUSED, "html": refused(errors.errors)}
    except InputError as error:
        told = {"ok": False, "said": REFUSED, "html": refused([error])}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _answer(request: Mapping[str, Any]) -> dict[str, object]:
    files = [(file["name"], file["text"]) for file in request["files"]]
    if not any(text.strip() for _, text in files):
        raise InputError("file", None, "choose one, or paste its text")
    for name, text in files:
        if len(text) > MOST_LETTERS:
            raise InputError(name, None, "it is too large for a configuration")
    said = request.get("data", "").strip()
    given = {"data": parse_count("replicas", said)} if said else {}
    resolved = read_files(files, given)
    state, report = _state(resolved, request.get("state", ""))
    return {"ok": True, "state": state, "said": summary(report), "html": reading(report)}


def _state(resolved: Resolved, shown: str) -> tuple[str, Report]:
    """The address of the run that the files mean, and what is to be said of it."""
    before, _ = controls.known(controls.parse(shown))
    model = resolved.model
    if model is not None:
        kept: dict[str, object] = {"model": "custom"}
        kept |= {name: getattr(model, name) for name in (*SHAPE_FIELDS, *catalog.CUSTOM)}
    elif "model" in resolved.fields:
        kept = {}
    else:
        names = {"model", *SHAPE_FIELDS, *catalog.CUSTOM}
        kept = {name: value for name, value in before.items() if name in names}
    aside = {name: before[name] for name in ("gpu", controls.UNITS) if name in before}
    asked = {**kept, **aside, **resolved.fields}
    report = resolved.report
    try:
        run = controls.read(asked)
    except InputErrors as found:
        other = textbook(asked, found.errors)
        if other is None:
            raise
        run = controls.read(other)
        why = found.errors[0].message.rstrip(".")
        report = report.in_the_textbooks_way(asked, str(asked["implementation"]), why)
        asked = other
    return controls.address(controls.normal(asked, run)), report
