"""The policy names exactly the scripts that the pages hold, and stands before all of them."""

import pytest

from csp import inline_scripts, policy, source_hash, with_policy

PAGE = '<html><head>\n<meta charset="utf-8">\n<script>one()</script></head></html>'


def test_a_hash_is_as_published():
    # The example of the Content Security Policy Level 3 specification, section 8.4.
    assert (
        source_hash("alert('Hello, world.');")
        == "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"
    )


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("<script>a()</script>", ["a()"]),
        ("<script type=module>a()</script>", ["a()"]),
        ('<script type="text/javascript">a()</script>', ["a()"]),
        ('<script type="importmap">{}</script>', ["{}"]),
        ('<script id="x" type="application/json">{}</script>', []),
        ('<script src="a.js"></script>', []),
        ('<script type="module" src="a.js"></script>', []),
        ("<script>\na()\n</script>", ["\na()\n"]),
    ],
)
def test_only_what_would_run_counts(script, found):
    assert inline_scripts(script) == found


def test_every_page_has_the_hashes_of_all():
    text = policy(["<script>one()</script>", "<script>two()</script><script>one()</script>"])
    assert text.count("sha256-") == 2
    assert source_hash("one()") in text
    assert source_hash("two()") in text


def test_nothing_inline_or_from_elsewhere_is_let_in():
    text = policy([PAGE])
    directives = dict(part.split(" ", 1) for part in text.split("; "))
    assert directives["default-src"] == "'self'"
    assert directives["style-src"] == "'self'"
    assert directives["script-src"].startswith("'self' 'wasm-unsafe-eval' 'sha256-")
    assert "'unsafe-" not in text
    assert "http" not in text
    assert "*" not in text


def test_the_policy_stands_before_every_script():
    page = with_policy(PAGE, policy([PAGE]))
    assert page.index("<meta charset") < page.index("content-security-policy")
    assert page.index("content-security-policy") < page.index("<script")


def test_a_second_policy_replaces_the_first():
    once = with_policy(PAGE, "default-src 'none'")
    assert with_policy(once, policy([PAGE])) == with_policy(PAGE, policy([PAGE]))


def test_a_page_without_a_charset_is_refused():
    with pytest.raises(ValueError, match="charset"):
        with_policy("<html></html>", "default-src 'self'")
