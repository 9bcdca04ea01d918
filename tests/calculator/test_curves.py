"""Curves: their points are estimates, they cross where the search says, their drawings speak."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

import later
from strategies import requests
from training_memory.curves import Along, Curve, curves
from training_memory.estimate import estimate
from training_memory.render.curve import drawing, figures, said
from training_memory.run import Run
from training_memory.web import answer

SVG = "{http://www.w3.org/2000/svg}"


def ask(**request: object) -> dict[Along, Curve]:
    return {curve.along: curve for curve in curves(Run.from_json(request))}


@pytest.mark.thorough
@given(requests())
@settings(max_examples=25, deadline=None)
def test_for_any_run(request_json: dict[str, object]) -> None:
    run = Run.from_json(request_json)
    peak = estimate(run).worst.peak_bytes
    for curve in curves(run):
        values = [value for value, _ in curve.points]
        assert values == sorted(set(values))
        peaks = dict(curve.points)
        if curve.along is not Along.GPUS or run.layout.zero:
            assert peaks[curve.now] == peak
        if curve.along is not Along.GPUS:
            assert list(peaks.values()) == sorted(peaks.values())
            _crosses(curve)
        tree = ElementTree.fromstring(
            drawing(curve).replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1)
        )
        title, text = tree.find(f"{SVG}title"), tree.find(f"{SVG}desc")
        assert title is not None
        assert text is not None
        assert tree.get("aria-labelledby") == f"{title.get('id')} {text.get('id')}"
        assert (text.text or "").endswith(said(curve))


def _crosses(curve: Curve) -> None:
    """Up to the last that fits all fit, and beyond it none."""
    if curve.capacity_bytes is None:
        return
    for value, peak in curve.points:
        fits = peak <= curve.capacity_bytes
        assert fits == (curve.last is not None and value <= curve.last)


def test_the_crossing_is_named() -> None:
    found = ask(model="llama-2-7b", recompute="full", gpu="h200-141gb")
    sequence = found[Along.SEQUENCE]
    assert said(sequence).startswith(f"Fits up to {sequence.last:,} tokens.")
    assert f"fits up to {sequence.last:,}" in drawing(sequence)
    assert "NVIDIA H200 141 GB" in drawing(sequence)
    gpus = found[Along.GPUS]
    assert gpus.zero == 3
    assert gpus.last == 1


@pytest.mark.parametrize(
    ("implementation", "zero"),
    [("paper", 3), ("huggingface", 3), ("torchtitan", 3), ("megatron", 1), ("nanotron", 1)],
)
def test_replicas_share_as_far_as_the_implementation_goes(implementation: str, zero: int) -> None:
    request = {"implementation": implementation, "model": "llama-7b"}
    if implementation in ("huggingface", "torchtitan"):
        request["recipe"] = "autocast-adam"
    assert ask(**request)[Along.GPUS].zero == zero
    state = json.loads(answer(json.dumps({"run": request})))["state"]
    assert f"ZeRO-{zero}." in later.whole(state, "curves")["curves"]


def test_what_cannot_be_shared_has_no_curve_along_gpus() -> None:
    request = {"implementation": "huggingface", "model": "gpt2", "sequence": 512}
    found = ask(**request, recipe="autocast-adam", loss="chunked")
    assert Along.SEQUENCE in found
    assert Along.GPUS not in found


def test_what_never_fits_and_what_has_no_line() -> None:
    assert said(ask()[Along.SEQUENCE]).startswith("Nothing that is drawn fits.")
    assert said(ask(gpu=None)[Along.SEQUENCE]).startswith("No GPU chosen")
    assert ask(gpu=None)[Along.SEQUENCE].last is None


def test_learned_positions_end_the_curve() -> None:
    assert ask(model="gpt2", sequence=512)[Along.SEQUENCE].points[-1][0] == 1024


def test_one_gpu_is_no_curve() -> None:
    run = Run.from_json({"implementation": "huggingface", "model": "gpt2", "sequence": 512})
    along = {curve.along for curve in curves(run)}
    assert {Along.SEQUENCE, Along.MICRO_BATCH} <= along
    for curve in curves(run):
        assert len(curve.points) > 1


@pytest.mark.parametrize("units", ["GB", "GiB"])
def test_the_page_is_given_them_when_it_asks(units: str) -> None:
    state = f"model=gpt2&sequence=512&units={units}"
    assert "curves" not in json.loads(answer(json.dumps({"state": state})))["html"]
    found = later.whole(state, "curves")["curves"]
    run = Run.from_json({"model": "gpt2", "sequence": 512})
    assert found == figures(curves(run), binary=units == "GiB")
    assert found.count("<table>") == found.count("<figure") == 3
