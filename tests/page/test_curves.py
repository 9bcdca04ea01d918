"""Curves in a real browser: drawn where somebody looks, of the run that is shown."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

SLOW_MS = 90_000


def test_curves_follow_the_run(page: Page, axe: Callable[[Page], None]) -> None:
    page.goto("/calculator/")
    curves = page.locator('[data-part="curves"]')
    page.get_by_text("The peak against sequence length").click()
    expect(curves).to_contain_text("Now 4,096 tokens: 199.5 GB.")
    page.locator('select[name="recompute"]').select_option("full")
    expect(page.locator(".tm-sentence")).to_contain_text("110.7 GB", timeout=SLOW_MS)
    expect(curves).to_contain_text("Now 4,096 tokens: 110.7 GB.")
    expect(curves).not_to_have_attribute("aria-busy", "true")
    # Folded, they are of an earlier run, and drawn anew once they are looked at.
    page.get_by_text("The peak against sequence length").click()
    page.locator('select[name="gpu"]').select_option("h200-141gb")
    expect(page.locator(".tm-verdict")).to_contain_text("H200")
    page.get_by_text("The peak against sequence length").click()
    expect(curves).to_contain_text("Fits up to ")
    expect(curves.get_by_role("img", name="Peak against sequence length")).to_be_visible()
    curves.get_by_text("As a table").first.click()
    expect(curves.get_by_role("table").first).to_be_visible()
    axe(page)
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
