"""Copies of the site that need no server: links that name files, one script, their own policy."""

import base64
import gzip
import json
import shutil
import zipfile

import pytest

import downloads
import offline
from audit import _Page
from csp import inline_scripts, source_hash
from downloads import zip_name
from offline import (
    bundled,
    carried,
    make_zip,
    own_folder,
    packed,
    packed_once,
    page_of_copy,
    policy_of_copy,
)
from one_file import one_file
from training_memory.units import show_bytes

THEME = '<script src="../assets/javascripts/bundle.1.min.js"></script>'
PAGE = (
    '<html lang="en"><head><meta charset="utf-8">'
    '<meta name="tm-version" content="1"><link rel="manifest" href="../manifest.webmanifest">'
    '<link rel="modulepreload" href="../assets/0123456789ab/calculator/near.js">'
    '<script type="module" async src="../assets/0123456789ab/calculator/early.js"></script>'
    '<script data-python="{}" data-worker="../assets/0123456789ab/calculator/worker.js">\n'
    "new Worker();\n</script></head>"
    '<script id="__config" type="application/json">'
    '{"base": "..", "features": ["navigation.instant", "navigation.top"]}</script>'
    '<a href="../">up</a><a href="..">up</a><a href="#x">here</a><a href="../other/#y">there</a>'
    '<a href="../table.csv">table</a><a href="https://arxiv.org/">far</a>'
    '<a href="../downloads/site.zip">zip</a>'
    f'{THEME}<script src="../assets/0123456789ab/calculator/calculator.js" type="module"></script>'
)


