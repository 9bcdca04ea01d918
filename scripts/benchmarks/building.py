"""How long the site takes to build, from nothing and after a change: ``make bench``.

Built in a copy of its own, so that nothing here is disturbed; what is installed is shared with it.
Each line says where a build's time goes, stage by stage and, of the pages, part by part.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_STAGE = re.compile(r"^(?P<name> *\w[\w ]*?) +(?P<seconds>[\d.]+) s$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One build: its seconds in all, from the command's start to its end, and by stage."""

    name: str
    seconds: float
    stages: Mapping[str, float]


def copy_of(root: Path, into: Path) -> None:
    """Copy what git knows, and what is not ignored, with what is installed within reach."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, into / name)
    (into / "node_modules").symlink_to(root / "node_modules")


def build(root: Path, name: str) -> Build:
    """Build the site of the copy. Raises ``CalledProcessError``."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "build/make_site.py"],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds = time.perf_counter() - start
    stages = {
        found["name"].rstrip(): float(found["seconds"]) for found in _STAGE.finditer(done.stdout)
    }
    return Build(name=name, seconds=seconds, stages=stages)


def _add(file: Path, text: str) -> Callable[[], object]:
    def change() -> None:
        file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")

    return change


def measure(root: Path = ROOT) -> list[Build]:
    """Build from nothing, again without a change, and after a change of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "site"
        copy.mkdir()
        copy_of(root, copy)
        changes: dict[str, Callable[[], object]] = {
            "from nothing": lambda: None,
            "nothing changed": lambda: None,
            "a page changed": _add(copy / "docs" / "papers.md", "\nA sentence more.\n"),
            "a script changed": _add(copy / "calculator" / "web" / "near.js", "// More.\n"),
            "the calculator changed": _add(
                copy / "calculator" / "training_memory" / "units.py", "# More.\n"
            ),
        }
        builds = []
        for name, change in changes.items():
            change()
            builds.append(build(copy, name))
        return builds


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    builds = measure()
    if options.json:
        print(json.dumps([asdict(one) for one in builds]))
        return
    for one in builds:
        parts = [f"{name.strip()} {seconds:.1f}" for name, seconds in one.stages.items()]
        print(f"{one.name:<24} {one.seconds:6.1f} s   {', '.join(parts) or 'no stage ran'}")


if __name__ == "__main__":
    main()
