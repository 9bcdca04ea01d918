"""What reads a reader's own files in a page, in one zip that is fetched when there is a file.

In it: the calculator's readers, PyYAML in plain Python, and those files of Python's standard
library that these need and a page's restored memory does not hold.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import yaml

from places import PACKAGE, PYODIDE
from runtime import LIBRARY

#: The calculator's own files that nothing else in a page needs.
OWN = ("readers/*.py", "files_door.py", "render/files.py")

#: Of the standard library, as Pyodide publishes it; a package with its closing slash.
STANDARD = (
    *("_weakrefset.py", "base64.py", "contextlib.py", "copy.py", "dataclasses.py", "datetime.py"),
    *("difflib.py", "fnmatch.py", "heapq.py", "string.py", "struct.py", "tomllib/", "weakref.py"),
)

# Any fixed time will do, so that the same sources are the same bytes; a zip knows none before.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def contents(pyodide: Path = PYODIDE) -> dict[str, bytes]:
    """Every file of the zip by its path in it, in a fixed order."""
    own = {
        f"{PACKAGE.name}/{path.relative_to(PACKAGE)}": path.read_bytes()
        for pattern in OWN
        for path in sorted(PACKAGE.glob(pattern))
    }
    folder = Path(yaml.__file__).parent
    theirs = {f"yaml/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.py"))}
    with zipfile.ZipFile(pyodide / LIBRARY) as library:
        standard = {
            name: library.read(name)
            for name in sorted(library.namelist())
            if not name.endswith("/") and name.startswith(STANDARD)
        }
    return {**own, **theirs, **standard}


def packed() -> bytes:
    """The zip; the same bytes from the same sources."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, data in contents().items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            zipped.writestr(entry, data, compresslevel=9)
    return archive.getvalue()
