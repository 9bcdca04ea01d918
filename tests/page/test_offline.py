"""After one visit the site works without a network, and never shows two versions at once."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

import waits
from finish import pages_of
from keeping import write_worker
from places import page_path, page_sources
from serve import SiteServer

READY_MS = 90_000
ALL = re.compile("works without a network, Python included")
PAGES = [page_path(source) for source in page_sources()]
VERSION = re.compile(r'(<meta name="tm-version" content=")[^"]*')


#: What becomes of the first service worker that a page registers.
REGISTERED = """{
    const plain = ServiceWorkerContainer.prototype.register;
    ServiceWorkerContainer.prototype.register = async function (...given) {
        const registration = await plain.apply(this, given);
        const worker = registration.installing;
        window.states = [worker?.state];
        worker?.addEventListener("statechange", () => states.push(worker.state));
        return registration;
    };
}"""

#: No service worker is registered before `letIn()` is called.
WAITS_TO_REGISTER = """{
    const plain = ServiceWorkerContainer.prototype.register;
    const mayCome = new Promise((come) => (window.letIn = come));
    ServiceWorkerContainer.prototype.register = async function (...given) {
        await mayCome;
        return plain.apply(this, given);
    };
}"""


#: A service worker of whom no other hears anything.
MUTE = """self.addEventListener("message", (event) => {
    if (!(event.source instanceof WindowClient)) event.stopImmediatePropagation();
});
"""


class Served:
    """A copy of the site at an address of its own, under a path as project pages have it."""

    def __init__(self, site: Path, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(site, folder)
        self.server = SiteServer(folder, base="/book/")
        self.url = self.server.url
        Thread(target=self.server.serve_forever, daemon=True).start()

    def publish(self, mark: str) -> None:
        """Publish another version: every page's title says ``mark``."""
        for page in pages_of(self.folder):
            text = page.read_text(encoding="utf-8")
            text = VERSION.sub(rf"\g<1>{mark}", text)
            page.write_text(text.replace("<title>", f"<title>{mark} "), encoding="utf-8")
        write_worker(self.folder, mark)

    def publish_python(self, mark: str) -> None:
        """Publish another version whose Python is another too."""
        manifest = self.folder / "assets" / "runtime" / "manifest.json"
        built = json.loads(manifest.read_bytes())
        renamed = {}
        for path in (built["package"]["path"], built["library"], built["snapshot"]["path"]):
            old = self.folder / path
            new = old.with_name(f"{mark}-{old.name}")
            renamed[path] = new.relative_to(self.folder).as_posix()
            if old.suffix == ".zip":
                with zipfile.ZipFile(old, "a") as archive:
                    archive.comment = mark.encode()
            else:
                old.write_bytes(gzip.compress(gzip.decompress(old.read_bytes()), 1))
            old.rename(new)
        for file in (manifest, *pages_of(self.folder)):
            text = file.read_text(encoding="utf-8")
            for path, another in renamed.items():
                text = text.replace(path, another)
            file.write_text(text, encoding="utf-8")
        self.publish(mark)

    def mute(self) -> None:
        """Have the version that is published now say nothing to the one that follows."""
        worker = self.folder / "sw.js"
        worker.write_text(MUTE + worker.read_text(encoding="utf-8"), encoding="utf-8")

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def serve_copy(
    built_site: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Served]]:
    made: list[Served] = []

    def serve() -> Served:
        made.append(Served(built_site, tmp_path_factory.mktemp("served") / "site"))
        return made[-1]

    yield serve
    for one in made:
        one.stop()


@pytest.fixture(scope="module")
def kept(browser: Browser, serve_copy: Callable[[], Served]) -> Iterator[tuple[Page, str]]:
    """A browser that has visited the calculator's page once, and has no network any more."""
    served = serve_copy()
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{served.url}calculator/")
    expect(page.locator(".offline-line")).to_contain_text(ALL, timeout=READY_MS)
    served.stop()
    context.set_offline(True)
    yield page, served.url
    context.close()


def line(page: Page) -> str:
    return page.locator(".offline-line").inner_text()


