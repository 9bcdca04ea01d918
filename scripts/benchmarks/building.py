"""How long the site takes to build, from nothing and after a change: ``make bench``.

Built in a copy of its own, so that nothing here is disturbed; what is installed is shared with it.
Each build says where its time goes as it goes: stage by stage and, of the pages, part by part.
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
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_STAGE = re.compile(r"(?P<name> *\w[\w ]*?) +(?P<seconds>[\d.]+) s$")

#: What was built, installed or left by a tool; hidden folders such as .venv among it.
_NO_SOURCE = (".*", "__pycache__", "node_modules", "site", "dist", "test-results")


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One build: its seconds in all, from the command's start to its end, and by stage."""

    name: str
    seconds: float
    stages: Mapping[str, float]


def copy_of(root: Path, into: Path) -> None:
    """Copy the sources, without what was built, with what is installed within reach."""
    shutil.copytree(root, into, ignore=shutil.ignore_patterns(*_NO_SOURCE))
    (into / "node_modules").symlink_to(root / "node_modules")


def build(root: Path, name: str, say: Callable[[str], object]) -> Build:
    """Build the site of the copy, and ``say`` each line of its as it comes.

    Raises ``CalledProcessError``.
    """
    say(name)
    stages: dict[str, float] = {}
    command = [sys.executable, "build/make_site.py"]
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout or ():
            if found := _STAGE.match(line):
                stages[found["name"].rstrip()] = float(found["seconds"])
                say(f"  {line.rstrip()}")
    seconds = time.perf_counter() - start
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, command)
    say(f"  in all     {seconds:.1f} s" + ("" if stages else ", no stage ran"))
    return Build(name=name, seconds=seconds, stages=stages)


def _add(file: Path, text: str) -> Callable[[], object]:
    def change() -> None:
        file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")

    return change


def measure(root: Path = ROOT, *, say: Callable[[str], object]) -> list[Build]:
    """Build from nothing, again without a change, and after a change of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "sources"
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
            builds.append(build(copy, name, say))
        return builds


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    say = (lambda line: None) if options.json else partial(print, flush=True)
    try:
        builds = measure(say=say)
    except subprocess.CalledProcessError as error:
        sys.exit(f"This build failed ({error.returncode}); `make site` shows it alone.")
    if options.json:
        print(json.dumps([asdict(one) for one in builds]))


if __name__ == "__main__":
    main()
