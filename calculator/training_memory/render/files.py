"""What was made of a reader's own files, in the page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..errors import InputError
from ..readers.report import DOUBTS, MEANINGS, Finding, Report, Standing
from .fields import FIELDS
from .svg import escape

#: What a reader must know comes first.
_ORDER = (*DOUBTS, *(standing for standing in MEANINGS if standing not in DOUBTS))
_FLAG = re.compile(r"--([a-z][a-z-]*)")
_LABELS = {field.name: field.label for field in FIELDS}

#: Said where :func:`refused` says why.
REFUSED = "These files cannot be used."


def reading(report: Report) -> str:
    """What became of every key: first what is not in the answer, then the rest, folded."""
    files = "".join(
        f"<li><b>{escape(name)}</b> {escape(form)}</li>" for name, form in report.files.items()
    )
    groups = "".join(_group(standing, report) for standing in _ORDER)
    return f'<ul class="tm-read-files">{files}</ul>{groups}'


def summary(report: Report) -> str:
    """The same in a sentence."""
    number = len(report.doubts)
    if not number:
        return "Read: everything that bears on memory is in the answer."
    things = (
        "One thing that may bear on memory is"
        if number == 1
        else f"{number} things that may bear on memory are"
    )
    return f"Read: {things} not in the answer."


def _group(standing: Standing, report: Report) -> str:
    found = report.of(standing)
    if not found:
        return ""
    heading = f"{str(standing).capitalize()}: {MEANINGS[standing]}"
    if standing in DOUBTS:
        items = "".join(f"<li>{_key(one)}{_said(one)}</li>" for one in found)
        return f'<p class="tm-read-{standing.name.lower()}">{heading}</p><ul>{items}</ul>'
    inside = _names(found) if standing is Standing.BESIDE else _table(standing, found)
    return (
        f'<details data-key="read-{standing.name.lower()}"><summary>{heading} ({len(found)})'
        f"</summary>{inside}</details>"
    )


def _key(finding: Finding) -> str:
    return f"<code>{escape(finding.key)}</code> {escape(finding.value)}"


def _said(finding: Finding) -> str:
    return f": {_here(finding.said)}" if finding.said else ""


def _here(said: str) -> str:
    """The words with the page's controls in the place of the command line's flags."""

    def control(flag: re.Match[str]) -> str:
        label = _LABELS.get(flag[1].replace("-", "_"))
        return f"<i>{escape(label)}</i>" if label else flag[0]

    return _FLAG.sub(control, escape(said))


def _names(found: Sequence[Finding]) -> str:
    names = dict.fromkeys(finding.key for finding in found if not finding.said)
    plain = ", ".join(f"<code>{escape(name)}</code>" for name in names)
    told = "".join(f"<p>{_key(one)}{_said(one)}</p>" for one in found if one.said)
    return (f"<p>{plain}</p>" if plain else "") + told


def _table(standing: Standing, found: Sequence[Finding]) -> str:
    named = f'role="region" aria-label="Keys {standing}"'
    return (
        f'<div class="tm-read-table" tabindex="0" {named}><table>'
        "<thead><tr><th>Key</th><th>Value</th><th>Decides</th><th>Note</th></tr></thead>"
        f"<tbody>{''.join(_rows(found))}</tbody></table></div>"
    )


def _rows(found: Sequence[Finding]) -> Iterator[str]:
    for one in found:
        cells = (f"<code>{escape(one.key)}</code>", escape(one.value), escape(one.field))
        said = _here(one.said)
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}<td>{said}</td></tr>"


def refused(errors: Sequence[InputError]) -> str:
    """Why files cannot be read, each with the remedy."""
    items = "".join(f"<li>{_reason(error)}</li>" for error in errors)
    return f'<ul class="tm-read-refused">{items}</ul>'


def _reason(error: InputError) -> str:
    value = "" if error.value is None else f" {escape(_short(repr(error.value)))} cannot be used:"
    hint = f" Did you mean <code>{escape(error.suggestion)}</code>?" if error.suggestion else ""
    return f"<code>{escape(error.field)}</code>{value} {escape(error.allowed)}.{hint}"


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