@pytest.fixture
def copy(tmp_path):
    for name in ("index.html", "page/index.html", "other/index.html", "table.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.fixture
def page(copy):
    return page_of_copy(PAGE, copy / "page" / "index.html", copy)


def test_links_name_the_files_that_they_lead_to(page):
    for address in (
        "../index.html", "#x", "../other/index.html#y", "../table.csv", "https://arxiv.org/",
    ):  # fmt: skip
        assert f'href="{address}"' in page
    assert page.count('href="../index.html"') == 2
    assert '<a data-elsewhere="">zip</a>' in page


def test_no_module_is_left_and_one_script_stands_for_all(page):
    assert "module" not in page
    assert "manifest" not in page
    assert "tm-version" not in page
    assert "Worker" not in page
    first, theme, last = (
        page.index(name) for name in ("assets/carried/carried.js", "bundle.1.min.js", "site.js")
    )
    assert first < theme < last
    assert '<html data-root="../" data-own="assets/0123456789ab/calculator/" lang="en"' in page


def test_the_theme_does_not_follow_links_within_the_page(page):
    assert '"features": ["navigation.top"]' in page


def test_a_page_without_the_theme_stops_the_build(copy):
    with pytest.raises(ValueError, match="theme's script"):
        page_of_copy(PAGE.replace(THEME, ""), copy / "page" / "index.html", copy)


def test_the_policy_names_every_inline_script_and_no_host():
    policy = policy_of_copy(["<script>a()</script>", "<script src=x></script>"])
    assert source_hash("a()") in policy
    assert "http" not in policy
    assert policy.startswith("default-src 'none'")


def test_a_zip_is_the_same_bytes_from_the_same_files(copy, tmp_path_factory):
    one, other = (
        make_zip(copy, tmp_path_factory.mktemp("zip"), "1.2", tmp_path_factory.mktemp("kept"))
        for _ in range(2)
    )
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as zipped:
        assert {name.split("/")[0] for name in zipped.namelist()} == {one.stem}
    assert packed(b"text") == packed(b"text")


def test_what_is_carried_is_put_into_a_zip_once(copy, tmp_path_factory, monkeypatch):
    carried_file = copy / offline.CARRIED / "python.js"
    carried_file.parent.mkdir(parents=True)
    carried_file.write_text("one")
    kept, written = tmp_path_factory.mktemp("kept"), []
    write = zipfile.ZipFile.writestr

    def noting(self, entry, data):
        written.append(entry.filename.partition("/")[2])
        write(self, entry, data)

    monkeypatch.setattr(zipfile.ZipFile, "writestr", noting)

    def made(version="1.2"):
        written.clear()
        return make_zip(copy, tmp_path_factory.mktemp("zip"), version, kept)

    name = carried_file.relative_to(copy).as_posix()
    first = made().read_bytes()
    assert name in written
    # A page changes: all of it is there, and what is carried was not looked at again.
    (copy / "index.html").write_text("changed")
    with zipfile.ZipFile(made()) as zipped:
        assert zipped.read(f"{offline.NAME}-1.2/{name}") == b"one"
        assert zipped.read(f"{offline.NAME}-1.2/index.html") == b"changed"
        assert len(zipped.namelist()) == 5
    assert name not in written
    # Other bytes, another name or another version are another zip; what is gone is not kept.
    carried_file.write_text("two")
    with zipfile.ZipFile(made()) as zipped:
        assert zipped.read(f"{offline.NAME}-1.2/{name}") == b"two"
    made("1.3")
    assert name in written
    assert len(list(kept.iterdir())) == 1
    carried_file.write_text("one")
    (copy / "index.html").write_text("")
    assert made().read_bytes() == first


def test_what_was_packed_before_is_not_packed_again(tmp_path, monkeypatch):
    done = []

    def packing(data):
        done.append(data)
        return packed(data)

    monkeypatch.setattr(offline, "packed", packing)
    files = {"a.js": b"one", "b.bin": b"two"}
    first = packed_once(files, tmp_path / "kept")
    assert first == {path: packed(data) for path, data in files.items()}
    assert packed_once(files, tmp_path / "kept") == first
    assert done == [b"one", b"two"]
    # Another name is no other content; other content is packed, and what is gone is not kept.
    changed = {"moved.js": b"one", "b.bin": b"three"}
    found = packed_once(changed, tmp_path / "kept")
    assert found == {path: packed(data) for path, data in changed.items()}
    assert done == [b"one", b"two", b"three"]
    assert len(list((tmp_path / "kept").iterdir())) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_both_downloads_are_offered_and_their_sizes_are_written_by_the_build(tmp_path, monkeypatch):
    page = tmp_path / "about" / "index.html"
    page.parent.mkdir()
    page.write_text(f"<p>{downloads.downloads('../')}</p>", encoding="utf-8")
    assert "MB" not in page.read_text(encoding="utf-8"), "no size before there is a file"
    sizes = {zip_name(): 1_234_567, "calculator.html": 9_000}

    def make_zip(copy, into, version):
        into.mkdir()
        (into / zip_name()).write_bytes(bytes(sizes[zip_name()]))
        return into / zip_name()

    monkeypatch.setattr(downloads, "make_copy", lambda site, into: None)
    monkeypatch.setattr(downloads, "make_zip", make_zip)
    monkeypatch.setattr(downloads, "one_file", lambda site: "x" * sizes["calculator.html"])
    assert downloads.make_downloads(tmp_path) == sizes
    told = page.read_text(encoding="utf-8")
    for name, size in sizes.items():
        assert f'href="../downloads/{name}" download' in told
        assert f'<span data-size-of="{name}">{show_bytes(size)}</span>' in told

    monkeypatch.setattr(downloads, "MOST_BYTES", 1_000_000)
    shutil.rmtree(tmp_path / "downloads")
    with pytest.raises(ValueError, match="too much"):
        downloads.make_downloads(tmp_path)


@pytest.mark.site
def test_the_site_tells_the_sizes_that_its_downloads_have(built_site):
    told = (built_site / "about" / "index.html").read_text(encoding="utf-8")
    for name in (zip_name(), "calculator.html"):
        size = (built_site / "downloads" / name).stat().st_size
        assert f'<span data-size-of="{name}">{show_bytes(size)}</span>' in told


def test_a_page_not_of_the_theme_makes_no_file(tmp_path):
    (tmp_path / "calculator").mkdir()
    (tmp_path / "calculator" / "index.html").write_text("<title>x</title>", encoding="utf-8")
    with pytest.raises(ValueError, match="not a page of the theme"):
        one_file(tmp_path)


@pytest.mark.site
def test_modules_that_cannot_be_put_together_stop_the_build_with_the_reason():
    with pytest.raises(RuntimeError, match=r"could not be put into one:[\s\S]*nowhere"):
        bundled("nowhere")


@pytest.mark.site
def test_everything_carried_is_what_the_site_serves(built_site):
    found = carried(built_site)
    for path, data in found.items():
        if "/runtime/" in path:
            assert data == (built_site / path).read_bytes()
        assert gzip.decompress(base64.b64decode(packed(data))) == data
    manifest = json.loads((built_site / "assets/runtime/manifest.json").read_bytes())
    assert {file["path"] for file in manifest["files"]} <= set(found)
    assert f"{own_folder(built_site)}worker.js" in found


@pytest.mark.site
def test_the_zip_holds_every_page_and_is_small_enough(built_site):
    file = built_site / "downloads" / zip_name()
    assert file.stat().st_size <= 16_000_000
    with zipfile.ZipFile(file) as zipped:
        names = {name.partition("/")[2]: name for name in zipped.namelist()}
        pages = {
            path.relative_to(built_site).as_posix()
            for path in built_site.rglob("*.html")
            if path.parent.name != "downloads" and path.name != "404.html"
        }
        assert pages <= set(names)
        assert "search/search_index.js" in names
        index = zipped.read(names["search/search_index.js"]).decode().removeprefix("var __index=")
        for doc in json.loads(index)["docs"]:
            assert doc["location"].partition("#")[0] in names
        for name in pages:
            found = _Page()
            found.feed(zipped.read(names[name]).decode())
            for address in found.fetched:
                assert not address.startswith(("http:", "https:", "/")), (name, address)


@pytest.mark.site
def test_the_one_file_fetches_nothing(built_site):
    text = one_file(built_site)
    assert text == (built_site / "downloads" / "calculator.html").read_text(encoding="utf-8")
    found = _Page()
    found.feed(text)
    assert not [address for address in found.fetched if not address.startswith("data:")]
    policy = text.partition('content-security-policy" content="')[2].partition('"')[0]
    for script in inline_scripts(text):
        if "atob" in script or "SITE_MODULE" in script:
            assert source_hash(script) in policy
    assert "Pyodide" in text
    assert "MPL-2.0" in text
