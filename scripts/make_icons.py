"""Draw the app's icons, as PNG, from the site's own icon; they are committed among the images.

Run by hand when docs/assets/images/icon.svg changes: ``python scripts/make_icons.py``. Not every
system that installs a site takes an SVG. A maskable icon fills its square to the edge, since a
system cuts it to a shape of its own, and keeps its picture within the middle.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import browser as browsers  # noqa: E402  # found through the line above

IMAGES = ROOT / "docs" / "assets" / "images"
GROUND = "#3f51b5"

#: File, side in pixels, and how much of the side the picture fills.
ICONS = (
    ("icon-192.png", 192, 1.0),
    ("icon-512.png", 512, 1.0),
    ("icon-maskable-512.png", 512, 0.8),
)


def main() -> None:
    """Draw every icon in a headless browser."""
    svg = (IMAGES / "icon.svg").read_text(encoding="utf-8")
    with sync_playwright() as playwright:
        found = browsers.find(playwright)
        if found is None:
            sys.exit("There is no browser; `make test` installs one.")
        browser = playwright.chromium.launch(
            executable_path=str(found), args=list(browsers.ARGUMENTS)
        )
        for name, side, share in ICONS:
            page = browser.new_page(viewport={"width": side, "height": side})
            ground = GROUND if share < 1 else "transparent"
            page.set_content(
                f"<style>body {{ margin: 0; display: grid; place-content: center; height: 100vh; "
                f"background: {ground} }} svg {{ width: {side * share}px }}</style>{svg}"
            )
            page.screenshot(path=IMAGES / name, omit_background=True)
            print(IMAGES / name)
        browser.close()


if __name__ == "__main__":
    main()
