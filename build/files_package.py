"""What reads a reader's own files in a page, in one zip that is fetched when there is a file.

In it: the calculator's readers, PyYAML in plain Python, and those files of Python's standard
library that these need and a page's restored memory does not hold.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import yaml

from places import PACKAGE, PYODIDE
from runtime import LIBRARY
from zipped import zipped

#: The calculator's own files that nothing else in a page needs.
OWN = ("readers/*.py", "files_door.py", "render/files.py")

#: Of the standard library, as Pyodide publishes it; a package with its closing slash.
STANDARD = (
    *("_weakrefset.py", "base64.py", "contextlib.py", "copy.py", "dataclasses.py", "datetime.py"),
    *("difflib.py", "fnmatch.py", "heapq.py", "string.py", "struct.py", "tomllib/", "weakref.py"),
)


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
    return zipped(contents())
