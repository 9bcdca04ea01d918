"""A JSON object from text, with a plain word where there is none; comments may stand in it."""

from __future__ import annotations

import json
import re

from ..errors import InputError
from .source import read_text
from .twice import twice_in, with_twice


def read_object(field: str, path: str) -> dict[str, object]:
    """The JSON object in the file at ``path``, or in standard input where that is ``-``.

    The file is the calculator's own, so nothing in it may be said twice. Raises
    :class:`InputError` for ``field``, saying what is the matter and what to do.
    """
    found = parse_object(field, path, read_text(field, path))
    for part in (found, found.get("run"), found.get("shape")):
        for key in twice_in(part):
            raise InputError(field, path, f"it says {key} twice; keep one of them")
    return found


def parse_object(field: str, path: str, text: str) -> dict[str, object]:
    """The JSON object that ``text`` holds, perhaps among comments. Raises :class:`InputError`."""
    if not text.strip():
        raise InputError(field, path, "it is empty; a JSON object is needed")
    found = _parsed(field, path, text)
    if not isinstance(found, dict):
        allowed = 'a JSON object is needed, such as {"layers": 32}'
        raise InputError(field, path, allowed)
    return found


def _parsed(field: str, path: str, text: str) -> object:
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=with_twice)
    except json.JSONDecodeError as error:
        plain = _without_comments(text)
        if plain != text:
            return _parsed(field, path, plain)
        allowed = (
            f"it is not JSON: {error.msg}, line {error.lineno}, column {error.colno}; mend that"
        )
        raise InputError(field, path, allowed) from None
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(field, path, f"it is not JSON that can be used: {said}") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number in JSON")


# DeepSpeed reads its file with hjson, so people write comments, and a comma after the last one.
_ASIDE = re.compile(
    r'"(?:[^"\\\n]|\\.)*"'  # text, in which nothing is a comment
    r"|(?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)"
    r"|(?P<comma>,)(?=(?:\s|//[^\n]*|\#[^\n]*|/\*.*?\*/)*[}\]])",
    re.DOTALL,
)


def _without_comments(text: str) -> str:
    """The text with blanks for comments and needless commas, so that lines and columns stay."""

    def blank(match: re.Match[str]) -> str:
        if match["comment"] is None and match["comma"] is None:
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return _ASIDE.sub(blank, text)
