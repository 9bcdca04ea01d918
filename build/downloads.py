"""The copies of the site that it offers for download: the zip of all pages, and the one file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from finish import DOWNLOADS, pages_of
from offline import NAME, make_copy, make_zip
from one_file import PAGE, one_file
from places import CACHE, ROOT
from training_memory.units import show_bytes

COPY = CACHE / "copy"
#: More than this is hard to hand around.
MOST_BYTES = 16_000_000

_SIZE = re.compile(r'(<span data-size-of="(?P<name>[^"]+)">)[^<]*(</span>)')


def version() -> str:
    """The version that the copies carry in their name: the calculator's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def zip_name() -> str:
    """The zip's name."""
    return f"{NAME}-{version()}.zip"


def downloads(root: str) -> str:
    """Both downloads as a list, for a page from which ``root`` leads to the site's root."""

    def item(name: str, words: str, more: str) -> str:
        link = f'<a href="{root}{DOWNLOADS}/{name}" download>{words}</a>'
        return f'<li>{link} (<span data-size-of="{name}"></span>): {more}</li>'

    return (
        "<ul>"
        + item(
            zip_name(),
            "The whole site as a zip",
            "unpack it anywhere and open <code>index.html</code>.",
        )
        + item(PAGE, "The calculator in one file", "open it, or send it to someone.")
        + "</ul>"
    )


def make_downloads(site: Path) -> dict[str, int]:
    """Put the downloads into a finished site, write their sizes into its pages, and return them.

    Raises ``ValueError`` where one has grown too large to be handed around.
    """
    make_copy(site, COPY)
    folder = site / DOWNLOADS
    made = make_zip(COPY, folder, version())
    (folder / PAGE).write_text(one_file(site), encoding="utf-8")
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    if sizes[made.name] > MOST_BYTES:
        raise ValueError(f"{made.name} has {show_bytes(sizes[made.name])}, which is too much")
    for page in pages_of(site):
        text = page.read_text(encoding="utf-8")
        told = _SIZE.sub(lambda span: f"{span[1]}{show_bytes(sizes[span['name']])}{span[3]}", text)
        if told != text:
            page.write_text(told, encoding="utf-8")
    return sizes
