"""Our scripts and styles as pages load them."""

import re
import shutil

import pytest

from bundling import ENTRIES, SHARED, bundle
from places import DOCS, WEB

pytestmark = pytest.mark.site  # esbuild comes with the site's tools


@pytest.fixture
def assets(tmp_path):
    shutil.copytree(WEB, tmp_path / "calculator")
    shutil.copytree(DOCS / "assets" / "stylesheets", tmp_path / "stylesheets")
    return tmp_path


def test_a_page_loads_one_script_and_one_style(assets):
    bundle(assets)
    folder = assets / "calculator"
    assert {file.name for file in folder.iterdir()} == {*ENTRIES, *SHARED}
    assert not (assets / "stylesheets" / "site.css").exists()
    style = (folder / "page.css").read_text()
    assert "@import" not in style
    for name in ("calculator", "controls", "player", "deck", "decoder"):
        (selector,) = re.findall(r"^(\.[\w-]+)[ ,.:{\w-]", (WEB / f"{name}.css").read_text(), re.M)[
            :1
        ]
        assert selector in style


def test_modules_that_several_import_are_the_same_for_all(assets):
    bundle(assets)
    folder = assets / "calculator"
    for name in ("page.js", "early.js"):
        imported = set(re.findall(r'from"\./([\w-]+\.js)"', (folder / name).read_text()))
        assert imported == set(SHARED)
    assert "import" not in (folder / "worker.js").read_text().replace("import(", "")[:200]


def test_a_script_that_cannot_be_read_stops_the_build(assets):
    (assets / "calculator" / "deck.js").write_text("const const")
    with pytest.raises(RuntimeError, match=r"deck\.js"):
        bundle(assets)
