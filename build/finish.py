"""What is done to the pages after MkDocs has written them.

Each step on a page is a function of its text, and done twice it changes nothing more.
"""

from __future__ import annotations

import re
import shutil
from html import escape, unescape
from pathlib import Path

from csp import CHARSET, policy, with_policy
from keeping import link_app, name_by_hash, version_of, with_version, write_app, write_worker
from places import WEB
from slides import slides

#: Where the site holds the copies of itself.
DOWNLOADS = "downloads"
#: The script that stands in the page itself.
FIRST = "first.js"

# The theme's script reads the sitemap to know which links it may follow without leaving the page,
# and maps each address there to where the site is served by its host alone.
_SITEMAP_MAPPING = re.compile(
    r"function (?P<name>\w+)\((?P<url>\w),(?P<base>\w)\)\{return "
    r"(?P=url)\.protocol=(?P=base)\.protocol,(?P=url)\.hostname=(?P=base)\.hostname,(?P=url)\}"
)
# As a page opens, it writes every address out in full, before the next page's address comes to
# stand for this one's; a stylesheet's is fetched anew by that, and a page on a busy machine stood
# without its styles until it had come.
_WHOLE_ADDRESS = re.compile(
    r"function (?P<name>\w+)\((?P<document>\w)\)\{(?P<loops>for\(let (?P<element>\w) of "
    r"\w+\(\"\[href\], \[src\]\",(?P=document)\)\)[^{}]*\{[^{}]*)"
    r"\{(?P<set>(?P=element)\[(?P<key>\w)\]=(?P=element)\[(?P=key)\]);break\}"
)
# It leaves alone what stands in the head of both pages, told by how it is written.
_IN_HEAD = re.compile(
    r"(?P<before>for\(let (?P<element>\w) of \w+\(\":scope > \*\",\w\.head\)\)\w\.set\()"
    r"(?P=element)\.outerHTML,"
)
_SOURCE_MAP = re.compile(rb"\n?(?://#|/\*#) sourceMappingURL=\S+?(?: ?\*/)?\s*$")
_SEARCH_DIALOG = re.compile(r'(<div class="md-search"[^>]* role="dialog")>')
_CANONICAL = re.compile(r'\s*<link rel="canonical" href="[^"]*">')
# Greedy: paper cards are articles within the page's one.
_ARTICLE = re.compile(r"<article\b.*</article>", re.DOTALL)
_HEADING_OR_TABLE = re.compile(
    r"<h[1-6][^>]*>(?P<heading>.*?)</h[1-6]>|(?P<table><table>.*?</table>)",
    re.DOTALL,
)
_PERMALINK = re.compile(r'<a class="headerlink".*?</a>', re.DOTALL)
# A browser would fetch an asynchronous script, and what it imports, after everything else.
_EARLY = (
    '<link rel="modulepreload" fetchpriority="high" href="{root}assets/calculator/near.js">\n'
    '<link rel="modulepreload" fetchpriority="high" href="{root}assets/calculator/runtime.js">\n'
    '<script type="module" async fetchpriority="high" src="{root}assets/calculator/early.js">'
    "</script>\n"
)
# Nothing is earlier than a script that stands in the page itself.
_FIRST = (
    '<script data-python="{runtime}" data-root="{root}"'
    ' data-worker="{root}assets/calculator/worker.js">{script}</script>\n'
)
# first.js has it wait for Python.
_THEME = re.compile(r'<script src="(?P<address>[^"]*assets/javascripts/bundle\.[^"]*)"></script>')
_LATE_THEME = '<script type="text/plain" data-later="{address}"></script>'
_CALCULATOR = re.compile(r'<section\b[^>]* data-runtime="(?P<runtime>[^"]*)"')
# Words above a calculator that leave it in sight, or nearly, on a small screen too.
_FEW_WORDS = 120
# Whoever refuses cookies refuses storage too: at their first look at it the theme's scripts would
# end, and with them search and dark colours. Nothing is remembered, then.
_STORAGE = (
    '<script>for(const name of["localStorage","sessionStorage"])try{window[name]}catch{'
    "Object.defineProperty(window,name,"
    "{value:{getItem:()=>null,setItem(){},removeItem(){}}})}</script>\n"
)
_TAG = re.compile(r"<[^>]+>")
_SCROLL = '<div class="table-scroll" role="region" tabindex="0" aria-label="{label}">{table}</div>'
_SCROLLED = re.compile(r'<div class="table-scroll"[^>]*>(<table>.*?</table>)</div>', re.DOTALL)
_CELL = re.compile(r'<td(?P<left>(?: align="left")?)>(?P<text>.*?)</td>', re.DOTALL)
# From so many letters on a cell is a sentence, and a column a word wide would make a tower of it.
_SENTENCE = 40


