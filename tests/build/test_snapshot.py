"""Python's memory as the build takes it."""

import gzip
import json
import shutil
import struct

import pytest

import snapshot
from places import CACHE, PYODIDE
from snapshot import MEMORY, SIZES, make_snapshot, read_snapshot, requests
from training_memory.presets import PRESETS
from training_memory.web import answer

pytestmark = pytest.mark.site

WORD = 4


@pytest.fixture(scope="module")
def taken(built_site):
    """The snapshot that the built site carries."""
    return read_snapshot()


@pytest.fixture(scope="module")
def whole(taken):
    return gzip.decompress(taken.file)


def test_its_sizes_are_as_they_are_told(taken, whole):
    assert len(whole) == taken.whole_bytes
    assert 0 < taken.memory_bytes < taken.whole_bytes
    # The runs lie behind Pyodide's own snapshot, as pairs of words.
    assert (taken.whole_bytes - taken.memory_bytes) % (2 * WORD) == 0


def test_what_a_page_has_already_is_left_out(taken, whole):
    header = struct.unpack_from("<I", whole, WORD)[0]
    count = (taken.whole_bytes - taken.memory_bytes) // WORD
    runs = struct.unpack_from(f"<{count}I", whole, taken.memory_bytes)
    assert list(runs) == sorted(runs), "in order, and none over another"
    left_out = 0
    for start, end in zip(runs[::2], runs[1::2], strict=True):
        part = whole[header + start * WORD : header + end * WORD]
        assert not any(part)
        left_out += len(part)
    assert left_out > 2_000_000


def test_it_is_small_enough_to_travel(taken):
    assert len(taken.file) < 4_500_000


def test_what_is_free_travels_as_zeros(taken, whole):
    # A text that only the build's start of Python ever held, and then let go of.
    assert json.dumps(requests()).encode() not in whole
    assert b"def answer(request_json" not in whole, "no source of the calculator is in it"


def test_the_same_sources_give_the_same_bytes(tmp_path, taken):
    (wheel,) = (CACHE / "wheel").glob("*.whl")
    make_snapshot(wheel, tmp_path / "again")
    assert (tmp_path / "again" / MEMORY).read_bytes() == taken.file
    assert json.loads((tmp_path / "again" / SIZES).read_bytes())["whole"] == taken.whole_bytes


def test_every_kind_of_request_is_answered_before_it_is_taken():
    answers = [json.loads(answer(json.dumps(request))) for request in requests()]
    presets = [request["set"]["preset"] for request in requests() if "preset" in request["set"]]
    assert set(presets) == set(PRESETS)
    assert any("films" in found for found in answers)
    assert [found["ok"] for found in answers].count(False) == 1


def test_where_it_cannot_be_taken_the_reason_is_told(tmp_path, monkeypatch):
    wheel = tmp_path / "broken.whl"
    wheel.write_bytes(b"no zip")
    with pytest.raises(RuntimeError, match=r"could not be taken[\s\S]*zip") as caught:
        make_snapshot(wheel, tmp_path / "memory")
    assert len(str(caught.value)) < 2_500, "not a million characters of Pyodide"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"Node\.js .* is needed"):
        snapshot.make_snapshot(wheel, tmp_path / "memory", PYODIDE)
