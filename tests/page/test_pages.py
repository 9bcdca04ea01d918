"""What holds for every page of the site, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import waits
from places import page_path, page_sources

NARROW, WIDE = 360, 1280


PAGES = [f"/{page_path(source)}" for source in page_sources()]


def settled(page: Page, address: str) -> Page:
    """Open a page and wait until its scripts have made of it what they make of it."""
    page.goto(address)
    waits.settled(page)
    return page


@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", PAGES)
def test_no_accessibility_rule_is_broken(
    address: str,
    scheme: str,
    width: int,
    new_context: Callable[..., BrowserContext],
    axe: Callable[[Page], None],
) -> None:
    # The theme fades between pages and schemes, and a colour half way through a fade is nobody's.
    context = new_context(
        color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 800}
    )
    page = settled(context.new_page(), address)
    expected = "slate" if scheme == "dark" else "default"
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", expected)
    axe(page)


@pytest.mark.parametrize("address", PAGES)
def test_nothing_is_wider_than_a_phone(
    address: str, new_context: Callable[..., BrowserContext]
) -> None:
    context = new_context(viewport={"width": NARROW, "height": 800})
    page = settled(context.new_page(), address)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= NARROW


@pytest.mark.parametrize("address", PAGES)
def test_a_page_reads_without_scripts(
    address: str, new_context: Callable[..., BrowserContext]
) -> None:
    page = new_context(java_script_enabled=False).new_page()
    page.goto(address)
    expect(page.locator("article h1")).to_be_visible()
    assert len(page.locator("article").inner_text()) > 300


def test_navigation_keeps_the_page_alive(page: Page) -> None:
    settled(page, "/")
    page.evaluate("window.stillHere = true")
    for link, heading in (("Results", "Results"), ("Key papers", "Key Papers")):
        page.get_by_role("navigation", name="Tabs").get_by_role("link", name=link).click()
        expect(page.locator("article h1")).to_contain_text(heading)
    assert page.evaluate("window.stillHere") is True
    page.go_back()
    expect(page.locator("article h1")).to_contain_text("Results")
    assert page.evaluate("window.stillHere") is True


def test_search_finds_a_page(page: Page) -> None:
    settled(page, "/")
    page.get_by_role("textbox", name="Search").click()
    page.get_by_role("textbox", name="Search").press_sequentially("recomputation")
    results = page.locator(".md-search-result__link")
    expect(results.first).to_be_visible()
    results.first.click()
    expect(page).not_to_have_url("/")


def test_colours_are_chosen_and_kept(new_context: Callable[..., BrowserContext]) -> None:
    page = settled(new_context(color_scheme="light").new_page(), "/")
    body = page.locator("body")
    expect(body).to_have_attribute("data-md-color-scheme", "default")
    page.get_by_title("switch to light").click()
    page.get_by_title("switch to dark").click()
    expect(body).to_have_attribute("data-md-color-scheme", "slate")
    settled(page, "/results/")
    expect(body).to_have_attribute("data-md-color-scheme", "slate")


def test_without_storage_search_and_colours_work(
    new_context: Callable[..., BrowserContext],
) -> None:
    context = new_context(color_scheme="dark")
    # As a browser that refuses cookies has it.
    context.add_init_script(
        """for (const name of ["localStorage", "sessionStorage"]) {
            const get = () => { throw new DOMException("refused", "SecurityError"); };
            Object.defineProperty(window, name, {get, configurable: true});
        }"""
    )
    page = settled(context.new_page(), "/results/")
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    page.get_by_role("textbox", name="Search").click()
    page.get_by_role("textbox", name="Search").press_sequentially("recomputation")
    expect(page.locator(".md-search-result__link").first).to_be_visible()


def test_the_policy_is_in_force(page: Page, watch) -> None:
    watch.expect("violates the following Content Security Policy directive")
    settled(page, "/")
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.ranInline = true";
            document.body.append(script);
            const paragraph = '<p id="styled" style="color: red">x</p>';
            document.body.insertAdjacentHTML("beforeend", paragraph);
        }"""
    )
    assert page.evaluate("window.ranInline") is None
    assert page.evaluate("getComputedStyle(styled).color") != "rgb(255, 0, 0)"
    waits.until(page, lambda: len(watch.problems) == 2)


def test_mathematics_is_drawn(page: Page) -> None:
    settled(page, "/chapter/")
    formula = page.locator("math").filter(has=page.locator("mfrac")).first
    box = formula.bounding_box()
    assert box is not None
    # A fraction that is drawn is higher than a line of text; one that is not is a line of text.
    assert box["height"] > 25


def test_a_wide_table_scrolls_by_keyboard(new_context: Callable[..., BrowserContext]) -> None:
    page = settled(new_context(viewport={"width": NARROW, "height": 800}).new_page(), "/results/")
    region = page.get_by_role("region", name="Table: LLaMA 7B, four ways to train it")
    region.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("region => region.scrollLeft > 0", arg=region.element_handle())


def test_the_site_works_under_a_path(page: Page, serve_site: Callable[[str], str], watch) -> None:
    # For a plain text file the browser itself asks the host's root for an icon.
    watch.expect("favicon.ico")
    root = serve_site("/a/deeper/path/")
    settled(page, root)
    page.evaluate("window.stillHere = true")
    page.get_by_role("navigation", name="Tabs").get_by_role("link", name="Results").click()
    expect(page).to_have_url(f"{root}results/")
    assert page.evaluate("window.stillHere") is True
    expect(page.locator("article h1")).to_contain_text("Results")
    settled(page, f"{root}about/licenses/")
    page.get_by_role("link", name="MPL-2.0").click()
    expect(page.get_by_text("Mozilla Public License Version 2.0")).to_be_visible()


def test_a_wrong_address_is_answered_by_the_site(page: Page, watch) -> None:
    watch.expect("404")
    response = page.goto("/no/such/page/")
    assert response is not None
    assert response.status == 404
    expect(page.get_by_role("heading", name="404")).to_be_visible()


def test_tables_can_be_downloaded(page: Page, built_site: Path) -> None:
    settled(page, "/results/")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download as CSV").first.click()
    downloaded = Path(waiting.value.path()).read_bytes()
    assert downloaded == (built_site / "generated" / "results.csv").read_bytes()


def test_the_tabs_do_not_fade_in(new_context: Callable[..., BrowserContext]) -> None:
    """The theme hides them and shows them again as it comes to know where a page is scrolled to."""
    page = settled(new_context(viewport={"width": 1280, "height": 800}).new_page(), "/chapter/")
    fading = page.evaluate(
        """async () => {
            const tabs = document.querySelector(".md-tabs");
            const link = tabs.querySelector(".md-tabs__link");
            tabs.hidden = true;
            await new Promise((done) => setTimeout(done, 400));
            tabs.hidden = false;
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
            return [getComputedStyle(link).opacity,
                ...link.getAnimations().map((one) => one.transitionProperty)];
        }"""
    )
    assert "opacity" not in fading
    assert fading[0] == "1"
