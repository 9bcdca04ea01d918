"""Build the site: the calculator and docs/ in, site/ out. ``make site`` runs this.

The stages, each done only when something it reads has changed:

1. wheel: the calculator, packed as it goes to PyPI;
2. snapshot: Python's memory with the calculator in it, from which a page starts;
3. runtime: the files that run it in a page, under names that hold their hashes;
4. tables: the committed tables are what the calculator says now;
5. pages: MkDocs, strict, then the finishing steps and the copies to download, then the
   audit of what a browser will get.

The pages are made in a folder of their own and moved into place when whole, so that a server never
shows half a site and a failed build leaves the last good one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from mkdocs.config import load_config

import decoder_package
import files_package
import make_tables
from audit import audit
from bundling import bundle
from downloads import make_downloads
from finish import FIRST, finish, finish_keeping
from keeping import WORKER
from licenses import write_texts
from places import (
    BUILD,
    CACHE,
    CALCULATOR,
    DECODER,
    DOCS,
    GENERATED,
    PACKAGE,
    PYODIDE,
    ROOT,
    RUNTIME,
    SITE,
    WEB,
    WHEEL,
)
from runtime import BASE, make_runtime
from snapshot import SNAPSHOT, make_snapshot, read_snapshot
from stages import Stages, code_of, say
from wheel import EPOCH, make_wheel

NEXT = CACHE / "site"

#: What of calculator/web/ pages do not load as modules.
_NO_MODULES = shutil.ignore_patterns("*.json", "*.d.ts", WORKER, FIRST, "carried*.js", "alone.js")


class BuildError(Exception):
    """The build cannot go on; the message tells a person why and what to do."""


def public_address() -> str:
    """The address the site will be published at, from SITE_URL; "" where it is not known."""
    return os.environ.get("SITE_URL", "")


def build_pages(into: Path, *, config: Path = ROOT / "mkdocs.yml") -> None:
    """Have MkDocs write the pages into ``into``; any warning is an error.

    Raises :class:`BuildError` with MkDocs' own words.
    """
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    done = subprocess.run(
        [*command, "--site-dir", str(into)],
        cwd=config.parent,
        env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"MkDocs could not build the pages:\n{done.stdout}")


def site_words(config: Path = ROOT / "mkdocs.yml") -> tuple[str, str]:
    """The site's name and description, as mkdocs.yml has them."""
    settings = load_config(str(config))
    return str(settings.site_name), str(settings.site_description)


@contextmanager
def _part(name: str) -> Iterator[None]:
    """Say how long a part of a stage took."""
    start = time.perf_counter()
    yield
    say(f"  {name:8} {time.perf_counter() - start:.1f} s")


def _make_pages() -> None:
    with _part("mkdocs"):
        build_pages(NEXT)
    address = public_address()
    base = urlsplit(address).path.rstrip("/") + "/"
    with _part("finish"):
        shutil.copytree(RUNTIME, NEXT / BASE)
        shutil.copytree(WEB, NEXT / "assets" / "calculator", ignore=_NO_MODULES)
        bundle(NEXT / "assets")
        write_texts(NEXT)
        finish(NEXT, base=base, canonical=bool(address))
    with _part("copies"):
        make_downloads(NEXT)
    with _part("keeping"):
        finish_keeping(NEXT, *site_words(), base=base)
    with _part("audit"):
        wrong = audit(NEXT, base)
    if wrong:
        listed = "\n".join(f"- {one}" for one in wrong)
        raise BuildError(f"The built pages are not as they must be:\n{listed}")
    shutil.rmtree(SITE, ignore_errors=True)
    NEXT.rename(SITE)


def _check_tables() -> None:
    if wrong := make_tables.check():
        raise BuildError(wrong)


def make_site() -> None:
    """Bring site/ up to date. Raises :class:`BuildError`."""
    if not PYODIDE.is_dir():
        raise BuildError("node_modules/ is missing; `make site` fills it before it runs this.")
    packaging = [ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "LICENSE"]
    installed = [ROOT / "requirements" / "site.txt", ROOT / "package-lock.json"]
    along = [BUILD / name for name in decoder_package.ALONG]
    stages = Stages(record=CACHE / "stages.json")
    stages.run(
        "wheel",
        lambda: make_wheel(WHEEL),
        reads=[PACKAGE, *packaging, *installed, *code_of(BUILD / "wheel.py")],
        makes=[WHEEL],
    )
    (wheel,) = WHEEL.glob("*.whl")
    stages.run(
        "snapshot",
        lambda: make_snapshot(wheel),
        reads=[
            wheel,
            PYODIDE,
            *code_of(BUILD / "snapshot.py"),
            BUILD / "snapshot.mjs",
        ],
        makes=[SNAPSHOT],
    )
    stages.run(
        "runtime",
        lambda: make_runtime(
            wheel,
            read_snapshot(),
            apart={"decoder": decoder_package.packed(), "files": files_package.packed()},
        ),
        reads=[
            wheel,
            SNAPSHOT,
            PYODIDE,
            DECODER,
            *along,
            *installed,
            *code_of(BUILD / "runtime.py"),
            *code_of(BUILD / "decoder_package.py"),
            *code_of(BUILD / "files_package.py"),
        ],
        makes=[RUNTIME],
    )
    stages.run(
        "tables",
        _check_tables,
        reads=[PACKAGE, DECODER, DOCS / "data", GENERATED, *code_of(BUILD / "make_tables.py")],
        makes=[],
    )
    stages.run(
        "pages",
        _make_pages,
        reads=[
            ROOT / "mkdocs.yml",
            ROOT / "LICENSE",
            DOCS,
            BUILD,
            CALCULATOR,
            DECODER,
            RUNTIME,
            *installed,
        ],
        makes=[SITE / "index.html"],
        settings=[public_address()],
    )


def main() -> int:
    """Build, say how long it took, and return the exit status."""
    start = time.perf_counter()
    try:
        make_site()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"site/ is up to date ({time.perf_counter() - start:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
