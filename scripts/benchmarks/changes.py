"""How long a change takes in the page, from the input to the painted answer: ``make bench``.

One page with Python ready; 200 changes spread over all of the calculator's controls, each made as
an input event and waited for until the frame that shows its whole answer, picture and table
included, has been painted. Python's part is measured around the call of its door, within its own
thread. Many changes make a run that cannot be, which is told at once; so the figures are given for
all changes, and for those alone that led to a run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.start import opened, served  # found through the line above
from places import SITE  # and this through that

CHANGES = 200
WARM_MS = 8_000
GOAL_PYTHON_MS, GOAL_ALL_MS = 16, 50

_EIGHT_GPUS = {"data": 8, "zero": 3}
_SPLIT = {"tensor": 2, "pipeline": 2, "data": 2, "micro_batches": 8}
#: The ways of running: the textbook's by formula, the libraries' from recordings, on one GPU and
#: on eight.
WAYS: Mapping[str, Mapping[str, str | int]] = {
    "paper": {"implementation": "paper"},
    "huggingface": {"implementation": "huggingface"},
    "torchtitan": {"implementation": "torchtitan"},
    "fsdp2": {"implementation": "huggingface", "sharding": "fsdp2", **_EIGHT_GPUS},
    "deepspeed": {"implementation": "huggingface", "sharding": "deepspeed", **_EIGHT_GPUS},
    "megatron": {"implementation": "megatron", **_SPLIT},
    "nanotron": {"implementation": "nanotron", **_SPLIT},
}

#: The theme, once it is there, lays the page out anew at the first change of its address that it
#: hears of, and never again.
LAY_OUT = """async () => {
    document.querySelector(".tm").dataset.before = "";
    const again = ".tm[data-runtime][data-attached]:not([data-before])";
    for (let at = 1; document.querySelector(again) === null; at++) {
        location.hash = `preset=llama-7b&sequence=${1024 * (1 + at % 9)}`;
        await new Promise((done) => setTimeout(done, 500));
    }
}"""

CHANGE_ALL = """async ([changes, way]) => {
    const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    let asked = 0;
    let answers = 0;
    let ok = false;
    let answered = () => {};
    const ids = [];
    const listening = new WeakSet();
    const post = Worker.prototype.postMessage;
    Worker.prototype.postMessage = function (message, ...more) {
        if (!listening.has(this)) {
            listening.add(this);
            this.addEventListener("message", ({data}) => {
                if (data.type !== "answer") return;
                ok = data.answer.startsWith('{"ok":true');
                answers++;
                answered();
            });
        }
        if (message.type === "ask") {
            asked++;
            ids.push(message.id);
        }
        return post.call(this, message, ...more);
    };
    // Everything asked is answered, and the frame that shows it is painted.
    const still = async () => {
        do await painted(); while (answers < asked);
    };
    // A fixed series of pseudo-random numbers, so that each run makes the same changes.
    let seed = 1;
    const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
    // Looked up when its turn comes: the theme may replace what a page shows.
    const controls = () => document.querySelectorAll(".tm form [name]");
    const places = controls().length;
    const found = [];
    const begin = async (at) => {
        const state = {preset: "llama-7b", model: "llama-7b", sequence: 4096 + 8 * at, ...way};
        const heard = new Promise((done) => addEventListener("hashchange", done, {once: true}));
        location.hash = new URLSearchParams(state);
        await heard;
    };
    await begin(0);
    for (let at = 0; found.length < changes; at++) {
        await still();
        const control = controls()[at % places];
        if (control === undefined || control.options?.length === 1) continue;
        const before = asked;
        const start = performance.now();
        if (control.type === "checkbox") control.checked = !control.checked;
        else if (control.type === "radio") control.checked = true;
        else if (control.tagName === "SELECT") {
            control.selectedIndex = (control.selectedIndex + 1 + random(control.options.length - 1))
                % control.options.length;
        } else {
            const number = Number(control.value.replaceAll(",", "")) || 1;
            control.value = String(2 ** random(3) * number);
        }
        control.dispatchEvent(new Event("input", {bubbles: true}));
        control.dispatchEvent(new Event("change", {bubbles: true}));
        if (asked === before) throw new Error(`a change of ${control.name} asked nothing`);
        while (answers < asked) await new Promise((done) => (answered = done));
        await painted();
        const ms = performance.now() - start;
        found.push({name: control.name, ms, ok, ids: ids.slice(before)});
        // Every now and then back to the beginning, so that most changes can be answered.
        if (at % 4 === 3) {
            await begin(at);
            await still();
        }
    }
    return found;
}"""

#: How long Python took for each question, by its number.
ANSWERS = """() => performance.getEntriesByName("python: answer")
    .filter(({detail}) => detail.id !== undefined)
    .map(({detail, duration}) => [detail.id, duration])"""


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]


def measure(changes: int, way: str, *, at_once: bool) -> dict[str, Any]:
    """Medians and 95th percentiles, in milliseconds, for runs of one of :data:`WAYS`.

    ``at_once`` begins with the page's very first answer, not some seconds later, when the browser
    has compiled Python a second time, for speed.
    """
    with ExitStack() as stack:
        url = stack.enter_context(served(SITE))
        browser = stack.enter_context(opened())
        page = browser.new_page()
        page.goto(f"{url}calculator/")
        page.locator('.tm[data-status="ready"]').wait_for(timeout=120_000)
        page.evaluate(LAY_OUT)
        if not at_once:
            page.wait_for_timeout(WARM_MS)
        for worker in page.workers:
            worker.evaluate("performance.clearMeasures()")
        found = page.evaluate(CHANGE_ALL, [changes, dict(WAYS[way])])
        (answers,) = filter(None, (worker.evaluate(ANSWERS) for worker in page.workers))
    python = dict(answers)
    for change in found:
        change["python_ms"] = sum(python[number] for number in change["ids"])
    runs = [change for change in found if change["ok"]]
    return {
        "way": way,
        "changes": len(found),
        "controls": len({change["name"] for change in found}),
        "answered": len(runs),
        "all": _figures(found),
        "runs": _figures(runs),
    }


def _figures(changes: list[dict[str, Any]]) -> dict[str, float]:
    python = [change["python_ms"] for change in changes]
    whole = [change["ms"] for change in changes]
    return {
        "python_median_ms": statistics.median(python),
        "python_95_ms": percentile(python, 0.95),
        "median_ms": statistics.median(whole),
        "all_95_ms": percentile(whole, 0.95),
    }


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--at-once", action="store_true", help="begin with the first answer")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--way", action="append", choices=WAYS, help="this one (and more) alone")
    options = parser.parse_args()
    measured = []
    for way in options.way or WAYS:
        measured.append(measure(options.changes, way, at_once=options.at_once))
        if not options.json:
            _tell(measured[-1])
    if options.json:
        print(json.dumps(measured))


def _tell(found: dict[str, Any]) -> None:
    print(
        f"{found['way']}: {found['changes']} changes of {found['controls']} "
        f"controls, {found['answered']} of runs that can be"
    )
    for name, kind in (("all", "all changes"), ("runs", "runs that can be")):
        figures = found[name]
        print(
            f"  {kind}: Python {figures['python_median_ms']:.1f} ms, "
            f"95th percentile {figures['python_95_ms']:.1f} ms (goal {GOAL_PYTHON_MS}); "
            f"input to paint {figures['median_ms']:.1f} ms, "
            f"95th percentile {figures['all_95_ms']:.1f} ms (goal {GOAL_ALL_MS})",
            flush=True,
        )


if __name__ == "__main__":
    main()
