"""What the page runs: Python itself and the calculator's wheel, from this site alone.

Pyodide's files keep the names it asks for, in a folder named by their hash; the wheel travels as a
``.zip`` named by its hash, because company networks often refuse ``*.whl``. What only some pages
need lies apart, and is fetched when one of them asks. ``manifest.json`` says what there is and how
large, so that a page can tell a reader before anything is fetched.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from places import PYODIDE, RUNTIME

# What a start of Python fetches; the package holds a console, types and source maps besides.
PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")

# Where the folder stands in the site.
BASE = "assets/runtime"

MANIFEST = "manifest.json"


def make_runtime(
    wheel: Path,
    into: Path = RUNTIME,
    pyodide: Path = PYODIDE,
    *,
    apart: Mapping[str, bytes] | None = None,
) -> dict[str, Any]:
    """Lay out the runtime in the emptied folder ``into`` and return its manifest.

    ``wheel`` is the calculator's wheel, ``pyodide`` the npm package's folder, and ``apart`` holds
    zips by their names that a start does not fetch. Paths in the manifest are relative to the
    site's root. Raises ``FileNotFoundError`` naming what is missing.
    """
    lock = _short_lock(pyodide)
    contents = {name: (pyodide / name).read_bytes() for name in PYODIDE_FILES}
    contents["pyodide-lock.json"] = lock
    version = json.loads((pyodide / "package.json").read_bytes())["version"]
    folder = f"pyodide-{version}-{_short_hash(b''.join(contents.values()))}"

    shutil.rmtree(into, ignore_errors=True)
    (into / folder).mkdir(parents=True)
    for name, data in contents.items():
        (into / folder / name).write_bytes(data)

    packed = wheel.read_bytes()
    name, package_version = wheel.name.split("-")[:2]
    package = f"{name}-{package_version}-{_short_hash(packed)}.zip"
    (into / package).write_bytes(packed)

    files = [_entry(f"{folder}/{name}", data) for name, data in contents.items()]
    files.append(_entry(package, packed))
    zips = {}
    for name, data in (apart or {}).items():
        file = f"{name}-{_short_hash(data)}.zip"
        (into / file).write_bytes(data)
        zips[name] = _entry(file, data)

    manifest = {
        "pyodide": {
            "version": version,
            "python": json.loads(lock)["info"]["python"],
            "base": f"{BASE}/{folder}/",
        },
        "package": {"version": package_version, "path": f"{BASE}/{package}"},
        "apart": zips,
        "files": files,
        "bytes": sum(file["bytes"] for file in files),
        "gzip_bytes": sum(file["gzip_bytes"] for file in files),
    }
    (into / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def manifest(runtime: Path = RUNTIME) -> dict[str, Any]:
    """The manifest of a runtime already laid out, for pages that must name its files.

    Raises ``FileNotFoundError`` saying which command makes it.
    """
    try:
        found: dict[str, Any] = json.loads((runtime / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{runtime / MANIFEST} is missing; `make site` makes it") from error
    return found


def _short_lock(pyodide: Path) -> bytes:
    """Pyodide's lock file without its packages: the site ships none, and the list is long."""
    lock = json.loads((pyodide / "pyodide-lock.json").read_bytes())
    return json.dumps({"info": lock["info"], "packages": {}}, sort_keys=True).encode()


def _short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _entry(path: str, data: bytes) -> dict[str, Any]:
    return {
        "path": f"{BASE}/{path}",
        "bytes": len(data),
        # What a reader's connection carries; servers compress at about this level.
        "gzip_bytes": len(gzip.compress(data, 6, mtime=0)),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
