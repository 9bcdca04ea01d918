"""The audit finds each fault that it is there for, and says where."""

import pytest

from audit import audit
from csp import policy, with_policy

GOOD = """<html><head><meta charset="utf-8">
<link rel="stylesheet" href="style.css"><script>fine()</script></head>
<body><h1 id="top">A</h1><a href="other/#there">b</a> <a href="#top">c</a>
<a href="https://example.org/">elsewhere</a> <a href="other/#model=gpt2&seq=4k">state</a>
<img src="data:image/png;base64,AA"></body></html>"""
OTHER = """<html><head><meta charset="utf-8"></head>
<body><p id="there">b</p><a href="..">up</a><a href="../file.zip">zip</a></body></html>"""


def write(site, index=GOOD, other=OTHER):
    text = policy([GOOD, OTHER])
    (site / "other").mkdir()
    (site / "index.html").write_text(with_policy(index, text))
    (site / "other" / "index.html").write_text(with_policy(other, text))
    (site / "style.css").write_text('a { background: url("data:image/svg+xml;x"); }')
    (site / "file.zip").write_bytes(b"x")
    return site


def test_a_good_site_has_no_faults(tmp_path):
    assert audit(write(tmp_path)) == []


@pytest.mark.parametrize(
    ("added", "fault"),
    [
        ('<a href="nowhere/">x</a>', "index.html: the link 'nowhere/' leads nowhere"),
        ('<a href="../outside">x</a>', "index.html: the link '../outside' leads nowhere"),
        (
            '<a href="other/#not">x</a>',
            "index.html: the link 'other/#not' names a place that is not",
        ),
        ('<a href="#not">x</a>', "index.html: the link '#not' names a place that is not"),
        ('<img src="no.png">', "index.html: the link 'no.png' leads nowhere"),
        ('<i id="top">x</i>', "index.html: the id 'top' stands more than once"),
        ('<p style="color: red">x</p>', "index.html: a style attribute on <p>"),
        ("<style>p {}</style>", "index.html: a <style> element"),
        ('<p onclick="x()">x</p>', "index.html: an onclick handler on <p>"),
        (
            "<script>other()</script>",
            "index.html: an inline script is not in the policy: 'other()'",
        ),
        ('<script src="https://x.org/a.js"></script>', "index.html: fetches https://x.org/a.js"),
        ('<script src="//x.org/a.js"></script>', "index.html: fetches //x.org/a.js"),
        ('<iframe src="http://x.org/"></iframe>', "index.html: fetches http://x.org/"),
    ],
)
def test_each_fault_is_found_once_and_named(tmp_path, added, fault):
    (found,) = audit(write(tmp_path, index=GOOD.replace("</body>", f"{added}</body>")))
    assert found.startswith(fault)


def test_a_page_without_a_policy_is_found(tmp_path):
    site = write(tmp_path)
    (site / "other" / "index.html").write_text(OTHER)
    assert audit(site) == ["other/index.html: has no Content-Security-Policy"]


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("@import 'https://x.org/a.css';", "style.css: fetches https://x.org/a.css from elsewhere"),
        ("a { background: url(no.png); }", "style.css: 'no.png' leads nowhere"),
        ("a { src: url('//x.org/f.woff2'); }", "style.css: fetches //x.org/f.woff2 from elsewhere"),
    ],
)
def test_stylesheets_are_read_too(tmp_path, rule, fault):
    site = write(tmp_path)
    (site / "style.css").write_text(rule)
    assert audit(site) == [fault]


def test_whole_paths_begin_where_the_site_is_published(tmp_path):
    added = '<a href="/book/other/">x</a></body>'
    site = write(tmp_path, index=GOOD.replace("</body>", added))
    assert audit(site, "/book/") == []
    assert len(audit(site)) == 1
