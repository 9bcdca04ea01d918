"""A JSON object from a file or from standard input, with a plain word where there is none."""

from __future__ import annotations

import json
import sys

from ..errors import InputError

#: Far more than any configuration; it keeps a model's weights from being read by mistake.
MOST_BYTES = 16 * 2**20


def read_object(field: str, path: str) -> dict[str, object]:
    """The JSON object in the file at ``path``, or in standard input where that is ``-``.

    Raises :class:`InputError` for ``field``, saying what is the matter and what to do.
    """
    return _parsed(field, path, _decoded(field, path, _read(field, path)))


def _read(field: str, path: str) -> bytes:
    try:
        if path == "-":
            if sys.stdin is None:
                raise InputError(field, path, "standard input is closed; name a file instead")
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import
                content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise InputError(field, path, "there is no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(field, path, "it is a folder; name the JSON file in it") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte in it
        said = getattr(error, "strerror", None) or str(error)
        raise InputError(field, path, f"it cannot be read: {said}") from None
    if len(content) > MOST_BYTES:
        allowed = f"it is larger than {MOST_BYTES // 2**20} MiB; name a JSON file, not weights"
        raise InputError(field, path, allowed)
    return content


def _decoded(field: str, path: str, content: bytes) -> str:
    # json.loads would guess among UTF-8, -16 and -32; a file with a byte order mark is all we meet.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        allowed = "it is not text; name a JSON file, such as a model's config.json"
        raise InputError(field, path, allowed) from None


def _parsed(field: str, path: str, text: str) -> dict[str, object]:
    if not text.strip():
        raise InputError(field, path, "it is empty; a JSON object is needed")
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        allowed = (
            f"it is not JSON: {error.msg}, line {error.lineno}, column {error.colno}; mend that"
        )
        raise InputError(field, path, allowed) from None
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(field, path, f"it is not JSON that can be used: {said}") from None
    if not isinstance(found, dict):
        allowed = 'a JSON object is needed, such as {"layers": 32}'
        raise InputError(field, path, allowed)
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number in JSON")
