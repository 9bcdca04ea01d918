"""Python starts from the memory that the build took, and plainly where that fails."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path
from threading import Event, Thread
from typing import Any, override
from unittest.mock import Mock

import pytest
from playwright.sync_api import BrowserContext, Page, Route, Worker, expect

import waits
from places import PACKAGE
from serve import SiteHandler, SiteServer
from snapshot import requests
from training_memory.presets import PRESETS
from training_memory.web import answer

READY_MS = 90_000


def ready(page: Page) -> Page:
    """Open the calculator's page and wait for Python's first answer."""
    page.goto("/calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    expect(page.locator(".tm")).not_to_have_attribute("data-stale", "waiting")
    return page


def run(page: Page, script: str, value: Any = None) -> Any:
    """Run JavaScript with the page's ``runtime``; ``value`` is what it is given."""
    return page.evaluate(
        """async ([script, value]) => {
            const {href} = new URL("runtime.js",
                document.querySelector('script[src*="calculator/page.js"]').src);
            const runtime = (await import(href)).python();
            const work = {
                ask: async ({requests, door}) => {
                    const answers = [];
                    for (const one of requests) answers.push(await runtime.ask(one, door));
                    return answers;
                },
                use: (path) => runtime.use(path),
            }[script];
            return await work(value);
        }""",
        [script, value],
    )


def fetched(page: Page) -> list[str]:
    """The names of what is fetched of the runtime, from now on."""
    names: list[str] = []

    def note(url: str) -> None:
        if "/assets/runtime/" in url:
            names.append(url.rsplit("/", 1)[-1].split("-")[0])

    page.on("request", lambda request: note(request.url))
    return names


def test_a_start_fetches_memory_and_neither_library_nor_wheel(page: Page) -> None:
    names = fetched(page)
    ready(page)
    assert sorted(names) == ["memory", "pyodide.asm.js", "pyodide.asm.wasm", "pyodide.mjs"]


def test_every_answer_is_the_one_that_python_gives_here(page: Page) -> None:
    names = fetched(page)
    ready(page)
    presets = [{"state": "", "set": {"preset": preset}} for preset in PRESETS]
    asked = [json.dumps(request) for request in [*requests(), *presets]]
    assert run(page, "ask", {"requests": asked}) == [answer(request) for request in asked]
    assert "library" not in names, "memory holds all that the calculator needs"


def test_every_way_to_run_and_every_door_is_in_memory(page: Page) -> None:
    names = fetched(page)
    ready(page)
    states = [
        "implementation=huggingface&recipe=bf16-adam",
        "implementation=torchtitan&recipe=autocast-adam&data=8",
        "implementation=megatron&tensor=2&model=gpt3-175b",
    ]
    asked: list[dict[str, Any]] = [{"state": state} for state in states]
    asked += [
        {"state": "", "door": "oom", "error": "CUDA out of memory. Tried to allocate 2.00 GiB"},
    ]
    answers = run(page, "ask", {"requests": [json.dumps(one) for one in asked]})
    assert all("ok" in json.loads(found) for found in answers)
    later = {"state": states[0], "parts": ["curves"], "turn": 0, "prefix": "tm"}
    asked_later = {"requests": [json.dumps(later)], "door": "training_memory.later_door"}
    (found,) = run(page, "ask", asked_later)
    assert "done" in json.loads(found)
    assert "library" not in names


def test_the_decoder_runs_from_memory_too(page: Page, built_site: Path) -> None:
    names = fetched(page)
    ready(page)
    manifest = json.loads((built_site / "assets/runtime/manifest.json").read_bytes())
    run(page, "use", manifest["apart"]["decoder"]["path"])
    told = {"losses": [], "seed": 0, "counted": 0, "textbook": 0}
    begin = json.dumps({"do": "begin", "steps": 1, "seed": 0, "page": told})
    (found,) = run(page, "ask", {"requests": [begin], "door": "decoder_door"})
    assert json.loads(found)["ok"]
    following = json.dumps({"do": "next", "run": json.loads(found)["run"]})
    (found,) = run(page, "ask", {"requests": [following], "door": "decoder_door"})
    assert "Step 1 of 1" in json.loads(found)["progress"]
    assert "library" not in names


