"""What every key has become, once all files are known: a note of one file as a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..run import DEFAULTS
from .report import Finding, Standing
from .settings import field_of
from .table import OFF, Note, Part


def findings(
    parts: Sequence[Part], settings: Mapping[str, object], dropped: Mapping[str, str]
) -> list[Finding]:
    """The findings of all files, whose ``settings`` together are those that the run is made of.

    ``dropped`` are settings that are not followed beside the others, each with what is said of it.
    """
    found = [_final(parts, settings, part, note) for part in parts for note in part.notes]
    return [
        replace(finding, standing=Standing.LOST, said=dropped[finding.field])
        if finding.field in dropped and finding.standing is Standing.UNDERSTOOD
        else finding
        for finding in found
        if finding is not None
    ]


def _final(
    parts: Sequence[Part], settings: Mapping[str, object], part: Part, note: Note
) -> Finding | None:
    """What has become of one note."""
    standing, said = note.standing, note.said
    if standing is Standing.ASSUMED and note.value and note.settings:
        theirs = [name for name in note.settings if name in part.settings]
        used = [name for name in note.settings if name in part.assumed]
        if not theirs and any(name in other.settings for other in parts for name in used):
            return None  # another file says it
    if standing is Standing.ASSUMED and not note.settings and not said:
        return None
    if standing is Standing.ASKED and said == "auto":
        same = {"global_batch": "accumulation"}  # either says how many micro-batches there are
        if any({name, same.get(name, name)} & settings.keys() for name in note.settings):
            standing, said = Standing.UNDERSTOOD, "as the other file says"
        else:
            said = "auto leaves it to a file that is not here; add that file, or say the value"
    used = [name for name in note.settings if name in settings or name.startswith("shape")]
    if note.settings and not used:
        if standing is Standing.ASSUMED:
            return None
        if standing is Standing.UNDERSTOOD:
            return _beside(part, note)  # such as an adapter's rank where there is none
    fields = [*dict.fromkeys(field_of(name) for name in note.settings)]
    lacks = [field for field in fields if field not in DEFAULTS]
    if standing in (Standing.UNDERSTOOD, Standing.ASSUMED) and fields and fields == lacks:
        # A degree of 1 is no splitting.
        idle = all(settings.get(name) in (*OFF, 1) for name in note.settings)
        if idle or standing is Standing.ASSUMED:
            return None if standing is Standing.ASSUMED else _beside(part, note)
        standing, said = Standing.LOST, f"the calculator has no {lacks[0]} yet"
    if standing is Standing.UNDERSTOOD:
        others = [
            other
            for other in parts[parts.index(part) + 1 :]
            for name in note.settings
            if name in part.settings
            if other.settings.get(name, part.settings[name]) != part.settings[name]
        ]
        if others:
            standing, said = Standing.ASKED, f"{others[-1].file} says otherwise, and was taken"
    if standing is Standing.ASKED and fields:
        said = f"{said}; here by {', '.join('--' + name.replace('_', '-') for name in fields)}"
    return Finding(
        standing=standing,
        file=part.file,
        key=note.key,
        value=note.value,
        field=", ".join(field for field in fields if field not in lacks),
        said=said,
    )


def _beside(part: Part, note: Note) -> Finding:
    return Finding(
        standing=Standing.BESIDE, file=part.file, key=note.key, value=note.value, said=note.said
    )
