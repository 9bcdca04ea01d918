"""Where things lie: the one list of this repository's folders that the build uses.

Everything hangs off the folder above this file, so a copy of the repository builds itself and
never reaches into the original. Importing it also makes the calculator importable, and among the
scripts the Decoder's trainer: neither is installed, and the build uses the sources beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CALCULATOR = ROOT / "calculator"
PACKAGE = CALCULATOR / "training_memory"
WEB = CALCULATOR / "web"
BUILD = ROOT / "build"
SCRIPTS = ROOT / "scripts"
DECODER = SCRIPTS / "decoder"
DOCS = ROOT / "docs"
GENERATED = DOCS / "generated"
PYODIDE = ROOT / "node_modules" / "pyodide"

SITE = ROOT / "site"
CACHE = ROOT / ".cache"
WHEEL = CACHE / "wheel"
RUNTIME = CACHE / "runtime"

for _folder in (SCRIPTS, CALCULATOR):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))


def page_sources() -> list[Path]:
    """The Markdown of every page: what lies in docs/, but for data and generated pieces."""
    apart = (DOCS / "data", GENERATED)
    return sorted(
        source
        for source in DOCS.rglob("*.md")
        if not any(source.is_relative_to(folder) for folder in apart)
    )


def page_path(source: Path) -> str:
    """Where MkDocs puts a page within the site: ``""`` for the first, ``"about/licenses/"``."""
    path = source.relative_to(DOCS).with_suffix("").as_posix()
    return f"{path}/".removesuffix("index/")
