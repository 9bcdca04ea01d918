"""What takes longer than an answer never keeps a reader waiting, and what is old is dropped."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

import waits

SLOW_MS = 90_000
LATER, PLAN = "training_memory.later_door", "training_memory.plan_door"

#: Everything that the page asks of Python's thread and hears from it, in order.
LISTEN = """
window.heard = [];
const post = Worker.prototype.postMessage;
const listening = new WeakSet();
Worker.prototype.postMessage = function (message, ...more) {
    if (!listening.has(this)) {
        listening.add(this);
        this.addEventListener("message", ({data}) => heard.push({type: data.type, id: data.id}));
    }
    if (message.type === "ask") heard.push({...message, request: JSON.parse(message.request)});
    return post.call(this, message, ...more);
};
"""

#: A run whose advice takes a few hundred milliseconds, and its needs as long again.
TOO_LARGE = "model=llama-2-70b&implementation=huggingface&recipe=autocast-adam&sequence=4096"


@pytest.fixture
def page(page: Page) -> Page:
    page.add_init_script(LISTEN)
    page.add_init_script(waits.COUNTING)
    page.clock.install()  # goes as always, and can be put forward
    page.goto(f"/calculator/#{TOO_LARGE}")
    expect(page.locator(".tm-status")).to_contain_text("computed in this page", timeout=SLOW_MS)
    return page


def heard(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate("heard")
    return found


def asks(page: Page, door: str) -> list[dict[str, Any]]:
    return [one for one in heard(page) if one.get("door") == door]


def wait_for_slices(page: Page, door: str, least: int = 3) -> None:
    """Until the long work is under way: a few slices have been asked for."""
    page.wait_for_function(
        "([door, least]) => heard.filter((one) => one.door === door).length >= least",
        arg=[door, least],
        timeout=SLOW_MS,
    )


def type_a_change(page: Page) -> None:
    """Type into a field in the middle of the long work, within the page's own event loop."""
    page.evaluate(
        """() => {
            const field = document.querySelector('.tm form [name="sequence"]');
            field.value = "1024";
            field.dispatchEvent(new Event("input", {bubbles: true}));
        }"""
    )
    expect(page.locator(".tm-sentence")).to_contain_text("at 1,024 tokens", timeout=SLOW_MS)


def answered_first(page: Page, door: str) -> None:
    """The change waited for no more than the slices that were under way, and no other followed."""
    told = heard(page)
    typed = next(
        at
        for at, one in enumerate(told)
        if one.get("request", {}).get("set") == {"sequence": "1024"}
    )
    answered = next(
        at
        for at, one in enumerate(told)
        if one["type"] == "answer" and one["id"] == told[typed]["id"]
    )
    # The last of each kind of long work, of which there may be two: a plan, and advice.
    under_way = {one["door"]: one["id"] for one in told[:typed] if one["type"] == "ask"}
    before = {one["id"] for one in told[typed:answered] if one["type"] == "answer"}
    assert before <= set(under_way.values())
    # Nothing is asked of the run before once there is the new one's answer.
    old, new = (
        {one["request"]["state"] for one in part if one.get("door") == door}
        for part in (told[:typed], told[answered:])
    )
    assert old
    assert not old & new


def test_a_change_is_answered_before_advice_that_is_under_way(page: Page) -> None:
    advice = page.locator('[data-part="advice"]')
    wait_for_slices(page, LATER)
    type_a_change(page)
    answered_first(page, LATER)
    # The new run's own advice follows.
    expect(advice).to_contain_text("What would make it fit", timeout=SLOW_MS)
    expect(advice).not_to_have_attribute("aria-busy", "true", timeout=SLOW_MS)
    states = {one["request"]["state"] for one in asks(page, LATER)}
    assert any("sequence=1024" in state for state in states)


def test_what_takes_longer_comes_in_many_slices(page: Page) -> None:
    wait_for_slices(page, LATER)
    advice = page.locator('[data-part="advice"]')
    expect(advice).not_to_have_attribute("aria-busy", "true", timeout=SLOW_MS)
    turns = [one["request"]["turn"] for one in asks(page, LATER)]
    assert max(turns) > 5, turns
    assert turns[-max(turns) - 1 :] == list(range(max(turns) + 1))


