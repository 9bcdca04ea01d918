"""The built site as a browser will get it."""

import hashlib
import json
import re
import subprocess
import sys

import pytest

from audit import audit
from finish import pages_of
from places import BUILD, GENERATED, ROOT, page_path, page_sources

pytestmark = pytest.mark.site


@pytest.fixture(scope="module")
def pages(built_site):
    return {
        page.relative_to(built_site).as_posix(): page.read_text(encoding="utf-8")
        for page in pages_of(built_site)
    }


def test_it_passes_the_audit(built_site):
    assert audit(built_site) == []


def test_every_page_of_docs_is_there(pages):
    assert {f"{page_path(source)}index.html" for source in page_sources()} <= set(pages)


def test_one_policy_holds_for_all_pages(pages):
    stated = {
        re.findall(r'http-equiv="content-security-policy" content="([^"]*)"', page)[0]
        for page in pages.values()
    }
    assert len(stated) == 1


def test_nothing_on_a_page_names_the_machine_it_was_built_on(pages):
    for name, page in pages.items():
        assert str(ROOT) not in page, name
        assert "127.0.0.1" not in page, name


def test_the_runtime_is_whole(built_site):
    manifest = json.loads((built_site / "assets" / "runtime" / "manifest.json").read_text())
    for file in manifest["files"]:
        data = (built_site / file["path"]).read_bytes()
        assert len(data) == file["bytes"]
        assert hashlib.sha256(data).hexdigest() == file["sha256"]
    # All of it stays within nine megabytes, though no reader downloads more than one start's files.
    files = [*manifest["files"], *manifest["apart"].values()]
    assert sum(file["gzip_bytes"] for file in files) < 9_000_000


def test_tables_can_be_downloaded_as_they_were_made(built_site):
    for table in GENERATED.glob("*.csv"):
        assert (built_site / "generated" / table.name).read_bytes() == table.read_bytes()


def test_data_and_pieces_are_no_pages(built_site):
    assert not (built_site / "data").exists()
    assert not list((built_site / "generated").rglob("*.html"))
    assert not list(built_site.rglob("*.md"))
    assert not list(built_site.rglob("*.map"))


def test_licences_travel_with_what_they_are_for(built_site):
    for name in ("pyodide", "cpython", "material-for-mkdocs", "where-training-memory-goes"):
        assert (built_site / "licenses" / f"{name}.txt").stat().st_size > 1000


def test_building_again_does_nothing(built_site):
    before = {file: file.stat().st_mtime_ns for file in built_site.rglob("*")}
    done = subprocess.run(
        [sys.executable, str(BUILD / "make_site.py")], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("unchanged") == 5, f"site/ was not up to date:\n{done.stdout}"
    assert {file: file.stat().st_mtime_ns for file in built_site.rglob("*")} == before


def test_search_is_of_words_for_people(built_site):
    index = json.loads((built_site / "search" / "search_index.json").read_text(encoding="utf-8"))
    # Every reader's browser fetches the index: data that a script reads has no place in it.
    for section in index["docs"]:
        assert len(section["text"]) < 40_000, section["location"]
        assert '":{"' not in section["text"], section["location"]
