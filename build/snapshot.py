"""Python's memory with the calculator in it, for a page to restore instead of starting anew."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page_package import NOT_IN
from places import BUILD, CACHE, PYODIDE
from training_memory.presets import FIRST

SNAPSHOT = CACHE / "snapshot"

MEMORY, SIZES = "memory.bin", "sizes.json"

#: Modules that the Decoder's run needs, or that the calculator imports late. They are in the memory
#: so that nobody need wait for the whole standard library.
BESIDE = ("csv", "dataclasses", "fractions", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The file as it travels, the bytes of Pyodide's own snapshot and of the file unpacked."""

    file: bytes
    memory_bytes: int
    whole_bytes: int


def requests() -> list[dict[str, Any]]:
    """What the calculator answers before its memory is taken, so that a page's first is no first.

    The run that a page begins with, and a run that cannot be. What is worked out for other
    runs would arrive no sooner than it is worked out.
    """
    first = {"state": "", "set": {"preset": FIRST}}
    return [
        first,
        {"state": "", "set": {"sequence": "none", "data": "0", "model": "lama"}},
    ]


def films() -> list[dict[str, Any]]:
    """The film that is made before, for the same reason."""
    return [{"state": "", "set": {"preset": FIRST}, "beside": "full", "prefix": "film"}]


def make_snapshot(wheel: Path, into: Path = SNAPSHOT, pyodide: Path = PYODIDE) -> None:
    """Write the memory and its sizes into the emptied folder ``into``.

    ``wheel`` is the calculator's wheel, ``pyodide`` the npm package's folder; the same ones give
    the same bytes. Raises ``RuntimeError`` with Node's last words, or saying that there is no Node.
    """
    node = shutil.which("node")
    if node is None:
        raise RuntimeError("Node.js (20 or newer) is needed: it takes the page's Python's memory")
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    plan = into / "plan.json"
    asked = {"requests": requests(), "films": films(), "imports": BESIDE}
    apart = [f"training_memory.{name}" for name in NOT_IN]
    plan.write_text(json.dumps({**asked, "not": apart}), encoding="utf-8")
    script = BUILD / "snapshot.mjs"
    done = subprocess.run(
        [node, str(script), str(pyodide), str(wheel), str(plan), str(into / MEMORY)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"Python's memory could not be taken:\n{done.stderr.strip()[-2000:]}")
    (into / SIZES).write_text(done.stdout.strip().splitlines()[-1] + "\n", encoding="utf-8")


def read_snapshot(folder: Path = SNAPSHOT) -> Snapshot:
    """What :func:`make_snapshot` wrote. Raises ``FileNotFoundError`` where it wrote nothing."""
    sizes = json.loads((folder / SIZES).read_bytes())
    return Snapshot(
        file=(folder / MEMORY).read_bytes(),
        memory_bytes=sizes["memory"],
        whole_bytes=sizes["whole"],
    )
