"""The calculator in one file, for mail or a stick: styles, scripts and Python are all within it."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from pathlib import Path

from csp import source_hash
from licenses import works
from offline import bundled, carried, own_folder, packed_once
from places import WEB

PAGE = "calculator.html"
#: The page of the site that it is taken from.
SOURCE = "calculator/index.html"

_ARTICLE = re.compile(r"<article\b.*</article>", re.DOTALL)
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_STYLE = re.compile(r'<link rel="stylesheet" href="(?P<address>[^"]*)">')
_PERMALINK = re.compile(r'<a class="headerlink".*?</a>', re.DOTALL)
_ELSEWHERE = re.compile(r'\bhref="(?!#|https?:)[^"]*"')


def one_file(site: Path) -> str:
    """The file's text. Raises ``ValueError`` where the site's page is not as it was known."""
    source = site / SOURCE
    text = source.read_text(encoding="utf-8")
    article, title = _ARTICLE.search(text), _TITLE.search(text)
    styles = [source.parent / found["address"] for found in _STYLE.finditer(text)]
    if article is None or title is None or not styles:
        raise ValueError(f"{SOURCE} is not a page of the theme as it was known")
    style = "\n".join(style.read_text(encoding="utf-8") for style in styles)
    scripts = [(WEB / "carried.js").read_text(encoding="utf-8"), bundled("alone")]
    blocks = "\n".join(
        f'<script type="text/plain" data-carried="{escape(path)}">{data}</script>'
        for path, data in packed_once(carried(site)).items()
        if "/decoder-" not in path and "/search." not in path
    )
    content = _ELSEWHERE.sub("", _PERMALINK.sub("", article[0]))
    run = "\n".join(f"<script>{script}</script>" for script in scripts)
    return f"""<!doctype html>
<html lang="en" class="js" data-root="./" data-own="{own_folder(site)}">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="{_policy(style, scripts)}">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title[1]}</title>
<style>{style}</style>
</head>
<body dir="ltr" data-md-color-scheme="default" data-md-color-primary="indigo">
<div class="md-container"><main class="md-main"><div class="md-main__inner md-grid">
<div class="md-content">{content}{_licenses()}</div>
</div></main></div>
{blocks}
{run}
</body>
</html>
"""


def _licenses() -> str:
    """Whose work the file carries, under which licence, and where its source is."""
    carried_works = [work for work in works() if work.name not in {"MkDocs"}]
    items = "".join(
        f'<li><a href="{escape(work.source)}">{escape(work.name)} {escape(work.version)}</a>, '
        f"{escape(work.license)}</li>"
        for work in carried_works
    )
    return (
        '<div class="md-content__inner md-typeset"><p><small>Under the MIT licence. '
        f"This file carries:</small></p><ul>{items}</ul></div>"
    )


def _policy(style: str, scripts: list[str]) -> str:
    """Only what stands in the file may run or style it, and nothing is fetched."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    hashes = " ".join(sorted(source_hash(script) for script in scripts))
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src blob: 'wasm-unsafe-eval' {hashes}",
            f"style-src 'sha256-{digest}'",
            "img-src data:",
            "worker-src blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
