"""Other people's work that the site carries: named, versioned, linked, with its licence texts.

``licenses.toml`` lists the works. Versions and most texts are read from what is installed, so that
an upgrade cannot leave an old version on the page.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from places import BUILD, PYODIDE, ROOT

#: Where the texts lie in the site.
FOLDER = "licenses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One work: ``source`` is where this version's source is, ``text`` its licence in full."""

    name: str
    version: str
    license: str
    source: str
    text: str
    carries: str

    @property
    def file(self) -> str:
        """The name of its licence text in the site."""
        return f"{self.name.lower().replace(' ', '-')}.txt"


def works(listed: Path = BUILD / "licenses.toml") -> tuple[Work, ...]:
    """Every work of the list, its version and text filled in.

    Raises ``ValueError`` naming a work whose version or text cannot be found.
    """
    rows = tomllib.loads(listed.read_text(encoding="utf-8"))["work"]
    found = []
    for row in rows:
        version = _version(row["version"], row["name"])
        text = _text(row["text"], row["name"])
        source = row["source"].format(version=version)
        found.append(Work(**row | {"version": version, "text": text, "source": source}))
    return tuple(found)


def licenses(texts: str = f"../../{FOLDER}") -> str:
    """Lay the works out as an HTML table for a page; ``texts`` is the way to the texts from it."""
    rows = "\n".join(
        f'<tr><th scope="row">{work.name} {work.version}</th>'
        f'<td><a href="{texts}/{work.file}">{work.license}</a></td>'
        f'<td><a href="{work.source}" aria-label="Source of {work.name}">source</a></td>'
        f"<td>{work.carries}</td></tr>"
        for work in works()
    )
    return (
        "<table>\n<thead><tr>"
        '<th scope="col">Work</th><th scope="col">Licence</th>'
        '<th scope="col">Source</th><th scope="col">What is here</th>'
        f"</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    )


def write_texts(site: Path) -> None:
    """Write each work's licence text, and this project's own, into the built site."""
    folder = site / FOLDER
    folder.mkdir(exist_ok=True)
    for work in works():
        (folder / work.file).write_text(work.text, encoding="utf-8")
    own = (ROOT / "LICENSE").read_text(encoding="utf-8")
    (folder / "where-training-memory-goes.txt").write_text(own, encoding="utf-8")


def _version(said: str, name: str) -> str:
    kind, _, package = said.partition(":")
    if kind == "python":
        return _distribution(package, name).version
    if kind == "npm":
        manifest = json.loads((ROOT / "node_modules" / package / "package.json").read_bytes())
        return str(manifest["version"])
    if kind == "pyodide":
        return str(json.loads((PYODIDE / "pyodide-lock.json").read_bytes())["info"]["python"])
    raise ValueError(f"{name}: {said!r} does not say where to read a version")


def _text(said: str, name: str) -> str:
    kind, _, package = said.partition(":")
    if kind == "python":
        files = _distribution(package, name).files or []
        texts = [str(file.locate()) for file in files if file.name.startswith("LICENSE")]
        if not texts:
            raise ValueError(f"{name}: the package {package} carries no licence text")
        # A theme's icon sets have licences of their own, deeper down; the package's is the first.
        return Path(min(texts, key=lambda text: (".icons" in text, text))).read_text("utf-8")
    if kind == "material-icons":
        package = str(_distribution("mkdocs-material", name).locate_file("material"))
        return (Path(package) / "templates/.icons/material/LICENSE").read_text("utf-8")
    return (BUILD / FOLDER / said).read_text(encoding="utf-8")


def _distribution(package: str, name: str) -> Distribution:
    try:
        return distribution(package)
    except PackageNotFoundError as error:
        raise ValueError(f"{name}: the package {package} is not installed") from error
