"""The copies to download, opened from a disk in a browser without a network."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from downloads import zip_name
from places import page_path, page_sources

READY_MS = 90_000
PAGES = [f"{page_path(source)}index.html" for source in page_sources()]


@pytest.fixture(scope="module")
def folder(built_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the zip is unpacked: a path as people have them."""
    into = tmp_path_factory.mktemp("a stick") / "für mich (1)"
    with zipfile.ZipFile(built_site / "downloads" / zip_name()) as zipped:
        zipped.extractall(into)
    (only,) = into.iterdir()
    return only


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A context without a network, in which nothing may go wrong and nothing is asked of others."""
    context = browser.new_context(offline=True, reduced_motion="reduce")
    problems: list[str] = []
    context.on(
        "console",
        lambda message: (
            problems.append(message.text) if message.type in {"error", "warning"} else None
        ),
    )
    context.on("weberror", lambda error: problems.append(str(error.error)))
    context.on(
        "requestfailed",
        lambda request: (
            None  # a page that is left before it is whole
            if request.failure == "net::ERR_ABORTED"
            else problems.append(request.url)
        ),
    )
    context.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("file:", "blob:", "data:"))
            else problems.append(request.url)
        ),
    )
    yield context
    context.close()
    assert not problems


@pytest.fixture(scope="module")
def one(context: BrowserContext) -> Page:
    return context.new_page()


def opened(page: Page, file: Path) -> Page:
    page.goto(file.as_uri())
    return page


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_with_all_it_shows(one: Page, folder: Path, path: str) -> None:
    page = opened(one, folder / path)
    expect(page.locator("h1").first).to_be_visible()
    assert page.evaluate("document.styleSheets.length") == 3
    for image in page.locator("article img").all():
        assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
    for address in page.locator("a[href]").evaluate_all("(links) => links.map(({href}) => href)"):
        if address.startswith("file:"):
            target = address.split("#")[0].split("?")[0]
            assert page.evaluate("(address) => decodeURI(address)", target).endswith(
                (".html", ".csv", ".txt", ".png", ".svg")
            ), address


def test_mathematics_is_laid_out(one: Page, folder: Path) -> None:
    page = opened(one, folder / "chapter" / "index.html")
    formula = page.locator("math mfrac").first
    assert formula.evaluate("(math) => math.getBoundingClientRect().height") > 20


def test_links_lead_on(one: Page, folder: Path) -> None:
    page = opened(one, folder / "index.html")
    page.locator('article a[href*="chapter"]').first.click()
    chapter = (folder / "chapter" / "index.html").as_uri()
    page.wait_for_url(lambda address: address.startswith(chapter))
    expect(page.locator("h1").first).to_be_visible()


def test_search_finds_a_page(one: Page, folder: Path) -> None:
    page = opened(one, folder / "about" / "index.html")
    page.get_by_role("textbox", name="Search").click()
    page.get_by_role("textbox", name="Search").press_sequentially("recomputation")
    results = page.locator(".md-search-result__link")
    expect(results.first).to_be_visible()
    leads = results.first.evaluate("(link) => link.href.split(/[?#]/)[0]")
    assert leads.endswith("index.html")
    assert leads != page.url
    results.first.click()
    page.wait_for_url(lambda address: address.startswith(leads))
    expect(page.locator("h1").first).to_be_visible()


def test_the_calculator_computes(one: Page, folder: Path) -> None:
    page = opened(one, folder / "calculator" / "index.html")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")


def test_the_deck_is_presented(one: Page, folder: Path) -> None:
    page = opened(one, folder / "deck" / "index.html")
    page.get_by_role("button", name="Present the slides").click()
    expect(page.locator(".deck-counter")).to_contain_text("1 /")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".deck-counter")).to_contain_text("2 /")
    page.keyboard.press("Escape")


def test_the_step_is_played(one: Page, folder: Path) -> None:
    page = opened(one, folder / "step" / "index.html")
    expect(page.locator(".player[data-attached]")).to_be_visible()
    count = page.locator(".film-stage").first.locator('[data-film="count"]')
    before = count.inner_text()
    page.get_by_label("Moment of the step").focus()
    page.keyboard.press("ArrowRight")
    expect(count).not_to_have_text(before)


def test_the_decoder_runs(one: Page, folder: Path) -> None:
    page = opened(one, folder / "decoder" / "index.html")
    page.get_by_role("button", name="Run a real backward pass").click()
    expect(page.locator("[data-progress]")).to_contain_text(
        re.compile(r"Step \d+ of"), timeout=READY_MS
    )
    page.get_by_role("button", name="Stop").click()


def test_one_file_is_a_whole_calculator(one: Page, built_site: Path, tmp_path: Path) -> None:
    file = tmp_path / "calculator (2).html"
    file.write_bytes((built_site / "downloads" / "calculator.html").read_bytes())
    page = opened(one, file)
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")
    expect(page.locator(".tm-bar")).to_be_visible()


def test_memory_that_is_no_good_is_no_loss(
    browser: Browser, built_site: Path, tmp_path: Path
) -> None:
    whole = (built_site / "downloads" / "calculator.html").read_text(encoding="utf-8")
    before, name, after = whole.partition("assets/runtime/memory-")
    name_end, tag, data = after.partition('">')
    file = tmp_path / "calculator.html"
    file.write_text(f"{before}{name}{name_end}{tag}AAAA{data[4:]}", encoding="utf-8")
    context = browser.new_context(offline=True)
    page = opened(context.new_page(), file)
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    context.close()
