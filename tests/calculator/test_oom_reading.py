"""Errors read: every form's numbers, and a clear word for anything that is none."""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_memory.errors import InputError
from training_memory.oom import OomReading, explain, read
from training_memory.oom.printed import Printed, printed
from training_memory.oom.reading import SIZES
from training_memory.render.oom_text import oom_text
from training_memory.render.terminal import Terminal

Text = dict[str, Any]
FILE = Path(__file__).parent / "data" / "oom_errors.toml"
TEXTS: list[Text] = tomllib.loads(FILE.read_text(encoding="utf-8"))["error"]
each_text = pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text["name"]))

UNITS = {"GiB": 2**30, "MiB": 2**20, "bytes": 1}


def named(name: str) -> str:
    return next(str(text["text"]) for text in TEXTS if text["name"] == name)


def meant(value: object) -> object:
    """What the file says of a value: a size as printed, the difference of two, or none."""
    if isinstance(value, list):
        return [tuple(meant(part) for part in one) for one in value]
    if value == "none":
        return None
    if not isinstance(value, str) or value.split(" ")[-1] not in UNITS:
        return value
    first, *rest = (
        round(float(size.split(" ")[0]) * UNITS[size.split(" ")[1]]) for size in value.split(" - ")
    )
    return first - sum(rest)


def said(reading: OomReading, name: str) -> object:
    value = getattr(reading, name)
    if isinstance(value, Printed):
        return value.bytes
    if name == "processes":
        return [(number, size.bytes) for number, size in value]
    if name == "largest":
        return list(value)
    return value if value is None or isinstance(value, int) else str(value)


def test_there_are_enough_texts_of_every_kind():
    assert len(TEXTS) >= 25
    assert len({text["name"] for text in TEXTS}) == len(TEXTS)


@each_text
def test_an_error_is_read_as_it_is_meant(text: Text):
    found = explain(text["text"])
    assert (found.reading.kind, found.verdict.cause) == (text["kind"], text["cause"])
    says = text.get("says", {})
    assert {name: said(found.reading, name) for name in says} == {
        name: meant(value) for name, value in says.items()
    }
    assert found.verdict.sentences
    assert oom_text(found, Terminal()).strip()


@each_text
def test_noise_before_and_after_changes_nothing(text: Text):
    noise = "Epoch 1:  12%|█▏        | 120/1000 [00:31<03:50,  3.82it/s, loss=2.31]\r"
    around = explain(
        f"{noise * 40}\n{text['text']}\nsrun: error: node7: task 3: Exited with exit code 1\n"
    )
    alone = explain(text["text"])
    for name in SIZES:
        assert said(around.reading, name) == said(alone.reading, name)
    assert around.verdict == alone.verdict


@pytest.mark.parametrize(
    "prefix",
    ["[rank5]: ", "[default5]:", "5: ", "[1,5]<stderr>:", "(TrainWorker pid=812, ip=10.0.0.7) ",
     "2024-11-18 18:07:28 ", "trainer-0  | "],
)  # fmt: skip
def test_a_launchers_prefix_goes(prefix: str):
    text = named("pytorch 1.13")
    lines = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    found, alone = read(lines), read(text)
    assert (found.requested, found.total, found.when, found.line) == (
        alone.requested, alone.total, alone.when, alone.line,
    )  # fmt: skip
    if "5" in prefix and "pid" not in prefix:
        assert found.rank == 5


def test_the_first_error_counts():
    first, second = named("cuBLAS"), named("fragmentation")
    between = "\n" + "." * 600 + "\n"
    assert read(first + between + second).kind == "library"
    assert read(second + between + first).kind == "pytorch"
    assert read(second + between + first).errors == 2


@pytest.mark.parametrize(
    "text",
    ["", "   \n", "Segmentation fault (core dumped)", "loss=nan", "CUDA error: invalid argument"],
)
def test_a_text_without_one_is_told_so(text: str):
    with pytest.raises(InputError) as caught:
        read(text)
    empty = "the text is empty" if not text.strip() else "no out-of-memory error is in this text"
    paste = f"{empty}; paste the error with the lines before it (looked for: CUDA"
    assert caught.value.allowed.startswith(paste)


def tell(text: str) -> None:
    """Explain a text in every way, or be told that there is nothing in it."""
    try:
        found = explain(text)
    except InputError as error:
        assert "looked for" in error.allowed  # noqa: PT017 - both ways are right
        return
    assert found.verdict.sentences
    assert json.dumps(found.to_json())
    assert oom_text(found, Terminal()).endswith("\n")


_PIECES = st.sampled_from([
    "CUDA out of memory. ", "Tried to allocate ", "1.53 GiB", "99999999999999999999999999 GiB",
    "0 bytes", "GPU 0 has a total capacity of ", " of which ", " is free. ", "Process ", " has ",
    " memory in use. ", "this process has ", "\n", "[rank0]: ", "\x1b[31m", "RESOURCE_EXHAUSTED: ",
    "allocate 12 bytes", "Shape: f32[1,2,3]", "Buffer 1:", "MPS backend out of memory ",
    "NCCL WARN Cuda failure 'out of memory'", "max allowed: ", "(", ")", "1,234.5.6 MiB",
    "٣٫٥ GiB", "Allocation on device 0 would exceed", "Requested : ", "OutOfMemoryError",
    "Traceback (most recent call last)", "1e400", "-1 GiB",
])  # fmt: skip


@given(st.lists(st.one_of(_PIECES, st.text(max_size=20)), max_size=40).map("".join))
@settings(max_examples=400)
def test_any_text_gives_a_reading_or_a_clear_word(text: str):
    tell(text)


@each_text
def test_an_error_cut_anywhere_still_gives_a_reading_or_a_clear_word(text: Text):
    whole = text["text"]
    for end in range(0, len(whole), max(1, len(whole) // 40)):
        tell(whole[:end])


@given(st.integers(1, 2**43))
def test_a_printed_size_covers_what_prints_so(size: int):
    """As format_size of PyTorch's allocator prints: two decimals of the largest unit below it."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size > unit:
            text = f"{size / unit:.2f}"
            assert printed(text, name).covers(size)
            assert not printed(text, name).covers(size + unit // 50)
            return
    assert printed(str(size), "bytes") == Printed(
        text=f"{size} bytes", bytes=size, least=size, most=size
    )


def test_a_log_of_many_megabytes_is_read_quickly():
    error = named("pytorch 1.13")
    line = "step 1200 | loss 2.31 | 3.82 it/s | CUDA graphs off | Process 12 has started\n"
    begin = time.process_time()  # a machine's other work is left out
    found = read(line * 100_000 + error)
    assert found.requested == read(error).requested
    assert time.process_time() - begin < 8