def visited(context: BrowserContext, url: str) -> Page:
    """A page whose version is kept."""
    page = context.new_page()
    page.goto(url)
    expect(page.locator(".offline-line")).to_contain_text("kept in this browser", timeout=READY_MS)
    page.wait_for_function("() => navigator.serviceWorker.controller !== null")
    return page


def comes_true(page: Page, script: str, arg: object = None) -> None:
    """Wait until a function's promise is of true, which is all one to ``wait_for_function``."""
    assert page.evaluate(
        f"""async (arg) => {{
            const end = performance.now() + {READY_MS};
            while (performance.now() < end) {{
                if (await ({script})(arg)) return true;
                await new Promise((done) => setTimeout(done, 50));
            }}
            return false;
        }}""",
        arg,
    )


# Without a network


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_there_with_all_it_shows(kept: tuple[Page, str], path: str) -> None:
    page, url = kept
    failed: list[str] = []

    def note(request: Request) -> None:
        # The page before may have been left while it still asked for something.
        if request.failure != "net::ERR_ABORTED":
            failed.append(request.url)

    page.on("requestfailed", note)
    response = page.goto(f"{url}{path}")
    assert response is not None
    assert response.status == 200
    waits.settled(page)
    expect(page.locator("h1").first).to_be_visible()
    assert page.evaluate("document.styleSheets.length === 3")
    for image in page.locator("article img").all():
        assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
    assert not failed


def test_links_are_followed_within_the_page(kept: tuple[Page, str]) -> None:
    page, url = kept
    page.goto(f"{url}results/")
    page.evaluate("window.stayed = true")
    waits.links(page)
    page.locator('.md-tabs a[href*="papers"], .md-nav a[href*="papers"]').first.click()
    expect(page).to_have_url(f"{url}papers/")
    expect(page.locator("h1")).to_contain_text("Key Papers")
    assert page.evaluate("window.stayed")


def test_search_finds(kept: tuple[Page, str]) -> None:
    page, url = kept
    page.goto(url)
    waits.settled(page)
    page.get_by_role("textbox", name="Search").click()
    page.get_by_role("textbox", name="Search").press_sequentially("recomputation")
    expect(page.locator(".md-search-result__link").first).to_be_visible()


def test_the_calculator_computes(kept: tuple[Page, str]) -> None:
    page, url = kept
    page.goto(f"{url}calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")


def test_the_decoder_runs(kept: tuple[Page, str]) -> None:
    page, url = kept
    page.goto(f"{url}decoder/")
    page.get_by_role("button", name="Run a real backward pass").click()
    expect(page.locator("[data-progress]")).to_contain_text(
        re.compile(r"Step \d+ of"), timeout=READY_MS
    )
    page.get_by_role("button", name="Stop").click()


def test_an_address_without_its_last_slash_leads_to_the_page(kept: tuple[Page, str]) -> None:
    page, url = kept
    page.goto(f"{url}chapter")
    expect(page).to_have_url(f"{url}chapter/")
    page.goto(f"{url}chapter/index.html")
    expect(page.locator("h1").first).to_be_visible()


def test_an_address_with_a_query_leads_to_its_page(kept: tuple[Page, str]) -> None:
    page, url = kept
    response = page.goto(f"{url}papers/?from=a-letter#top")
    assert response is not None
    assert response.status == 200
    expect(page.locator("h1")).to_contain_text("Key Papers")


def test_an_address_that_is_none_says_so(kept: tuple[Page, str]) -> None:
    page, url = kept
    response = page.goto(f"{url}nowhere/")
    assert response is not None
    assert response.status == 404
    expect(page.locator("h1")).to_contain_text("404")


# What is kept, and when


