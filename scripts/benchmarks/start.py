"""How soon the page's Python answers, beside a plain page with the same Python: ``make bench``.

Both pages are opened in turn in a headless browser without any cache, served by the same local
server, compressed as a static host would. The plain page only calls ``loadPyodide()`` of the same
npm package and installs the same wheel; it is not even asked for an answer. The site's page is the
calculator's, whole, from the first byte of its HTML to the first answer of its Python.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "build"), str(ROOT / "tests")]

import browser as browsers  # noqa: E402  # found through the line above
from places import PYODIDE, SITE, WHEEL  # noqa: E402
from serve import SiteServer  # noqa: E402
from start_page import RECORD, STARTS  # noqa: E402

MOST_MS = 120_000
#: A new window is busy with itself at first, which is no page's doing.
WINDOW_MS = 1_000
GOAL = 0.35

PLAIN = """<!doctype html>
<meta charset="utf-8">
<title>A plain page with Python</title>
<link rel="icon" href="data:,">
<script type="module">
  import { loadPyodide } from "./pyodide.mjs";
  performance.mark("python: wanted");
  const pyodide = await loadPyodide();
  performance.mark("python: started");
  const wheel = await (await fetch("package.zip")).arrayBuffer();
  const site = pyodide.runPython("import site; site.getsitepackages()[0]");
  pyodide.unpackArchive(wheel, "wheel", { extractDir: site });
  performance.mark("python: installed");
  const { answer } = pyodide.pyimport("training_memory.web");
  performance.mark("python: calculator imported");
  answer('{"state": ""}');
  performance.mark("python: first answer");
</script>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One start: when each stage was reached, in milliseconds since the navigation."""

    stages_ms: Mapping[str, float]

    @property
    def installed_ms(self) -> float:
        """When the plain page had the wheel installed."""
        return self.stages_ms["installed"]

    @property
    def answered_ms(self) -> float:
        """When the first answer was there."""
        return self.stages_ms["first answer"]


_MARKS = """() => [
    ...performance.getEntriesByType("mark").filter(({name}) => name.startsWith("python: ")),
    ...performance.getEntriesByType("resource")
        .filter(({name}) => /runtime|pyodide|package|library/.test(name))
        .map(({name, responseEnd}) => ({
            name: `python: ${name.split("/").at(-1)} here`, startTime: responseEnd,
        })),
].map(({name, startTime}) => [name.slice(8), performance.timeOrigin + startTime])"""


def trace(browser: Browser, address: str, *, without_memory: bool = False) -> Trace:
    """Open ``address`` in a context without a cache and wait for its Python's first answer.

    ``without_memory`` keeps from it the memory that a quick start begins with.
    """
    context = browser.new_context()
    if without_memory:
        context.route("**/memory-*.bin", lambda route: route.abort())
    try:
        page = context.new_page()
        page.wait_for_timeout(WINDOW_MS)
        page.goto(address, wait_until="commit")
        page.wait_for_function(
            "() => performance.getEntriesByName('python: first answer').length", timeout=MOST_MS
        )
        begun = page.evaluate("performance.timeOrigin")
        marks: list[tuple[str, float]] = page.evaluate(_MARKS)
        for worker in page.workers:
            marks += worker.evaluate(_MARKS)
        return Trace(stages_ms={name: at - begun for name, at in marks})
    finally:
        context.close()


def medians(traces: list[Trace]) -> dict[str, float]:
    """The median of each stage that all traces reached, the earliest first."""
    shared = set.intersection(*(set(one.stages_ms) for one in traces))
    found = {stage: statistics.median(one.stages_ms[stage] for one in traces) for stage in shared}
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder and give its address."""
    server = SiteServer(folder)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def opened() -> Iterator[Browser]:
    """A headless browser that reaches nothing but this machine."""
    with sync_playwright() as playwright:
        found = browsers.find(playwright)
        if found is None:
            sys.exit("There is no browser; `make test` installs one.")
        browser = playwright.chromium.launch(
            executable_path=str(found), args=list(browsers.ARGUMENTS)
        )
        try:
            yield browser
        finally:
            browser.close()


def make_plain(into: Path) -> None:
    """Lay out the plain page: the npm package as it is, and the calculator's wheel."""
    for file in PYODIDE.iterdir():
        if file.suffix in {".mjs", ".js", ".wasm", ".zip", ".json"}:
            shutil.copy(file, into)
    (wheel,) = WHEEL.glob("*.whl")
    shutil.copy(wheel, into / "package.zip")
    (into / "index.html").write_text(PLAIN, encoding="utf-8")


def measure(
    site: Path = SITE, *, rounds: int, say: Callable[[str], object] = lambda line: None
) -> tuple[dict[str, list[Trace]], str]:
    """Traces of every kind of start, taken in turn, and the browser's name and version.

    After each round ``say`` gets a line on it.

    ``plain`` is the plain page; ``before`` the site's calculator without the memory, as it would
    start had there never been one; ``now`` the same as it is.
    """
    found: dict[str, list[Trace]] = {"plain": [], "before": [], "now": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_plain(folder)
        plain_url, site_url = (stack.enter_context(served(one)) for one in (folder, site))
        browser = stack.enter_context(opened())
        for turn in range(rounds):
            found["plain"].append(trace(browser, plain_url))
            page = f"{site_url}calculator/"
            found["before"].append(trace(browser, page, without_memory=True))
            found["now"].append(trace(browser, page))
            say(
                f"round {turn + 1} of {rounds}: {found['now'][-1].answered_ms:.0f} ms, plain page "
                f"{found['plain'][-1].installed_ms:.0f} ms"
            )
        name = f"Chromium {browser.version.partition('.')[0]}"
    return found, name


def report(traces: Mapping[str, list[Trace]], browser: str) -> dict[str, Any]:
    """The medians, the ratio, and where the time goes."""
    answered = statistics.median(one.answered_ms for one in traces["now"])
    installed = statistics.median(one.installed_ms for one in traces["plain"])
    return {
        "browser": browser,
        "machine": f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()})",
        "rounds": len(traces["now"]),
        "plain_installed_ms": round(installed, 1),
        "answered_ms": round(answered, 1),
        "ratio": round(answered / installed, 3),
        "stages_ms": {
            kind: {stage: round(at, 1) for stage, at in medians(found).items()}
            for kind, found in traces.items()
        },
    }


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    options = parser.parse_args()
    say = (lambda line: None) if options.json else partial(print, flush=True)
    found = report(*measure(rounds=options.rounds, say=say))
    if options.record:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(found))
        return
    for kind, stages in found["stages_ms"].items():
        print(f"{STARTS[kind]}: median of {found['rounds']}, ms after the navigation")
        for stage, at in stages.items():
            print(f"  {at:8.0f}  {stage}")
    print(
        f"first answer {found['answered_ms']:.0f} ms, plain page installed "
        f"{found['plain_installed_ms']:.0f} ms: ratio {found['ratio']:.2f} (goal {GOAL} or less)"
    )


if __name__ == "__main__":
    main()
