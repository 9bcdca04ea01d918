"""Our scripts and styles as pages load them: in few files, and short.

Each file is a request, and each request is work for a browser that is about to start Python. The
sources stay modules of one idea each, which a browser could load as they are.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from places import ROOT

ESBUILD = ROOT / "node_modules" / ".bin" / "esbuild"

#: What pages name: one script and one style for all of them, and what begins before these.
ENTRIES = ("page.js", "page.css", "early.js", "worker.js")
#: Modules that several of these import, and that must be the same one for all.
SHARED = ("near.js", "runtime.js")

_COMMON = ("--minify", "--target=es2022", "--charset=utf8", "--log-level=warning")


def bundle(assets: Path) -> None:
    """Put what lies in ``calculator/`` of a site's ``assets`` into as few files as can be.

    Raises ``RuntimeError`` with esbuild's words.
    """
    folder = assets / "calculator"
    made = assets / "bundled"
    external = [f"--external:./{name}" for name in SHARED]
    esbuild(*ENTRIES, "--bundle", "--format=esm", *external, f"--outdir={made}", cwd=folder)
    esbuild(*SHARED, "--format=esm", f"--outdir={made}", cwd=folder)
    shutil.rmtree(folder)
    made.rename(folder)
    for style in ("site.css", "content.css"):
        (assets / "stylesheets" / style).unlink()


def esbuild(*arguments: str, cwd: Path, source: str | None = None) -> str:
    """Run esbuild in a folder and return what it prints; ``source`` is what it is given to read.

    Raises ``RuntimeError`` with its words.
    """
    done = subprocess.run(
        [str(ESBUILD), *arguments, *_COMMON],
        input=source,
        stdin=subprocess.DEVNULL if source is None else None,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"The scripts could not be put into one:\n{done.stderr.strip()}")
    return done.stdout
