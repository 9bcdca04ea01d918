"""What is done to the pages after MkDocs: tables that scroll, less to ship, one policy."""

import pytest

from audit import audit
from csp import inline_scripts
from finish import (
    drop_unneeded,
    finish,
    keeping_styles,
    name_search,
    relocatable,
    scroll_tables,
    start_early,
)
from places import WEB

TABLE = "<table>\n<tr><td>1</td></tr>\n</table>"
MAPPING = (
    "x();function fi(e,t){return e.protocol=t.protocol,e.hostname=t.hostname,e}function ds(){}"
)
# What takes over a page's head, and what writes a page's addresses out in full.
TAKING_OVER = (
    "function bi(e){let t=new Map;"
    'for(let r of M(":scope > *",e.head))t.set(r.outerHTML,r);return t}'
    'function vi(e){for(let t of M("[href], [src]",e))for(let r of["href","src"])'
    "{let o=t.getAttribute(r);if(o&&!/^(?:[a-z]+:)?\\/\\//i.test(o)){t[r]=t[r];break}}return $(e)}"
)


def article(inner):
    return f'<main><article class="page">{inner}</article></main>'


def test_a_table_gets_a_region_named_by_its_heading():
    page = scroll_tables(
        article(f'<h2 id="a">Four &amp; more<a class="headerlink" href="#a">¶</a></h2>{TABLE}')
    )
    assert (
        '<div class="table-scroll" role="region" tabindex="0" '
        f'aria-label="Table: Four &amp; more">{TABLE}</div>'
    ) in page


@pytest.mark.parametrize("side", ["", ' align="left"'])
def test_a_cell_that_is_a_sentence_is_marked(side):
    words = "what <em>one</em> layer keeps &amp; drops"
    cells = f"<td{side}>{words}</td><td{side}>{words}, and why that is so</td>"
    page = scroll_tables(article(f"<h2>A</h2><table><tr>{cells}</tr></table>"))
    marked = f'<td{side} class="sentence">{words}, and why that is so</td>'
    assert f"<td{side}>{words}</td>{marked}" in page


def test_tables_under_one_heading_are_numbered():
    page = scroll_tables(article(f"<h2>A</h2>{TABLE}{TABLE}<h2>B</h2>{TABLE}"))
    assert [name.split('"')[0] for name in page.split('aria-label="')[1:]] == [
        "Table: A",
        "Table 2: A",
        "Table: B",
    ]


def test_cards_within_the_page_do_not_end_it():
    page = scroll_tables(article(f"<article>card</article><h2>A</h2>{TABLE}"))
    assert 'aria-label="Table: A"' in page


@pytest.mark.parametrize("inner", ['<table class="own"><tr><td>1</td></tr></table>', "<p>text</p>"])
def test_other_things_stay_as_they_are(inner):
    assert scroll_tables(article(inner)) == article(inner)
    assert scroll_tables(f"<footer>{TABLE}</footer>") == f"<footer>{TABLE}</footer>"


def test_done_twice_it_changes_nothing_more():
    once = scroll_tables(article(f"<h2>A</h2>{TABLE}{TABLE}"))
    assert scroll_tables(once) == once


def test_the_search_dialog_is_named_once():
    theirs = '<div class="md-search" data-md-component="search" role="dialog">'
    named = '<div class="md-search" data-md-component="search" role="dialog" aria-label="Search">'
    assert name_search(theirs) == named
    assert name_search(named) == named


SECTION = '<section class="tm" data-runtime="{&quot;a&quot;:1}"></section>'


@pytest.mark.parametrize(("root", "leads"), [("../", "../"), ("", "./")])
def test_a_calculator_at_the_top_of_its_page_starts_python_at_once(root, leads):
    page = f'<head><meta charset="utf-8"></head><article>{"word " * 100}{SECTION}</article>'
    first = start_early(page, root)
    assert first.index("charset") < first.index("new Worker(") < first.index("</head>")
    assert f'<script data-python="{{&quot;a&quot;:1}}" data-root="{leads}"' in first
    assert f'data-worker="{leads}assets/calculator/worker.js"' in first
    assert "early.js" not in first
    (code,) = inline_scripts(first)
    assert code == (WEB / "first.js").read_text()
    assert start_early(first, root) == first