def pages_of(site: Path) -> list[Path]:
    """Every page of the built site, in a fixed order; what is there to download is none."""
    apart = site / DOWNLOADS
    return sorted(page for page in site.rglob("*.html") if not page.is_relative_to(apart))


def drop_unneeded(site: Path) -> None:
    """Leave out what no reader's browser asks for.

    Source maps are four times the size of all else together, and the theme brings search helpers
    for thirty languages that an English site never loads.
    """
    for source_map in sorted(site.rglob("*.map")):
        source_map.unlink()
    for pattern in ("*.js", "*.css"):
        for file in sorted((site / "assets").rglob(pattern)):
            # Pyodide's files stay as they were published: their licence follows unmodified copies.
            if "runtime" in file.relative_to(site).parts:
                continue
            before = file.read_bytes()
            if (after := _SOURCE_MAP.sub(b"\n", before)) != before:
                file.write_bytes(after)
    shutil.rmtree(site / "assets" / "javascripts" / "lunr", ignore_errors=True)


def scroll_tables(page: str) -> str:
    """Put each plain table into a named region that scrolls and that the keyboard can reach.

    The name is the heading the table stands under, numbered where a heading has several. Cells
    that are sentences are marked, so that the stylesheet can give them room.
    """

    def in_article(article: re.Match[str]) -> str:
        heading = "this page"
        seen: dict[str, int] = {}

        def wrap(found: re.Match[str]) -> str:
            nonlocal heading
            if found["heading"] is not None:
                text = _TAG.sub("", _PERMALINK.sub("", found["heading"]))
                heading = unescape(text).strip() or heading
                return found[0]
            seen[heading] = seen.get(heading, 0) + 1
            number = f" {seen[heading]}" if seen[heading] > 1 else ""
            label = escape(f"Table{number}: {heading}")
            table = _CELL.sub(_give_room, found["table"])
            return _SCROLL.format(label=label, table=table)

        return _HEADING_OR_TABLE.sub(wrap, _SCROLLED.sub(r"\1", article[0]))

    return _ARTICLE.sub(in_article, page)


def _give_room(cell: re.Match[str]) -> str:
    """Mark a cell that is a sentence, which the stylesheet gives room."""
    text = unescape(_TAG.sub("", cell["text"]))
    if len(text) < _SENTENCE:
        return cell[0]
    return f'<td{cell["left"]} class="sentence">{cell["text"]}</td>'


def name_search(page: str) -> str:
    """Give the theme's search dialog a name to be announced by; the theme leaves it without one."""
    return _SEARCH_DIALOG.sub(r'\1 aria-label="Search">', page)


def survive_refusal(page: str) -> str:
    """Let a page's scripts do without the browser's storage where that is refused."""
    if _STORAGE in page:
        return page
    return CHARSET.sub(lambda charset: f"{charset[0]}\n{_STORAGE}", page, count=1)


def start_early(page: str, root: str) -> str:
    """Have a page with a calculator start Python before the theme's scripts have run.

    Where the calculator stands at the top of its page, that is at once, by a script in the page;
    elsewhere a script looks whether the calculator is in sight. ``root`` is the way from the page
    to the site's root.
    """
    found = _CALCULATOR.search(page)
    if found is None or "assets/calculator/early.js" in page or "data-worker=" in page:
        return page
    before = page[page.find("<article") : found.start()]
    top = len(_TAG.sub(" ", before).split()) <= _FEW_WORDS
    if top:
        script = (WEB / FIRST).read_text(encoding="utf-8")
        early = _FIRST.format(runtime=found["runtime"], root=root or "./", script=script)
        page = _THEME.sub(lambda theme: _LATE_THEME.format(address=theme["address"]), page)
    else:
        early = _EARLY.format(root=root)
    return CHARSET.sub(lambda charset: f"{charset[0]}\n{early}", page, count=1)


