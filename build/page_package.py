"""The calculator as a page gets it where a start is plain: its wheel, less what no page runs."""

from __future__ import annotations

import io
import zipfile

from zipped import zipped

#: What of the calculator no page runs, or only one that has fetched files_package.py's zip. Modules
#: within the package, by how their names begin.
NOT_IN = (
    *("__main__", "cli", "console", "flags", "request"),
    *("curve_command", "diff_command", "fit_command", "oom_command"),
    *("render.curve_text", "render.difference_text", "render.explain", "render.fit_text"),
    *("render.lists", "render.oom_text", "render.page", "render.reading", "render.small"),
    *("render.terminal", "render.text", "verify"),
    *("files_door", "readers", "render.files"),
)

_PACKAGE = "training_memory/"


def stays(path: str) -> bool:
    """Whether the wheel's file at ``path`` goes along; the list of the wheel's files does not."""
    if path.endswith(".dist-info/RECORD"):
        return False
    return not path.removeprefix(_PACKAGE).replace("/", ".").startswith(NOT_IN)


def packed(wheel: bytes) -> bytes:
    """The wheel as a zip of what stays; the same bytes from the same wheel."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as whole:
        return zipped({name: whole.read(name) for name in whole.namelist() if stays(name)})
