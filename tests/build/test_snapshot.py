"""Python's memory as the build takes it."""

import gzip
import json
import shutil
import struct

import pytest

import later
import snapshot
from places import CACHE, PYODIDE
from snapshot import MEMORY, SIZES, films, make_snapshot, read_snapshot, requests
from training_memory import film_door
from training_memory.presets import FIRST
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


@pytest.fixture(scope="module")
def runs(whole):
    """From which word of the memory to which the file brings it, and where these words begin."""
    header = struct.unpack_from("<I", whole, WORD)[0]
    count = struct.unpack_from("<I", whole, header)[0]
    numbers = struct.unpack_from(f"<{count}I", whole, header + WORD)
    return list(zip(numbers[::2], numbers[1::2], strict=True)), header + WORD * (1 + count)


def test_its_sizes_are_as_they_are_told(taken, whole, runs):
    assert len(whole) == taken.whole_bytes
    pairs, begin = runs
    assert begin + WORD * sum(end - start for start, end in pairs) == len(whole)
    header = struct.unpack_from("<I", whole, WORD)[0]
    assert 0 < WORD * pairs[-1][1] <= taken.memory_bytes - header


def test_what_a_page_has_already_is_left_out(taken, whole, runs):
    pairs, _ = runs
    ends = [word for pair in pairs for word in pair]
    assert ends == sorted(set(ends)), "in order, and none next to another"
    assert len(whole) < 0.5 * taken.memory_bytes
    # A page goes by each of them.
    assert len(pairs) < 5_000


def test_it_is_small_enough_to_travel(taken):
    # All that Python needs may weigh 9 MB (test_site.py); beside its memory that is Pyodide itself.
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
    assert requests()[0]["set"] == {"preset": FIRST}
    assert [found["ok"] for found in answers].count(False) == 1
    assert all(later.answered(film_door.answer, **film)["films"] for film in films())


def test_where_it_cannot_be_taken_the_reason_is_told(tmp_path, monkeypatch):
    wheel = tmp_path / "broken.whl"
    wheel.write_bytes(b"no zip")
    with pytest.raises(RuntimeError, match=r"could not be taken[\s\S]*zip") as caught:
        make_snapshot(wheel, tmp_path / "memory")
    assert len(str(caught.value)) < 2_500, "not a million characters of Pyodide"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"Node\.js .* is needed"):
        snapshot.make_snapshot(wheel, tmp_path / "memory", PYODIDE)
