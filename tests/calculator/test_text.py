"""What a terminal is shown: bar, table, derivation, way to the peak; in any width and encoding."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from strategies import requests, trees
from training_memory import Run, estimate
from training_memory.ascent import ascent
from training_memory.blocks import paper
from training_memory.categories import CATEGORIES
from training_memory.render.answer import layout_words
from training_memory.render.explain import explain
from training_memory.render.table import columns, fitting, wrapped
from training_memory.render.terminal import GLYPHS, LETTERS, Terminal
from training_memory.render.text import text
from training_memory.render.text_bar import apportioned
from training_memory.units import show_bytes
from training_memory.walk import walk

WIDTHS = (48, 60, 80, 120, 160)
SPLIT = {"data": 64, "zero": 2, "tensor": 8, "pipeline": 4, "micro_batches": 8}


def asked(**request):
    return estimate(Run.from_json(request))


def bar_of(shown: str) -> str:
    """The one line that is all glyphs."""
    glyphs = set(GLYPHS.values())
    (line,) = (
        line for line in shown.splitlines() if line.strip() and not set(line.strip()) - glyphs
    )
    return line


# --- the bar ---------------------------------------------------------------------------------


def test_glyphs_and_letters_tell_all_categories_apart():
    for signs in (GLYPHS, LETTERS):
        assert list(signs) == list(CATEGORIES)
        assert len(set(signs.values())) == len(CATEGORIES)
        assert all(len(sign) == 1 for sign in signs.values())


@given(sizes=st.lists(st.integers(1, 10**15), min_size=1, max_size=7), more=st.integers(0, 150))
def test_cells_sum_to_the_length_and_none_is_left_out(sizes, more):
    length = len(sizes) + more
    cells = apportioned(sizes, length)
    assert sum(cells) == length
    assert min(cells) >= 1
    for size, cell in zip(sizes, cells, strict=True):
        exact = size * length / sum(sizes)
        # Off by less than a cell, but for the cells that the smallest need to be seen at all.
        assert -1 < cell - max(exact, 1) + len(sizes) < len(sizes) + 1


@pytest.mark.parametrize("width", WIDTHS)
def test_the_bar_is_as_wide_as_there_is_room_and_in_proportion(width):
    on = asked().worst
    bar = bar_of(text(asked(), Terminal(width=width)))
    assert len(bar) == width - 2
    held = [category for category in CATEGORIES if on.totals[category]]
    assert re.sub(r"(.)\1*", r"\1", bar.strip()) == "".join(GLYPHS[category] for category in held)
    together = sum(on.totals.values())
    for category in held:
        cells = bar.count(GLYPHS[category])
        assert abs(cells - on.totals[category] / together * (width - 4)) <= 1


@pytest.mark.parametrize("width", WIDTHS)
def test_the_peak_and_the_capacity_stand_where_they_belong(width):
    answer = asked()
    lines = text(answer, Terminal(width=width)).splitlines()
    marks = lines[lines.index(bar_of("\n".join(lines))) + 1]
    together = sum(answer.worst.totals.values())
    for sign, size in (("┆", answer.worst.peak_bytes), ("┃", 80 * 10**9)):
        # The mark stands under the last cell before its place; two columns are margin.
        assert abs(marks.index(sign) - 2 + 1 - size / together * (width - 4)) <= 0.5
    assert any("peak 199.5 GB" in line for line in lines)
    assert any(line.strip(" ┃└┘┆") == "80 GB GPU" for line in lines)


def test_a_run_that_fits_leaves_the_bar_short_of_the_capacity():
    shown = text(asked(model="gpt2-xl", sequence=1024), Terminal(width=80))
    bar = bar_of(shown)
    together = sum(asked(model="gpt2-xl", sequence=1024).worst.totals.values())
    assert abs(len(bar) - 2 - 76 * together / (80 * 10**9)) <= 1
    assert shown.splitlines()[shown.splitlines().index(bar) + 1].index("┃") == 77


def test_a_capacity_far_beyond_is_told_and_not_drawn():
    shown = text(asked(model="decoder", sequence=8, micro_batch=16), Terminal(width=80))
    assert len(bar_of(shown)) == 78
    assert "┃" not in shown
    assert "80 GB GPU: 80.0 GB, 271,267 times the length of this bar" in shown


def test_every_category_of_the_bar_is_named_over_it():
    lines = text(asked(recompute="full"), Terminal(width=100)).splitlines()
    labels = lines[lines.index(bar_of("\n".join(lines))) - 1]
    for category in ("A", "R", "L", "Weights", "Adam state 53.9 GB", "Master copy 27.0 GB"):
        assert category in labels or LETTERS[CATEGORIES[0]] in labels
    assert labels.split()[-3:] == ["A", "R", "L"]


# --- the table and the facts -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_json", "rows"),
    [
        (
            {},
            [
                *("Weights 13.5 13.5", "Gradients 13.5 0.3", "Adam state 53.9 53.9"),
                *("Master copy 27.0 27.0", "Activations 104.2 104.2", "Logits 0.8 0.8"),
                "Together 212.8 199.5",
            ],
        ),
        (
            {"recompute": "full"},
            ["Activations 1.1 0.0", "Recomputed layer 3.3 3.3", "Together 112.9 110.7"],
        ),
        ({"recipe": "fp32-adam"}, ["Weights 27.0 27.0", "Together 212.8 186.3"]),
    ],
)
def test_the_table_has_each_category_at_its_largest_and_at_the_peak(request_json, rows):
    shown = " ".join(text(asked(**request_json), Terminal(width=80)).split())
    for row in rows:
        assert f" {row} " in shown


def test_a_category_that_there_is_none_of_has_no_row():
    shown = text(asked(recipe="fp32-adam"), Terminal(width=80))
    assert "Master copy" not in shown
    assert "Recomputed" not in shown


def test_a_small_run_is_told_in_units_that_show_its_parts():
    shown = text(asked(model="decoder", sequence=8, micro_batch=16), Terminal(width=80))
    assert "in kB" in shown
    assert re.search(r"Logits +49\.2 +49\.2 +17%", shown)


def test_room_and_shortage_are_told():
    assert "80 GB GPU: short by 119.5 GB" in text(asked(), Terminal())
    shown = text(asked(model="gpt2", sequence=1024), Terminal())
    assert re.search(r"GPU +80 GB GPU: 7\d\.\d GB left", shown)
    assert "GPU  " not in text(asked(gpu=None), Terminal())


def test_what_is_left_out_is_listed():
    answer = asked(data=8, zero=3)
    shown = " ".join(text(answer, Terminal()).split())
    for sentence in answer.omitted:
        assert f"- {sentence}" in shown


# --- any width, any encoding -----------------------------------------------------------------


@limits(max_examples=30)
@given(request=requests(), width=st.sampled_from(WIDTHS), unicode=st.booleans())
def test_no_line_is_wider_than_the_terminal(request, width, unicode):
    answer = asked(**request)
    terminal = Terminal(width=width, unicode=unicode)
    for made in (text, explain):
        shown = terminal.shown(made(answer, terminal))
        assert max(len(line) for line in shown.splitlines()) <= width
        assert shown.endswith("\n")
        assert not re.search(r"[ \t]\n", shown)


@pytest.mark.parametrize("made", [text, explain])
@pytest.mark.parametrize("request_json", [{}, SPLIT, {"recompute": "selective"}])
def test_where_there_is_no_unicode_all_is_ascii(made, request_json):
    terminal = Terminal(width=60, unicode=False)
    shown = terminal.shown(made(asked(**request_json), terminal))
    assert shown.isascii()
    if made is text:
        assert re.search(r"^  W+G+S+M+(A+|A+R+)L*$", shown, re.MULTILINE)
        assert "peak" in shown


def test_colour_is_an_addition():
    for made in (text, explain):
        plain = made(asked(**SPLIT), Terminal(width=80))
        coloured = made(asked(**SPLIT), Terminal(width=80, colour=True))
        assert "\x1b" not in plain
        assert coloured.count("\x1b[38;5;") >= 5
        assert re.sub(r"\x1b\[[\d;]+m", "", coloured) == plain


class _Stream(io.TextIOWrapper):
    def __init__(self, encoding: str, *, tty: bool) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize(
    ("encoding", "tty", "environment", "expected"),
    [
        ("utf-8", True, {}, Terminal(width=80, unicode=True, colour=True)),
        ("utf-8", False, {}, Terminal(width=80, unicode=True, colour=False)),
        ("utf-8", True, {"NO_COLOR": "1"}, Terminal(width=80, unicode=True, colour=False)),
        ("utf-8", True, {"NO_COLOR": ""}, Terminal(width=80, unicode=True, colour=True)),
        ("utf-8", True, {"TERM": "dumb"}, Terminal(width=80, unicode=True, colour=False)),
        ("utf-8", False, {"COLUMNS": "60"}, Terminal(width=60, unicode=True, colour=False)),
        ("utf-8", False, {"COLUMNS": "9"}, Terminal(width=48, unicode=True, colour=False)),
        ("utf-8", False, {"COLUMNS": "999"}, Terminal(width=160, unicode=True, colour=False)),
        ("utf-8", False, {"COLUMNS": "wide"}, Terminal(width=80, unicode=True, colour=False)),
        ("utf-8", False, {"COLUMNS": "0"}, Terminal(width=80, unicode=True, colour=False)),
        ("ascii", False, {}, Terminal(width=80, unicode=False, colour=False)),
        ("latin-1", False, {}, Terminal(width=80, unicode=False, colour=False)),
        ("cp1252", False, {}, Terminal(width=80, unicode=False, colour=False)),
        ("utf-16", False, {}, Terminal(width=80, unicode=True, colour=False)),
    ],
)
def test_a_terminal_is_taken_for_what_it_is(encoding, tty, environment, expected):
    assert Terminal.of(_Stream(encoding, tty=tty), environment) == expected


# --- the derivation --------------------------------------------------------------------------


def test_every_row_is_explained_with_its_numbers_and_its_source():
    shown = " ".join(explain(asked(), Terminal(width=80)).split())
    for row in paper.LAYER.rows:
        size = row.bytes.evaluate({"s": 4096, "b": 1, "h": 4096, "a": 32})
        symbols = row.bytes.text()
        numbers = row.bytes.text(values={"s": 4096, "b": 1, "h": 4096, "a": 32})
        assert f" {row.name}: {symbols} = {numbers} = {size:,} bytes " in shown
        assert f"{row.why} [{row.where}]" in shown
    for formula in (
        "L·s·b·h·(34 + 5·a·s/h)",
        "= 32 × 4,096 × 1 × 4,096 × (34 + 5 × 32 × 4,096 / 4,096)",
        "= 104,152,956,928 bytes",
        "sum of the rows: 3,254,779,904 bytes, held 32 times: 104,152,956,928 bytes",
        "8·N = 8 × 6,738,415,616 = 53,907,324,928 bytes",
        "6·s·b·V = 6 × 4,096 × 1 × 32,000 = 786,432,000 bytes",
        "The largest of every category would come to 212.8 GB; 13.2 GB of that are held at other",
    ):
        assert formula in shown


def test_the_way_to_the_peak_is_told_in_order():
    shown = explain(asked(recompute="full"), Terminal(width=100))
    told = [line.strip() for line in shown.partition("The way to the peak:")[2].splitlines()]
    legs = [line.split("  ")[0] for line in told if line][1:9]
    assert legs[:7] == [
        "before the step",
        "forward, layers 1 to 32",
        "the logits",
        "the head's gradient is written",
        "the logits are freed",
        "backward, layers 32 to 2",
        "layer 1 makes first layer norm's input again",
    ]


def test_what_is_held_at_the_peak_adds_up():
    answer = asked(recompute="selective", micro_batches=3)
    shown = explain(answer, Terminal(width=80)).partition("Held at the peak")[2]
    sizes = [int(size.replace(",", "")) for size in re.findall(r"([\d,]+) bytes", shown)]
    assert sum(sizes[:-1]) == sizes[-1] == answer.worst.peak_bytes


@given(tree=trees)
def test_the_way_up_ends_at_the_peak_of_any_tree(tree):
    legs = ascent(tree)
    segment = walk(tree)
    assert bool(legs) == (segment.at is not None)
    total = 0
    for leg in legs:
        total += leg.change_bytes
        assert leg.total_bytes == total
    assert total == segment.peak


@limits(max_examples=50)
@given(request=requests())
def test_the_way_up_of_any_run_is_short_and_ends_at_its_peak(request):
    for rank in asked(**request).ranks:
        legs = ascent(rank.tree)
        assert legs[-1].total_bytes == rank.peak_bytes
        assert len(legs) <= 60
        assert all("{" not in leg.label for leg in legs)


def test_a_stage_of_several_parts_tells_its_micro_batches_together():
    run = {"model": "llama-3.1-405b", "sequence": 1, "micro_batches": 12, "pipeline": 6}
    answer = asked(**run, schedule="interleaved", interleave=3)
    labels = [leg.label for rank in answer.ranks for leg in ascent(rank.tree)]
    assert "forward, layers 1 to 7 of micro-batches 1 to 6" in labels
    both = (
        "forward, layers 36 to 42 of micro-batches 7 to 12 and "
        "backward, layers 84 to 78 of micro-batches 1 to 6, in turn"
    )
    assert both in labels


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ({"zero": 1}, "8 data-parallel with ZeRO-1"),
        ({"implementation": "megatron"}, "8 data-parallel with DDP"),
        ({"implementation": "megatron", "zero": 1}, "with the distributed optimizer"),
        ({"implementation": "nanotron", "zero": 1}, "8 data-parallel with ZeRO-1"),
        ({"implementation": "torchtitan"}, "8 data-parallel with FSDP2"),
        (
            {"implementation": "huggingface", "sharding": "deepspeed", "zero": 2},
            "8 data-parallel with DeepSpeed's ZeRO-2",
        ),
    ],
)
def test_a_split_names_how_replicas_share_the_states(way, said):
    assert said in layout_words(Run.from_json({"model": "llama-2-7b", "data": 8, **way}))


# --- columns and paragraphs ------------------------------------------------------------------


def test_columns_line_up():
    rows = [["a", "1"], ["bbb", "1,000"], ["alone"]]
    assert columns(rows, "<>") == ["a          1", "bbb    1,000", "alone"]
    assert columns([], "<>") == []


def test_columns_are_left_out_in_order_until_they_fit():
    rows = [["id", "name", "size"], ["a", "a long name", "1"]]
    assert fitting(rows, "<<>", 30, spare=(1, 2))[1] == "a   a long name     1"
    assert fitting(rows, "<<>", 10, spare=(1, 2)) == ["id  size", "a      1"]
    assert fitting(rows, "<<>", 3, spare=(1, 2)) == ["id", "a"]


@given(st.text(alphabet="ab ", max_size=60), st.integers(10, 30))
def test_paragraphs_keep_their_words_within_the_width(prose, width):
    lines = wrapped(prose, width, first="- ")
    assert " ".join(lines).replace("- ", "", 1).split() == prose.split()
    assert lines[0].startswith("- ")
    longest = max(map(len, prose.split()), default=0)
    assert all(len(line) <= max(width, longest + 2) for line in lines)


def test_sizes_over_the_bar_are_those_of_the_answer():
    answer = asked()
    shown = text(answer, Terminal(width=160))
    for category in CATEGORIES:
        if category.value in ("optimizer", "activations"):
            size = show_bytes(answer.worst.totals[category])
            assert f"{category.heading} {size}" in shown


def test_zero_with_nobody_to_share_with_is_said() -> None:
    said = "What ZeRO-3 spares: one replica has no other to share with"
    alone = estimate(Run.from_json({"model": "llama-7b", "zero": 3}))
    assert alone.omitted[0].startswith(said)
    shared = estimate(Run.from_json({"model": "llama-7b", "zero": 3, "data": 8}))
    assert not any(sentence.startswith(said) for sentence in shared.omitted)
