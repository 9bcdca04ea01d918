"""A log as text, from a file or from standard input, whatever bytes are in it."""

from __future__ import annotations

import sys

from ..errors import InputError

#: Of a larger log the beginning is read, where its first error is.
MOST_BYTES = 64 * 2**20


def read_log(field: str, path: str) -> str:
    """The text at ``path``, or of standard input where that is ``-``.

    Raises :class:`InputError` for ``field`` where there is nothing to read.
    """
    try:
        if path != "-":
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import
                content = file.read(MOST_BYTES)
        elif sys.stdin is None:
            raise InputError(field, path, "standard input is closed; name a file instead")
        else:
            if sys.stdin.isatty() and sys.stderr is not None:
                sys.stderr.write("Paste the error, then press Ctrl-D on a line of its own.\n")
            content = sys.stdin.buffer.read(MOST_BYTES)
    except FileNotFoundError:
        raise InputError(field, path, "there is no such file; check the path") from None
    except IsADirectoryError:
        raise InputError(field, path, "it is a folder; name the log in it") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte in it
        said = getattr(error, "strerror", None) or str(error)
        raise InputError(field, path, f"it cannot be read: {said}") from None
    # Windows' shells write UTF-16, with a mark before it.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    return content.decode(encoding, "replace")
