"""A case as a row of a table, and back: a column for each of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

_FLAGS = {"yes": True, "no": False}


def as_row(case: Any) -> dict[str, str]:
    """A case's fields as text."""
    return {field.name: _text(getattr(case, field.name)) for field in fields(case)}


def values_of(kind: type[Any], row: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a case of ``kind`` that a row has; an older table may lack some."""
    return {
        field.name: _value(field.name, row[field.name])
        for field in fields(kind)
        if field.name in row
    }


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{name}={number}" for name, number in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _value(name: str, text: str) -> Any:
    if name == "shape":
        pairs = (item.split("=") for item in text.split())
        return tuple((name, int(one) if one.isdecimal() else one) for name, one in pairs)
    if text in _FLAGS:
        return _FLAGS[text]
    return int(text) if text.isdecimal() else text
