"""The Decoder in a real browser: asked for, run, stopped, refused, failed, and left."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, Route, expect

import waits

ADDRESS = "/decoder/"
#: How long a run may take on a busy machine, its start included.
RUN_MS = 180_000
GO = "Run a real backward pass and count"

#: What a run's progress was told as since it was asked for, the frames that were drawn while Python
#: made pieces of it, and after how many of them it waits for the test.
RUNNING = """
window.progressed = [];
window.allowed = Infinity;
window.drawnMeanwhile = 0;
window.letGo = () => {
    allowed = Infinity;
    for (const go of held.splice(0)) go();
};
window.held = [];
{
    addEventListener("submit", () => progressed.splice(0), { capture: true });
    new MutationObserver(() => {
        const words = document.querySelector("[data-progress]")?.textContent;
        if (words && words !== progressed.at(-1)) progressed.push(words);
    }).observe(document, { subtree: true, childList: true, characterData: true });

    let drawn = 0;
    const frame = () => requestAnimationFrame(() => (drawn += 1, frame()));
    frame();
    const post = Worker.prototype.postMessage;
    const listening = new WeakSet();
    const asked = new Map();
    Worker.prototype.postMessage = function (message, ...more) {
        if (message?.door !== "decoder_door") return post.call(this, message, ...more);
        if (!listening.has(this)) {
            listening.add(this);
            this.addEventListener("message", ({ data }) => {
                drawnMeanwhile += drawn - (asked.get(data.id) ?? drawn);
            });
        }
        const go = () => {
            asked.set(message.id, drawn);
            post.call(this, message, ...more);
        };
        if (allowed-- > 0) go();
        else held.push(go);
    };
}
"""


class Decoder:
    """The run in the page, as a reader meets it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.section = page.locator("#decoder-run")
        self.go = self.section.locator(".runner-go")
        self.stop = self.section.get_by_role("button", name="Stop")
        self.steps = self.section.get_by_label("Train", exact=True)
        self.seed = self.section.get_by_label("Random seed")
        self.status = self.section.get_by_role("status")
        self.progress = self.section.locator("[data-progress]")
        self.result = self.section.locator(".runner-result")

    def part(self, name: str) -> Locator:
        return self.section.locator(f'[data-part="{name}"]')

    def run(self, steps: str = "10") -> None:
        """Have it run to its end."""
        self.steps.select_option(steps)
        self.go.click()
        self.wait()

    def wait(self) -> None:
        expect(self.status).to_contain_text("Done", timeout=RUN_MS)

    def opened(self) -> Decoder:
        """Open its page."""
        self.page.add_init_script(RUNNING)
        self.page.goto(ADDRESS)
        return self

    def going_on(self, words: str = r"(Step|Tensor) \d+ of") -> None:
        """Wait until the trainer itself runs; which of its pieces, none can tell beforehand."""
        self.page.wait_for_function(
            "(words) => progressed.some((one) => RegExp(words).test(one))",
            arg=words,
            timeout=RUN_MS,
        )

    def only(self, pieces: int) -> None:
        """Let only so many pieces of a run be made before it waits to be let go."""
        self.page.evaluate(f"allowed = {pieces}")

    def let_go(self) -> None:
        self.page.evaluate("letGo()")


@pytest.fixture
def decoder(page: Page) -> Decoder:
    return Decoder(page).opened()


@pytest.fixture
def unwatched(browser: Browser, site_url: str) -> Iterator[BrowserContext]:
    """A context in which errors are expected: the browser tells of every blocked file."""
    context = browser.new_context(base_url=site_url)
    context.add_init_script("delete Navigator.prototype.serviceWorker")
    yield context
    context.close()


def runtime_files(requests: list[Request]) -> list[str]:
    return [one.url.rsplit("/", 1)[-1] for one in requests if "/assets/runtime/" in one.url]


def cells(table: Locator) -> list[str]:
    """A table's words: the theme may put its own elements around them."""
    return [one.strip() for one in table.locator("th, td").all_inner_texts()]


