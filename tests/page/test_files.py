"""A reader's own files in the page: chosen, dropped or pasted, read here, and sent nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Page, Request, expect

from training_memory import files_door

READY_MS = 90_000
SETTLED_MS = 90_000
DATA = Path(__file__).parents[1] / "calculator" / "data"
FILES = DATA / "files"


@pytest.fixture
def page(page: Page) -> Page:
    """The calculator with Python ready and its readers unfolded."""
    page.goto("/calculator/")
    expect(page.locator(".tm")).to_have_attribute("data-status", "ready", timeout=READY_MS)
    page.locator(".tm-files summary").click()
    return page


def state_of(page: Page) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(page.url).fragment))


def said(page: Page) -> Any:
    return page.locator("[data-read-said]")


def door(names: list[str], state: str = "", data: str = "") -> dict[str, Any]:
    """What the door answers here."""
    files = [{"name": Path(name).name, "text": (FILES / name).read_text()} for name in names]
    found: dict[str, Any] = json.loads(
        files_door.answer(json.dumps({"files": files, "state": state, "data": data}))
    )
    return found


def test_a_chosen_file_fills_the_calculator_and_goes_nowhere(page: Page) -> None:
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request))
    before = page.url
    page.locator("[data-files]").set_input_files(FILES / "trainer-full.yaml")
    expect(said(page)).to_have_text(
        "Read: One thing that may bear on memory is not in the answer.", timeout=SETTLED_MS
    )
    expect(page.locator(".tm output")).to_contain_text("Llama 3.1 8B at 4,096 tokens")
    state = state_of(page)
    assert (state["micro_batches"], state["recompute"]) == ("16", "full")
    reading = page.locator("[data-reading]")
    expect(reading).to_contain_text("trainer-full.yaml Hugging Face TrainingArguments")
    expect(reading).to_contain_text(
        "no file says how many GPUs there are: say Data-parallel replicas"
    )
    # All that was fetched are files of the site's, the readers among them, and nothing was sent.
    assert sum("/files-" in request.url for request in sent) == 1
    assert all(request.method == "GET" and request.post_data is None for request in sent)
    # It is one step of the history.
    page.go_back()
    expect(page.locator(".tm output")).to_contain_text("LLaMA 7B")
    assert page.url == before


def test_the_page_reads_as_python_does_elsewhere(page: Page) -> None:
    names = ["ds-auto.json", "trainer-deepspeed.yaml", "../configs/qwen2.5-7b.json"]
    page.locator("[data-replicas]").fill("8")
    page.locator("[data-files]").set_input_files([FILES / name for name in names])
    expect(said(page)).to_contain_text("Read: ", timeout=SETTLED_MS)
    here = door(names, data="8")
    expect(said(page)).to_have_text(here["said"])
    expect(page.locator(".tm output")).to_contain_text("Qwen/Qwen2.5-7B-Instruct")
    expected = dict(parse_qsl(here["state"]))
    assert {name: state_of(page).get(name) for name in expected} == expected


@pytest.mark.parametrize("name", ["titan-llama3-8b.toml", "megatron-llama.sh", "megatron.yaml"])
def test_toml_and_scripts_are_read_too(page: Page, name: str) -> None:
    page.locator("[data-files]").set_input_files(FILES / name)
    expect(said(page)).to_have_text(door([name])["said"], timeout=SETTLED_MS)


def test_a_file_can_be_dropped(page: Page) -> None:
    text = (FILES / "axolotl-qlora.yml").read_text()
    page.evaluate(
        """text => {
            const data = new DataTransfer();
            data.items.add(new File([text], "dropped.yml"));
            const drop = document.querySelector("[data-drop]");
            drop.dispatchEvent(new DragEvent("dragover", {dataTransfer: data, bubbles: true}));
            drop.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
        }""",
        text,
    )
    expect(page.locator("[data-reading]")).to_contain_text(
        "dropped.yml axolotl configuration", timeout=SETTLED_MS
    )
    expect(page.locator("[data-reading]")).to_contain_text(
        "packed samples are to fused attention one full sequence"
    )


def test_text_is_pasted_and_read_by_keyboard_alone(page: Page) -> None:
    page.locator(".tm-files summary").focus()
    page.keyboard.press("Tab")
    expect(page.locator("[data-files]")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.insert_text('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}')
    page.keyboard.press("Tab")
    page.keyboard.insert_text("4")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("[data-reading]")).to_contain_text(
        "pasted text DeepSpeed configuration", timeout=SETTLED_MS
    )
    state = state_of(page)
    # No file gave a model, so the one shown stays.
    assert (state["model"], state["micro_batch"], state["data"]) == ("llama-7b", "4", "4")


def test_a_python_configuration_is_pasted_and_read_without_being_run(page: Page) -> None:
    text = (
        "def llama3_8b() -> Trainer.Config:\n    return Trainer.Config(\n"
        '        hf_assets_path="./assets/hf/Llama-3.1-8B", model_spec=model_registry("8B"),\n'
        "        training=TrainingConfig(local_batch_size=2, seq_len=4096),\n    )\n"
    )
    page.locator("[data-paste]").fill(text)
    page.locator("[data-read]").click()
    expect(said(page)).to_contain_text("Read: ", timeout=SETTLED_MS)
    expect(page.locator(".tm output")).to_contain_text("Llama 3.1 8B at 4,096 tokens, 2 sequences")


def test_what_cannot_be_read_says_why_and_changes_nothing(page: Page) -> None:
    before = page.url
    page.locator("[data-paste]").fill("base_model: x\nmicro_batch_size: many\nsequence_len: 8")
    page.locator("[data-read]").click()
    expect(said(page)).to_have_text("These files cannot be used.", timeout=SETTLED_MS)
    expect(page.locator("[data-reading]")).to_contain_text(
        "micro_batch_size in pasted text 'many' cannot be used: a whole number"
    )
    page.locator("[data-paste]").fill("")
    page.locator("[data-read]").click()
    expect(page.locator("[data-reading]")).to_contain_text("choose one, or paste its text")
    assert page.url == before


def test_what_is_read_late_does_not_stand_in_for_what_was_chosen_after_it(page: Page) -> None:
    late, latest = ((FILES / name).read_text() for name in ("axolotl-qlora.yml", "ds-auto.json"))
    dropped = """([name, text]) => {
        const file = new File([text], name);
        if (name === "late.yml") {
            // A large file on a slow disk: it is there when the test says so.
            const there = new Promise((resolve) => (window.arrive = resolve));
            file.slice = () => ({text: () => there.then(() => text)});
        }
        const data = {files: [file]};
        const drop = new DragEvent("drop", {bubbles: true});
        Object.defineProperty(drop, "dataTransfer", {value: data});
        document.querySelector("[data-drop]").dispatchEvent(drop);
    }"""
    page.evaluate(dropped, ["late.yml", late])
    page.evaluate(dropped, ["latest.json", latest])
    reading = page.locator("[data-reading]")
    expect(reading).to_contain_text("latest.json", timeout=SETTLED_MS)
    after = said(page).inner_text()
    # Python answers in the order in which it is asked: once it has answered this, it has all.
    page.evaluate(
        """async () => {
            const script = document.querySelector('script[src*="calculator/page.js"]');
            const {python} = await import(new URL("runtime.js", script.src).href);
            arrive();
            await new Promise((done) => setTimeout(done));
            await python().ask(JSON.stringify({state: ""}));
            await new Promise((done) => setTimeout(done));
        }"""
    )
    expect(said(page)).to_have_text(after)
    expect(reading).to_contain_text("latest.json")
    expect(reading).not_to_contain_text("late.yml")


@pytest.mark.parametrize("width", [360, 1280])
def test_a_reading_breaks_no_accessibility_rule_and_fits_a_phone(
    page: Page, axe: Callable[[Page], None], width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("[data-files]").set_input_files(FILES / "axolotl-fsdp.yml")
    expect(said(page)).to_contain_text("Read: ", timeout=SETTLED_MS)
    page.locator("[data-reading] details").evaluate_all(
        "all => all.forEach(it => (it.open = true))"
    )
    axe(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
