"""Long work shows that it goes on; a reader stops it and has it go on, by hand or by keyboard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

import waits

SLOW_MS = 90_000
WEB = "training_memory.web"

#: Every slice of long work waits until the test lets it go, so that it is seen however quick or
#: slow the machine is.
HELD = f"""
{waits.COUNTING}
window.held = [];
window.isHeld = true;
{{
    const post = Worker.prototype.postMessage;
    Worker.prototype.postMessage = function (message, ...more) {{
        const go = () => post.call(this, message, ...more);
        if (isHeld && message.type === "ask" && message.door !== "{WEB}") held.push(go);
        else go();
    }};
}}
"""

#: A run whose advice takes many slices, and its needs as many.
TOO_LARGE = "model=llama-2-70b&implementation=huggingface&recipe=autocast-adam&sequence=4096"
ERROR = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 5.00 GiB is free. Of the allocated memory 73.00 GiB is "
    "allocated by PyTorch, and 500.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.fixture
def page(page: Page) -> Page:
    page.add_init_script(HELD)
    page.clock.install()  # goes as always, and can be put forward
    return page


@pytest.fixture
def calculator(page: Page) -> Page:
    page.goto(f"/calculator/#{TOO_LARGE}")
    expect(page.locator(".tm-status")).to_contain_text("computed in this page", timeout=SLOW_MS)
    return page


def stop(page: Page) -> None:
    page.get_by_role("button", name="Stop", exact=True).click(timeout=SLOW_MS)


def let_go(page: Page) -> None:
    """Let long work go on."""
    page.evaluate(
        """() => {
            isHeld = false;
            for (const go of held.splice(0)) go();
        }"""
    )


def hold(page: Page) -> None:
    """Let no slice of long work go on from now on."""
    page.evaluate("isHeld = true")


def until_answered(page: Page) -> None:
    """Let what was asked for have its answer."""
    let_go(page)
    page.wait_for_function("() => unanswered === 0", timeout=SLOW_MS)


def is_stopped(page: Page) -> None:
    """It is told, to a screen reader too, and no more is asked for, however long one waits."""
    said = page.locator("[data-working]")
    expect(said).to_contain_text("Stopped: ")
    expect(said).to_have_attribute("role", "status")
    asks = "asked + held.length"
    before = page.evaluate(asks)
    until_answered(page)
    page.clock.fast_forward(5_000)
    assert page.evaluate(asks) == before
    expect(said).to_contain_text("Stopped: ")
    hold(page)


def goes_on(page: Page) -> None:
    page.get_by_role("button", name="Go on").click()


def goes_on_until(page: Page, words: str) -> None:
    """Let slices go one by one until the line tells of something else."""
    page.wait_for_function(
        """(words) => {
            if (document.querySelector("[data-working]").textContent === words) return true;
            if (unanswered === 0) held.shift()?.();
            return false;
        }""",
        arg=words,
        timeout=SLOW_MS,
    )


def is_over(page: Page) -> None:
    """All has its answer, nothing has still to settle, and so nothing more will be asked for."""
    let_go(page)
    page.wait_for_function(
        """() => unanswered === 0
            && document.querySelector("[data-working]").textContent === ""
            && document.querySelector('.tm output[aria-busy="true"]') === null""",
        timeout=SLOW_MS,
    )
    expect(page.locator("[data-stop]")).to_be_hidden()
    hold(page)


def test_needs_and_advice_are_stopped_and_go_on(
    calculator: Page, axe: Callable[[Page], None]
) -> None:
    page = calculator
    said = page.locator("[data-working]")
    expect(said).to_contain_text("Working out what must be free …", timeout=SLOW_MS)
    axe(page)
    stop(page)
    is_stopped(page)
    expect(page.locator('[data-part="need"]')).to_contain_text("the peak, and more")
    goes_on(page)
    expect(said).to_contain_text("Working out what must be free …", timeout=SLOW_MS)
    goes_on_until(page, "Trying changes …")
    is_over(page)
    expect(page.locator('[data-part="need"]')).to_contain_text("found by playing its first steps")
    expect(page.locator('[data-part="advice"]')).to_contain_text("What would make it fit")


def test_what_was_stopped_does_not_pass_for_the_runs(calculator: Page) -> None:
    page = calculator
    is_over(page)
    page.locator('.tm form [name="sequence"]').fill("2048")
    advice = page.locator('[data-part="advice"]')
    expect(advice).to_have_attribute("aria-busy", "true")
    stop(page)
    is_stopped(page)
    expect(advice).to_have_attribute("data-old", "")
    # Another run is worked on without being told to.
    page.locator('.tm form [name="sequence"]').fill("1024")
    expect(page.locator("[data-working]")).not_to_contain_text("Stopped")
    expect(page.locator("[data-working]")).to_contain_text("Working", timeout=SLOW_MS)
    is_over(page)
    expect(advice).not_to_have_attribute("data-old", "")


def test_by_keyboard(calculator: Page) -> None:
    page = calculator
    button = page.locator("[data-stop]")
    expect(button).to_be_visible(timeout=SLOW_MS)
    page.locator("#tm-answer").focus()
    for _ in range(3):  # the next thing that takes the focus, but for words that explain themselves
        page.keyboard.press("Tab")
        if button.evaluate("(one) => one === document.activeElement"):
            break
    page.keyboard.press("Enter")
    is_stopped(page)
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(button).to_have_text("Stop", timeout=SLOW_MS)
    page.locator("#tm-answer").focus()
    expect(button).to_be_visible(timeout=SLOW_MS)
    page.keyboard.press("Escape")
    is_stopped(page)
    # The button that goes away hands the focus on.
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#tm-answer")).to_be_focused()


def test_curves_and_switches(calculator: Page) -> None:
    page = calculator
    is_over(page)
    page.locator("[data-curves] > summary").click()
    expect(page.locator("[data-working]")).to_contain_text("Drawing the curves …", timeout=SLOW_MS)
    stop(page)
    is_stopped(page)
    goes_on(page)
    is_over(page)
    expect(page.locator('[data-part="curves"]')).to_contain_text("Now 4,096 tokens")
    page.locator('details[data-key="implementation"] > summary').click()
    expect(page.locator("[data-working]")).to_contain_text("each switch", timeout=SLOW_MS)
    # The curves are there: nothing is asked for twice.
    assert "curves" not in page.locator("[data-working]").inner_text()
    stop(page)
    is_stopped(page)


def test_two_runs_compared(calculator: Page) -> None:
    page = calculator
    is_over(page)
    page.get_by_role("button", name="Pin").first.click()
    is_over(page)
    page.locator('select[name="recompute"]').select_option("full")
    expect(page.locator("[data-working]")).to_contain_text("Comparing", timeout=SLOW_MS)
    stop(page)
    is_stopped(page)
    goes_on(page)
    is_over(page)
    expect(page.locator('[data-part="difference"]')).to_contain_text("Where they part")


def test_a_job_that_died(calculator: Page) -> None:
    page = calculator
    is_over(page)
    page.locator('[data-key="died"] > summary').click()
    page.locator("textarea[data-error]").fill(ERROR)
    expect(page.locator("[data-working]")).to_contain_text("the tensor …", timeout=SLOW_MS)
    stop(page)
    is_stopped(page)
    expect(page.locator("[data-died]")).to_be_empty()
    goes_on(page)
    let_go(page)
    expect(page.locator("[data-died]")).to_contain_text("What the error says", timeout=SLOW_MS)
    is_over(page)


def test_a_file_that_is_written(calculator: Page) -> None:
    page = calculator
    is_over(page)
    page.locator(".tm-export summary").click()
    saved: list[object] = []
    page.on("download", lambda download: saved.append(download))
    page.get_by_role("button", name="JSON", exact=True).click()
    expect(page.locator("[data-working]")).to_contain_text("Writing the file …", timeout=SLOW_MS)
    stop(page)
    is_stopped(page)
    assert not saved
    with page.expect_download(timeout=SLOW_MS):
        goes_on(page)
        let_go(page)
    is_over(page)


def test_a_film(page: Page) -> None:
    page.goto("/step/")
    page.get_by_text("Another run", exact=True).click()
    page.locator('select[name="recompute"]').select_option("full")
    expect(page.locator("[data-working]")).to_have_text("Making the film …", timeout=SLOW_MS)
    stop(page)
    expect(page.locator("[data-working]")).to_have_text("Stopped: the film is of the run before.")
    title = page.locator(".film-title").first
    until_answered(page)
    expect(title).to_have_text("LLaMA 7B, nothing recomputed")
    goes_on(page)
    expect(title).to_have_text("LLaMA 7B, every layer recomputed", timeout=SLOW_MS)
    is_over(page)


def test_the_latest_film_alone_is_shown(page: Page) -> None:
    page.goto("/step/")
    beside = page.locator("select[name=beside]")
    beside.select_option("selective")
    expect(page.locator("[data-working]")).to_have_text("Making the film …", timeout=SLOW_MS)
    beside.select_option("full")  # which is there
    until_answered(page)
    second = page.locator(".film-title").nth(1)
    expect(second).to_have_text("LLaMA 7B, every layer recomputed")
    is_over(page)
    expect(second).to_have_text("LLaMA 7B, every layer recomputed")
