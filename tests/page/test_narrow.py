"""On the smallest phones: numbers stand whole in their fields, and no label runs into another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page

PAGES = ("/calculator/", "/chapter/", "/deck/")
WIDTHS = (320, 360)

#: Runs whose drawings are named in different ways: few and many phases, small and large sizes.
RUNS = (
    "model=decoder&sequence=8",
    "model=gpt2-xl&sequence=1024&units=GiB",
    "model=llama-7b&sequence=2048&pipeline=2&micro_batches=2",
    "model=llama-7b&micro_batches=8&recompute=full",
    "model=korthikanti-175b&sequence=2048&tensor=8&pipeline=4&data=2&zero=1&gpu=none",
)

#: Number fields that do not show all of their value, or would not show a large one.
CUT = """() => {
    const cut = [];
    for (const fold of document.querySelectorAll(".tm details")) fold.open = true;
    for (const input of document.querySelectorAll(".tm input[inputmode=numeric]")) {
        for (const value of [input.value, "1,048,576"]) {
            input.value = value;
            if (input.scrollWidth > input.clientWidth)
                cut.push([input.id, value, input.scrollWidth, input.clientWidth]);
        }
        input.value = input.defaultValue;
        if (!input.clientWidth) cut.push([input.id, "is not shown"]);
    }
    return cut;
}"""

#: Texts of one drawing that touch, or that leave the drawing; and a table's cells that touch.
TOUCHING = """() => {
    const touching = [];
    for (const drawing of document.querySelectorAll(".tm-bar, .tm-step")) {
        const whole = drawing.getBoundingClientRect();
        const shown = [...drawing.querySelectorAll("text")]
            .map((text) => [text.textContent, text.getBoundingClientRect()])
            .filter(([, box]) => box.width);
        for (const [index, [words, box]] of shown.entries()) {
            if (box.left < whole.left - 1 || box.right > whole.right + 1)
                touching.push([words, "leaves the drawing"]);
            for (const [others, other] of shown.slice(index + 1)) {
                const apart = Math.max(box.left - other.right, other.left - box.right);
                const level = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
                if (level > 2 && apart < 3) touching.push([words, others, apart]);
            }
        }
    }
    for (const row of document.querySelectorAll(".tm-table tr:not(.tm-unfolded)")) {
        const ends = [...row.cells].slice(0, 3).map((cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return range.getBoundingClientRect();
        });
        for (const [index, end] of ends.slice(1).entries())
            if (end.left - ends[index].right < 3) touching.push([row.textContent, index]);
    }
    return touching;
}"""

#: What stands out of a calculator on its right, but for what scrolls by itself.
OUTSIDE = """() => [...document.querySelectorAll(".tm")].flatMap((view) =>
    [...view.querySelectorAll(".tm-body *")]
        .filter((one) => !one.closest("svg, .tm-scroll > *, .tm-hidden"))
        .filter((one) => {
            const { right } = one.getBoundingClientRect();
            return right > view.getBoundingClientRect().right + 0.5;
        })
        .map((one) => [one.tagName, one.className]))"""


@pytest.fixture(params=WIDTHS)
def phone(request: pytest.FixtureRequest, new_context: Callable[..., BrowserContext]) -> Page:
    """A page as narrow as a small phone, as it was built."""
    size = {"width": request.param, "height": 740}
    return new_context(viewport=size, java_script_enabled=False).new_page()


@pytest.mark.parametrize("path", PAGES)
def test_numbers_and_labels_have_their_room(phone: Page, path: str) -> None:
    phone.goto(path)
    assert phone.locator(".tm input[inputmode=numeric]").count()
    assert phone.evaluate(CUT) == []
    assert phone.evaluate(TOUCHING) == []
    assert phone.evaluate(OUTSIDE) == []


def test_beside_the_result_numbers_have_their_room_too(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto("/calculator/")
    assert page.evaluate(CUT) == []


def test_every_run_is_labelled_without_touching(
    new_context: Callable[..., BrowserContext],
) -> None:
    page = new_context(viewport={"width": 320, "height": 740}).new_page()
    page.goto("/calculator/")
    for run in RUNS:
        page.evaluate("run => { location.hash = run; }", run)
        page.wait_for_function(
            """run => {
                const shown = new URLSearchParams(location.hash.slice(1));
                const select = document.querySelector(".tm [name=model]");
                const batches = document.querySelector(".tm [name=micro_batches]");
                return select.value === shown.get("model")
                    && batches.value === (shown.get("micro_batches") ?? "1")
                    && document.querySelector(".tm").dataset.stale === undefined;
            }""",
            arg=run,
            timeout=90_000,
        )
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 740})
            assert page.evaluate(TOUCHING) == [], run
