"""What other programs' files say, for a terminal: key by key, and what is not in the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..readers.report import MEANINGS, Finding, Report, Standing
from ..readers.resolve import Resolved
from .table import fitting
from .terminal import Terminal

_MARGIN = "  "
#: What someone may say beside the files.
DEGREES = ("data", "tensor", "pipeline", "vocabulary")


def reading_json(resolved: Resolved) -> dict[str, object]:
    """The run's fields that files decide, and the report, as plain values."""
    fields = dict(resolved.fields)
    if resolved.model:
        fields["model"] = resolved.model.name
    return {"run": fields, "reading": resolved.report.to_json()}


def reading_text(resolved: Resolved, given: Mapping[str, object], terminal: Terminal) -> str:
    """The whole report in lines, and the command that uses the files."""
    report = resolved.report
    lines = [f"{file}: {name}" for file, name in report.files.items()]
    for standing, meaning in MEANINGS.items():
        found = report.of(standing)
        if found:
            lines += ["", terminal.strong(f"{str(standing).capitalize()} ({meaning})")]
            lines += _listed(standing, found, terminal)
    configs = given["config"] if isinstance(given["config"], list) else []
    flags = [f"--config {path}" for path in configs]
    flags += [f"--{name} {given[name]}" for name in DEGREES if name in given]
    lines += [
        "",
        "The answer:",
        *terminal.prose(f"training-memory estimate {' '.join(flags)}", first=_MARGIN),
    ]
    return "\n".join(lines) + "\n"  # fmt: skip


def doubts(report: Report, terminal: Terminal) -> str:
    """What bears on memory and is not in the answer, under the answer; nothing where all is."""
    found = report.doubts
    if not found:
        return ""
    lines = ["", "In the files, and not in this answer (training-memory read lists every key):"]
    for finding in found:
        lines += terminal.prose(sentence(finding), first=f"{_MARGIN}- ")
    return "\n".join(lines) + "\n"


def sentence(finding: Finding) -> str:
    """A finding in words."""
    key = f"{finding.key}: {finding.value}" if finding.file else f"{finding.key} ({finding.value})"
    return f"{key} - {finding.said}" if finding.said else key


def _listed(
    standing: Standing, found: Sequence[Finding], terminal: Terminal
) -> Iterator[str] | list[str]:
    if standing is Standing.BESIDE:
        names = ", ".join(dict.fromkeys(one.key for one in found if not one.said))
        plain = terminal.prose(names, first=_MARGIN) if names else []
        return [*plain, *_sentences([one for one in found if one.said], terminal)]
    if standing in (Standing.UNDERSTOOD, Standing.ASSUMED):
        rows = [[finding.key, finding.value, finding.field, finding.said] for finding in found]
        return [_MARGIN + line for line in fitting(rows, "<<<<", terminal.width - 2, spare=(3,))]
    return _sentences(found, terminal)


def _sentences(found: Sequence[Finding], terminal: Terminal) -> list[str]:
    return [
        line
        for finding in found
        for line in terminal.prose(sentence(finding), first=f"{_MARGIN}- ")
    ]
