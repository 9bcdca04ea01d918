"""The page's door: what it answers is what the calculator says, in parts that a page can show."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings

import later
from strategies import requests
from sweeps import sweep
from training_memory import controls
from training_memory.estimate import estimate
from training_memory.flags import run_parser
from training_memory.presets import PRESETS
from training_memory.render import fields, page
from training_memory.request import read_request
from training_memory.run import Run
from training_memory.units import show_bytes
from training_memory.web import answer

PARTS = {"answer", "verdict", "bar", "step", "split", "table", "omitted"}


def ask(**request: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer(json.dumps(request)))
    return found


@given(requests())
@settings(max_examples=60)
def test_the_estimate_is_the_calculators(request_json):
    found = ask(run=request_json)
    assert found["ok"]
    assert found["estimate"] == json.loads(
        json.dumps(estimate(Run.from_json(request_json)).to_json())
    )
    assert set(found["html"]) >= PARTS


@given(requests())
@settings(max_examples=40)
def test_the_command_gives_the_same_run(request_json):
    words = ask(run=request_json)["text"]["command"].split()
    assert words[:2] == ["training-memory", "estimate"]
    given_flags, mistakes = run_parser("estimate", description="", epilog="").read(words[2:])
    assert read_request(given_flags, mistakes).run == Run.from_json(request_json)


def test_the_command_carries_a_changed_shape_and_units():
    text = ask(state="model=llama-7b&tied=true&units=GiB", set={"gated": "false"})["text"][
        "command"
    ]
    assert text.endswith(" --no-gated --tied --units GiB")


def test_a_change_is_made_to_the_state():
    found = ask(state="model=llama-7b", set={"recompute": "full"}, step={"sequence": 1})
    assert found["run"]["recompute"] == "full"
    assert found["fields"]["sequence"] == "8,192"
    assert "sequence=8192" in found["state"]
    assert ask(state=found["state"])["run"] == found["run"]


def test_a_preset_is_called_by_its_name_until_it_is_changed():
    first = ask(set={"preset": "llama-7b"})
    assert first["text"]["title"] == "LLaMA 7B"
    changed = ask(state=first["state"], set={"sequence": "8k"})
    assert changed["text"]["title"] == "LLaMA 7B, changed"
    back = ask(state=changed["state"], set={"sequence": "4k"})
    assert back["text"]["title"] == "LLaMA 7B"


def test_a_model_is_called_by_its_name_until_its_shape_is_changed():
    found = ask(state="model=llama-7b&preset=llama-7b", set={"model": "mistral-7b"})
    assert found["text"]["title"] == "Mistral 7B"
    changed = ask(state=found["state"], set={"layers": "8"})
    assert changed["text"]["title"] == "Mistral 7B, changed"


def test_a_sequence_that_a_model_shortened_says_so():
    found = ask(state="sequence=4096", set={"model": "gpt2"})
    assert found["notes"]["sequence"] == "as far as GPT-2's learned positions go"
    assert "sequence" not in ask(state="sequence=1024", set={"model": "gpt2"})["notes"]
    assert "sequence" not in ask(state=found["state"], set={"recompute": "full"})["notes"]


def test_every_field_that_cannot_be_is_named_with_its_reason():
    found = ask(state="model=lama-7b&sequence=many&zero=4")
    assert not found["ok"]
    reasons = {error["field"]: error["reason"] for error in found["errors"]}
    assert set(reasons) == {"model", "sequence", "zero"}
    assert reasons["model"].endswith("Did you mean llama-7b?")
    assert reasons["sequence"].startswith("many cannot be used: a whole number")


def test_a_number_stepped_too_far_is_told():
    found = ask(state="tensor=32", step={"tensor": 1})
    assert not found["ok"]
    assert [error["field"] for error in found["errors"]] == ["tensor"]
    assert found["stepped"] == {"tensor": "64"}


def test_units_change_what_is_shown_and_not_what_is_so():
    decimal, binary = ask(units="GB"), ask(units="GiB")
    assert decimal["estimate"] == binary["estimate"]
    assert "199.5\u00a0GB" in decimal["html"]["answer"]
    assert "185.8\u00a0GiB" in binary["html"]["answer"]
    assert binary["fields"]["units"] == "GiB"
    assert ask(state=binary["state"])["html"] == binary["html"]
    assert not ask(units="MB")["ok"]


def advice(**request: object) -> str:
    return later.whole(ask(**request)["state"], "advice")["advice"]


def test_advice_comes_later():
    found = ask()
    assert "advice" not in found["html"]
    assert "advice" in found["later"]
    assert "Recompute every layer" in advice()


def test_every_change_has_its_lines_to_write() -> None:
    found = advice()
    changes = found.count("data-set=")
    assert changes > 5
    assert found.count("Lines to write</summary>") == changes
    for library in ("Hugging Face", "DeepSpeed", "torchtitan", "Megatron"):
        assert f"<dt>{library}</dt>" in found
    assert "<code>--recompute-granularity full&#10;" in found
    assert "No line for " in found


def test_the_model_of_cost_stands_beside_the_costs_with_its_sources() -> None:
    found = advice(state="gpu=a100-80gb")
    assert "How time is worked out" in found
    for source in ("arXiv:2204.02311", "arXiv:1909.08053", "arXiv:1910.02054", "arXiv:2104.04473"):
        assert source in found
    assert "Rates of NVIDIA A100 80 GB: 312·10¹² operations a second; 300 GB a second" in found
    unknown = advice(state="gpu=a10g-24gb")
    assert "of NVIDIA A10G 24 GB none are known (it has no data sheet of its own" in unknown


def test_a_run_that_fits_needs_no_advice():
    found = ask(state="model=decoder&sequence=8")
    assert found["html"]["advice"] == ""
    assert found["later"] == []


def test_applying_advice_does_what_it_says():
    found = advice()
    (change,) = [
        line for line in found.split("<li>") if "Tensor and sequence parallelism over 8" in line
    ]
    setting = change.split('data-set="')[1].split('"')[0].replace("&amp;", "&")
    after = ask(set=controls.parse(setting))
    assert after["run"]["tensor"] == 8
    assert after["run"]["sequence_parallel"] is True
    assert (
        f"needs {after['html']['answer'].split('<strong>')[1].split('<')[0]}".replace("\u00a0", " ")
        in change
    )


class Checker(HTMLParser):
    """Whether HTML is balanced, and what in it a strict policy or an id would trip over."""

    VOID = frozenset({"input", "br", "img", "hr", "meta", "link"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.refers: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert name != "style", f"<{tag}> has a style attribute"
            assert not name.startswith("on"), f"<{tag}> has a handler"
            if name == "id":
                self.ids.append(value or "")
            if name in {"for", "popovertarget"}:
                self.refers.append(value or "")
            if name in {"aria-labelledby", "aria-describedby"}:
                self.refers += (value or "").split()
            if name == "fill" and (value or "").startswith("url(#"):
                self.refers.append((value or "")[5:-1])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


@given(requests())
@settings(max_examples=40)
def test_every_part_is_whole_html_that_a_strict_policy_lets_pass(request_json):
    answered = ask(run=request_json)
    html_of = answered["html"] | later.whole(answered["state"], *answered["later"])
    for name, html in html_of.items():
        assert Checker(html).open == [], name
        assert "\n" not in html, "a blank line would end the block in a page's Markdown"


@pytest.mark.parametrize("preset", sweep(PRESETS, one_in=3))
def test_the_whole_calculator_refers_only_to_what_is_in_it(preset):
    found = Checker(page.calculator(controls.of_preset(preset), prefix="it"))
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert set(found.refers) <= set(found.ids)
    assert all(name.startswith("it") for name in found.ids)


def test_the_built_page_shows_what_the_door_answers():
    """The page before Python has loaded and the page after are drawn by the same hand."""
    html = page.calculator(controls.of_preset("llama-7b"))
    found = ask(set={"preset": "llama-7b"})
    found["html"] |= later.whole(found["state"], *found["later"])
    for part in PARTS:
        assert found["html"][part] in html, part
    # Its buttons are only of use once there is a script.
    assert found["html"]["advice"].replace(">Apply<", " disabled>Apply<") in html
    assert f'data-state="{found["state"].replace("&", "&amp;")}"' in html


def test_what_a_link_says_and_is_not_understood_is_told_and_the_rest_is_shown():
    found = ask(state="model=llama-7b&sequence=8k&foo=1")
    assert found["ok"]
    assert found["run"]["sequence"] == 8192
    assert "foo=1" in found["unread"]
    assert "foo" not in found["state"]
    assert ask(state=found["state"])["unread"] == ""


def test_a_choice_in_a_link_that_cannot_be_comes_back_for_its_field():
    found = ask(state="model=lama-7b&zero=9&sequence=8k")
    assert found["stepped"] == {"model": "lama-7b", "zero": "9"}
    reasons = {error["field"]: error["reason"] for error in found["errors"]}
    assert "Did you mean llama-7b?" in reasons["model"]
    # A flag has no room for a word: its reason alone stands beside it.
    assert ask(state="model=llama-7b&tied=perhaps")["stepped"] == {}


def test_a_number_in_a_link_that_cannot_be_comes_back_for_its_field():
    found = ask(state="model=llama-7b&sequence=abc&micro_batch=2")
    assert not found["ok"]
    assert found["stepped"] == {"sequence": "abc"}
    assert [error["field"] for error in found["errors"]] == ["sequence"]


def switches(state: str) -> dict[str, str]:
    """The note of every switch."""
    return later.whole(state, "switches")


def test_each_switch_says_what_it_would_change():
    state = "model=gpt2&sequence=1024&implementation=huggingface&gpu=none"
    notes = switches(state)
    assert list(notes) == [field.name for field in fields.at(fields.Place.IMPLEMENTATION)]

    def peak(**changes: str) -> int:
        size = ask(state=state, set=changes)["estimate"]["peak"]["bytes"]
        assert isinstance(size, int)
        return size

    more = peak(attention="eager") - peak()
    assert notes["attention"] == f"Eager: {show_bytes(more)} more"
    less = peak() - peak(dropout="false")
    assert notes["dropout"] == f"Off: {show_bytes(less)} less"
    assert less > 10**7
    # GPT-2's LayerNorm is one kernel, and cannot be another.
    assert notes["norm_kernel"] == ""
    assert notes["implementation"].startswith("Textbook: ")


def test_the_textbook_says_what_the_libraries_take():
    notes = switches("model=llama-7b&implementation=paper&units=GiB")
    assert list(notes) == ["implementation"]
    assert "torchtitan: " in notes["implementation"]
    assert "GiB" in notes["implementation"]


def test_a_run_that_cannot_be_has_no_switches():
    assert not later.ask(state="model=gpt2&sequence=4096", parts=["switches"])["ok"]


# --- two runs side by side, and a job that died ------------------------------------------------


def test_a_run_is_pinned_and_compared_and_let_go():
    found = ask(state="model=llama-7b&sequence=2048")
    (button,) = re.findall(r'data-set="(pin=[^"]+)"', found["html"]["difference"])
    pin = dict(parse_qsl(unescape(button)))["pin"]
    assert Run.from_json(controls.request(controls.parse(pin))).to_json() == found["run"]
    pinned = ask(state=found["state"], set={"pin": pin, "recompute": "full"})
    assert "difference" not in pinned["html"]
    assert "difference" in pinned["later"]
    said = later.whole(pinned["state"], "difference")["difference"]
    assert controls.parse(pinned["state"])["pin"] == pin
    assert said.count('class="tm-bar"') == 2
    for words in ("recompute", "full", "Where they part", "Unpin", "Swap the two"):
        assert words in said
    # A preset fills the run and leaves the pin; a link to the pinned run has this one pinned.
    assert (
        controls.parse(ask(state=pinned["state"], set={"preset": "decoder"})["state"])["pin"] == pin
    )
    (link,) = re.findall(r'href="#([^"]+)"', said)
    back = ask(state=unescape(link))
    assert back["run"] == found["run"]
    assert controls.pinned(controls.parse(back["state"])) == Run.from_json(pinned["run"])
    assert "pin" not in controls.parse(ask(state=pinned["state"], set={"pin": ""})["state"])
    assert "--pin" not in pinned["text"]["command"]


def test_a_pin_that_cannot_be_leaves_the_answer_whole():
    found = ask(state="model=llama-7b&pin=model%3Dnosuch%26sequence%3D0")
    assert found["ok"]
    assert "The pinned run cannot be" in found["html"]["difference"]
    assert "Unpin" in found["html"]["difference"]
