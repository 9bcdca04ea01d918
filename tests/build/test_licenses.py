"""Whose work the site carries: the versions that are installed, with their licences' texts."""

import json
import tomllib
from importlib.metadata import version

import pytest

from licenses import licenses, works, write_texts
from places import BUILD, PYODIDE, ROOT

pytestmark = pytest.mark.site  # versions are read from node_modules, which the quick run needs not


def test_every_work_has_what_its_licence_asks_for():
    found = {work.name: work for work in works()}
    pyodide = found["Pyodide"]
    assert pyodide.version == json.loads((PYODIDE / "package.json").read_text())["version"]
    assert pyodide.source == f"https://github.com/pyodide/pyodide/tree/{pyodide.version}"
    assert pyodide.text.startswith("Mozilla Public License Version 2.0")
    assert found["CPython"].version.startswith("3.13.")
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in found["CPython"].text
    assert found["Material for MkDocs"].version == version("mkdocs-material")
    assert "Martin Donath" in found["Material for MkDocs"].text
    assert "Tom Christie" in found["MkDocs"].text
    assert "Pictogrammers" in found["Material Design Icons"].text


def test_the_page_names_each_with_links_to_text_and_source(tmp_path):
    page = licenses("texts")
    write_texts(tmp_path)
    for work in works():
        assert f"{work.name} {work.version}" in page
        assert f'href="texts/{work.file}"' in page
        assert f'href="{work.source}"' in page
        assert (tmp_path / "licenses" / work.file).read_text() == work.text
    own = (tmp_path / "licenses" / "where-training-memory-goes.txt").read_text()
    assert own == (ROOT / "LICENSE").read_text()
    assert own.startswith("MIT License")


def test_everything_that_npm_brings_into_the_site_is_listed():
    package = json.loads((ROOT / "package.json").read_text())
    listed = tomllib.loads((BUILD / "licenses.toml").read_text())["work"]
    named = {work["version"] for work in listed}
    assert {f"npm:{name}" for name in package["dependencies"]} <= named


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"version": "python:no-such-package"}, "Thing: the package no-such-package is not"),
        ({"version": "1.0"}, "Thing: '1.0' does not say where"),
        ({"text": "python:attrs-no"}, "Thing: the package attrs-no is not installed"),
    ],
)
def test_a_work_that_cannot_be_found_stops_the_build(tmp_path, row, says):
    entry = {
        "name": "Thing", "version": "python:mkdocs", "license": "MIT", "source": "x",
        "text": "python:mkdocs", "carries": "x",
    } | row  # fmt: skip
    listed = tmp_path / "licenses.toml"
    listed.write_text(
        "[[work]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
    )
    with pytest.raises(ValueError, match=says):
        works(listed)
