"""How the calculator starts: late, calmly, and, where it cannot, without taking the page along."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

import waits

READY_MS = 90_000

# Adds up every shift that no input explains, and the elements that shifted.
SHIFTS = """() => {
    const shifted = {score: 0, what: []};
    const note = (shifts) => {
        for (const shift of shifts) {
            if (shift.hadRecentInput) continue;
            shifted.score += shift.value;
            for (const {node} of shift.sources) shifted.what.push(node?.className ?? "?");
        }
        return shifted;
    };
    const observer = new PerformanceObserver((list) => note(list.getEntries()));
    observer.observe({type: "layout-shift", buffered: true});
    window.shifted = () => note(observer.takeRecords());
}"""


def is_runtime(url: str) -> bool:
    return "/assets/runtime/" in url or url.endswith("calculator/worker.js")


@pytest.fixture
def unwatched(browser: Browser, site_url: str) -> Iterator[BrowserContext]:
    """A context in which errors are expected: the browser tells of every blocked file."""
    context = browser.new_context(base_url=site_url)
    context.add_init_script("delete Navigator.prototype.serviceWorker")
    yield context
    context.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_shifts_when_python_becomes_ready(
    width: int, new_context: Callable[..., BrowserContext]
) -> None:
    page = new_context(viewport={"width": width, "height": 800}).new_page()
    page.add_init_script(waits.COUNTING)
    page.goto("/calculator/")
    page.evaluate(SHIFTS)
    page.locator(".tm-status").scroll_into_view_if_needed()
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    # The advice is asked for once things have settled, after the answer.
    page.wait_for_function("() => asked > 1 && unanswered === 0", timeout=READY_MS)
    # The theme comes with Python's answer, and what is long work is told of in the meantime.
    waits.theme(page)
    page.evaluate("""() => new Promise((done) => {
        const said = document.querySelector(".tm [data-working]");
        said.textContent = "Trying changes …";
        requestAnimationFrame(() => requestAnimationFrame(() => {
            said.textContent = "Trying what would be short of memory …";
            requestAnimationFrame(() => requestAnimationFrame(done));
        }));
    })""")
    shifted = page.evaluate("shifted()")
    assert shifted["score"] == 0, shifted


def test_no_stylesheet_is_fetched_anew(page: Page) -> None:
    """While one is on its way again, a busy browser shows the page without it."""
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto("/calculator/")
    waits.links(page)
    sheets = page.locator("link[rel=stylesheet]")
    count = sheets.count()
    assert count > 2
    page.evaluate("window.same = true")
    for name in ("Results", "Chapter"):
        page.get_by_role("navigation", name="Tabs").get_by_role("link", name=name).click()
        page.wait_for_url(f"**/{name.lower()}/")
        expect(page.locator("h1")).to_contain_text("Results" if name == "Results" else "Memory")
    page.go_back()
    expect(page.locator("h1")).to_contain_text("Results")
    assert page.evaluate("window.same")
    assert sheets.count() == count
    assert page.evaluate("document.styleSheets.length") == count
    fetched = [url for url in fetched if url.endswith(".css")]
    assert len(fetched) == len(set(fetched)) == count


def test_python_is_fetched_only_when_the_reader_nears_a_calculator(page: Page) -> None:
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto("/chapter/")
    waits.settled(page)
    assert not [url for url in fetched if is_runtime(url)]
    status = page.locator(".tm-status")
    expect(status).to_contain_text("Computed when the page was built; a change loads Python,")
    page.locator(".tm").scroll_into_view_if_needed()
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    assert [url for url in fetched if is_runtime(url)]
    assert len(fetched) == len(set(fetched)), "nothing is fetched twice"


def test_what_is_changed_before_python_is_ready_is_answered_when_it_is(
    page: Page, context: BrowserContext
) -> None:
    held: list[Route] = []
    context.route("**/*.wasm", lambda route: held.append(route))
    page.goto("/calculator/")
    section = page.locator(".tm")
    expect(section).to_have_attribute("data-status", "loading")
    expect(page.locator(".tm-status")).to_contain_text("You can change things already")
    page.locator('.tm [name="recompute"]').select_option("full")
    page.locator('.tm [name="sequence"]').focus()
    page.keyboard.press("ArrowUp")
    expect(section).to_have_attribute("data-stale", "waiting")
    # The number that is shown is not touched until there is another.
    expect(page.locator(".tm output")).to_contain_text("199.5 GB")
    for route in held:
        route.continue_()
    expect(page.locator(".tm output")).to_contain_text(
        "8,192 tokens, one sequence, mixed-precision Adam, every layer recomputed",
        timeout=READY_MS,
    )
    assert "sequence=8192" in page.url
    expect(page.locator('.tm [name="sequence"]')).to_have_value("8,192")


def test_its_size_is_told_before_and_progress_counts_the_bytes_that_came(
    page: Page, context: BrowserContext, built_site: Path
) -> None:
    manifest = json.loads((built_site / "assets/runtime/manifest.json").read_bytes())
    quick = manifest["starts"]["quick"]
    page.goto("/chapter/")
    size = f"{quick['gzip_bytes'] / 1e6:.1f} MB"
    expect(page.locator(".tm-status")).to_contain_text(f"a change loads Python, {size}")
    # All has come but for the WebAssembly; scripts are imported, and not counted.
    held: list[Route] = []
    context.route("**/*.wasm", lambda route: held.append(route))
    page.goto("/calculator/")
    counted = {path: size for path, size in quick["files"].items() if not path.endswith("js")}
    share = 1 - sum(counted[path] for path in counted if path.endswith("wasm")) / sum(
        counted.values()
    )
    assert 0 < share < 1
    expect(page.locator(".tm-status")).to_contain_text(f"Loading Python, {size}")
    expect(page.locator(".tm [data-progress]")).to_have_text(
        f"{share * quick['gzip_bytes'] / 1e6:.1f} of {size}"
    )
    waits.until(page, lambda: held)


def test_where_python_cannot_start_the_page_says_so_and_stays_whole(
    unwatched: BrowserContext,
) -> None:
    context = unwatched
    context.route("**/*.wasm", lambda route: route.abort())
    page = context.new_page()
    page.goto("/calculator/#recompute=full")
    section = page.locator(".tm")
    expect(section).to_have_attribute("data-status", "failed", timeout=READY_MS)
    status = page.locator(".tm-status")
    expect(status).to_contain_text("Python could not start here")
    expect(status).to_contain_text("What is shown was computed when the page was built")
    expect(page.locator(".tm output")).to_contain_text("needs 199.5 GB")
    expect(page.locator('.tm [name="recompute"]')).to_be_disabled()
    expect(page.locator('.tm [name="recompute"]')).to_have_value("none")
    expect(section).not_to_have_attribute("data-stale", "waiting")
    # Nor does it wait where the address comes after the failure.
    page.evaluate(
        """() => new Promise((done) => {
            addEventListener("hashchange", () => setTimeout(done), { once: true });
            location.hash = "recompute=selective";
        })"""
    )
    assert section.get_attribute("data-stale") != "waiting"
    for whole in (".tm-bar", ".tm-step", ".tm-table"):
        expect(page.locator(whole)).to_be_visible()

    context.unroute("**/*.wasm")
    page.get_by_role("button", name="Try again").click()
    expect(section).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")


def test_search_waits_for_python_and_not_for_who_searches(
    page: Page, context: BrowserContext
) -> None:
    # It comes by waiting, too; that is not what is looked at here.
    context.add_init_script(
        """{
            const plain = window.setTimeout;
            window.setTimeout = (what, ms, ...more) => (ms < 10_000 ? plain(what, ms, ...more) : 0);
        }"""
    )
    workers: list[str] = []
    page.on("worker", lambda worker: workers.append(worker.url))
    held: list[Route] = []
    context.route("**/*.wasm", lambda route: held.append(route))
    page.goto("/calculator/")
    expect(page.locator(".tm[data-attached]")).to_have_attribute("data-status", "loading")
    # The theme has read what is searched, and gives it to nobody yet.
    waits.theme(page)
    page.wait_for_function(
        """() => performance.getEntriesByType("resource")
            .some(({ name, responseEnd }) => name.includes("/search_index.") && responseEnd > 0)"""
    )
    waits.frames(page)
    assert not [url for url in workers if "/workers/search." in url]
    # Whoever turns to it has it at once, though Python is still on its way.
    page.get_by_role("textbox", name="Search").click()
    page.get_by_role("textbox", name="Search").press_sequentially("recomputation")
    expect(page.locator(".md-search-result__link").first).to_be_visible()
    for route in held:
        route.continue_()

    workers.clear()
    context.unroute("**/*.wasm")
    page.goto("/calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.wait_for_function("() => performance.getEntriesByName('python: first answer').length")
    if not [url for url in workers if "/workers/search." in url]:
        page.wait_for_event("worker", lambda worker: "/workers/search." in worker.url)


def test_the_theme_comes_once_python_has_answered(page: Page) -> None:
    page.goto("/calculator/", wait_until="commit")
    waits.theme(page)
    answered, came = page.evaluate(
        """() => [
            performance.getEntriesByName("python: first answer")[0]?.startTime ?? 1500,
            performance.getEntriesByType("resource").find(({name}) => name.includes("/bundle."))
                .startTime,
        ]"""
    )
    assert came >= min(answered, 1_500)
    # From here on it does what it does on any page: links are followed without leaving it.
    waits.links(page)
    page.evaluate("window.same = true")
    page.locator('header a[href$="chapter/"], nav a[href$="chapter/"]').first.click()
    expect(page.locator("h1")).to_be_visible()
    page.wait_for_url("**/chapter/")
    assert page.evaluate("window.same")
    page.go_back()
    expect(page.locator(".tm[data-attached]")).to_have_attribute(
        "data-status", "ready", timeout=READY_MS
    )


def test_the_theme_does_not_wait_for_python_where_its_reader_does_something(
    page: Page, context: BrowserContext
) -> None:
    context.route("**/*.wasm", lambda route: None)
    context.add_init_script("window.setTimeout = () => 0")  # nothing comes by waiting
    page.goto("/calculator/")
    expect(page.locator(".tm[data-attached]")).to_have_attribute("data-status", "loading")
    assert not page.evaluate("'document$' in window")
    page.locator("header").hover()
    waits.theme(page)


def test_the_theme_does_not_wait_for_ever(page: Page, context: BrowserContext) -> None:
    context.route("**/*.wasm", lambda route: None)
    page.goto("/calculator/")
    waits.theme(page)


def test_whoever_saves_data_has_the_theme_and_no_python(
    page: Page, context: BrowserContext
) -> None:
    context.add_init_script(
        "Object.defineProperty(navigator, 'connection', { value: { saveData: true } })"
    )
    page.goto("/calculator/")
    waits.theme(page)
    assert not [worker for worker in page.workers if is_runtime(worker.url)]
