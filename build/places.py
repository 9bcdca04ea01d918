"""Where things lie: the one list of this repository's folders that the build uses.

Everything hangs off the folder above this file, so a copy of the repository builds itself and
never reaches into the original. Importing it also makes the calculator importable, which is not
installed: the build uses the source beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CALCULATOR = ROOT / "calculator"
PACKAGE = CALCULATOR / "training_memory"
WEB = CALCULATOR / "web"
BUILD = ROOT / "build"
DOCS = ROOT / "docs"
GENERATED = DOCS / "generated"
PYODIDE = ROOT / "node_modules" / "pyodide"

SITE = ROOT / "site"
CACHE = ROOT / ".cache"
RUNTIME = CACHE / "runtime"

if str(CALCULATOR) not in sys.path:
    sys.path.insert(0, str(CALCULATOR))