def test_reading_keeps_the_pages_and_nothing_of_python(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()
    context = browser.new_context()
    page = visited(context, f"{served.url}results/")
    assert "Keep Python too" in line(page)
    kept_files = page.evaluate(
        """async () => {
            const files = [];
            for (const name of await caches.keys()) {
                for (const {url} of await (await caches.open(name)).keys()) files.push(url);
            }
            return files;
        }"""
    )
    assert f"{served.url}chapter/" in kept_files
    assert not [url for url in kept_files if "/assets/runtime/" in url]
    page.get_by_role("button", name="Keep Python too").click()
    expect(page.locator(".offline-line")).to_contain_text(ALL, timeout=READY_MS)
    context.close()


def test_python_that_is_kept_in_part_does_not_pass_for_kept(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()
    context = browser.new_context()
    page = visited(context, f"{served.url}results/")
    (part,) = (served.folder / "assets" / "runtime").glob("memory-*.bin")
    aside = part.rename(served.folder / "aside.bin")
    page.get_by_role("button", name="Keep Python too").click()
    expect(page.locator(".offline-line")).to_contain_text("could not be kept", timeout=READY_MS)
    comes_true(
        page,
        """async () => {
            const python = (await caches.keys()).find((name) => name.endsWith(" python"));
            return python && (await (await caches.open(python)).keys()).length > 0;
        }""",
    )
    page.reload()
    expect(page.locator(".offline-line")).to_contain_text("kept in this browser", timeout=READY_MS)
    assert "Python included" not in line(page)
    aside.rename(part)
    page.get_by_role("button", name="Keep Python too").click()
    expect(page.locator(".offline-line")).to_contain_text(ALL, timeout=READY_MS)
    context.close()


def test_where_nothing_can_be_kept_all_else_works(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.context.new_cdp_session(page).send(
        "Storage.overrideQuotaForOrigin",
        {"origin": served.url.split("/book/")[0], "quotaSize": 20_000},
    )
    page.add_init_script(REGISTERED)
    page.goto(f"{served.url}calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.wait_for_function("() => window.states?.at(-1) === 'redundant'", timeout=READY_MS)
    waits.frames(page)
    expect(page.locator(".offline-line")).to_be_hidden()
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")
    assert not problems
    context.close()


def test_where_no_worker_is_let_in_all_else_works(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()
    context = browser.new_context()
    # As strict settings and private windows have it.
    context.add_init_script(
        "ServiceWorkerContainer.prototype.register = () => { window.refused = true; "
        "return Promise.reject(new DOMException('not here', 'SecurityError')); }"
    )
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{served.url}calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.wait_for_function("() => window.refused")
    waits.frames(page)
    expect(page.locator(".offline-line")).to_be_hidden()
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")
    assert not problems
    context.close()


def test_where_python_cannot_be_kept_the_pages_are_and_it_runs(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()
    context = browser.new_context()
    page = visited(context, f"{served.url}results/")
    context.new_cdp_session(page).send(
        "Storage.overrideQuotaForOrigin",
        {"origin": served.url.split("/book/")[0], "quotaSize": 20_000},
    )
    page.get_by_role("button", name="Keep Python too").click()
    expect(page.locator(".offline-line")).to_contain_text("could not be kept", timeout=READY_MS)
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.goto(f"{served.url}calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    served.stop()
    context.set_offline(True)
    page.goto(f"{served.url}papers/")
    expect(page.locator("h1")).to_contain_text("Key Papers")
    context.close()


def test_where_what_is_kept_cannot_be_read_the_network_is_asked(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()
    context = browser.new_context()
    page = visited(context, f"{served.url}results/")
    (worker,) = context.service_workers
    worker.evaluate("void (caches.open = () => Promise.reject(new DOMException('refused')))")
    page.goto(f"{served.url}papers/")
    expect(page.locator("h1")).to_contain_text("Key Papers")
    page.goto(f"{served.url}calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    context.close()


def test_a_browser_offers_to_install_it(browser: Browser, serve_copy: Callable[[], Served]) -> None:
    served = serve_copy()
    context = browser.new_context()
    page = visited(context, served.url)
    session = context.new_cdp_session(page)
    manifest = session.send("Page.getAppManifest")
    assert not manifest["errors"]
    assert manifest["url"] == f"{served.url}manifest.webmanifest"
    # A private window, which every test's is, can install nothing; there is no other reason.
    reasons = {
        one["errorId"]
        for one in session.send("Page.getInstallabilityErrors")["installabilityErrors"]
    }
    assert reasons <= {"in-incognito"}
    context.close()


# Another version


@pytest.fixture
def first(
    browser: Browser, serve_copy: Callable[[], Served]
) -> Iterator[tuple[Served, BrowserContext, Page]]:
    """A browser that keeps the first version, on one of its pages."""
    served = serve_copy()
    context = browser.new_context()
    yield served, context, visited(context, f"{served.url}results/")
    context.close()


def test_an_update_is_offered_and_not_forced(
    first: tuple[Served, BrowserContext, Page],
) -> None:
    served, context, page = first
    served.publish("second")
    page.reload()
    expect(page.locator(".offline-line")).to_contain_text("newer version", timeout=READY_MS)
    # Until the reader says so, each page and each of its files is of the first version.
    page.goto(f"{served.url}papers/")
    assert "second" not in page.title()
    other = context.new_page()
    other.goto(f"{served.url}about/")
    assert "second" not in other.title()

    expect(page.locator(".offline-line")).to_contain_text("newer version", timeout=READY_MS)
    page.get_by_role("button", name="Show it").click()
    expect(page.locator(".offline-line")).to_contain_text("other tabs")
    assert "second" not in other.evaluate("document.title")

    other.close()
    # A browser may take a moment to let go of a tab.
    (worker, *_) = context.service_workers
    clients = "clients.matchAll({includeUncontrolled: true}).then(({length}) => length)"
    waits.until(page, lambda: worker.evaluate(clients) == 1)
    with page.expect_navigation():
        page.get_by_role("button", name="Show it").click()
    expect(page).to_have_title(re.compile("^second "))  # while it loads it has no title
    page.goto(f"{served.url}results/")
    assert page.title().startswith("second ")
    names = page.evaluate("caches.keys()")
    assert [name for name in names if " site " in name] == [
        f"training memory {served.url} site second"
    ]


def test_other_sites_of_the_same_host_are_not_in_the_way(
    first: tuple[Served, BrowserContext, Page],
) -> None:
    served, context, page = first
    another = served.url.replace("/book/", "/another/")
    other = context.new_page()
    other.goto(another)
    # A copy of this site there keeps what it has under a name of its own.
    theirs = f"training memory {another} site first"
    page.evaluate("async (name) => void (await caches.open(name))", theirs)
    served.publish("second")
    page.reload()
    expect(page.locator(".offline-line")).to_contain_text("newer version", timeout=READY_MS)
    with page.expect_navigation():
        page.get_by_role("button", name="Show it").click()
    expect(page).to_have_title(re.compile("^second "))
    ours = f"training memory {served.url} site first"
    comes_true(page, "async (name) => !(await caches.has(name))", ours)
    assert page.evaluate("(name) => caches.has(name)", theirs)


@pytest.mark.parametrize("says", ["what it keeps", "nothing"])
def test_whoever_keeps_python_keeps_that_of_the_newer_version(
    browser: Browser, serve_copy: Callable[[], Served], says: str
) -> None:
    served = serve_copy()
    if says == "nothing":
        served.mute()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{served.url}calculator/")
    expect(page.locator(".offline-line")).to_contain_text(ALL, timeout=READY_MS)
    served.publish_python("second")
    page.goto(f"{served.url}results/")
    expect(page.locator(".offline-line")).to_contain_text("newer version", timeout=READY_MS)
    # Its last page closed, the newer version takes over by itself; and then there is no network.
    page.close()
    served.stop()
    context.set_offline(True)
    page = context.new_page()
    page.goto(f"{served.url}results/")
    expect(page).to_have_title(re.compile("^second "))
    page.goto(f"{served.url}calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")
    expect(page.locator(".offline-line")).to_contain_text(ALL, timeout=READY_MS)
    # The older one, which nobody asks for any more, takes no room.
    comes_true(
        page,
        """async (name) => {
            const kept = await (await caches.open(name)).keys();
            const memories = kept.filter(({url}) => url.endsWith(".bin"));
            return memories.length === 1 && memories[0].url.includes("/second-");
        }""",
        f"training memory {served.url} python",
    )
    context.close()


def test_a_newer_version_does_not_wait_for_ever_for_one_that_says_nothing(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()
    served.mute()
    context = browser.new_context()
    page = visited(context, f"{served.url}results/")
    served.publish("second")
    page.reload()
    expect(page.locator(".offline-line")).to_contain_text("newer version", timeout=READY_MS)
    # Nobody wanted Python before, and nothing of it is kept.
    python = f"training memory {served.url} python"
    assert (
        page.evaluate("async (name) => (await (await caches.open(name)).keys()).length", python)
        == 0
    )
    with page.expect_navigation():
        page.get_by_role("button", name="Show it").click()
    expect(page).to_have_title(re.compile("^second "))
    context.close()


def test_a_page_of_another_version_than_the_one_that_is_kept_is_left_alone(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(WAITS_TO_REGISTER)
    page.goto(f"{served.url}results/")
    served.publish("second")  # before the first page has begun to keep anything
    page.evaluate("letIn()")
    expect(page.locator(".offline-line")).to_contain_text("kept in this browser", timeout=READY_MS)
    # Whatever was asked of the worker before has been done once it has done this.
    (worker,) = context.service_workers
    worker.evaluate("new Promise((done) => setTimeout(done))")
    waits.frames(page)
    assert page.evaluate("navigator.serviceWorker.controller") is None
    page.reload()
    assert page.title().startswith("second ")
    assert page.evaluate("navigator.serviceWorker.controller") is not None
    context.close()


def test_following_a_link_to_another_version_loads_the_page_anew(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()
    context = browser.new_context()
    context.add_init_script("delete Navigator.prototype.serviceWorker")
    page = context.new_page()
    page.goto(f"{served.url}results/")
    waits.links(page)
    page.evaluate("window.stayed = true")
    served.publish("second")
    page.locator('.md-tabs a[href*="papers"], .md-nav a[href*="papers"]').first.click()
    expect(page).to_have_title(re.compile("^second "))
    page.wait_for_function("() => window.stayed === undefined")
    expect(page.locator("h1")).to_contain_text("Key Papers")
    context.close()


def test_what_the_browser_has_of_an_earlier_version_does_not_stand_in(
    browser: Browser, serve_copy: Callable[[], Served]
) -> None:
    served = serve_copy()

    class Lasting(served.server.RequestHandlerClass):  # type: ignore[misc,name-defined]
        """As hosts do that let pages be kept for a while without asking again."""

        def send_header(self, name: str, value: str) -> None:
            super().send_header(name, "max-age=600" if name == "Cache-Control" else value)

    served.server.RequestHandlerClass = Lasting
    context = browser.new_context()
    page = visited(context, f"{served.url}results/")
    served.publish("second")
    page.evaluate("navigator.serviceWorker.ready.then((one) => void one.update())")
    expect(page.locator(".offline-line")).to_contain_text("newer version", timeout=READY_MS)
    context.close()


def test_an_interrupted_install_leaves_the_old_version_whole(
    first: tuple[Served, BrowserContext, Page],
) -> None:
    served, context, page = first
    served.publish("second")
    # Half way through being published: this file is not yet what the new worker was told.
    late = served.folder / "papers" / "index.html"
    another = "<!-- another -->"
    late.write_text(late.read_text(encoding="utf-8") + another, encoding="utf-8")
    outcome = page.evaluate(
        """async () => {
            const registration = await navigator.serviceWorker.ready;
            const installing = new Promise((resolve) => {
                const told = () => resolve(registration.installing);
                registration.addEventListener("updatefound", told);
            });
            await registration.update();
            const worker = await installing;
            while (!["installed", "redundant"].includes(worker.state)) {
                await new Promise((resolve) => setTimeout(resolve, 50));
            }
            return worker.state;
        }"""
    )
    assert outcome == "redundant"
    context.set_offline(True)
    for path in PAGES:
        page.goto(f"{served.url}{path}")
        assert "second" not in page.title()
    # Once it is there, the new version is kept whole, with what the first try had brought.
    context.set_offline(False)
    late.write_text(late.read_text(encoding="utf-8").removesuffix(another), encoding="utf-8")
    page.reload()
    expect(page.locator(".offline-line")).to_contain_text("newer version", timeout=READY_MS)
    with page.expect_navigation():
        page.get_by_role("button", name="Show it").click()
    served.stop()
    context.set_offline(True)
    for path in PAGES:
        page.goto(f"{served.url}{path}")
        assert page.title().startswith("second ")
