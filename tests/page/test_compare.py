"""A job that died, and two runs side by side, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

READY_MS = 90_000
RUN = "model=llama-3-8b&sequence=8192&implementation=huggingface&recipe=bf16-adam&gpu=h100-80gb"
ERROR = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 0 has a "
    "total capacity of 79.10 GiB of which 1.21 GiB is free. Including non-PyTorch memory, this "
    "process has 77.88 GiB memory in use. Of the allocated memory 74.00 GiB is allocated by "
    "PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.fixture(params=[1280, 360], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, browser: Browser, site_url: str) -> Iterator[Page]:
    """The calculator with Python ready, showing a run that does not fit."""
    context = browser.new_context(
        base_url=site_url, viewport={"width": request.param, "height": 900}
    )
    context.add_init_script("delete Navigator.prototype.serviceWorker")
    problems: list[str] = []
    context.on("weberror", lambda error: problems.append(str(error.error)))
    page = context.new_page()
    page.goto(f"/calculator/#{RUN}")
    expect(page.locator('.tm[data-status="ready"]')).to_be_visible(timeout=READY_MS)
    expect(page.locator(".tm output")).to_contain_text("Llama 3 8B", timeout=READY_MS)
    yield page
    context.close()
    assert not problems


def test_a_pasted_error_names_its_tensor_and_the_change_is_applied(
    page: Page, axe: Callable[[Page], None]
) -> None:
    page.locator(".tm-died > summary").focus()
    page.keyboard.press("Enter")
    page.get_by_label("The error, with the lines before it").fill(ERROR)
    told = page.locator("[data-died]")
    expect(told.locator("li").first).to_contain_text("4·s·b·V", timeout=READY_MS)
    expect(told).to_contain_text("Truly too much")
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0
    axe(page)
    # The text is nobody's but the reader's: the address does not carry it.
    assert "allocate" not in page.url
    apply = told.get_by_role("button", name="Apply")
    apply.focus()
    page.keyboard.press("Enter")
    expect(told).to_contain_text("should fit", timeout=READY_MS)
    page.get_by_label("The error, with the lines before it").fill("all is well")
    expect(told).to_contain_text("No out-of-memory error is in this text", timeout=READY_MS)
    page.get_by_label("The error, with the lines before it").fill("")
    expect(told).to_be_empty()


def test_a_pinned_run_stands_beside_the_one_that_it_became(
    page: Page, axe: Callable[[Page], None]
) -> None:
    place = page.locator('[data-part="difference"]')
    place.get_by_role("button", name="Pin this run").focus()
    page.keyboard.press("Enter")
    expect(place).to_contain_text("Nothing is set differently", timeout=READY_MS)
    page.locator('select[name="recompute"]').select_option("full")
    expect(place.get_by_role("table").first).to_contain_text("recompute", timeout=READY_MS)
    expect(place.locator("svg.tm-bar")).to_have_count(2)
    place.locator(".tm-partings > summary").click()
    expect(place.locator(".tm-parted li").first).to_be_visible()
    expect(place.locator(".tm-partings")).to_contain_text("They part first at: ")
    # Which of two fields does what is found out a moment later.
    sequence = page.locator('input[name="sequence"]')
    sequence.fill("4096")
    sequence.press("Enter")
    expect(place.locator(".tm-partings")).to_contain_text(
        "Why: changed one at a time", timeout=READY_MS
    )
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0
    axe(page)
    # A link holds both; the other one is shown beside this one by a link.
    state = dict(parse_qsl(urlsplit(page.url).fragment))
    assert "recompute=none" in state["pin"]
    place.get_by_role("link", name="Swap the two").click()
    expect(page.locator('select[name="recompute"]')).to_have_value("none", timeout=READY_MS)
    place.get_by_role("button", name="Unpin").click()
    expect(place.get_by_role("button", name="Pin this run")).to_be_visible(timeout=READY_MS)
    assert "pin=" not in page.url
