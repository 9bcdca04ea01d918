"""A file's text: read, decoded, and bounded, with a plain word where that cannot be."""

from __future__ import annotations

import sys

from ..errors import InputError

#: Far more than any configuration; it keeps a model's weights from being read by mistake.
MOST_BYTES = 16 * 2**20


def read_text(field: str, path: str) -> str:
    """The text of the file at ``path``, or of standard input where that is ``-``.

    Raises :class:`InputError` for ``field``, saying what is the matter and what to do.
    """
    return decoded(field, path, _read(field, path))


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
        raise InputError(field, path, "it is a folder; name the file in it") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte in it
        said = getattr(error, "strerror", None) or str(error)
        raise InputError(field, path, f"it cannot be read: {said}") from None
    return content


def decoded(field: str, path: str, content: bytes) -> str:
    """The text of a file's bytes. Raises :class:`InputError` where they are none."""
    if len(content) > MOST_BYTES:
        allowed = (
            f"it is larger than {MOST_BYTES // 2**20} MiB; name a configuration file, not weights"
        )
        raise InputError(field, path, allowed)
    # json.loads would guess among UTF-8, -16 and -32; a file with a byte order mark is all we meet.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        allowed = "it is not text; name a configuration file, such as a model's config.json"
        raise InputError(field, path, allowed) from None
