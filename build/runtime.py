"""What the page runs: Python itself and the calculator's wheel, from this site alone.

Pyodide's files keep the names it asks for, in a folder named by their hash. A page starts from
Python's memory with the calculator in it; where that fails, it starts plainly, from the standard
library and what pages run of the wheel, a ``.zip`` since company networks often refuse ``*.whl``.
What only some pages need lies apart, and is fetched when one of them asks. ``manifest.json`` says
what there is and how large, so that a page can tell a reader before anything is fetched.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from library import trimmed
from page_package import packed
from places import PYODIDE, RUNTIME
from snapshot import Snapshot

#: Python itself, in the npm package, which holds a console, types and source maps besides.
PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm")
LIBRARY = "python_stdlib.zip"

# Where the folder stands in the site.
BASE = "assets/runtime"

MANIFEST = "manifest.json"


def make_runtime(
    wheel: Path,
    snapshot: Snapshot,
    into: Path = RUNTIME,
    pyodide: Path = PYODIDE,
    *,
    apart: Mapping[str, bytes] | None = None,
) -> dict[str, Any]:
    """Lay out the runtime in the emptied folder ``into`` and return its manifest.

    ``wheel`` is the calculator's wheel, ``snapshot`` the memory with that wheel imported,
    ``pyodide`` the npm package's folder, and ``apart`` holds zips by their names that a start does
    not fetch. Paths in the manifest are relative to the site's root. Raises ``FileNotFoundError``
    naming what is missing.
    """
    contents = {name: (pyodide / name).read_bytes() for name in PYODIDE_FILES}
    version = json.loads((pyodide / "package.json").read_bytes())["version"]
    info = json.loads((pyodide / "pyodide-lock.json").read_bytes())["info"]
    folder = f"pyodide-{version}-{_short_hash(b''.join(contents.values()))}"
    shutil.rmtree(into, ignore_errors=True)
    (into / folder).mkdir(parents=True)

    def lay(name: str, data: bytes) -> dict[str, Any]:
        (into / name).write_bytes(data)
        return _entry(name, data)

    def lay_hashed(name: str, data: bytes, suffix: str) -> dict[str, Any]:
        return lay(f"{name}-{_short_hash(data)}{suffix}", data)

    python = [lay(f"{folder}/{name}", data) for name, data in contents.items()]
    library = lay_hashed("library", trimmed((pyodide / LIBRARY).read_bytes()), ".zip")
    name, package_version = wheel.name.split("-")[:2]
    package = lay_hashed(f"{name}-{package_version}", packed(wheel.read_bytes()), ".zip")
    memory = lay_hashed("memory", snapshot.file, ".bin")
    zips = {name: lay_hashed(name, data, ".zip") for name, data in (apart or {}).items()}

    manifest = {
        "pyodide": {"version": version, "info": info, "base": f"{BASE}/{folder}/"},
        "library": library["path"],
        "package": {"version": package_version, "path": package["path"]},
        "snapshot": {
            "path": memory["path"],
            "memory": snapshot.memory_bytes,
            "whole": snapshot.whole_bytes,
        },
        # What each way to start fetches; the plain one is for where the quick one fails.
        "starts": {
            "quick": _start([*python, memory]),
            "plain": _start([*python, library, package]),
        },
        "apart": zips,
        "files": [*python, memory, library, package],
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


def _start(files: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "files": {file["path"]: file["bytes"] for file in files},
        "gzip_bytes": sum(file["gzip_bytes"] for file in files),
    }


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
