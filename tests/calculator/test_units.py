"""Units: bytes as people read them, counts as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_memory.errors import InputError, nearest
from training_memory.units import gb, gib, parse_count, percent, ratio, show_bytes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"),
        (49_999_999, "0.0"),
        (50_000_000, "0.1"),
        (199_539_351_552, "199.5"),
        (1_234_567_890_123, "1,234.6"),
        (-2_000_000_000, "-2.0"),
    ],
)
def test_gb(value, text):
    assert gb(value) == text


@pytest.mark.parametrize(
    ("value", "decimal", "binary"),
    [
        (96, "96 B", "96 B"),
        (999, "999 B", "999 B"),
        (286_208, "286.2 kB", "279.5 KiB"),
        (10**9, "1.0 GB", "953.7 MiB"),
        (2**30, "1.1 GB", "1.0 GiB"),
        (7_900_000_000_000, "7.9 TB", "7.2 TiB"),
    ],
)
def test_show_bytes(value, decimal, binary):
    assert show_bytes(value) == decimal
    assert show_bytes(value, binary=True) == binary


def test_gib_is_not_gb():
    assert gib(2**30) == "1.0"
    assert gb(2**30, 3) == "1.074"


def test_ratio_and_percent():
    assert ratio(199_539_351_552, 80 * 10**9) == "2.5"
    assert percent(80, 114) == "70"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("4,096", 4096),
        ("1 234 567", 1_234_567),
        ("4k", 4096),
        ("128K", 131_072),
        ("1M", 1_048_576),
        (" 8 ", 8),
        (16.0, 16),
    ],
)
def test_counts_as_people_write_them(text, number):
    assert parse_count("sequence", text) == number


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "-1",
        "0",
        0,
        -4,
        "4.5",
        4.5,
        "four",
        "4kk",
        "1,23",
        None,
        True,
        [],
        "9" * 400,
        2**40,
    ],
)
def test_what_is_no_count_names_its_field(value):
    with pytest.raises(InputError) as caught:
        parse_count("micro_batch", value, most=2**30)
    assert caught.value.field == "micro_batch"
    assert "micro_batch" in caught.value.message
    assert "whole number" in caught.value.allowed


@given(st.integers(1, 10**17))
def test_counts_are_read_back_as_shown(number):
    assert parse_count("layers", f"{number:,}") == number


@pytest.mark.parametrize(
    ("given", "meant"), [("h1oo", "h100-80gb"), ("H100", "h100-80gb"), ("h", None), ("zzz", None)]
)
def test_the_beginning_of_a_long_name_is_near_it(given, meant):
    assert nearest(given, ["a100-80gb", "h100-80gb", "t4-16gb"]) == meant
