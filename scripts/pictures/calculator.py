"""The README's picture of the calculator, taken from the built site: run it after ``make site``.

Needs the tools of ``make test`` (Playwright and a browser).
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Thread

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "build"), str(ROOT / "tests")]

import browser as browsers  # noqa: E402  # found through the line above
from serve import SiteServer  # noqa: E402

PICTURE = ROOT / "docs" / "assets" / "images" / "calculator.png"
#: From the answer's sentence to under the step's curve, in CSS pixels.
WIDTH, HEIGHT = 1100, 1000


def take(into: Path = PICTURE) -> None:
    """Write the picture of the built site's calculator, its first answer showing."""
    server = SiteServer(ROOT / "site", base="/")
    Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(browsers.find(playwright)), args=list(browsers.ARGUMENTS)
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"{server.url}calculator/")
        page.locator("section.tm").scroll_into_view_if_needed()
        page.locator("section.tm [data-said]", has_text="Every change").wait_for()
        page.evaluate("document.querySelector('section.tm').scrollIntoView()")
        page.evaluate("scrollBy(0, -64)")
        page.evaluate("document.querySelector('.md-top').remove()")  # it comes with scrolling up
        page.screenshot(path=into)
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    take()
    print(f"wrote {PICTURE.relative_to(ROOT)}, {PICTURE.stat().st_size:,} bytes")
