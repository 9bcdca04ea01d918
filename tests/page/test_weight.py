"""What reading costs: the bytes on the way, at a first visit, of all that a page fetches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Buffer, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, override

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import waits
from places import page_path, page_sources
from serve import SiteHandler, SiteServer

PAGES = [page_path(source) for source in page_sources()]
MOST_BYTES = 350_000
PYTHON = "/assets/runtime/"

#: Reads a page down to its end, or to where a calculator would be near; see web/near.js.
READ = """async () => {
    const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const calculators = [...document.querySelectorAll("[data-runtime]")];
    const tops = calculators.map((one) => one.getBoundingClientRect().top + scrollY);
    const end = Math.min(document.documentElement.scrollHeight, ...tops.map((top) => top - 500));
    for (let bottom = innerHeight; bottom < end + innerHeight; bottom += innerHeight) {
        scrollTo({top: Math.min(bottom, end) - innerHeight, behavior: "instant"});
        await painted();
    }
    const read = Math.max(innerHeight, Math.min(end, scrollY + innerHeight));
    const shown = [...document.images].filter((image) => {
        const {top} = image.getBoundingClientRect();
        return image.checkVisibility() && top + scrollY < read;
    });
    await Promise.all(shown.map((image) => image.decode()));
    await painted();
    return [scrollY + innerHeight, end];
}"""


class Counting(SiteHandler):
    """Notes how many bytes it sends in answer to each request, headers and all."""

    server: CountingServer

    @override
    def setup(self) -> None:
        super().setup()
        self.wfile = Counted(self.wfile)  # type: ignore[assignment]  # as much as is needed of it

    @override
    def do_GET(self) -> None:
        before = self.wfile.sent  # type: ignore[attr-defined]
        try:
            super().do_GET()
        finally:
            self.server.sent[self.path] += self.wfile.sent - before  # type: ignore[attr-defined]


class Counted:
    """A stream that counts what is written to it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.sent = 0

    def write(self, data: Buffer) -> int:
        self.sent += len(memoryview(data))
        written: int = self.stream.write(data)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class CountingServer(SiteServer):
    """Counts where it makes no difference who asks: what workers fetch counts too."""

    def __init__(self, site: Path) -> None:
        super().__init__(site)
        self.RequestHandlerClass = Counting
        self.sent: Counter[str] = Counter()

    def reading(self) -> Counter[str]:
        """All that was sent but Python."""
        return Counter({path: size for path, size in self.sent.items() if PYTHON not in path})


@pytest.fixture
def server(built_site: Path) -> Iterator[CountingServer]:
    server = CountingServer(built_site)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def opened(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address)
    waits.settled(page)
    expect(page.locator("h1").first).to_be_visible()
    return page


@pytest.mark.parametrize("path", PAGES)
def test_reading_a_page_costs_little(
    path: str, context: BrowserContext, server: CountingServer
) -> None:
    page = opened(context, f"{server.url}{path}")
    read, end = page.evaluate(READ)
    has_calculator = page.locator("[data-runtime]").count() > 0
    assert has_calculator or read >= end - 1
    # A calculator in sight at once is what its reader came for; no other page fetches any Python.
    if path == "calculator/":
        waits.until(page, lambda: any(PYTHON in asked for asked in server.sent))
    else:
        waits.until(page, lambda: any("/workers/" in asked for asked in server.sent))
        assert not any(PYTHON in asked for asked in server.sent)
    context.close()
    reading = server.reading()
    assert len(reading) > 5
    # The theme's search waits for Python where that starts at once.
    assert path == "calculator/" or any("/workers/" in asked for asked in reading)
    assert reading.total() <= MOST_BYTES, reading.most_common()
