"""How many plans a second a search goes through: ``make bench`` prints it.

In this Python from a cold start, each search in a process of its own, and with ``--page`` in the
calculator's page in a headless browser, asked slice by slice as the planner asks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "calculator"), str(ROOT / "scripts")]

from training_memory import Run  # noqa: E402  # found through the line above
from training_memory.plans import search  # noqa: E402

#: What is searched, for how many GPUs and sequences a step.
SEARCHES: tuple[tuple[dict[str, object], int, int], ...] = (
    ({"model": "llama-2-70b", "gpu": "h100-80gb"}, 64, 1024),
    ({"model": "llama-3.1-405b", "gpu": "h100-80gb"}, 1024, 2048),
    (
        {
            "model": "llama-3-8b",
            "implementation": "huggingface",
            "recipe": "autocast-adam",
            "gpu": "h100-80gb",
        },
        8,
        64,
    ),
    (
        {
            "model": "llama-3-70b",
            "implementation": "torchtitan",
            "recipe": "autocast-adam",
            "gpu": "h100-80gb",
        },
        64,
        512,
    ),
    ({"model": "llama-2-70b", "implementation": "megatron", "gpu": "h100-80gb"}, 64, 1024),
)
GOAL = 1000
GOAL_PAGE_S = 3.0
WARM_MS = 8_000

SEARCH = """async ([state, gpus, batch]) => {
    const script = document.querySelector('script[src*="calculator/page.js"]');
    const runtime = (await import(new URL("runtime.js", script.src).href)).python();
    const start = performance.now();
    let planned = 0;
    for (let turn = 0; ; turn++) {
        const request = JSON.stringify({state, gpus, batch, turn});
        const told = JSON.parse(await runtime.ask(request, "training_memory.plan_door"));
        if (!told.ok) throw new Error(told.said);
        // The plan is there; what follows is the search for the fewest GPUs.
        if (!planned && told.html) planned = performance.now() - start;
        if (told.done) return [planned, performance.now() - start, told.html];
    }
}"""


def cold(request: dict[str, object], gpus: int, batch: int) -> tuple[int, int, float]:
    """Plans tried, of them estimated, and the processor's seconds, nothing being known before."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_search, (request, gpus, batch))


def _search(request: dict[str, object], gpus: int, batch: int) -> tuple[int, int, float]:
    start = time.process_time()
    *_, last = search(Run.from_json(request), gpus=gpus, batch=batch)
    return last.tried, last.estimated, time.process_time() - start


def in_page() -> list[tuple[float, float]]:
    """Seconds in the page until the plan, and until all of the answer, for every search."""
    from benchmarks.start import opened, served
    from places import SITE

    with ExitStack() as stack:
        url = stack.enter_context(served(SITE))
        page = stack.enter_context(opened()).new_page()
        page.goto(f"{url}calculator/")
        page.locator('.tm[data-status="ready"]').wait_for(timeout=120_000)
        page.wait_for_timeout(WARM_MS)
        found = []
        for request, gpus, batch in SEARCHES:
            asked = [urlencode(request), str(gpus), str(batch)]
            planned, done, _ = page.evaluate(SEARCH, asked)
            found.append((planned / 1000, done / 1000))
    return found


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="in the page as well (needs a site)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    pages = in_page() if options.page else [None] * len(SEARCHES)
    measured = []
    for (request, gpus, batch), page in zip(SEARCHES, pages, strict=True):
        tried, estimated, seconds = cold(request, gpus, batch)
        run = Run.from_json(request)
        name = f"{run.implementation}, {run.model.name} on {gpus:,} GPUs"
        one = {"search": name, "plans": tried, "estimated": estimated, "seconds": seconds}
        said = f"{name}: {tried:,} plans, {tried / seconds:,.0f} a second (goal {GOAL:,})"
        if page:
            one |= {"page_plan_seconds": page[0], "page_seconds": page[1]}
            said += (
                f"; in the page {page[0]:.1f} s (goal {GOAL_PAGE_S:.0f}), {tried / page[0]:,.0f} "
            )
            said += f"a second, all of the answer {page[1]:.1f} s"
        measured.append(one)
        if not options.json:
            print(said, flush=True)
    if options.json:
        print(json.dumps(measured))


if __name__ == "__main__":
    main()
