"""What lets a browser keep the site: names by hash, the app's manifest, the service worker."""

import base64
import hashlib
import json
import re

import pytest

from finish import pages_of
from keeping import (
    link_app,
    name_by_hash,
    version_of,
    with_version,
    write_app,
    write_worker,
)

PAGE = (
    '<meta charset="utf-8"><link rel="stylesheet" href="../assets/calculator/page.css">'
    '<link rel="stylesheet" href="../assets/stylesheets/main.1.min.css">'
    '<script src="../assets/calculator/a.js" type="module"></script> assets/calculators'
)


@pytest.fixture
def site(tmp_path):
    for name, text in {
        "index.html": PAGE,
        "chapter/index.html": PAGE,
        "404.html": PAGE,
        "sitemap.xml": "<x/>",
        "sitemap.xml.gz": "z",
        "downloads/site.zip": "zip",
        "assets/calculator/a.js": 'import "./b.js"',
        "assets/calculator/b.js": "b",
        "assets/calculator/page.css": "a{}",
        "assets/stylesheets/main.1.min.css": "c{}",
        "assets/runtime/memory-1.bin": "memory",
        "assets/runtime/more-1.zip": "more",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    told = {
        "files": [{"path": "assets/runtime/memory-1.bin", "gzip_bytes": 5}],
        "apart": {"more": {"path": "assets/runtime/more-1.zip", "gzip_bytes": 3}},
    }
    (tmp_path / "assets/runtime/manifest.json").write_text(json.dumps(told))
    return tmp_path


def texts(site):
    return {page: page.read_text() for page in site.rglob("*.html")}


def folder_of(site):
    (folder,) = {path.parent.parent.name for path in (site / "assets").rglob("a.js")}
    return folder


def test_our_files_are_named_by_what_they_hold(site):
    pages = texts(site)
    name_by_hash(site, pages)
    folder = folder_of(site)
    for name in ("a.js", "b.js", "page.css"):
        assert (site / "assets" / folder / "calculator" / name).is_file()
    assert not (site / "assets" / "calculator").exists()
    for text in pages.values():
        assert f"../assets/{folder}/calculator/a.js" in text
        assert f"../assets/{folder}/calculator/page.css" in text
        assert "../assets/stylesheets/main.1.min.css" in text, "the theme names its files itself"
        assert "assets/calculators" in text
    again = dict(pages)
    name_by_hash(site, again)
    assert again == pages


def test_other_contents_have_another_name(site, tmp_path_factory):
    name_by_hash(site, texts(site))
    first = folder_of(site)
    moved = site / "assets" / first
    (moved / "calculator").rename(site / "assets" / "calculator")
    (site / "assets" / "calculator" / "b.js").write_text("other")
    name_by_hash(site, texts(site))
    assert folder_of(site) != first


def test_the_worker_is_told_every_file_and_its_hash(site):
    built = write_worker(site, "v1", source=site / "assets/calculator/a.js")
    assert set(built["python"]) == {"assets/runtime/memory-1.bin", "assets/runtime/more-1.zip"}
    assert {"", "chapter/", "404.html", "sitemap.xml"} <= set(built["site"])
    assert not {"downloads/site.zip", "sitemap.xml.gz", "sw.js"} & set(built["site"])
    digest = base64.b64encode(hashlib.sha256(PAGE.encode()).digest()).decode()
    assert built["site"]["chapter/"] == {"hash": f"sha256-{digest}", "bytes": len(PAGE)}
    assert built["python"]["assets/runtime/memory-1.bin"]["bytes"] == 5
    text = (site / "sw.js").read_text()
    told, source = text.split(";\n", 1)
    assert json.loads(told.removeprefix("self.BUILT = ")) == built
    assert source == 'import "./b.js"'


def test_a_version_is_the_hash_of_all_that_is_kept(site):
    first = version_of(site)
    assert version_of(site) == first
    (site / "downloads" / "site.zip").write_text("another")
    assert version_of(site) == first
    (site / "chapter" / "index.html").write_text("another")
    assert version_of(site) != first
    assert '<meta name="tm-version" content="1">' in with_version(PAGE, "1")


def test_the_app_is_named_once_in_a_page_and_its_icons_are_there(site):
    page = link_app(PAGE, "../")
    assert '<link rel="manifest" href="../manifest.webmanifest">' in page
    assert link_app(page, "../") == page
    write_app(site, "A Site", "About it.")
    app = json.loads((site / "manifest.webmanifest").read_text())
    assert (app["name"], app["display"], app["start_url"]) == ("A Site", "standalone", "./")
    assert {"192x192", "512x512", "any"} == {icon["sizes"] for icon in app["icons"]}


@pytest.mark.site
def test_the_icons_are_in_the_built_site(built_site):
    app = json.loads((built_site / "manifest.webmanifest").read_text())
    for icon in app["icons"]:
        data = (built_site / icon["src"]).read_bytes()
        if icon["type"] == "image/png":
            # A PNG says its width in the bytes from 16 on.
            side = int.from_bytes(data[16:20], "big")
            assert icon["sizes"] == f"{side}x{side}"


@pytest.mark.site
def test_every_script_and_style_that_a_page_names_has_a_hash_in_its_name(built_site):
    named = re.compile(r"\b(?:src|href|data-later|data-worker)=[\"']?([^\"'\s>]+\.(?:m?js|css))\b")
    found = {
        (page.parent / address).resolve().relative_to(built_site.resolve()).as_posix()
        for page in pages_of(built_site)
        if page.name != "404.html"
        for address in named.findall(page.read_text(encoding="utf-8"))
        if "//" not in address
    }
    assert any(path.endswith("/calculator/page.js") for path in found)
    assert not [path for path in found if not re.search(r"[./-][0-9a-f]{8,12}[./]", path)]
    runtime = json.loads((built_site / "assets/runtime/manifest.json").read_bytes())
    for file in [*runtime["files"], *runtime["apart"].values()]:
        assert re.search(r"-[0-9a-f]{12}[./]", file["path"])
