"""The copies to download in Firefox, from a disk and without a network.

Playwright drives a Firefox of its own, which most machines lack; Marionette is the driver that
every Firefox brings. Where there is no Firefox these tests are skipped, and say so.
"""

from __future__ import annotations

import gc
import json
import re
import shutil
import socket
import time
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import browser as browsers
from downloads import zip_name
from places import page_path, page_sources

READY_S = 120
PAGES = [f"{page_path(source)}index.html" for source in page_sources()]

#: Whatever is asked of a network goes to a port where nobody answers.
NO_NETWORK = {
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "network.dns.disabled": True,
}

CSS = "css selector"
ARROW_RIGHT = "\ue014"

with warnings.catch_warnings():
    # It asks for the system's name in a way that is going out of use.
    warnings.simplefilter("ignore")
    from marionette_driver.marionette import Marionette

pytestmark = pytest.mark.xdist_group("firefox")


@pytest.fixture(scope="module")
def folder(built_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the zip is unpacked, with the one file beside it: a path as people have them."""
    into = tmp_path_factory.mktemp("a stick") / "für mich (1)"
    with zipfile.ZipFile(built_site / "downloads" / zip_name()) as zipped:
        zipped.extractall(into)
    (only,) = into.iterdir()
    shutil.copy(built_site / "downloads" / "calculator.html", only / "alone.html")
    return only


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Marionette]:
    """Firefox without a network; at the end, nothing may have gone wrong in any page."""
    found = browsers.firefox()
    if found is None:
        pytest.skip("there is no Firefox here; Debian's package is firefox-esr")
    log = tmp_path_factory.mktemp("firefox") / "firefox.log"
    with warnings.catch_warnings():
        # While it waits for Firefox to answer, it forgets to close what it tried.
        warnings.simplefilter("ignore", ResourceWarning)
        driver = Marionette(
            bin=str(found),
            headless=True,
            prefs=NO_NETWORK,
            gecko_log=str(log),
            port=free_port(),
        )
        driver.start_session()
        gc.collect()
    try:
        yield driver
    finally:
        driver.quit()
        driver.cleanup()
    said = log.read_text(encoding="utf-8", errors="replace")
    wrong = re.findall(r"^JavaScript error: (?:file|blob):.*", said, re.MULTILINE)
    assert not wrong, "\n".join(wrong)


def free_port() -> int:
    """A port for the driver: its usual one belongs to whoever tests here at the same time."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def opened(driver: Marionette, file: Path) -> None:
    """Open a page and wait for all of it: the driver may return before the page is there."""
    driver.navigate(file.as_uri())
    there = f"location.href.startsWith({json.dumps(file.as_uri())})"
    wait(driver, f"{there} && document.readyState === 'complete'")


def run(driver: Marionette, script: str) -> Any:
    return driver.execute_script(script, sandbox=None)


def wait(driver: Marionette, script: str) -> None:
    """Wait until the JavaScript expression ``script`` is true."""
    end = time.monotonic() + READY_S
    while not run(driver, f"return Boolean({script})"):
        assert time.monotonic() < end, script
        time.sleep(0.1)


def said(selector: str, words: str) -> str:
    """An expression: the element's text has these words, whatever spaces stand between them."""
    text = f"document.querySelector('{selector}')?.textContent"
    return f"{text}.replace(/\\s/g, ' ').includes('{words}')"


def computes(driver: Marionette) -> None:
    """Python starts, and answers to a change."""
    wait(driver, "document.querySelector('.tm')?.dataset.status === 'ready'")
    run(
        driver,
        """const control = document.querySelector('.tm [name="recompute"]');
        control.value = "full";
        for (const kind of ["input", "change"]) {
            control.dispatchEvent(new Event(kind, {bubbles: true}));
        }""",
    )
    wait(driver, said(".tm output", "110.7 GB"))


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_with_all_it_shows(firefox: Marionette, folder: Path, path: str) -> None:
    opened(firefox, folder / path)
    assert firefox.find_element(CSS, "h1").is_displayed()
    assert run(firefox, "return document.styleSheets.length") == 3
    pictures = "[...document.querySelectorAll('article img')]"
    wait(firefox, f"{pictures}.every((image) => image.complete && image.naturalWidth > 0)")
    fetched = run(firefox, "return performance.getEntriesByType('resource').map(({name}) => name)")
    assert all(address.startswith(("file:", "data:", "blob:")) for address in fetched)


def test_mathematics_is_laid_out(firefox: Marionette, folder: Path) -> None:
    opened(firefox, folder / "chapter" / "index.html")
    wait(firefox, "document.querySelector('math mfrac')")
    fraction = firefox.find_element(CSS, "math mfrac")
    assert fraction.rect["height"] > 20


def test_search_finds_a_page(firefox: Marionette, folder: Path) -> None:
    opened(firefox, folder / "about" / "index.html")
    field = firefox.find_element(CSS, ".md-search__input")
    field.click()
    field.send_keys("recomputation")
    wait(firefox, "document.querySelector('.md-search-result__link')")
    leads = run(firefox, "return document.querySelector('.md-search-result__link').href")
    assert "index.html" in leads


def test_the_calculator_computes(firefox: Marionette, folder: Path) -> None:
    opened(firefox, folder / "calculator" / "index.html")
    computes(firefox)


def test_the_deck_is_presented(firefox: Marionette, folder: Path) -> None:
    opened(firefox, folder / "deck" / "index.html")
    wait(firefox, "document.querySelector('button[aria-label^=\"Present the slides\"]')")
    run(firefox, "document.querySelector('button[aria-label^=\"Present the slides\"]').click()")
    wait(firefox, said(".deck-counter", "1 /"))
    firefox.find_element(CSS, "body").send_keys(ARROW_RIGHT)
    wait(firefox, said(".deck-counter", "2 /"))


def test_the_step_is_played(firefox: Marionette, folder: Path) -> None:
    opened(firefox, folder / "step" / "index.html")
    wait(firefox, "document.querySelector('.player[data-attached]')")
    shown = "document.querySelector('.film-stage [data-film=\"count\"]').textContent"
    before = run(firefox, f"return {shown}")
    run(firefox, "document.querySelector('.player input[type=range]').focus()")
    firefox.get_active_element().send_keys(ARROW_RIGHT)
    wait(firefox, f"{shown} !== {before!r}")


def test_the_decoder_runs(firefox: Marionette, folder: Path) -> None:
    opened(firefox, folder / "decoder" / "index.html")
    run(
        firefox,
        """[...document.querySelectorAll("button")]
            .find((button) => button.textContent.includes("Run a real backward pass")).click()""",
    )
    wait(firefox, "/Step \\d+ of/.test(document.querySelector('[data-progress]').textContent)")


def test_one_file_is_a_whole_calculator(firefox: Marionette, folder: Path) -> None:
    opened(firefox, folder / "alone.html")
    computes(firefox)
