"""What lets a browser keep the site: names by hash, an app's manifest, a service worker."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from csp import CHARSET
from places import WEB

#: The folder of our own scripts and styles, whose names say nothing of their contents.
OWN = "calculator"
WORKER = "sw.js"
APP = "manifest.webmanifest"
#: What no page asks for, or only to download it.
NOT_KEPT = ("*.gz", "downloads/*", "assets/runtime/manifest.json", WORKER)

_OWN = re.compile(rf"assets/{OWN}(?=/)")
_COLOUR = "#3f51b5"  # the icon's
_ICONS = ("icon-192.png", "icon-512.png", "icon-maskable-512.png")


def name_by_hash(site: Path, pages: dict[Path, str]) -> None:
    """Move our scripts and styles to a folder named by what they hold, and tell the pages.

    A folder rather than names, so that modules still find one another. ``pages`` is the text of
    each page, changed in place.
    """
    assets = site / "assets"
    if not (assets / OWN).is_dir():
        return
    whole = hashlib.sha256()
    for file in sorted((assets / OWN).iterdir()):
        whole.update(f"{file.name}\n".encode() + file.read_bytes())
    folder = whole.hexdigest()[:12]
    (assets / folder).mkdir()
    (assets / OWN).rename(assets / folder / OWN)
    for page, text in pages.items():
        pages[page] = _OWN.sub(f"assets/{folder}/{OWN}", text)


def link_app(page: str, root: str) -> str:
    """Name the app's manifest in a page; ``root`` is the way from it to the site's root."""
    if APP in page:
        return page
    links = (
        f'<link rel="manifest" href="{root}{APP}">\n'
        f'<link rel="apple-touch-icon" href="{root}assets/images/{_ICONS[0]}">'
    )
    return CHARSET.sub(lambda charset: f"{charset[0]}\n{links}", page, count=1)


def write_app(site: Path, name: str, description: str) -> None:
    """Write the app's manifest, by which a browser offers to install the site."""
    icons: list[dict[str, str]] = [
        {"src": "assets/images/icon.svg", "type": "image/svg+xml", "sizes": "any"}
    ]
    for icon in _ICONS:
        size = icon.removesuffix(".png").rpartition("-")[2]
        purpose = "maskable" if "maskable" in icon else "any"
        icons.append(
            {
                "src": f"assets/images/{icon}",
                "type": "image/png",
                "sizes": f"{size}x{size}",
                "purpose": purpose,
            }
        )
    app = {
        "name": name,
        "short_name": "Training memory",
        "description": description,
        "id": "./",
        "start_url": "./",
        "scope": "./",
        "display": "standalone",
        "theme_color": _COLOUR,
        "background_color": "#ffffff",
        "icons": icons,
    }
    (site / APP).write_text(json.dumps(app, indent=1) + "\n", encoding="utf-8")


def version_of(site: Path) -> str:
    """A hash of every file of the site and its name."""
    whole = hashlib.sha256()
    for file in _kept(site):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{file.relative_to(site).as_posix()} {digest}\n".encode())
    return whole.hexdigest()[:16]


def with_version(page: str, version: str) -> str:
    """A page that says which version of the site it belongs to."""
    meta = f'<meta name="tm-version" content="{version}">'
    return CHARSET.sub(lambda charset: f"{charset[0]}\n{meta}", page, count=1)


def write_worker(site: Path, version: str, source: Path = WEB / WORKER) -> dict[str, Any]:
    """Write the service worker of a finished site, and return what it is told of the site."""
    runtime = json.loads((site / "assets" / "runtime" / "manifest.json").read_bytes())
    sizes = {
        file["path"]: file["gzip_bytes"] for file in [*runtime["files"], *runtime["apart"].values()]
    }
    built: dict[str, Any] = {"version": version, "site": {}, "python": {}}
    for file in _kept(site):
        path = file.relative_to(site).as_posix()
        data = file.read_bytes()
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        entry = {"hash": f"sha256-{digest}", "bytes": sizes.get(path, len(data))}
        # A page goes by its folder's address, which no host redirects.
        address = re.sub(r"(^|/)index\.html$", r"\1", path)
        built["python" if path in sizes else "site"][address] = entry
    told = json.dumps(built, separators=(",", ":"), sort_keys=True)
    text = f"self.BUILT = {told};\n{source.read_text(encoding='utf-8')}"
    (site / WORKER).write_text(text, encoding="utf-8")
    return built


def _kept(site: Path) -> list[Path]:
    return sorted(
        file
        for file in site.rglob("*")
        if file.is_file() and not any(file.relative_to(site).match(pattern) for pattern in NOT_KEPT)
    )