def nothing_more(page: Page, asked: str) -> None:
    """What is under way has its answer, and however long one waits no more is asked."""
    page.wait_for_function("() => unanswered === 0", timeout=SLOW_MS)
    before = page.evaluate(asked)
    page.clock.fast_forward(5_000)
    assert page.evaluate(asked) == before


def look_for_a_plan(page: Page) -> None:
    """Ask for a plan that takes a while, and wait until it is looked for."""
    page.get_by_text("Find the cheapest plan that fits").click()
    page.get_by_label("GPUs", exact=True).fill("512")
    page.get_by_label("Sequences a step").fill("1024")
    page.get_by_role("button", name="Find a plan").click()
    wait_for_slices(page, PLAN)


def test_a_change_is_answered_before_a_plan_that_is_looked_for(page: Page) -> None:
    look_for_a_plan(page)
    type_a_change(page)
    answered_first(page, PLAN)
    expect(page.locator("[data-plan-said]")).to_contain_text("The run has changed")


def test_a_stopped_search_asks_no_more(page: Page) -> None:
    look_for_a_plan(page)
    page.get_by_role("button", name="Stop looking").click()
    nothing_more(page, f"heard.filter((one) => one.door === '{PLAN}').length")
    expect(page.locator("[data-plan-said]")).to_have_text("Stopped.")


def test_what_is_folded_up_again_is_worked_on_no_more(page: Page) -> None:
    fold = page.locator("[data-curves] > summary")
    fold.click()
    curves = "heard.filter((one) => one.request?.parts?.includes('curves'))"
    # Within the page's own event loop, so that nothing ends meanwhile.
    page.wait_for_function(
        f"""() => {{
            if ({curves}.length < 3) return false;
            const fold = document.querySelector("[data-curves]");
            fold.addEventListener("toggle", () => (window.folded = true), {{once: true}});
            fold.firstElementChild.click();
            return true;
        }}""",
        timeout=SLOW_MS,
    )
    page.wait_for_function("() => window.folded")
    nothing_more(page, f"{curves}.length")
    # Looked at again they are drawn; until then those that are there are of another run.
    drawn = page.locator('[data-part="curves"]')
    expect(drawn).to_have_attribute("aria-busy", "true")
    fold.click()
    expect(drawn).not_to_have_attribute("aria-busy", "true", timeout=SLOW_MS)
    expect(drawn).to_contain_text("Now 4,096 tokens")


def test_a_pinned_run_stands_beside_the_answer_without_waiting_for_it(page: Page) -> None:
    page.get_by_role("button", name="Pin").first.click()
    page.locator('select[name="recompute"]').select_option("full")
    difference = page.locator('[data-part="difference"]')
    expect(difference).to_contain_text("Where they part", timeout=SLOW_MS)
    answers = [one for one in heard(page) if one.get("door") == "training_memory.web"]
    assert answers
    asked = [one["request"]["parts"] for one in asks(page, LATER)]
    assert ["difference"] in asked


#: Whether Python's thread has looked for garbage since its last answer, and in none.
TIDIED = """() => {
    const all = (name) => performance.getEntriesByName(name);
    // What is answered to nobody, to warm up, counts for nothing.
    const answer = all("python: answer").filter(({ detail }) => detail.id !== undefined).at(-1);
    const tidied = all("python: tidied").at(-1);
    return tidied !== undefined && tidied.startTime >= answer.startTime + answer.duration;
}"""


def test_garbage_is_looked_for_once_nothing_more_is_asked(page: Page) -> None:
    (python,) = [one for one in page.workers if "/calculator/worker.js" in one.url]
    waits.until(page, lambda: python.evaluate(TIDIED))
    page.locator(".tm [name=sequence]").fill("2048")
    expect(page.locator(".tm-status")).to_contain_text("computed in this page")
    waits.until(page, lambda: python.evaluate(TIDIED))
