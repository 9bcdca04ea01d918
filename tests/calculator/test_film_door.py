"""The film's door: one request in, films with their drawings out, or every error."""

import json
from xml.etree import ElementTree

import pytest

import later
from training_memory import film_door, slices
from training_memory.film_door import beside
from training_memory.render.player import panels

DEFAULT = "model=llama-7b&sequence=4096&micro_batch=1"


def _ask(**request):
    return later.answered(film_door.answer, **{"state": DEFAULT, "beside": "", **request})


def _elements(html: str) -> list[ElementTree.Element]:
    """The drawing's elements; it must be well-formed, whatever a lenient parser would mend."""
    # Attributes without a value are HTML, not XML.
    for name in ("disabled", "hidden", "open"):
        html = html.replace(f" {name}>", f' {name}="">').replace(f" {name} ", f' {name}="" ')
    return list(ElementTree.fromstring(f"<div>{html}</div>").iter())


def _values(html: str, name: str) -> set[str]:
    """What an attribute is, wherever it is."""
    return {one.attrib[name] for one in _elements(html) if name in one.attrib}


def test_one_run_is_one_film():
    found = _ask()
    assert found["ok"]
    assert [film["frames"][film["peak"]]["total"] for film in found["films"]] == [199_539_351_552]
    assert found["summaries"]["run"].startswith("LLaMA 7B at 4,096 tokens, one sequence")
    assert found["fields"]["sequence"] == "4,096"


def test_two_runs_beside_each_other_differ_in_recomputation_and_share_one_scale():
    found = _ask(beside="full")
    peaks = [film["frames"][film["peak"]]["total"] for film in found["films"]]
    assert peaks == [199_539_351_552, 110_690_025_216]
    (top,) = _values(found["html"]["stages"], "data-top")
    assert int(top) > max(peaks)
    assert len(_values(found["html"]["nows"], "data-largest")) == 1
    rows = [one.get("data-category") for one in _elements(found["html"]["nows"])]
    kinds = [row for row in rows if row is not None]
    assert kinds[: len(kinds) // 2] == kinds[len(kinds) // 2 :]


def test_a_change_is_made_to_the_state_before_the_film():
    found = _ask(set={"recompute": "selective"}, step={"micro_batches": 1})
    assert found["run"]["recompute"] == "selective"
    assert found["run"]["micro_batches"] == 2
    assert "micro_batches=2" in found["state"]


def test_units_reach_every_text():
    found = _ask(units="GiB")
    assert "185.8 GiB" in found["html"]["stages"]
    assert " GB" not in found["html"]["nows"] + found["html"]["stills"].replace("80 GB GPU", "")
    texts = found["films"][0]["shown"].values()
    assert all(text.endswith(("iB", " B")) for text in texts)


def test_what_cannot_be_is_refused_with_every_reason():
    found = _ask(set={"sequence": "abc", "micro_batch": "0"})
    assert not found["ok"]
    assert [error["field"] for error in found["errors"]] == ["sequence", "micro_batch"]
    assert _ask(beside="half")["errors"][0]["field"] == "beside"


@pytest.mark.parametrize(("value", "expected"), [("", None), (None, None), ("full", "full")])
def test_beside_is_a_recomputation_or_nothing(value, expected):
    assert beside(value) == expected


@pytest.mark.parametrize(
    "state",
    [
        DEFAULT,
        "model=gpt2-xl&sequence=1024&micro_batch=4&gpu=none",
        "model=llama-3.1-8b&sequence=8192&data=8&zero=3&pipeline=4&micro_batches=16&recompute=full",
    ],
)
def test_drawings_are_well_formed_and_hold_nothing_the_policy_refuses(state):
    html = _ask(state=state, beside="selective")["html"]
    elements = [one for part in html.values() for one in _elements(part)]
    ids = [one.get("id") for one in elements if one.get("id")]
    assert len(ids) == len(set(ids))
    for one in elements:
        assert one.tag not in {"script", "style"}
        assert not [name for name in one.attrib if name == "style" or name.startswith("on")]
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(one.get(name, "").split()) <= set(ids)


def test_a_run_on_no_gpu_has_no_line_and_says_nothing_of_fitting():
    html = _ask(set={"gpu": "none"})["html"]
    assert "film-capacity" not in html["stages"] + html["stills"]
    assert "film-fits" not in html["stages"]
    assert "film-capacity" in _ask()["html"]["stages"]


def test_the_first_moment_is_written_in():
    stage = _ask()["html"]["stages"]
    assert "Weight, used in forward and backward" in stage
    assert ">13.5 GB</b>" in stage


def test_panels_of_one_film_are_the_first_of_two_where_it_is_the_larger():
    """So the page can hide and show the second without drawing the first anew."""
    from training_memory import controls
    from training_memory.blocks.ledger import Recompute
    from training_memory.film_door import pair

    both = pair(controls.of_preset("llama-7b"), Recompute.FULL)
    assert panels(both).stages.startswith(panels(both[:1]).stages)


def test_a_film_is_made_a_slice_at_a_time(monkeypatch):
    whole = _ask(beside="full")
    monkeypatch.setattr(slices, "SECONDS", 0.0)
    asked = {"state": DEFAULT, "beside": "full", "prefix": "film"}
    turns, told = 0, {"done": False}
    while not told["done"]:
        told = json.loads(film_door.answer(json.dumps({**asked, "turn": turns})))
        turns += 1
    assert told == whole
    assert turns > 4  # each run's estimate and its film, and the drawings
