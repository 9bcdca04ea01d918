"""The calculator on paper: the answer, its pictures and the table, on few sheets."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect


@pytest.mark.parametrize("sheet", ["Letter", "A4"])
def test_the_calculators_page_takes_three_sheets(page: Page, sheet: str) -> None:
    page.goto("/calculator/")
    printed = page.pdf(format=sheet)
    assert printed.count(b"/Type /Page\n") <= 3


def test_what_is_unfolded_is_printed_folded_and_headings_stay_with_what_follows(page: Page) -> None:
    page.goto("/calculator/")
    # As the theme does before it prints.
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    expect(page.get_by_text("softmax dropout mask")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.get_by_text("softmax dropout mask")).to_be_hidden()
    expect(page.locator(".tm-changes li:visible")).to_have_count(5)
    for whole in (".tm-sentence", ".tm-verdict", ".tm-bar", ".tm-step", ".tm-omitted li >> nth=0"):
        expect(page.locator(whole)).to_be_visible()
    rows = page.locator(".tm-table .tm-row")
    assert rows.count() == page.locator(".tm-table .tm-row:visible").count() > 0
    after = page.locator(".tm :is(.tm-bar-head, .tm-heading, caption):visible").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).breakAfter)"
    )
    assert after
    assert set(after) == {"avoid"}
