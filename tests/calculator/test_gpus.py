"""The GPUs: what their names promise, what they were seen to offer."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from training_memory import gpus
from training_memory.errors import InputError

FILE = Path(gpus.__file__).with_name("gpus.toml")


def test_the_default_is_the_textbooks_eighty_gigabytes() -> None:
    gpu = gpus.get(gpus.DEFAULT)
    assert next(iter(gpus.gpus())) == gpu.id == "80gb"
    assert gpu.memory_bytes == 80_000_000_000
    # The figure shown beside it is that of a real 80 GB GPU.
    assert gpu.usable_bytes == gpus.get("h100-80gb").usable_bytes


@pytest.mark.parametrize("gpu_id", list(gpus.gpus()))
def test_memory_is_the_names_and_usable_just_below_as_many_gib(gpu_id: str) -> None:
    gpu = gpus.get(gpu_id)
    assert gpu.id == gpu_id
    named = re.search(r"(\d+) GB", gpu.name)
    assert named
    assert gpu_id.endswith(f"{named[1]}gb")
    assert gpu.memory_bytes == int(named[1]) * 10**9
    assert gpu.source
    if gpu.usable_bytes is None:
        assert gpu.source == "no published figure found"
    else:
        # No GPU offers more GiB than it has GB to its name, or a tenth less.
        assert 0.9 * int(named[1]) * 2**30 < gpu.usable_bytes < int(named[1]) * 2**30
        assert re.search(r"thread \d+|README\.md", gpu.source)


@pytest.mark.parametrize(
    ("printed", "size_bytes"),
    [
        ("42298834944 B", 42_298_834_944),
        ("48676 MiB", 48_676 * 2**20),
        ("80 GiB", 80 * 2**30),
        ("79.10 GiB", 7910 * 2**30 // 100),
        ("0.50 GiB", 2**29),
    ],
)
def test_printed_sizes(printed: str, size_bytes: int) -> None:
    assert gpus._bytes(printed) == size_bytes


@pytest.mark.parametrize("gpu_id", list(gpus.gpus()))
def test_rates_have_a_source_or_a_reason_why_there_are_none(gpu_id: str) -> None:
    values = tomllib.loads(FILE.read_text(encoding="utf-8"))[gpu_id]
    rates = gpus.get(gpu_id).rates
    if rates is None:
        assert gpus.get(gpu_id).no_rates == values["no_rates"]
        return
    assert rates.source
    assert rates.fp32_flops < rates.flops
    # A bus to the CPU of 16 lanes, PCI Express 3 to 5; no GPU sends more to it than to others.
    assert rates.host_bytes in (16 * 10**9, 32 * 10**9, 64 * 10**9)
    assert rates.host_bytes <= rates.link_bytes


def test_the_file_is_read_as_tomllib_reads_it() -> None:
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    assert list(document) == list(gpus.gpus())
    for gpu_id, values in document.items():
        gpu = gpus.get(gpu_id)
        assert (gpu.name, gpu.memory_bytes, gpu.source) == (
            values["name"],
            values["memory_bytes"],
            values["source"],
        )
        usable = values.get("usable")
        assert gpu.usable_bytes == (gpus._bytes(usable) if usable else None)


@pytest.mark.parametrize(
    ("given", "meant"), [("h100", "h100-80gb"), ("80GB", "80gb"), ("a100-80", "a100-80gb")]
)
def test_an_unknown_gpu_is_told_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        gpus.get(given)
    assert (caught.value.field, caught.value.value) == ("gpu", given)
    assert caught.value.allowed == "allowed: " + ", ".join(gpus.gpus())
    assert caught.value.suggestion == meant


@pytest.mark.parametrize("given", [None, 8, "zzz", []])
def test_what_is_no_name_at_all(given: object) -> None:
    with pytest.raises(InputError) as caught:
        gpus.get(given)
    assert caught.value.suggestion is None
