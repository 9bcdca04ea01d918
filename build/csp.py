"""A strict Content-Security-Policy in every page.

Nothing but this site's own files may run, style or be fetched. The exceptions are the few scripts
that the theme writes into its pages, each allowed by its hash, and WebAssembly, which Python in the
page is made of. Every page carries the hashes of all pages: instant navigation replaces a page's
contents and keeps the policy of the page that was opened first.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from html import escape

_SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<code>.*?)</script>", re.DOTALL)
_TYPE = re.compile(r"""\btype\s*=\s*["']?(?P<type>[^"'\s>]+)""")
_SOURCE = re.compile(r"\bsrc\s*=")
_EXECUTED = frozenset({"module", "text/javascript", "application/javascript", "importmap"})
CHARSET = re.compile(r"<meta charset=[^>]*>")
_POLICY = re.compile(r'<meta http-equiv="content-security-policy" content="[^"]*">\n?')


def inline_scripts(page: str) -> list[str]:
    """The code of each script a browser would run from within ``page``, in order.

    Blocks of data (``type="application/json"``) are not run and need no leave.
    """
    found = []
    for script in _SCRIPT.finditer(page):
        kind = _TYPE.search(script["attributes"])
        executed = kind is None or kind["type"].lower() in _EXECUTED
        if executed and not _SOURCE.search(script["attributes"]):
            found.append(script["code"])
    return found


def source_hash(code: str) -> str:
    """A script's hash as a policy names it: ``'sha256-…'`` with its quotes."""
    digest = hashlib.sha256(code.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def policy(pages: Iterable[str]) -> str:
    """The one policy for all of ``pages`` (their HTML)."""
    hashes = sorted({source_hash(code) for page in pages for code in inline_scripts(page)})
    return "; ".join(
        [
            "default-src 'self'",
            " ".join(["script-src 'self' 'wasm-unsafe-eval'", *hashes]),
            "style-src 'self'",
            "img-src 'self' data:",  # the theme's icons are data: images within its stylesheet
            "worker-src 'self'",
            "manifest-src 'self'",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def with_policy(page: str, text: str) -> str:
    """``page`` with the policy ``text`` as early as it can stand: right after the charset.

    Replaces a policy already there. Raises ``ValueError`` where a page has no charset to follow.
    """
    page = _POLICY.sub("", page)
    meta = f'<meta http-equiv="content-security-policy" content="{escape(text)}">'
    # escape() is for the attribute's double quotes; a policy's own single quotes are plain there.
    meta = meta.replace("&#x27;", "'")
    page, count = CHARSET.subn(lambda charset: f"{charset[0]}\n{meta}", page, count=1)
    if not count:
        raise ValueError("a page without <meta charset> has no place for its policy")
    return page
