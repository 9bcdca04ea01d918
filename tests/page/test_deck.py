"""The deck: read as a page, presented by keyboard and by hand, seen all at once, printed."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

COUNTER = ".deck-counter"
CURRENT = ".slide.current"


@pytest.fixture
def deck(page: Page) -> Page:
    """The deck's page, not yet presented."""
    page.goto("/deck/")
    expect(page.get_by_role("button", name="Present")).to_be_visible()
    return page


@pytest.fixture
def presented(deck: Page) -> Page:
    """The deck presented from its first slide."""
    deck.get_by_role("button", name="Present").click()
    expect(deck.locator(COUNTER)).to_have_text(re.compile(r"^1 / \d+$"))
    return deck


def total(page: Page) -> int:
    """How many slides there are."""
    return page.locator(".deck > .slide").count()


def test_it_reads_as_a_page_without_scripts(browser, base_url):
    with browser.new_context(java_script_enabled=False, base_url=base_url) as context:
        page = context.new_page()
        page.goto("/deck/")
        assert total(page) >= 11
        for slide in page.locator(".deck > .slide").all():
            expect(slide.locator("h2")).to_be_visible()
        assert page.locator(".deck-bar").count() == 0


def test_arrows_turn_the_slides_and_a_counter_tells_the_place(presented: Page):
    slides = total(presented)
    expect(presented.locator(CURRENT)).to_have_count(1)
    presented.keyboard.press("ArrowRight")
    expect(presented.locator(COUNTER)).to_have_text(f"2 / {slides}")
    presented.keyboard.press("End")
    expect(presented.locator(COUNTER)).to_have_text(f"{slides} / {slides}")
    presented.keyboard.press("ArrowRight")  # there is nothing further
    expect(presented.locator(COUNTER)).to_have_text(f"{slides} / {slides}")
    presented.keyboard.press("ArrowLeft")
    expect(presented.locator(COUNTER)).to_have_text(f"{slides - 1} / {slides}")
    presented.keyboard.press("Home")
    presented.keyboard.press("ArrowLeft")
    expect(presented.locator(COUNTER)).to_have_text(f"1 / {slides}")


def test_one_slide_fills_the_screen_and_is_announced(presented: Page):
    box = presented.locator(CURRENT).bounding_box()
    assert box is not None
    size = presented.viewport_size
    assert size is not None
    assert box["width"] == size["width"]
    assert box["height"] > 0.85 * size["height"]
    visible = [slide for slide in presented.locator(".slide").all() if slide.is_visible()]
    assert len(visible) == 1
    expect(presented.locator(CURRENT)).to_be_focused()


def test_buttons_do_the_same_as_keys(presented: Page):
    presented.get_by_role("button", name="Next slide").click()
    expect(presented.locator(COUNTER)).to_have_text(f"2 / {total(presented)}")
    presented.get_by_role("button", name="Previous slide").click()
    expect(presented.locator(COUNTER)).to_have_text(f"1 / {total(presented)}")


def test_escape_ends_it_where_it_was(presented: Page):
    presented.keyboard.press("PageDown")
    heading = presented.locator(CURRENT).locator("h2").inner_text()
    presented.keyboard.press("Escape")
    expect(presented.locator(".deck.presenting")).to_have_count(0)
    expect(presented.get_by_role("button", name="Present")).to_be_focused()
    assert presented.evaluate("document.fullscreenElement") is None
    assert heading in presented.locator(".slide h2").nth(1).inner_text()


def test_leaving_the_full_screen_by_the_browser_ends_it_too(presented: Page):
    presented.wait_for_function("document.fullscreenElement")
    presented.evaluate("document.exitFullscreen()")
    expect(presented.locator(".deck.presenting")).to_have_count(0)


def test_a_full_screen_that_comes_late_does_not_outlive_the_presentation(page: Page):
    # As a browser on a busy machine takes its time.
    page.add_init_script(
        """{
            const plain = Element.prototype.requestFullscreen;
            Element.prototype.requestFullscreen = async function () {
                await new Promise((come) => (window.come = come));
                await plain.call(this).finally(() => (window.came = true));
            };
        }"""
    )
    page.goto("/deck/")
    page.get_by_role("button", name="Present").click()
    page.keyboard.press("Escape")
    expect(page.locator(".deck.presenting")).to_have_count(0)
    page.evaluate("come()")
    page.wait_for_function("() => window.came && document.fullscreenElement === null")


def test_the_overview_shows_all_and_opens_one(presented: Page):
    presented.keyboard.press("o")
    expect(presented.locator(".deck.overview")).to_have_count(1)
    assert all(slide.is_visible() for slide in presented.locator(".slide").all())
    presented.keyboard.press("ArrowRight")
    presented.keyboard.press("ArrowRight")
    presented.keyboard.press("Enter")
    expect(presented.locator(COUNTER)).to_have_text(f"3 / {total(presented)}")
    presented.keyboard.press("o")
    presented.locator(".slide").nth(3).click()
    expect(presented.locator(COUNTER)).to_have_text(f"4 / {total(presented)}")


def test_the_calculator_in_a_slide_is_live_and_keeps_its_keys(presented: Page):
    number = 1 + next(
        place
        for place, slide in enumerate(presented.locator(".slide").all())
        if slide.locator("#deck").count()
    )
    for _ in range(number - 1):
        presented.keyboard.press("ArrowRight")
    choice = presented.locator("#deck").get_by_label("Recomputation", exact=True)
    expect(choice).to_be_enabled(timeout=90_000)
    choice.select_option("full")
    expect(presented.locator("#deck output")).to_contain_text("110.7", timeout=90_000)
    choice.press("ArrowUp")  # a choice's own key: the slide stays
    expect(presented.locator(COUNTER)).to_have_text(f"{number} / {total(presented)}")


def test_a_small_view_answers(deck: Page):
    view = deck.locator("#zero")
    view.scroll_into_view_if_needed()
    stage = view.get_by_label("ZeRO stage", exact=True)
    expect(stage).to_be_enabled(timeout=90_000)
    before = view.locator("output").inner_text()
    stage.select_option("0")
    expect(view.locator("output")).not_to_have_text(before, timeout=90_000)
    expect(view.locator("[data-part=verdict]")).to_contain_text("Does not fit")


def test_it_is_printed_one_slide_a_page(deck: Page):
    deck.emulate_media(media="print")
    slides = deck.locator(".slide")
    breaks = slides.evaluate_all("all => all.map(one => getComputedStyle(one).breakAfter)")
    assert breaks[:-1] == ["page"] * (len(breaks) - 1)
    assert deck.locator(".deck-bar").is_hidden()
    pages = deck.pdf(prefer_css_page_size=True).count(b"/Type /Page\n")
    assert pages == len(breaks)


def test_it_survives_leaving_and_coming_back(deck: Page):
    deck.get_by_role("link", name="Results", exact=True).first.click()
    expect(deck.locator("h1")).to_have_text(re.compile("Results"))
    deck.go_back()
    expect(deck.get_by_role("button", name="Present")).to_have_count(1)
    deck.get_by_role("button", name="Present").click()
    deck.keyboard.press("ArrowRight")
    expect(deck.locator(COUNTER)).to_have_text(f"2 / {total(deck)}")