def relocatable(script: str, base: str) -> str:
    """Let instant navigation work at any port and under any path, not only at the published one.

    ``script`` is the theme's bundle; ``base`` the path that the sitemap's addresses begin with.
    Raises ``ValueError`` where the bundle is not as it was known: then look at how it maps
    addresses now, and change or drop this step.
    """

    def whole(found: re.Match[str]) -> str:
        name, url, root = found["name"], found["url"], found["base"]
        return (
            f"function {name}({url},{root})"
            f"{{return new URL({url}.pathname.slice({len(base)}),{root})}}"
        )

    script, count = _SITEMAP_MAPPING.subn(whole, script)
    if count != 1:
        raise ValueError("the theme's script maps the sitemap's addresses in a way not known here")
    return script


def keeping_styles(script: str) -> str:
    """Let the theme's script remember what its page's stylesheets are, and not fetch them anew.

    Raises ``ValueError`` where the bundle is not as it was known, as above.
    """

    def remembering(found: re.Match[str]) -> str:
        element, setting = found["element"], found["set"]
        is_style = f'{found["document"]}===document&&{element}.rel==="stylesheet"'
        return (
            f"function {found['name']}({found['document']}){{{found['loops']}"
            f"{{if({is_style}){element}.whole??={element}.href;else {setting};break}}"
        )

    def told_by_address(found: re.Match[str]) -> str:
        element = found["element"]
        style = f"{element}.whole??{element}.href"
        return f'{found["before"]}{element}.rel==="stylesheet"?{style}:{element}.outerHTML,'

    for pattern, written in ((_WHOLE_ADDRESS, remembering), (_IN_HEAD, told_by_address)):
        script, count = pattern.subn(written, script)
        if count != 1:
            raise ValueError("the theme's script takes over a page in a way not known here")
    return script


def finish(site: Path, *, base: str = "/", canonical: bool) -> None:
    """Make a folder that MkDocs wrote into the site that is served.

    ``base`` is the path it will be published under. ``canonical`` keeps the links that name each
    page's public address; without a known address they would name this machine.
    """
    drop_unneeded(site)
    (bundle,) = (site / "assets" / "javascripts").glob("bundle.*.js")
    script = keeping_styles(relocatable(bundle.read_text(encoding="utf-8"), base))
    bundle.write_text(script, encoding="utf-8")
    texts = {page: page.read_text(encoding="utf-8") for page in pages_of(site)}
    for page, text in texts.items():
        root = way_to_root(page, site, base)
        text = survive_refusal(name_search(slides(scroll_tables(text))))
        text = start_early(text, root)
        texts[page] = text if canonical else _CANONICAL.sub("", text)
    name_by_hash(site, texts)
    shared = policy(texts.values())
    for page, text in texts.items():
        texts[page] = with_policy(text, shared)
        page.write_text(texts[page], encoding="utf-8")


def way_to_root(page: Path, site: Path, base: str) -> str:
    """What leads from a page to the site's root; a missing page may be shown at any address."""
    if page == site / "404.html":
        return base
    return "../" * (len(page.relative_to(site).parts) - 1)


def finish_keeping(site: Path, name: str, description: str, *, base: str = "/") -> None:
    """Add what lets a browser keep the site. Done last, since it speaks of every file.

    ``name`` and ``description`` are the site's, for whoever installs it; ``base`` is as above.
    """
    write_app(site, name, description)
    version = version_of(site)
    for page in pages_of(site):
        text = link_app(page.read_text(encoding="utf-8"), way_to_root(page, site, base))
        page.write_text(with_version(text, version), encoding="utf-8")
    write_worker(site, version)
