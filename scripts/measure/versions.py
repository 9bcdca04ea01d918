"""With what, and when, each kind of table was traced. Needs no PyTorch."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime

from . import tables


def write_versions(kinds: Iterable[str], packages: Iterable[str]) -> None:
    """Write of each kind that it was traced today, with this Python and these packages."""
    path = tables.FOLDER / "versions.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    python = ".".join(map(str, sys.version_info[:3]))
    versions = {package: importlib.metadata.version(package) for package in packages}
    today = datetime.now(UTC).date().isoformat()
    for kind in kinds:
        known[kind] = {"date": today, "python": python, **versions}
    path.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