def test_it_counts_what_the_page_counts(page: Page) -> None:
    fetched: list[Request] = []
    page.on("request", lambda request: fetched.append(request))
    decoder = Decoder(page).opened()
    waits.settled(page)
    decoder.section.scroll_into_view_if_needed()
    decoder.seed.focus()
    waits.settled(page)
    expect(decoder.status).to_contain_text("Nothing runs until you ask for it.")
    expect(decoder.result).to_be_hidden()
    assert runtime_files(fetched) == [], "nothing is fetched before it is asked for"

    decoder.run("20")
    files = runtime_files(fetched)
    assert len(files) == len(set(files)), "nothing is fetched twice"
    assert [name for name in files if re.fullmatch(r"decoder-\w+\.zip", name)]

    # The count, and whether it is the page's, in words.
    verdict = decoder.part("verdict")
    expect(verdict).to_contain_text("2,320 values kept, 2,496 by the formula.")
    expect(verdict).to_contain_text("this page's table has the same")
    expect(verdict).to_contain_text("22 tensors' gradients agree.")
    expect(verdict).to_contain_text("Steps 1 to 20 are those of this page's run")
    expect(verdict.locator(".tm-fits")).to_have_count(3)

    # The loss falls, in words and in the curve, whose heights grow downwards.
    first, last = re.findall(r"\d\.\d{3}", verdict.inner_text())
    assert float(last) < float(first) - 1
    line = decoder.section.locator(".curve-loss").get_attribute("points") or ""
    heights = [int(number) for number in line.split()[1::2]]
    assert len(heights) == 20
    assert heights[-1] > heights[0] + 200

    # Its tables are the built page's.
    built = page.locator("article .table-scroll table")
    shown = {text: cells(table) for table in built.all() if (text := table.inner_text())}
    for name in ("kept", "tape", "rows", "causes"):
        fold = decoder.part(name).locator("xpath=ancestor::details")
        if fold.count() and fold.get_attribute("open") is None:
            fold.locator("summary").click()
        made = cells(decoder.part(name).locator("table"))
        same = [one for one in shown.values() if one == made]
        assert len(same) >= 1, f"{name}: {made[:8]}"
    expect(decoder.go).to_have_text("Run it again")


def test_one_can_type_and_stop_while_it_runs(decoder: Decoder) -> None:
    decoder.steps.select_option("100")
    decoder.only(30)
    decoder.go.click()
    expect(decoder.go).to_be_disabled()
    expect(decoder.stop).to_be_focused()
    decoder.going_on()
    decoder.seed.fill("")
    decoder.seed.press_sequentially("12345")
    expect(decoder.seed).to_have_value("12345")
    # The thread that types is not the one that trains: frames are drawn while a piece is made.
    decoder.going_on("of 100, loss")
    decoder.page.wait_for_function("() => held.length === 1", timeout=RUN_MS)
    assert decoder.page.evaluate("drawnMeanwhile") > 0
    decoder.stop.focus()
    decoder.stop.press("Enter")
    decoder.let_go()
    expect(decoder.status).to_have_text("Stopped by you.", timeout=RUN_MS)
    expect(decoder.stop).to_be_hidden()
    expect(decoder.go).to_be_enabled()
    expect(decoder.go).to_be_focused()
    # What was drawn so far stays; nothing was counted.
    expect(decoder.section.locator(".curve-loss")).to_have_count(1)
    expect(decoder.part("verdict")).to_be_empty()

    # Another run begins at once, with the seed that was typed meanwhile.
    decoder.run("10")
    expect(decoder.part("verdict")).to_contain_text("so they are this run's own")
    expect(decoder.part("verdict")).to_contain_text("2,320 values kept")
    expect(decoder.section.locator(".curve-beside")).to_have_count(0)


def test_a_run_survives_that_its_python_breaks(decoder: Decoder) -> None:
    """The memory that a start begins with breaks: Python starts plainly, and so does the run."""
    decoder.steps.select_option("20")
    decoder.only(5)
    decoder.go.click()
    decoder.going_on()
    decoder.page.evaluate(
        """async () => {
            const {href} = new URL("runtime.js",
                document.querySelector('script[src*="calculator/page.js"]').src);
            const runtime = (await import(href)).python();
            // What no door ever does: fail.
            await runtime.ask("{}", "no_such_door").catch(() => {});
        }"""
    )
    decoder.let_go()
    decoder.wait()
    expect(decoder.part("verdict")).to_contain_text("2,320 values kept, 2,496 by the formula.")
    expect(decoder.part("verdict")).to_contain_text("Steps 1 to 20 are those of this page's run")


