"""Doing a stage of the build only when something it reads has changed.

A stage is remembered by a hash of the contents it read, not by file times: a fresh clone or a
switched branch touches times without changing a byte, and a deleted file has no time at all.
"""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

SKIPPED = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})


def files_under(path: Path) -> list[Path]:
    """The files at and below ``path`` in a fixed order, without what tools leave behind."""
    if path.is_file():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and SKIPPED.isdisjoint(file.relative_to(path).parts)
    )


def code_of(module: Path) -> list[Path]:
    """A module's file and those beside it that it imports, by itself or by way of others."""
    found: set[Path] = set()
    left = [module]
    while left:
        file = left.pop()
        if file in found or not file.is_file():
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            left += [module.parent / f"{name.partition('.')[0]}.py" for name in names]
    return sorted(found)


def fingerprint(paths: Iterable[Path], *settings: str) -> str:
    """A hash of every file under ``paths``, its name and its contents, and of ``settings``."""
    whole = hashlib.sha256()
    for setting in settings:
        whole.update(f"setting {setting}\n".encode())
    for path in paths:
        for file in files_under(path):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{file.as_posix()} {digest}\n".encode())
    return whole.hexdigest()


def say(line: str) -> None:
    """Print a line at once, also into a file or a pipe: the next may take a minute to come."""
    print(line, flush=True)


@dataclass(kw_only=True, slots=True)
class Stages:
    """The stages of one build, what each read last time, and how long each took."""

    record: Path
    say: Callable[[str], None] = say
    seconds: dict[str, float] = field(default_factory=dict)

    def run(
        self,
        name: str,
        action: Callable[[], object],
        *,
        reads: Iterable[Path],
        makes: Iterable[Path],
        settings: Iterable[str] = (),
    ) -> bool:
        """Do ``action`` unless what it reads is unchanged and what it makes is there.

        Says the stage's name before it begins, and after it how long it took. Returns whether it
        was done. A stage that fails leaves no memory of having been done.
        """
        known = self._known()
        before = fingerprint(reads, *settings)
        if known.get(name) == before and all(path.exists() for path in makes):
            self.say(f"{name:10} unchanged")
            return False
        if known.pop(name, None) is not None:
            self._remember(known)
        self.say(f"{name:10} …")
        start = time.perf_counter()
        action()
        self.seconds[name] = time.perf_counter() - start
        self.say(f"{name:10} {self.seconds[name]:.1f} s")
        self._remember(known | {name: before})
        return True

    def _known(self) -> dict[str, str]:
        try:
            known = json.loads(self.record.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return known if isinstance(known, dict) else {}

    def _remember(self, known: dict[str, str]) -> None:
        self.record.parent.mkdir(parents=True, exist_ok=True)
        self.record.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
