"""Taking an answer away from the page: one menu, every format, a picture in dots too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from training_memory import Run, estimate
from training_memory.render.export import EXPORTS

READY_MS = 90_000
NAMES = {"csv": "CSV", "markdown": "Markdown", "bibtex": "BibTeX", "svg": "SVG picture"}


@pytest.fixture
def page(page: Page) -> Page:
    """The calculator with Python ready and its menu open."""
    page.goto("/calculator/#model=gpt2&sequence=512")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    expect(page.locator(".tm output")).to_contain_text("GPT-2 at 512 tokens")
    page.locator(".tm-export summary").click()
    return page


def saved(page: Page, what: str) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name=what, exact=True).click()
    path = Path(download.value.path())
    assert download.value.suggested_filename.startswith("training-memory-gpt-2.")
    return path


def test_every_format_is_saved_as_python_writes_it(page: Page) -> None:
    made = estimate(Run.from_json({"model": "gpt2", "sequence": 512}))
    address = page.url.partition("#")[0]
    for form, name in NAMES.items():
        text = saved(page, name).read_bytes().decode()
        assert text == EXPORTS[form].made(made, False, address)
    assert json.loads(saved(page, "JSON").read_text()) == made.to_json()


def test_the_picture_in_dots_is_a_png_at_twice_the_size(page: Page) -> None:
    data = saved(page, "PNG picture").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width = int.from_bytes(data[16:20])
    assert width == 2 * 960
    assert len(data) > 10_000  # something is drawn on it
