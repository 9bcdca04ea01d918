"""What must hold of every page of the built site, read from the pages themselves.

MkDocs checks the links that are written in Markdown. Cards, badges and the calculator are HTML
that the build writes, so their links, and the promises no page may break (nothing from elsewhere,
nothing inline that the policy would refuse), are checked here on what a browser will get.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from csp import inline_scripts, source_hash
from finish import pages_of

# Attributes by which a page fetches something, as against links that a reader may follow.
_FETCHED = {
    ("audio", "src"), ("embed", "src"), ("iframe", "src"), ("img", "src"), ("input", "src"),
    ("link", "href"), ("object", "data"), ("script", "src"), ("source", "src"), ("track", "src"),
    ("video", "poster"), ("video", "src"),
}  # fmt: skip
_NAMED_ONLY = {"canonical", "license", "author"}  # <link> relations that fetch nothing
_POLICY = re.compile(r'<meta http-equiv="content-security-policy" content="([^"]*)">')
_CSS_URL = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?P<url>[^"')]+)""")


@dataclass(slots=True)
class _Page(HTMLParser):
    """The parts of one page that the audit asks about."""

    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self, convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect ids, addresses, and what the policy would refuse."""
        values = {name: value or "" for name, value in attrs}
        if tag == "style":
            self.refused.append("a <style> element")
        for name, value in values.items():
            if name == "style":
                self.refused.append(f"a style attribute on <{tag}>: {value[:60]!r}")
            elif name.startswith("on"):
                self.refused.append(f"an {name} handler on <{tag}>")
            elif name == "id":
                self.ids.append(value)
        if tag == "link" and values.get("rel") in _NAMED_ONLY:
            return
        for name, value in values.items():
            if (tag, name) in _FETCHED:
                self.fetched.append(value)
            elif (tag in {"a", "area"} and name == "href") or name == "data-href":
                self.links.append(value)


def audit(site: Path, base: str = "/") -> list[str]:
    """Everything wrong with the built ``site``: a sentence each, beginning with the page.

    ``base`` is the path the site is published under, by which its 404 page names everything. An
    empty list is a good site.
    """
    site = site.resolve()
    texts = {page: page.read_text(encoding="utf-8") for page in pages_of(site)}
    pages: dict[Path, _Page] = {}
    for page, text in texts.items():
        pages[page] = _Page()
        pages[page].feed(text)
        pages[page].close()
    wrong = []
    for page, found in pages.items():
        name = page.relative_to(site).as_posix()
        wrong += [f"{name}: {what} would be refused by the policy" for what in found.refused]
        wrong += [f"{name}: {what}" for what in _policy_faults(texts[page])]
        twice = sorted({one for one in found.ids if found.ids.count(one) > 1})
        wrong += [f"{name}: the id {one!r} stands more than once" for one in twice]
        for address in found.fetched:
            if urlsplit(address).scheme not in {"", "data"} or address.startswith("//"):
                wrong.append(f"{name}: fetches {address} from elsewhere")
        for address in found.links + found.fetched:
            wrong += [f"{name}: {what}" for what in _link_faults(address, page, site, pages, base)]
    return wrong + _stylesheet_faults(site)


def _policy_faults(text: str) -> list[str]:
    stated = _POLICY.search(text)
    if stated is None:
        return ["has no Content-Security-Policy"]
    return [
        f"an inline script is not in the policy: {code.strip()[:60]!r}"
        for code in inline_scripts(text)
        if source_hash(code) not in stated[1]
    ]


def _link_faults(
    address: str, page: Path, site: Path, pages: dict[Path, _Page], base: str
) -> list[str]:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or address == "#":
        return []
    path = unquote(parts.path)
    if path.startswith("/"):
        path = "/" + path.removeprefix(base)
    folder = "/" + page.parent.relative_to(site).as_posix().removeprefix(".")
    target = page if not path else site / posixpath.join(folder, path).lstrip("/")
    target = Path(posixpath.normpath(target))
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.is_file():
        return [f"the link {address!r} leads nowhere"]
    fragment = unquote(parts.fragment)
    # A fragment with "=" is the calculator's state, not a place in the page.
    if fragment and "=" not in fragment and target in pages and fragment not in pages[target].ids:
        return [f"the link {address!r} names a place that is not in that page"]
    return []


def _stylesheet_faults(site: Path) -> list[str]:
    wrong = []
    for sheet in sorted(site.rglob("*.css")):
        name = sheet.relative_to(site).as_posix()
        for found in _CSS_URL.finditer(sheet.read_text(encoding="utf-8")):
            parts = urlsplit(found["url"])
            if parts.scheme == "data" or found["url"].startswith("#"):
                continue
            if parts.scheme or parts.netloc:
                wrong.append(f"{name}: fetches {found['url']} from elsewhere")
            elif not (sheet.parent / unquote(parts.path)).is_file():
                wrong.append(f"{name}: {found['url']!r} leads nowhere")
    return wrong
