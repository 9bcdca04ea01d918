"""The Decoder's tables and pictures: counted, added up, drawn, and the same from every side."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import pytest
from markdown import markdown  # type: ignore[import-untyped]  # it has none

import decoder_page
import decoder_run
import decoder_tables
from content import ContentError
from decoder import Cause, Checked, Decoder, Moment, train
from decoder_curve import loss_curve, tape_curve
from places import GENERATED
from runtime import manifest
from table import Cell, Column, Table
from tables import TABLES

NAMES = [name for name in TABLES if name.startswith("decoder-")]


def rows(name):
    with (GENERATED / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_count_and_the_formula_are_the_lessons():
    # How an LLM Is Actually Built, lesson 10, "memory": 2,320 beside 2,496.
    counted, read, formula, difference = rows("decoder-kept")
    assert (counted["values"], counted["bytes"]) == ("2320", "4640")
    assert (read["values"], read["bytes"]) == ("1680", "3360")
    assert (formula["values"], formula["bytes"]) == ("2496", "4992")
    assert (difference["values"], difference["bytes"]) == ("-176", "-352")
    assert "34 + 5" in formula["ledger"]


def test_a_formula_that_its_rows_do_not_add_up_to_is_refused():
    count, comparison = decoder_run.counted()
    pairs = (replace(comparison.pairs[0], textbook_values=129), *comparison.pairs[1:])
    with pytest.raises(ValueError, match="do not add up to the formula"):
        decoder_tables.kept(count, replace(comparison, pairs=pairs))


def test_every_row_of_the_comparison_subtracts_and_adds_up():
    *lines, total = rows("decoder-rows")
    for line in (*lines, total):
        difference = int(line["trainer_values"]) - int(line["formula_values"])
        assert difference == int(line["difference"]), line
    for column in ("trainer_values", "formula_values", "difference"):
        assert sum(int(line[column]) for line in lines) == int(total[column])
    assert all(line["reason"].endswith(".") for line in lines)


def test_the_causes_say_both_sides_and_leave_the_net():
    # The formula alone has an FFN of 4h and dropout; the tape alone has norms and what is not read.
    *causes, total = rows("decoder-causes")
    assert [int(line["difference"]) for line in causes] == [-512, -320, 272, 384]
    assert int(total["difference"]) == -512 - 320 + 272 + 384
    named = [name for line in causes for name in line["rows"].split(", ")]
    differing = [line for line in rows("decoder-rows")[:-1] if int(line["difference"])]
    assert sorted(named) == sorted(line["trainer"] or line["formula"] for line in differing)


def test_what_the_tape_keeps_adds_up_to_what_is_counted():
    *lines, total = rows("decoder-tape")
    assert len({line["value"] for line in lines}) == len(lines) == 18
    assert sum(int(line["values"]) for line in lines) == int(total["values"]) == 2320
    assert sum(int(line["values"]) for line in lines if line["read"] == "yes") == 1680


def test_every_tensors_gradient_is_checked():
    lines = rows("decoder-gradients")
    assert [line["tensor"] for line in lines] == list(Decoder().parameters)
    assert {line["error_bound"] for line in lines} == {"<1e-9"}
    assert {line["direction_error_bound"] for line in lines} == {"<1e-9"}


def test_the_committed_losses_are_a_runs_and_fall():
    losses = [line["loss_nats"] for line in rows("decoder-loss")]
    assert losses[:3] == [decoder_tables.loss_text(loss) for loss in train(3)]
    assert all(re.fullmatch(r"\d\.\d{3}", loss) for loss in losses)
    found = [float(loss) for loss in losses]
    assert len(found) == decoder_run.STEPS
    assert sum(found[-10:]) / 10 < found[0] - 2


@pytest.mark.parametrize(
    ("error", "exponent"),
    [
        (0.0, -9),
        (1e-15, -9),
        (5e-11, -9),
        (9.9e-10, -9),
        (2e-9, -6),
        (1e-6, -3),
        (0.002, 0),
        (20.0, 3),
    ],
)
def test_an_error_is_told_as_a_bound_in_thousands(error, exponent):
    assert decoder_tables.bound(error) == exponent
    assert error < 10.0**exponent
    one = Checked(
        tensor="x",
        shape=(2, 3),
        values=6,
        elements=1,
        max_relative_error=error,
        direction_relative_error=0.0,
    )
    ((_, shape, elements, bound, _),) = decoder_tables.gradients([one]).rows
    assert (shape.value, elements.value, bound.value) == ("2 × 3", "1 of 6", f"<1e{exponent}")
    assert bound.shown == f"below {decoder_tables.power(exponent)}"


def test_powers_are_printed():
    assert [decoder_tables.power(one) for one in (-9, -6, 0, 12)] == ["10⁻⁹", "10⁻⁶", "10⁰", "10¹²"]


@pytest.mark.parametrize("name", NAMES)
def test_a_pages_own_python_makes_the_table_that_markdown_makes(name):
    table = TABLES[name]()
    options = {"tables": {"use_align_attribute": True}}
    by_markdown = markdown(table.markdown(), extensions=["tables"], extension_configs=options)
    assert table.html() == re.sub(r"\n", "", by_markdown)


def test_a_cells_text_is_text():
    columns = (Column(heading="a < b", name="a"),)
    html = Table(columns=columns, rows=((Cell("<b> & **c**"),),)).html()
    assert '<td align="right">&lt;b&gt; &amp; <strong>c</strong></td>' in html


class TestWhatTakesAWhileIsKept:
    @pytest.fixture
    def runs(self, monkeypatch):
        """Stand in for the trainer, and count how often it is asked."""
        runs = []

        def trained(steps, *, seed):
            runs.append(steps)
            return [4.25, 4.125]

        def checked(*, elements, seed):
            return [
                Checked(
                    tensor="x",
                    shape=(2,),
                    values=2,
                    elements=2,
                    max_relative_error=1e-12,
                    direction_relative_error=3e-11,
                )
            ]

        monkeypatch.setattr(decoder_run, "train", trained)
        monkeypatch.setattr(decoder_run, "gradient_check", checked)
        return runs

    @staticmethod
    def again(folder):
        decoder_run.trained.cache_clear()
        return decoder_run.trained(folder)

    @pytest.fixture(autouse=True)
    def clean(self):
        yield
        decoder_run.trained.cache_clear()

    def test_the_same_sources_are_not_run_twice(self, runs, tmp_path):
        first = self.again(tmp_path / "new")
        assert self.again(tmp_path / "new") == first
        assert first.losses == (4.25, 4.125)
        assert first.gradients[0].shape == (2,)
        assert runs == [decoder_run.STEPS]

    @pytest.mark.parametrize("changed", ["sources", "settings"])
    def test_others_are(self, changed, runs, tmp_path, monkeypatch):
        self.again(tmp_path)
        if changed == "sources":
            monkeypatch.setattr(decoder_run, "fingerprint", lambda: "another")
        else:
            monkeypatch.setattr(decoder_run, "ELEMENTS", 9)
        self.again(tmp_path)
        assert len(runs) == 2

    @pytest.mark.parametrize("left", ["", "{", "[]", "{}", '{"settings": 1}'])
    def test_a_file_that_cannot_be_used_is_replaced(self, left, runs, tmp_path):
        (tmp_path / "trained.json").write_text(left)
        self.again(tmp_path)
        self.again(tmp_path)
        assert len(runs) == 1

    def test_the_fingerprint_is_the_sources(self, tmp_path, monkeypatch):
        import decoder_package

        before = decoder_package.fingerprint()
        sources = decoder_package.trainer()
        name = next(iter(sources))
        changed = sources | {name: sources[name] + b"#"}
        monkeypatch.setattr(decoder_package, "trainer", lambda: changed)
        assert decoder_package.fingerprint() != before


def test_the_prose_has_both_sides_of_the_difference():
    found = decoder_page.decoder_numbers()
    assert (found.counted, found.formula, found.read) == (2320, 2496, 1680)
    assert (found.narrow + found.dropout, found.norms + found.produced) == (832, 656)
    assert found.counted + 832 - 656 == found.formula
    assert found.parameters * found.states * 4 == 86_016
    assert found.fullest == 16 * (2 * 2320 + 128 + 512 + 512)
    assert (found.steps, found.guess, found.first_loss) == (decoder_run.STEPS, "4.16", "4.33")


@pytest.mark.parametrize("name", ["losses", "tape"])
def test_a_figure_is_whole_and_says_what_it_shows(name):
    html = decoder_page.decoder_figure(name)
    figure = ElementTree.fromstring(html)
    ids = {element.get("id") for element in figure.iter() if element.get("id")}
    (drawing, _) = figure
    assert set(str(drawing.get("aria-labelledby")).split()) <= ids
    assert "style=" not in html
    assert "\n" not in html


def test_there_is_no_other_figure():
    with pytest.raises(ValueError, match="no figure 'x'"):
        decoder_page.decoder_figure("x")


def points(drawing, css):
    (line,) = re.findall(rf'<polyline class="{css}" points="([^"]*)"/>', drawing) or [""]
    numbers = list(map(int, line.split()))
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_a_curve_grows_with_the_run_over_what_it_is_compared_with():
    drawing = loss_curve([4.8, 2.4], steps=4, prefix="x", beside=[2.4] * 100)
    assert points(drawing, "curve-loss") == [(2500, 0), (5000, 500)]
    assert points(drawing, "curve-beside") == [(x, 500) for x in (2500, 5000, 7500, 10000)]
    assert "broad and pale" in drawing
    assert "After 2 steps: the first loss is 4.80" in drawing
    # One step is a dot, no step is nothing, and what is off the axis stays on its edge.
    assert points(loss_curve([9.0], steps=1, prefix="x"), "curve-loss") == [(10000, 0)] * 2
    nothing = loss_curve([], steps=5, prefix="x")
    assert "polyline" not in nothing
    assert "No step has run yet." in nothing


def test_the_tapes_edge_is_what_it_held():
    timeline = [
        Moment(action="keep", name="block 1/a", values=10),
        Moment(action="keep", name="head/b", values=40),
        Moment(action="free", name="head/b", values=10),
        Moment(action="free", name="block 1/a", values=0),
    ]
    drawing = tape_curve(timeline, prefix="x")
    assert 'd="M0 1000V750H2500V0H5000V750H7500V1000H10000V1000Z"' in drawing
    assert ">40 values</text>" in drawing
    parts = re.findall(r">(block 1|head)</text>", drawing)
    assert parts == ["block 1", "head", "block 1"]


@pytest.mark.site
def test_the_run_in_the_page_waits_and_knows_what_the_page_says(built_site):
    html = decoder_page.decoder_run()
    assert not re.search(r"\n\s*\n", html)
    assert "style=" not in html
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    data = {name: unescape(value) for name, value in re.findall(r' data-(\w+)="([^"]*)"', html)}
    page = json.loads(data["page"])
    assert (page["counted"], page["textbook"], page["seed"]) == (2320, 2496, 0)
    assert page["losses"] == [line["loss_nats"] for line in rows("decoder-loss")]
    # Its zip is a file of the site, and not among those that every start fetches.
    assert data["package"] == manifest()["apart"]["decoder"]["path"]
    assert (built_site / data["package"]).is_file()
    for files in json.loads(data["python"])["starts"].values():
        assert data["package"] not in files


@pytest.mark.parametrize("text", [None, "step,loss_nats\n"])
def test_a_table_that_is_not_there_stops_the_build(text, tmp_path):
    if text is not None:
        (tmp_path / "decoder-loss.csv").write_text(text)
    with pytest.raises(ContentError, match="`make tables` makes it"):
        decoder_page._losses(tmp_path)


def test_each_cause_has_its_name_in_the_prose():
    _, comparison = decoder_run.counted()
    assert set(comparison.by_cause) == set(Cause)
    assert comparison.by_cause[Cause.SAME] == 0
