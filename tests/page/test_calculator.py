"""The calculator in a real browser: Python behind native controls, as a reader uses it.

One page with Python ready serves most tests, since that start is what takes time.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

import waits
from training_memory import catalog, gpus
from training_memory.web import answer

ROOT = Path(__file__).parents[2]
READY_MS = 90_000
SETTLED_MS = 90_000
FIRST = "model=llama-7b&preset=llama-7b"


@pytest.fixture(scope="module")
def context(browser: Browser, site_url: str) -> Iterator[BrowserContext]:
    """A context for the whole module; at its end nothing may have gone wrong in it."""
    context = browser.new_context(
        base_url=site_url, reduced_motion="reduce", viewport={"width": 1280, "height": 900}
    )
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    problems: list[str] = []
    context.on(
        "console",
        lambda message: (
            problems.append(message.text) if message.type in {"error", "warning"} else None
        ),
    )
    context.on("weberror", lambda error: problems.append(str(error.error)))
    context.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((site_url, "blob:", "data:"))
            else problems.append(request.url)
        ),
    )
    yield context
    context.close()
    assert not problems


@pytest.fixture(scope="module")
def ready(context: BrowserContext) -> Page:
    """The calculator's page, with Python ready."""
    page = context.new_page()
    page.goto("/calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    return page


@pytest.fixture
def page(ready: Page) -> Page:
    """The same page for each test, showing what it shows first."""
    show(ready, FIRST)
    return ready


def sentence(state: str, **request: object) -> str:
    """What the calculator answers to a state, computed here."""
    found = json.loads(answer(json.dumps({"state": state, **request})))
    return unescape(re.sub(r"<[^>]+>", "", found["html"]["answer"]))


def show(page: Page, state: str) -> None:
    """Bring the calculator to a state by the page's address, and wait for its answer."""
    page.evaluate(
        """state => {
            history.replaceState(null, "", "#" + state);
            dispatchEvent(new PopStateEvent("popstate"));
        }""",
        state,
    )
    expect(said(page)).to_have_text(sentence(state))


def said(page: Page) -> Locator:
    return page.locator(".tm output")


def control(page: Page, name: str) -> Locator:
    return page.locator(f'.tm [name="{name}"]')


def note(page: Page, name: str) -> Locator:
    return page.locator(f'.tm [data-field="{name}"] .tm-note')


def state_of(page: Page) -> dict[str, str]:
    """The state in the page's address."""
    return dict(parse_qsl(urlsplit(page.url).fragment))


def export(page: Page, what: str) -> None:
    """Take the answer away by the menu."""
    menu = page.locator(".tm-export")
    if menu.get_attribute("open") is None:
        menu.locator("summary").click()
    menu.get_by_role("button", name=what, exact=True).click()


def ask(page: Page, requests: list[str]) -> list[str]:
    """Have the page's Python answer requests, past the page's controls."""
    answers: list[str] = page.evaluate(
        """async (requests) => {
            const script = document.querySelector('script[src*="calculator/page.js"]');
            const {python} = await import(new URL("runtime.js", script.src).href);
            const runtime = python();
            const answers = [];
            for (const request of requests) answers.push(await runtime.ask(request));
            return answers;
        }""",
        requests,
    )
    return answers


def idle(page: Page) -> None:
    """Until the page has all answers: Python gives them in the order in which it is asked."""
    ask(page, [json.dumps({"state": FIRST})])


# What the page shows


def test_the_first_answer_is_there_without_scripts(browser: Browser, site_url: str) -> None:
    context = browser.new_context(base_url=site_url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/calculator/")
    expect(said(page)).to_contain_text("needs 199.5 GB: 2.5 times an 80 GB GPU")
    expect(page.locator(".tm-bar")).to_be_visible()
    expect(page.locator(".tm-step")).to_be_visible()
    row = page.locator(".tm-row", has_text="Activations")
    tensor = page.get_by_text("softmax dropout mask")
    expect(tensor).to_be_hidden()
    row.locator("summary").click()
    expect(tensor).to_be_visible()
    expect(control(page, "recompute")).to_be_disabled()
    context.close()


def test_full_recomputation_shows_the_command_lines_bytes(page: Page) -> None:
    control(page, "recompute").select_option("full")
    expect(said(page)).to_contain_text("every layer recomputed, needs 110.7 GB")
    with page.expect_download() as download:
        export(page, "JSON")
    exported = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "training_memory", "estimate", "--recompute", "full", "--json"]
    printed = subprocess.run(
        command, capture_output=True, check=True, cwd=ROOT / "calculator", text=True
    )
    assert exported == json.loads(printed.stdout)
    assert exported["peak"]["bytes"] == 110_690_025_216
    shown = page.locator(".tm-table tfoot .tm-number").all_inner_texts()
    assert shown == ["112.9 GB", "110.7 GB"]


@pytest.mark.parametrize(("seed", "count"), [(7, 200), (11, 500)])
def test_the_pages_python_answers_byte_for_byte_as_this_one(
    page: Page, seed: int, count: int
) -> None:
    dice = random.Random(seed)
    requests = [json.dumps(random_request(dice)) for _ in range(count)]
    here = [answer(request) for request in requests]
    answered = [json.loads(one) for one in here]
    assert sum(one["ok"] for one in answered) > 0.6 * count, "most of them are runs"
    split = [one for one in answered if one["ok"] and one["estimate"]["gpus"] > 1]
    assert len(split) > 0.3 * count, "many of them are split over GPUs"
    assert ask(page, requests) == here


def random_request(dice: random.Random) -> dict[str, Any]:
    """A request of any kind: runs, runs that cannot be, changes and steps."""
    model = dice.choice(list(catalog.models().values()))
    run = {
        "model": model.id,
        "sequence": dice.choice([128, 512, 1000, 1024, 2048, "8k", 32768]),
        "micro_batch": dice.choice([1, 2, 3, 16, "64"]),
        "micro_batches": dice.choice([1, 1, 2, 8, 100]),
        "recipe": dice.choice(["mixed-adam", "fp32-adam"]),
        "recompute": dice.choice(["none", "selective", "full"]),
        "data": dice.choice([1, 1, 2, 7, 64]),
        "zero": dice.randrange(4),
        "tensor": dice.choice([1, 1, 2, 4, 8]),
        "pipeline": dice.choice([1, 1, 2, 4]),
        "gpu": dice.choice([None, *gpus.gpus()]),
    }
    if model.positions:
        run["sequence"] = dice.choice([model.positions, model.positions // 2])
    run["sequence_parallel"] = run["tensor"] != 1 and dice.random() < 0.5
    if dice.random() < 0.3:
        run["shape"] = {"layers": dice.randint(1, 200), "vocabulary": dice.randint(100, 300_000)}
    request: dict[str, Any] = {"run": run, "units": dice.choice(["GB", "GiB"])}
    if dice.random() < 0.2:
        request["set"] = {"sequence": dice.choice(["many", "4,096", "0", "1k"])}
    if dice.random() < 0.2:
        request["step"] = {
            dice.choice(["sequence", "layers", "tensor"]): dice.choice([-3, -1, 1, 2])
        }
    return request


# What a reader does


def test_numbers_are_taken_as_people_write_them(page: Page) -> None:
    field = control(page, "sequence")
    for typed, shown in (("8k", "8,192"), ("2,048", "2,048"), ("1024", "1,024")):
        field.fill(typed)
        expect(said(page)).to_contain_text(f"at {shown} tokens")
        expect(field).to_have_value(typed)
        field.blur()
        expect(field).to_have_value(shown)


def test_a_field_emptied_to_type_another_number_means_what_it_did(page: Page) -> None:
    field = control(page, "sequence")
    field.fill("")
    expect(field).not_to_have_attribute("aria-invalid", "true")
    expect(said(page)).to_contain_text("at 4,096 tokens")
    field.press_sequentially("2048")
    expect(said(page)).to_contain_text("at 2,048 tokens")
    field.fill("")
    field.blur()
    expect(field).to_have_value("2,048")


def test_arrows_and_buttons_go_by_doublings(page: Page) -> None:
    field = control(page, "sequence")
    field.focus()
    page.keyboard.press("ArrowUp")
    expect(field).to_have_value("8,192")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(field).to_have_value("2,048")
    page.get_by_role("button", name="Double sequence length").click()
    expect(field).to_have_value("4,096")
    page.get_by_role("button", name="Halve micro-batch").click()
    expect(control(page, "micro_batch")).to_have_value("1")


def test_a_value_that_cannot_be_stays_with_its_reason_and_the_last_answer(page: Page) -> None:
    control(page, "recompute").select_option("full")
    expect(said(page)).to_contain_text("110.7 GB")
    field = control(page, "sequence")
    field.fill("12 thousand")
    expect(note(page, "sequence")).to_contain_text("12 thousand cannot be used: a whole number")
    expect(field).to_have_attribute("aria-invalid", "true")
    described = field.get_attribute("aria-describedby")
    assert described == note(page, "sequence").get_attribute("id")
    expect(said(page)).to_contain_text("110.7 GB")
    expect(page.locator(".tm")).to_have_attribute("data-stale", "refused")
    expect(page.locator(".tm-status")).to_have_text(
        "Still the last answer that was possible: see Sequence length."
    )
    # What else is changed meanwhile waits with it, and is answered once it is mended.
    control(page, "micro_batch").fill("2")
    expect(field).to_have_value("12 thousand")
    field.fill("8k")
    expect(said(page)).to_contain_text("8,192 tokens, 2 sequences")
    expect(field).not_to_have_attribute("aria-invalid", "true")
    expect(note(page, "sequence")).to_be_empty()
    expect(page.locator(".tm")).not_to_have_attribute("data-stale", "refused")


def test_what_cannot_be_together_is_said_where_it_can_be_mended(page: Page) -> None:
    page.locator("summary", has_text="Split over GPUs").click()
    control(page, "tensor").fill("3")
    expect(note(page, "tensor")).to_contain_text("LLaMA 7B has 32, so use a divisor of 32")
    expect(page.locator(".tm-fold.tm-bad-inside")).to_contain_text("Split over GPUs")
    control(page, "tensor").fill("4")
    expect(page.locator(".tm-fold.tm-bad-inside")).to_have_count(0)
    expect(page.locator('[data-summary="split"]')).to_have_text("4 GPUs, tensor 4")
    page.locator("summary", has_text="Split over GPUs").click()


def test_a_number_stepped_too_far_is_shown_as_it_was_stepped(page: Page) -> None:
    show(page, "model=llama-7b&tensor=32")
    page.locator("summary", has_text="Split over GPUs").click()
    page.get_by_role("button", name="Double tensor parallelism").click()
    expect(control(page, "tensor")).to_have_value("64")
    expect(note(page, "tensor")).to_contain_text("64 cannot be used")
    page.get_by_role("button", name="Halve tensor parallelism").click()
    expect(control(page, "tensor")).to_have_value("32")
    expect(note(page, "tensor")).to_be_empty()
    page.locator("summary", has_text="Split over GPUs").click()


@pytest.mark.parametrize("rubbish", ["preset=zzz", "model=llama-7b&preset=llama-7b&units=zz"])
def test_starting_over_leads_out_of_an_address_that_cannot_be(page: Page, rubbish: str) -> None:
    page.evaluate("(hash) => { location.hash = hash; }", rubbish)
    expect(page.locator(".tm-status")).to_contain_text("cannot be used")
    page.locator('.tm [data-action="reset"]').click()
    expect(said(page)).to_contain_text("LLaMA 7B")
    expect(page.locator(".tm-status")).not_to_contain_text("cannot be used")
    assert state_of(page)["preset"] == "llama-7b"
    assert state_of(page).get("units") != "zz"


def test_a_preset_fills_everything_and_knows_when_it_was_changed(page: Page) -> None:
    title = page.locator('[data-text="title"]')
    page.get_by_role("button", name="GPT-3 size on 64 GPUs").click()
    expect(title).to_have_text("GPT-3 size on 64 GPUs")
    expect(said(page)).to_contain_text("55.8 GB on the fullest of 64 GPUs")
    expect(page.locator('[data-summary="split"]')).to_contain_text("64 GPUs, tensor 8, 8 stages")
    control(page, "recompute").select_option("full")
    expect(title).to_have_text("GPT-3 size on 64 GPUs, changed")
    page.get_by_role("button", name="Reset").click()
    expect(title).to_have_text("GPT-3 size on 64 GPUs")
    expect(control(page, "recompute")).to_have_value("selective")


def test_a_model_fills_the_shape(page: Page) -> None:
    control(page, "model").select_option("gpt2")
    expect(control(page, "sequence")).to_have_value("1,024")
    expect(note(page, "sequence")).to_contain_text("learned positions")
    expect(page.locator('[data-summary="shape"]')).to_have_text(
        "12 layers, 768 wide, 124 million parameters"
    )
    expect(control(page, "layers")).to_have_value("12")
    expect(control(page, "tied")).to_be_checked()


def test_sizes_can_be_shown_in_gib(page: Page) -> None:
    page.get_by_label("GiB", exact=True).check()
    expect(said(page)).to_contain_text("185.8 GiB")
    assert state_of(page)["units"] == "GiB"
    page.get_by_label("GB", exact=True).check()
    expect(said(page)).to_contain_text("199.5 GB")
    assert "units" not in state_of(page)


def test_advice_is_applied_by_a_click(page: Page) -> None:
    button = page.get_by_role("button", name="Apply: Tensor and sequence parallelism over 8 GPUs")
    button.click()
    expect(page.locator(".tm-verdict")).to_contain_text("Fits")
    expect(said(page)).to_contain_text("24.9 GB on each of 8 GPUs")
    expect(page.locator('[data-part="advice"]')).to_be_empty()
    assert state_of(page)["sequence_parallel"] == "true"


def test_advice_for_another_run_is_marked_until_its_own_is_there(page: Page) -> None:
    advice = page.locator('[data-part="advice"]')
    expect(advice).to_contain_text("What would make it fit")
    expect(advice).not_to_have_attribute("aria-busy", "true")
    before = advice.inner_text()
    # Every state of the advice from now on, with the sentence that stands beside it.
    page.evaluate(
        """() => {
            window.seen = [];
            const advice = document.querySelector('[data-part="advice"]');
            const note = () => window.seen.push({
                said: document.querySelector(".tm output").innerText,
                advice: advice.innerText,
                busy: advice.getAttribute("aria-busy") === "true",
                colour: getComputedStyle(advice.querySelector(".tm-heading") ?? advice).color,
            });
            note();
            new MutationObserver(note).observe(
                document.querySelector(".tm"),
                {subtree: true, childList: true, characterData: true, attributes: true},
            );
        }"""
    )
    for change in (
        lambda: control(page, "recompute").select_option("selective"),
        lambda: page.evaluate("location.hash = 'preset=llama-7b&sequence=8192'"),
    ):
        before = advice.inner_text()
        change()
        expect(advice).not_to_have_text(before, use_inner_text=True)
        expect(advice).not_to_have_attribute("aria-busy", "true")
    seen = page.evaluate("window.seen")
    first = seen[0]
    old = [one for one in seen if one["advice"] == first["advice"] and one["said"] != first["said"]]
    assert old, "the answer comes first"
    assert all(one["busy"] and one["colour"] != first["colour"] for one in old)


def test_unfolded_switches_say_what_each_would_change(page: Page) -> None:
    fold = page.locator('.tm details[data-key="implementation"]')
    fold.locator("summary").click()
    control(page, "implementation").select_option("huggingface")
    control(page, "recipe").select_option("bf16-adam")
    # It is asked for once everything has settled, one switch after the other.
    said_of = expect(note(page, "attention"))
    said_of.to_have_text(re.compile(r"^Eager: [\d.]+ GB more$"), timeout=SETTLED_MS)
    expect(note(page, "dropout")).to_have_text(re.compile("^On: "), timeout=SETTLED_MS)
    # What was said of another state goes with it.
    control(page, "attention").select_option("eager")
    said_of.to_have_text(re.compile(r"^Fused kernel: [\d.]+ GB less$"), timeout=SETTLED_MS)
    fold.locator("summary").click()


def test_links_and_commands_are_copied(page: Page) -> None:
    control(page, "recompute").select_option("full")
    expect(said(page)).to_contain_text("110.7 GB")
    link = copied(page, "Copy link")
    expect(page.locator(".tm-status")).to_have_text("Copied.")
    assert link == page.url
    command = copied(page, "Copy as command")
    assert command.startswith("training-memory estimate --model llama-7b --sequence 4096")
    assert "--recompute full" in command


def copied(page: Page, what: str) -> str:
    """What a button puts on the clipboard, which takes a moment."""
    page.evaluate("navigator.clipboard.writeText('nothing yet')")
    export(page, what)
    page.wait_for_function(
        "async () => (window.copied = await navigator.clipboard.readText()) !== 'nothing yet'"
    )
    text: str = page.evaluate("window.copied")
    return text


def test_only_the_last_of_many_changes_is_answered(page: Page) -> None:
    idle(page)
    page.evaluate(
        """() => {
            const output = document.querySelector(".tm output");
            window.shown = [];
            const note = () => shown.push(output.textContent);
            new MutationObserver(note).observe(output, {
                childList: true, subtree: true, characterData: true,
            });
            const field = document.querySelector('.tm [name="micro_batch"]');
            for (let batch = 2; batch <= 60; batch++) {
                field.value = String(batch);
                field.dispatchEvent(new Event("input", {bubbles: true}));
            }
        }"""
    )
    expect(said(page)).to_contain_text("60 sequences")
    assert state_of(page)["micro_batch"] == "60"
    # The first of them has been asked, and answered; nobody sees an answer that is old already.
    shown = page.evaluate("shown")
    assert shown
    assert all("60 sequences" in words for words in shown)


def test_a_change_is_asked_at_once_and_its_answer_shown_at_once(page: Page) -> None:
    """Nothing is waited for on the way, not even a timer's shortest time or a frame."""
    idle(page)
    asked, shown = page.evaluate(
        """() => new Promise((done) => {
            const post = Worker.prototype.postMessage;
            let asked;
            Worker.prototype.postMessage = function (message, ...more) {
                if (message.door === "training_memory.web") {
                    asked = JSON.parse(message.request).set;
                    this.addEventListener("message", function answered({data}) {
                        if (data.id !== message.id) return;
                        this.removeEventListener("message", answered);
                        // What the page does of its own accord, it has done: it was told first.
                        done([atOnce, document.querySelector(".tm output").textContent]);
                    });
                }
                return post.call(this, message, ...more);
            };
            const field = document.querySelector('.tm [name="micro_batch"]');
            field.value = "7";
            field.dispatchEvent(new Event("input", {bubbles: true}));
            const atOnce = asked ?? null;
            Worker.prototype.postMessage = post;
            if (atOnce === null) done([null, ""]);
        })"""
    )
    assert asked == {"micro_batch": "7"}
    assert "7 sequences" in shown


# Where things stay


def test_an_answer_leaves_focus_and_unfolded_rows_where_they_are(page: Page) -> None:
    row = page.locator(".tm-row", has_text="Activations").locator("summary")
    row.click()
    field = control(page, "sequence")
    field.focus()
    field.press("End")
    field.press("Backspace")
    expect(said(page)).to_contain_text("at 409 tokens")
    expect(field).to_be_focused()
    expect(field).to_have_value("409")
    assert field.evaluate("field => field.selectionStart") == len("409")
    expect(page.get_by_text("softmax dropout mask")).to_be_visible()
    row.click()


def test_the_address_carries_the_state_and_back_restores_it(page: Page) -> None:
    control(page, "recompute").select_option("selective")
    expect(said(page)).to_contain_text("116.1 GB")
    control(page, "recompute").select_option("full")
    expect(said(page)).to_contain_text("110.7 GB")
    for digits in ("2", "20", "204", "2048"):
        control(page, "sequence").fill(digits)
        expect(said(page)).to_contain_text(f"at {int(digits):,} tokens")
    assert state_of(page)["sequence"] == "2048"
    # A number typed digit by digit is one step back.
    page.go_back()
    expect(said(page)).to_contain_text("at 4,096 tokens")
    expect(said(page)).to_contain_text("110.7 GB")
    expect(control(page, "sequence")).to_have_value("4,096")
    page.go_back()
    expect(said(page)).to_contain_text("116.1 GB")
    expect(control(page, "recompute")).to_have_value("selective")
    page.go_forward()
    expect(said(page)).to_contain_text("110.7 GB")


def test_a_link_opens_what_it_was_copied_from(context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/calculator/#model=mistral-7b&sequence=8192&recompute=full&units=GiB&layers=16")
    expect(said(page)).to_contain_text(
        "Mistral 7B with another shape at 8,192 tokens", timeout=READY_MS
    )
    expect(control(page, "recompute")).to_have_value("full")
    expect(page.get_by_label("GiB", exact=True)).to_be_checked()
    page.close()


def test_what_cannot_be_in_a_link_stands_in_its_field_with_its_reason(
    context: BrowserContext,
) -> None:
    page = context.new_page()
    page.goto("/calculator/#model=llama-7b&sequence=abc&micro_batch=2")
    field = control(page, "sequence")
    expect(note(page, "sequence")).to_contain_text("abc cannot be used: a whole", timeout=READY_MS)
    expect(field).to_have_value("abc")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".tm-status")).to_contain_text("see Sequence length.")
    # The rest of the link is kept, and answered as soon as the number can be.
    field.fill("2k")
    expect(said(page)).to_contain_text("LLaMA 7B at 2,048 tokens, 2 sequences")
    expect(note(page, "sequence")).to_be_empty()
    assert state_of(page)["micro_batch"] == "2"
    page.close()


def test_a_choice_that_a_link_gives_and_is_none_can_be_chosen_anew(context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/calculator/#model=lama-7b&sequence=8k")
    field = control(page, "model")
    expect(note(page, "model")).to_contain_text("Did you mean llama-7b?", timeout=READY_MS)
    expect(field).to_have_value("lama-7b")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.select_option("llama-7b")
    expect(said(page)).to_contain_text("LLaMA 7B at 8,192 tokens")
    expect(note(page, "model")).to_be_empty()
    expect(field.locator('option[value="lama-7b"]')).to_have_count(0)
    show(page, FIRST)
    page.evaluate("location.hash = 'model=lama-7b&sequence=abc'")
    expect(field).to_have_value("lama-7b")
    page.get_by_role("button", name="GPT-2 XL", exact=True).click()
    expect(said(page)).to_contain_text("GPT-2 XL at 1,024 tokens")
    expect(field).to_have_value("gpt2-xl")
    expect(control(page, "sequence")).to_have_value("1,024")
    page.close()


def test_what_a_link_says_in_vain_is_told_and_the_rest_is_shown(context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/calculator/#model=llama-7b&sequence=8k&foo=1")
    expect(said(page)).to_contain_text("at 8,192 tokens", timeout=READY_MS)
    expect(page.locator(".tm-status")).to_contain_text("The address also says foo=1")
    expect(page.locator(".tm")).not_to_have_attribute("data-stale", "refused")
    control(page, "sequence").fill("4k")
    expect(said(page)).to_contain_text("at 4,096 tokens")
    expect(page.locator(".tm-status")).not_to_contain_text("foo")
    assert "foo" not in state_of(page)
    page.close()


def test_python_lives_on_while_the_reader_looks_around(page: Page) -> None:
    control(page, "recompute").select_option("full")
    expect(said(page)).to_contain_text("110.7 GB")
    address = page.url

    def workers() -> list[str]:
        return [worker.url for worker in page.workers if worker.url.endswith("worker.js")]

    assert len([url for url in workers() if "/calculator/" in url]) == 1
    page.evaluate("window.stillHere = true")
    waits.links(page)
    page.get_by_role("navigation", name="Tabs").get_by_role("link", name="Results").click()
    expect(page.locator("h1")).to_contain_text("Results")
    page.go_back()
    expect(said(page)).to_contain_text("110.7 GB")
    assert page.url == address
    expect(control(page, "recompute")).to_have_value("full")
    assert page.evaluate("window.stillHere")
    assert len([url for url in workers() if "/calculator/" in url]) == 1


# For everyone


def test_the_keyboard_alone_is_enough(page: Page) -> None:
    control(page, "model").focus()
    keyboard = page.keyboard

    def to(name: str) -> None:
        """Press Tab until a control has the focus."""
        for _ in range(60):
            if page.evaluate("document.activeElement.getAttribute('name')") == name:
                return
            keyboard.press("Tab")
        pytest.fail(f"Tab does not lead to {name}")

    to("sequence")
    keyboard.press("ArrowUp")
    expect(said(page)).to_contain_text("at 8,192 tokens")
    to("recompute")
    keyboard.press("f")
    expect(said(page)).to_contain_text("every layer recomputed")
    summary = page.locator("summary", has_text="Split over GPUs")
    summary.focus()
    keyboard.press("Enter")
    to("data")
    keyboard.press("Control+A")
    keyboard.type("8")
    to("zero")
    keyboard.press("3")
    expect(said(page)).to_contain_text("on each of 8 GPUs: it fits")
    summary.focus()
    keyboard.press("Enter")


def test_a_words_meaning_opens_by_key_and_by_touch(page: Page) -> None:
    meaning = page.get_by_text("Tokens in one training example. 4k means 4,096.")
    mark = page.get_by_role("button", name="What is meant by sequence length?")
    expect(meaning).to_be_hidden()
    mark.focus()
    page.keyboard.press("Enter")
    expect(meaning).to_be_visible()
    page.keyboard.press("Escape")
    expect(meaning).to_be_hidden()
    mark.click()
    expect(meaning).to_be_visible()
    page.keyboard.press("Escape")


def test_a_screen_reader_hears_an_answer_once_it_settles(page: Page) -> None:
    heard = said(page)
    expect(heard).to_have_attribute("aria-live", "polite")
    expect(heard).not_to_have_attribute("aria-busy", "true")
    # What it says and whether it is still to be waited with, at every change of either.
    heard.evaluate(
        """(output) => {
            window.noted = [];
            new MutationObserver(() => {
                const busy = output.getAttribute("aria-busy") === "true";
                noted.push([output.textContent.includes("3 sequences"), busy]);
            }).observe(output, {
                attributes: true, subtree: true, childList: true, characterData: true,
            });
        }"""
    )
    control(page, "micro_batch").fill("3")
    expect(heard).to_contain_text("3 sequences")
    expect(heard).not_to_have_attribute("aria-busy", "true")
    noted = page.evaluate("noted")
    assert [True, True] in noted
    assert noted[-1] == [True, False]
    assert [False, False] not in noted


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_no_accessibility_rule_is_broken_by_what_unfolds(
    page: Page, axe: Callable[[Page], None], scheme: Any, width: int
) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 900})
    show(page, "model=korthikanti-175b&sequence=2048&tensor=8&pipeline=4&data=2&zero=1")
    page.evaluate("for (const one of document.querySelectorAll('.tm details')) one.open = true")
    # What unfolds is asked for, and the first of it needs Python's library, which is fetched once.
    expect(page.locator('.tm [aria-busy="true"]')).to_have_count(0, timeout=READY_MS)
    control(page, "sequence").fill("no number")
    expect(note(page, "sequence")).to_contain_text("cannot be used")
    axe(page)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    page.evaluate("for (const one of document.querySelectorAll('.tm details')) one.open = false")
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_printing_leaves_the_controls_out_and_the_result_whole(page: Page) -> None:
    page.emulate_media(media="print")
    expect(page.locator(".tm-form")).to_be_hidden()
    expect(page.locator(".tm-export")).to_be_hidden()
    for whole in (".tm-bar", ".tm-step", ".tm-table", ".tm output"):
        expect(page.locator(whole)).to_be_visible()
    expect(page.locator(".tm-units")).to_be_hidden()
    all_of_it, bar = (page.locator(one).bounding_box() for one in (".tm", ".tm-bar"))
    assert all_of_it is not None
    assert bar is not None
    assert bar["width"] == all_of_it["width"], "the controls' column is not left empty"
    page.emulate_media(media="screen", reduced_motion="reduce")


def test_nothing_moves_for_who_wants_no_motion(page: Page) -> None:
    segment = page.locator(".tm-segment rect").first

    def seconds() -> str:
        return str(segment.evaluate("rect => getComputedStyle(rect).transitionDuration"))

    assert seconds() == "0s"
    page.emulate_media(reduced_motion="no-preference")
    assert seconds() != "0s"
    page.emulate_media(reduced_motion="reduce")
