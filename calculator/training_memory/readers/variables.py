"""Variables in values: ``${NAME:-usual}``, ``$NAME``, and ``${key}`` of the file itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: What :func:`said_in` gives where nothing in a value is left unsaid.
UNSAID = ""

_VARIABLE = re.compile(
    r"\$\{(?:oc\.env:|env:)?(?P<braced>[\w.]+)(?:(?::?[-=]|,)(?P<usual>[^}]*))?\}"
    r"|\$\((?:\(.*\)|.*)\)|`[^`]*`|\$(?P<plain>\w+)|\{\{.*\}\}"
)
_DEEP = 5
_LONGEST = 1000


def said_in(value: object, values: Mapping[str, object]) -> tuple[object, str, str]:
    """A value with its variables in place, what was assumed for that, and what is left unsaid.

    ``values`` is the whole file: OmegaConf's ``${batch_size}`` means its key of that name. No
    variable of this machine's environment is looked at, for the job's may be another.
    """
    remarks: list[str] = []
    for _ in range(_DEEP):
        if not isinstance(value, str) or len(value) > _LONGEST:
            return value, "; ".join(remarks), UNSAID
        if not (match := _VARIABLE.search(value)):
            return value, "; ".join(remarks), UNSAID
        found = _found(match, values)
        if found is None:
            return value, "", match[0]
        inner, remark = found
        if remark:
            remarks.append(remark)
        whole = match.span() == (0, len(value))
        value = inner if whole else value[: match.start()] + str(inner) + value[match.end() :]
    return value, "", str(value)


def _found(match: re.Match[str], values: Mapping[str, object]) -> tuple[object, str] | None:
    name = match["braced"] or match["plain"]
    if name is None:
        return None
    inner: object = values
    for key in name.split("."):
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    if isinstance(inner, str | int | float) and match["braced"]:
        return inner, ""
    usual = match["usual"]
    if not usual or not usual.strip():
        return None
    usual = usual.strip().strip("\"'")
    return usual, f"{name} is taken to be unset, which leaves {usual}"