def test_the_theme_waits_where_python_starts_at_once():
    theme = '<script src="../assets/javascripts/bundle.1.min.js"></script>'
    page = f'<head><meta charset="utf-8"></head><article>{SECTION}</article>{theme}'
    late = '<script type="text/plain" data-later="../assets/javascripts/bundle.1.min.js"></script>'
    assert start_early(page, "../").endswith(late)
    below = page.replace("<article>", f"<article>{'word ' * 200}")
    assert start_early(below, "../").endswith(theme)


def test_a_page_with_a_calculator_looks_for_it_early():
    page = f'<head><meta charset="utf-8"></head><article>{"word " * 200}{SECTION}</article>'
    early = start_early(page, "../")
    assert early.index("charset") < early.index("early.js") < early.index("</head>")
    for name in ("early", "near", "runtime"):
        assert f'"../assets/calculator/{name}.js"' in early
    assert start_early(early, "../") == early
    without = '<head><meta charset="utf-8"></head>'
    assert start_early(without, "../") == without
    assert not inline_scripts(early)


@pytest.mark.parametrize(("base", "cut"), [("/", 1), ("/book/", 6)])
def test_links_are_followed_under_any_path(base, cut):
    script = relocatable(MAPPING, base)
    assert f"function fi(e,t){{return new URL(e.pathname.slice({cut}),t)}}" in script
    assert script.startswith("x();")
    assert script.endswith("function ds(){}")


def test_an_unknown_theme_script_stops_the_build():
    with pytest.raises(ValueError, match="not known"):
        relocatable("function fi(e,t){return e}", "/")
    with pytest.raises(ValueError, match="not known"):
        keeping_styles(TAKING_OVER.replace("outerHTML", "innerHTML"))
    with pytest.raises(ValueError, match="not known"):
        keeping_styles(TAKING_OVER.replace("t[r]=t[r]", "t[r]+=t[r]"))


def test_the_theme_does_not_fetch_stylesheets_anew():
    script = keeping_styles(TAKING_OVER)
    kept = 'if(e===document&&t.rel==="stylesheet")t.whole??=t.href;else t[r]=t[r];break}}return'
    assert kept in script
    assert 't.set(r.rel==="stylesheet"?r.whole??r.href:r.outerHTML,r)' in script


@pytest.fixture
def site(tmp_path):
    scripts = tmp_path / "assets" / "javascripts"
    (scripts / "lunr" / "min").mkdir(parents=True)
    (scripts / "lunr" / "min" / "lunr.fr.min.js").write_text("fr()")
    (scripts / "bundle.1.min.js").write_text(
        f"{MAPPING}{TAKING_OVER}\n//# sourceMappingURL=bundle.1.min.js.map\n"
    )
    (scripts / "bundle.1.min.js.map").write_text("{}")
    (tmp_path / "assets" / "calculator").mkdir()
    (tmp_path / "assets" / "main.css").write_text("a{}/*# sourceMappingURL=main.css.map */\n")
    runtime = tmp_path / "assets" / "runtime" / "pyodide"
    runtime.mkdir(parents=True)
    (runtime / "pyodide.js").write_text("p()\n//# sourceMappingURL=pyodide.js.map\n")
    for page, depth in (("index.html", "."), ("deep/index.html", "..")):
        file = tmp_path / page
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            '<html><head><meta charset="utf-8">'
            '<link rel="canonical" href="http://127.0.0.1:8000/">'
            f"<script>at({depth!r})</script></head><body>{article(TABLE)}</body></html>"
        )
    return tmp_path


def test_what_no_browser_asks_for_is_not_shipped(site):
    drop_unneeded(site)
    assert not list(site.rglob("*.map"))
    assert not (site / "assets" / "javascripts" / "lunr").exists()
    assert "sourceMappingURL" not in (site / "assets/javascripts/bundle.1.min.js").read_text()
    assert (site / "assets" / "main.css").read_text() == "a{}\n"


def test_pyodide_is_shipped_as_published(site):
    before = (site / "assets/runtime/pyodide/pyodide.js").read_bytes()
    drop_unneeded(site)
    assert (site / "assets/runtime/pyodide/pyodide.js").read_bytes() == before


def test_a_finished_site_passes_the_audit(site):
    finish(site, canonical=False)
    assert audit(site) == []
    pages = [page.read_text() for page in site.rglob("*.html")]
    assert len({page.split('content="')[1].split('"')[0] for page in pages}) == 1
    assert not any("canonical" in page for page in pages)


def test_a_known_address_is_kept(site):
    finish(site, canonical=True)
    assert all('rel="canonical"' in page.read_text() for page in site.rglob("*.html"))
