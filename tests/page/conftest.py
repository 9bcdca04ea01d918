"""A real browser, the built site behind it, and a watch over what a page must never do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    WebError,
    expect,
)

import browser as browsers
from serve import SiteServer

ROOT = Path(__file__).parents[2]

# How long a page is waited for says nothing of the page: a machine that others share may stand
# still for seconds. What has to be quick is measured where it is told of (scripts/benchmarks/).
PATIENCE_MS = 90_000
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that the quick run can leave them out."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.page)


@pytest.fixture(scope="session")
def browser_type_launch_args(
    browser_type_launch_args: dict[str, Any], playwright: Playwright
) -> dict[str, Any]:
    """Start the browser this machine has, with nothing beyond this machine in its reach."""
    found = browsers.find(playwright)
    if found is None:
        pytest.fail("there is no browser; `make test` installs one")
    return {
        **browser_type_launch_args,
        "executable_path": str(found),
        "args": list(browsers.ARGUMENTS),
    }


@pytest.fixture(scope="session")
def browser(browser: Browser) -> Browser:
    """The browser, whose contexts wait as long as ``expect`` does, whoever makes them."""
    plain = browser.new_context

    def patient(**options: Any) -> BrowserContext:
        context = plain(**options)
        context.set_default_timeout(PATIENCE_MS)
        return context

    browser.new_context = patient  # type: ignore[method-assign]  # for all tests alike
    return browser


@pytest.fixture(scope="session")
def serve_site(built_site: Path) -> Iterator[Callable[[str], str]]:
    """Serve the built site under a path and get its address; servers end with the session."""
    servers: dict[str, SiteServer] = {}

    def start(base: str = "/") -> str:
        if base not in servers:
            servers[base] = SiteServer(built_site, base=base)
            Thread(target=servers[base].serve_forever, daemon=True).start()
        return servers[base].url

    yield start
    for server in servers.values():
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def site_url(serve_site: Callable[[str], str]) -> str:
    """The site's address, with its closing slash."""
    return serve_site("/")


@pytest.fixture(scope="session")
def base_url(site_url: str) -> str:
    """Let ``page.goto("/chapter/")`` mean the site's chapter."""
    return site_url


@dataclass(kw_only=True)  # without slots: Playwright hangs its handlers on the object
class Watch:
    """What pages did that no page may: console errors, uncaught errors, requests off the site."""

    origin: str
    problems: list[str] = field(default_factory=list)
    expected: list[re.Pattern[str]] = field(default_factory=list)

    def over(self, context: BrowserContext) -> None:
        """Look at everything that happens in a context from now on."""
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._request)

    def expect(self, pattern: str) -> None:
        """Let messages that match ``pattern`` pass, in a test that provokes them."""
        self.expected.append(re.compile(pattern))

    @property
    def unexpected(self) -> list[str]:
        """The problems that no test announced."""
        return [
            problem
            for problem in self.problems
            if not any(pattern.search(problem) for pattern in self.expected)
        ]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            where = message.location["url"]
            self.problems.append(f"console {message.type}: {message.text} ({where})")

    def _error(self, error: WebError) -> None:
        self.problems.append(f"uncaught: {error.error.message}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:", "about:")):
            self.problems.append(f"request off the site: {request.url}")


@pytest.fixture(autouse=True)
def watch(site_url: str) -> Iterator[Watch]:
    """Fail any test whose pages did what no page may."""
    watch = Watch(origin="http://127.0.0.1:")
    yield watch
    assert not watch.unexpected, "\n".join(watch.unexpected)


@pytest.fixture
def new_context(
    new_context: Callable[..., BrowserContext], watch: Watch
) -> Callable[..., BrowserContext]:
    """Make browser contexts as pytest-playwright does, each under the watch."""

    def make(**options: Any) -> BrowserContext:
        context = new_context(**options)
        # Tests of what is kept between visits make their own; for the others it would take time.
        context.add_init_script("delete Navigator.prototype.serviceWorker")
        watch.over(context)
        return context

    return make


@pytest.fixture(scope="session")
def axe() -> Callable[[Page], None]:
    """Hold a page to every accessibility rule of the axe-core that npm pins."""
    rules = Axe.from_file(ROOT / "node_modules" / "axe-core" / "axe.min.js")

    def check(page: Page) -> None:
        found = rules.run(page)
        assert not found.violations_count, found.generate_report()

    return check