def test_what_cannot_be_run_is_refused_beside_its_field(decoder: Decoder) -> None:
    decoder.seed.fill("many")
    decoder.go.click()
    expect(decoder.status).to_contain_text("This cannot be run", timeout=RUN_MS)
    expect(decoder.seed).to_have_attribute("aria-invalid", "true")
    expect(decoder.seed).to_have_accessible_description(
        re.compile("many cannot be used: a whole number, 0 to 999,999")
    )
    expect(decoder.result).to_be_hidden()
    decoder.seed.fill("3")
    decoder.seed.press("Enter")
    decoder.going_on()
    expect(decoder.seed).not_to_have_attribute("aria-invalid", "true")
    expect(decoder.seed).to_have_accessible_description("")


@pytest.mark.parametrize("lost", ["**/*.wasm", "**/decoder-*.zip", "**/worker.js"])
def test_a_start_that_fails_says_so_and_can_be_tried_again(
    lost: str, unwatched: BrowserContext
) -> None:
    unwatched.route(lost, lambda route: route.abort())
    page = unwatched.new_page()
    decoder = Decoder(page).opened()
    decoder.steps.select_option("10")
    decoder.go.click()
    expect(decoder.status).to_contain_text("The run could not go on here (", timeout=RUN_MS)
    expect(decoder.status).to_contain_text("were made by the same program when the page was built")
    expect(decoder.section).to_have_attribute("data-status", "failed")
    expect(decoder.result).to_be_hidden()
    expect(page.get_by_role("region", name="Table: The count and the formula")).to_be_visible()
    unwatched.unroute(lost)
    expect(decoder.go).to_be_enabled()
    decoder.go.click()
    decoder.going_on()
    expect(decoder.section).not_to_have_attribute("data-status", "failed")


def test_stopping_before_python_is_here_waits_for_nothing(
    page: Page, context: BrowserContext
) -> None:
    held: list[Route] = []
    context.route("**/*.wasm", lambda route: held.append(route))
    decoder = Decoder(page).opened()
    decoder.go.click()
    expect(decoder.status).to_contain_text("Loading Python, once.")
    expect(decoder.progress).to_contain_text(" MB")
    decoder.stop.click()
    expect(decoder.status).to_have_text("Stopped by you before it began.")
    expect(decoder.go).to_be_enabled()
    for route in held:
        route.continue_()


def test_leaving_the_page_ends_the_run_and_python_stays(page: Page) -> None:
    fetched: list[Request] = []
    page.on("request", lambda request: fetched.append(request))
    decoder = Decoder(page).opened()
    waits.links(page)
    decoder.steps.select_option("100")
    decoder.go.click()
    decoder.going_on()
    tabs = page.get_by_role("navigation", name="Tabs")
    tabs.get_by_role("link", name="Calculator").click()
    # The same Python answers the calculator: the run's next piece was not asked for.
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=RUN_MS)
    tabs.get_by_role("link", name="The Decoder").click()
    again = Decoder(page)
    expect(again.go).to_have_text(GO)
    again.go.click()
    again.going_on()
    files = runtime_files(fetched)
    assert len(files) == len(set(files)), "nothing is fetched twice"


def test_the_page_is_whole_without_scripts(new_context: Callable[..., BrowserContext]) -> None:
    decoder = Decoder(new_context(java_script_enabled=False).new_page()).opened()
    page = decoder.page
    assert "This part needs scripts." in decoder.section.inner_text()
    expect(decoder.go).to_be_disabled()
    expect(decoder.result).to_be_hidden()
    text = page.locator("article").inner_text()
    for words in (
        *("2,320", "2,496", "−176", "86,016", "286,208", "block 2/FFN out weight"),
        "832 values that the trainer has not",
        "656 values that the formula leaves out",
    ):
        assert words in text, words
    expect(page.get_by_role("img", name="The loss over training")).to_be_visible()
    expect(page.get_by_role("img", name="The tape over one step")).to_be_visible()


def test_a_run_breaks_no_accessibility_rule_and_fits_a_phone(
    new_context: Callable[..., BrowserContext], axe: Callable[[Page], None]
) -> None:
    context = new_context(reduced_motion="reduce", viewport={"width": 1280, "height": 800})
    page = context.new_page()
    decoder = Decoder(page).opened()
    decoder.go.click()
    decoder.going_on()
    axe(page)
    decoder.wait()
    for fold in decoder.section.locator("details").all():
        fold.locator("summary").click()
    schemes: dict[Literal["light", "dark"], str] = {"light": "default", "dark": "slate"}
    for scheme, expected in schemes.items():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", expected)
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("() => document.scrollingElement.scrollWidth") <= width
            axe(page)
