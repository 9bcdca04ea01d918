"""The planner in a real browser: it finds, tells how far it is, stops, and belongs to one run."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

SLOW_MS = 90_000


@pytest.fixture
def page(page: Page) -> Page:
    page.goto("/calculator/")
    page.get_by_text("Find the cheapest plan that fits").click()
    expect(page.locator(".tm-status")).to_contain_text("computed in this page", timeout=SLOW_MS)
    return page


def find(page: Page) -> None:
    page.get_by_role("button", name="Find a plan").click()


def found(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.locator("[data-plan-found]")).to_contain_text(text, timeout=SLOW_MS)


def test_a_plan_is_found_applied_and_undone(page: Page, axe: Callable[[Page], None]) -> None:
    find(page)
    found(page, re.compile(r"The cheapest of [\d,]+ on 8 GPUs, 8 sequences a step"))
    found(page, "Fewest GPUs")
    page.get_by_text("For Megatron").click()
    expect(page.locator("[data-plan-found] pre:visible")).to_contain_text("--micro-batch-size")
    axe(page)
    before = page.url
    page.get_by_role("button", name="Apply this plan").click()
    expect(page.locator(".tm-verdict")).to_contain_text("Fits")
    # It was found for the run before.
    expect(page.locator("[data-plan-found]")).to_be_empty()
    expect(page.locator("[data-plan-said]")).to_contain_text("The run has changed")
    page.go_back()
    expect(page.locator(".tm-verdict")).to_contain_text("Does not fit")
    assert page.url == before


def test_another_run_takes_away_what_was_found(page: Page) -> None:
    find(page)
    found(page, "The cheapest of")
    page.locator('select[name="recompute"]').select_option("full")
    expect(page.locator("[data-plan-found]")).to_be_empty()


def test_a_search_is_stopped_and_meanwhile_the_page_answers(page: Page) -> None:
    page.locator('select[name="model"]').select_option("deepseek-v3")
    expect(page.locator(".tm-sentence")).to_contain_text("DeepSeek")
    page.get_by_label("GPUs", exact=True).fill("480")
    page.get_by_label("Sequences a step").fill("5760")
    find(page)
    expect(page.locator("[data-plan-said]")).to_contain_text("tried")
    page.get_by_role("button", name="Stop looking").click()
    expect(page.locator("[data-plan-said]")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Stop looking")).to_be_hidden()
    find(page)
    expect(page.locator("[data-plan-said]")).to_contain_text("tried")
    page.locator('select[name="model"]').select_option("gpt2")
    expect(page.locator(".tm-sentence")).to_contain_text("GPT-2")
    expect(page.locator("[data-plan-said]")).to_contain_text("The run has changed")


def test_what_cannot_be_is_said(page: Page) -> None:
    page.get_by_label("GPUs", exact=True).fill("0")
    find(page)
    expect(page.locator("[data-plan-said]")).to_contain_text("GPUs: 0 cannot be used")
    page.locator('select[name="gpu"]').select_option("none")
    expect(page.locator(".tm-verdict")).to_contain_text("No GPU chosen")
    page.get_by_label("GPUs", exact=True).fill("8")
    find(page)
    expect(page.locator("[data-plan-said]")).to_contain_text("choose one for the plan")


def test_thousands_of_plans_are_gone_through(page: Page) -> None:
    """How quickly, ``tests/calculator/test_answer_speed.py`` counts."""
    page.locator('select[name="model"]').select_option("llama-2-70b")
    expect(page.locator(".tm-sentence")).to_contain_text("Llama 2 70B")
    page.get_by_label("GPUs", exact=True).fill("64")
    page.get_by_label("Sequences a step").fill("1024")
    find(page)
    found(page, "The cheapest of")
    said = page.locator("[data-plan-found]").inner_text()
    tried = re.search(r"The cheapest of ([\d,]+)", said)
    assert tried
    assert int(tried[1].replace(",", "")) >= 1000


def test_it_fits_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    find(page)
    found(page, "The cheapest of")
    page.get_by_text("For Hugging Face").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
