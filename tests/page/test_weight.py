"""What reading costs: the bytes on the way, at a first visit, of all that a page fetches."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, expect

from places import page_path, page_sources

PAGES = [page_path(source) for source in page_sources()]
MOST_BYTES = 350_000


@pytest.mark.parametrize("path", PAGES)
def test_reading_a_page_costs_little(path: str, context: BrowserContext) -> None:
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: dict[str, int] = {}
    names: dict[str, str] = {}
    session.on(
        "Network.responseReceived",
        lambda event: names.update({event["requestId"]: event["response"]["url"]}),
    )
    session.on(
        "Network.loadingFinished",
        lambda event: sizes.update({event["requestId"]: event["encodedDataLength"]}),
    )
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(f"/{path}")
    page.wait_for_load_state("networkidle")
    expect(page.locator("h1").first).to_be_visible()
    # Python's own files are fetched by its worker, which is not this session's target.
    reading = {names[request]: size for request, size in sizes.items() if request in names}
    assert len(reading) > 5
    assert sum(reading.values()) <= MOST_BYTES, sorted(reading.items(), key=lambda one: -one[1])
    # A calculator in sight at once is what its reader came for; no other page fetches any Python.
    python = [url for url in fetched if "/assets/runtime/" in url]
    assert bool(python) == (path == "calculator/")