def test_what_memory_lacks_is_fetched_when_it_is_asked_for(
    page: Page, context: BrowserContext
) -> None:
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as zipped:
        zipped.writestr(
            "rare_door.py",
            "import colorsys, training_memory\n"
            "def answer(request):\n"
            "    with open(training_memory.__path__[0] + '/models.toml') as models:\n"
            "        return f'{colorsys.rgb_to_hsv(1, 0, 0)} {models.readline()}'\n",
        )
    context.route("**/rare.zip", lambda route: route.fulfill(body=package.getvalue()))
    names = fetched(page)
    ready(page)
    run(page, "use", "rare.zip")
    asked = {"requests": ["{}", "{}"], "door": "rare_door"}
    models = (PACKAGE / "models.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    assert run(page, "ask", asked) == [f"(0.0, 1.0, 1) {models[0]}"] * 2
    assert sorted(names)[:1] == ["library"]
    assert names.count("library") == 1
    assert names.count("pyodide.asm.wasm") == 1, "nothing was started anew for it"


def no_gzip(data: bytes) -> bytes:
    return b"nothing of the kind"


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


def another_build(data: bytes) -> bytes:
    whole = bytearray(gzip.decompress(data))
    whole[16] ^= 0xFF  # the first byte of the build's id, in Pyodide's own header
    return gzip.compress(bytes(whole), 1)


def broken_memory(data: bytes) -> bytes:
    whole = bytearray(gzip.decompress(data))
    # Where Python's objects lie; there is no Python without them.
    whole[1_000_000:-1_000_000] = bytes(len(whole) - 2_000_000)
    return gzip.compress(bytes(whole), 1)


def another_size(data: bytes) -> bytes:
    # All that is read is in its place, and yet it is not the file that this page was built with.
    return gzip.compress(gzip.decompress(data) + bytes(4), 1)


@pytest.mark.parametrize(
    "damage", [no_gzip, cut_short, another_build, broken_memory, another_size, None]
)
def test_where_memory_is_no_good_python_starts_plainly(
    damage: Callable[[bytes], bytes] | None,
    context: BrowserContext,
    page: Page,
    built_site: Path,
    watch: Any,
) -> None:
    (memory,) = (built_site / "assets" / "runtime").glob("memory-*.bin")

    def fulfil(route: Route) -> None:
        if damage is None:
            route.fulfill(status=404)
        else:
            route.fulfill(body=damage(memory.read_bytes()))

    watch.expect(r"memory-|404")  # a missing file is told in the console, whoever is to blame
    watch.expect(r"Pyodide has suffered a fatal error|The cause of the fatal error|Stack trace")
    watch.expect(r"RuntimeError|unreachable|memory access out of bounds|table index")
    context.route("**/memory-*.bin", fulfil)
    names = fetched(page)
    ready(page)
    assert {"library", "training_memory"} <= set(names)
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")


def test_memory_that_breaks_later_is_left_for_a_plain_start(page: Page) -> None:
    ready(page)
    names = fetched(page)
    # A door that fails is what a memory gone wrong looks like from the page.
    page.locator('.tm [name="sequence"]').focus()
    failed = page.evaluate(
        """async () => {
            const {href} = new URL("runtime.js",
                document.querySelector('script[src*="calculator/page.js"]').src);
            const runtime = (await import(href)).python();
            return runtime.ask("no JSON").then(() => "", (error) => error.message);
        }"""
    )
    assert "JSONDecodeError" in failed, "the plain start was asked the same, and said so"
    assert {"library", "training_memory"} <= set(names)
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")


# Has Python's thread say of the first `times` questions about a change of recomputation alone that
# it broke, at the moment at which another change is made.
BREAKS = """(times) => {
    const post = Worker.prototype.postMessage;
    Worker.prototype.postMessage = function (message, ...more) {
        const {set = {}} = message.type === "ask" ? JSON.parse(message.request) : {};
        if (!("recompute" in set) || "sequence" in set || times === 0) {
            return post.call(this, message, ...more);
        }
        times -= 1;
        setTimeout(() => {
            const field = document.querySelector('.tm form [name="sequence"]');
            field.value = "1024";
            field.dispatchEvent(new Event("input", {bubbles: true}));
            const data = {type: "failed-answer", id: message.id, reason: "broken"};
            this.dispatchEvent(new MessageEvent("message", {data}));
        });
    };
}"""


@pytest.mark.parametrize("times", [1, 2])
def test_memory_that_breaks_between_two_changes_loses_neither(page: Page, times: int) -> None:
    ready(page)
    names = fetched(page)
    page.evaluate(BREAKS, times)
    page.locator('.tm [name="recompute"]').select_option("full")
    # The second time it is the plain start that gives no answer to the first change.
    sentence = page.locator(".tm-sentence")
    expect(sentence).to_contain_text("at 1,024 tokens", timeout=READY_MS)
    expect(sentence).to_contain_text("every layer recomputed")
    expect(page.locator(".tm")).not_to_have_attribute("data-stale", "refused")
    assert {"library", "training_memory"} <= set(names)


# The first start comes to an end and nobody hears of it; patience is short.
NEVER_READY = """(() => {
    const {addEventListener} = EventTarget.prototype;
    let first, giveUp;
    Worker.prototype.addEventListener = function (type, listener, ...more) {
        addEventListener.call(this, type, (event) => {
            const isReady = event.data?.type === "ready";
            if (isReady && (first ??= this) === this) wait(giveUp, 500);
            else listener(event);
        }, ...more);
    };
    const wait = setTimeout;
    // The page's patience ends once the memory would have been ready, however long that takes.
    window.setTimeout = (done, ms, ...more) => {
        if (ms !== 20_000) return wait(done, ms, ...more);
        giveUp ??= done;
        return wait(() => {}, 0);
    };
})()"""


def test_memory_that_never_comes_to_life_is_left_for_a_plain_start(page: Page) -> None:
    page.add_init_script(NEVER_READY)
    names = fetched(page)
    page.goto("/chapter/")  # where no script begins before the page's own
    page.locator(".tm").scroll_into_view_if_needed()
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    assert {"memory", "library", "training_memory"} <= set(names)


# Once `hurried` is set the page asks its workers more often whether they still live.
QUICK_PULSE = """(() => {
    const every = setInterval;
    window.hurried = false;
    window.pulses = 0;
    window.setInterval = (done, ms, ...more) => {
        if (ms !== 10_000) return every(done, ms, ...more);
        return every(() => {
            if (!hurried) return;
            pulses += 1;
            done();
        }, 1_500);
    };
})()"""


def test_a_worker_that_was_ended_is_noticed_and_another_answers(page: Page) -> None:
    page.add_init_script(QUICK_PULSE)
    ready(page)
    (worker,) = [one for one in page.workers if "calculator/worker" in one.url]
    names = fetched(page)
    worker.evaluate("self.close()")  # as a browser short of memory does: nobody is told
    page.evaluate("hurried = true")
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB", timeout=READY_MS)
    assert {"library", "training_memory"} <= set(names)


def begun(page: Page, begin: Callable[[], object]) -> Worker:
    """The next worker that is to be Python's."""
    with page.expect_worker(lambda one: "calculator/worker" in one.url) as found:
        begin()
    return found.value


@pytest.fixture
def held(page: Page, context: BrowserContext) -> list[Route]:
    """A page no start of which comes to an end: what it needs is not sent."""
    page.add_init_script(QUICK_PULSE)
    routes: list[Route] = []
    needed = re.compile(r"/(memory|library)-[^/]*$")
    context.route(needed, lambda route: routes.append(route))
    return routes


def test_a_worker_that_is_ended_while_it_starts_is_noticed(
    page: Page, context: BrowserContext, held: list[Route]
) -> None:
    first = begun(page, lambda: page.goto("/calculator/"))
    first.evaluate("self.close()")
    # Nor does the plain start that follows come to an end: then the reader is told, and may ask.
    second = begun(page, lambda: page.evaluate("hurried = true"))
    second.evaluate("self.close()")
    status = page.locator(".tm-status")
    expect(status).to_contain_text("Python could not start here (it gave no sign of life)")
    assert held
    context.unroute_all(behavior="ignoreErrors")
    page.evaluate("hurried = false")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.locator('.tm [name="recompute"]').select_option("full")
    expect(page.locator(".tm output")).to_contain_text("110.7 GB")


def test_a_worker_that_waits_for_a_slow_network_is_not_given_up(
    page: Page, held: list[Route]
) -> None:
    names = fetched(page)
    begun(page, lambda: page.goto("/calculator/"))
    waits.until(page, lambda: len(held) == 1)
    page.evaluate("hurried = true")
    page.wait_for_function("() => pulses > 12")  # more than a worker that is silent is given
    held[0].continue_()
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    assert "library" not in names


# Notes when WebAssembly that is still arriving is handed to the compiler.
TELLS_OF_COMPILING = """{
    const plain = WebAssembly.compileStreaming;
    WebAssembly.compileStreaming = (source) => {
        performance.mark("compiling begins");
        return plain(source);
    };
}
"""


def test_python_is_compiled_while_it_arrives(
    page: Page, context: BrowserContext, built_site: Path
) -> None:
    all_but_the_last, may_end = Event(), Event()

    class HoldsBack(SiteHandler):
        """Sends the last bytes of WebAssembly when it may."""

        @override
        def do_GET(self) -> None:
            plain = self.wfile
            if self.path.endswith(".wasm"):
                self.wfile = Mock(wraps=plain, write=lambda data: self.send_slowly(plain, data))
            super().do_GET()
            self.wfile = plain

        def send_slowly(self, plain: BufferedIOBase, data: bytes) -> None:
            if len(data) < 100_000:
                plain.write(data)  # headers
                return
            plain.write(data[:-1_000])
            all_but_the_last.set()
            may_end.wait()
            plain.write(data[-1_000:])

    def telling(route: Route) -> None:
        script = route.fetch()
        route.fulfill(response=script, body=TELLS_OF_COMPILING + script.text())

    context.route("**/calculator/worker.js", telling)
    with SiteServer(built_site) as server:
        server.RequestHandlerClass = HoldsBack
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            worker = begun(page, lambda: page.goto(f"{server.url}calculator/"))
            waits.until(page, all_but_the_last.is_set)
            begins = "performance.getEntriesByName('compiling begins').length"
            waits.until(page, lambda: worker.evaluate(begins) == 1)
            may_end.set()
            expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
        finally:
            may_end.set()
            server.shutdown()
