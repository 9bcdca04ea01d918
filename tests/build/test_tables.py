"""The committed tables are what the calculator says, and hold what is published."""

import csv

import pytest

import make_tables
from make_tables import CUT_LINES, check, files_of, main, strangers, write
from places import GENERATED
from table import Cell, Column, Table
from tables import TABLES


def rows(name):
    with (GENERATED / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


#: Made of hundreds of runs each.
LONG = ("accuracy-glance", "reserved", "sharded", "sharded-steps", "what-it-takes")


@pytest.mark.xdist_group("measured")  # many are made of the same predictions
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.thorough if name in LONG else ()) for name in TABLES],
)
def test_a_committed_table_is_what_the_calculator_says(name):
    for file, text in files_of(name).items():
        assert (GENERATED / file).read_text() == text, "run `make tables`"


def test_no_table_is_left_over():
    assert strangers() == []


@pytest.mark.parametrize(
    ("row", "peak", "shown"),
    [
        (0, 199_539_351_552, "13.5 13.5 53.9 27.0 104.2 0.8 199.5"),
        (1, 116_108_353_536, "13.5 13.5 53.9 27.0 18.3 0.8 116.1"),
        (2, 110_690_025_216, "13.5 13.5 53.9 27.0 1.1 0.8 110.7"),
        (3, 186_324_664_320, "27.0 27.0 53.9 0.0 104.2 0.8 186.3"),
    ],
)
def test_results_are_the_lessons_to_the_digit_shown(row, peak, shown):
    # How an LLM Is Actually Built, lesson 10, "memory": the results table.
    assert int(rows("results")[row]["peak_bytes"]) == peak
    line = (GENERATED / "results.md").read_text().splitlines()[row + 2]
    assert line.strip("| ").split(" | ")[1:] == shown.split()


def test_the_decoder_is_as_the_lesson_counts_it():
    (row,) = rows("decoder")
    assert row["parameters"] == "5376"
    assert row["states_bytes"] == "86016"
    assert row["peak_bytes"] == "286208"


def test_a_parameter_costs_sixteen_bytes():
    # ZeRO, section 3.1: 2 + 2 + 12.
    *states, total = rows("bytes-per-parameter")
    assert [int(row["bytes"]) for row in states] == [2, 2, 4, 4, 4]
    assert int(total["bytes"]) == 16


def test_components_add_up_to_llama_7b():
    # What transformers builds from the published configuration.
    *components, total = rows("llama-7b-parameters")
    assert sum(int(row["parameters"]) for row in components) == int(total["parameters"])
    assert int(total["parameters"]) == 6_738_415_616


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A folder with tables that are quickly made."""
    some = {name: TABLES[name] for name in ("decoder", "measured-rows", "results")}
    monkeypatch.setattr(make_tables, "TABLES", some)
    assert sorted(write(tmp_path)) == [f"{name}.{kind}" for name in some for kind in ("csv", "md")]
    return tmp_path


def test_writing_twice_changes_nothing(written):
    assert write(written) == []
    assert check(written) == ""


def test_a_changed_number_is_shown_with_the_command_that_mends_it(written, capsys):
    file = written / "results.md"
    file.write_text(file.read_text().replace("199.5", "199.6"))
    assert main(["--check", "--into", str(written)]) == 1
    said = capsys.readouterr().err
    assert "-| mixed-precision Adam, no recomputation |" in said
    assert "199.6" in said
    assert "199.5" in said
    assert "`make tables`" in said
    assert main(["--into", str(written)]) == 0
    assert capsys.readouterr().out == "wrote results.md\n"
    assert main(["--check", "--into", str(written)]) == 0


def test_a_missing_and_a_left_over_table_are_found(written):
    (written / "decoder.csv").unlink()
    (written / "old.md").write_text("| old |")
    wrong = check(written)
    assert "+5376," in wrong
    assert "old.md: no table makes this file" in wrong
    assert sorted(write(written)) == ["decoder.csv", "old.md"]
    assert not (written / "old.md").exists()


def test_a_long_difference_is_cut(written):
    (written / "measured-rows.csv").unlink()
    wrong = check(written)
    assert len(wrong.splitlines()) == CUT_LINES + 3
    assert "more lines" in wrong


def test_markdown_shows_and_csv_holds():
    table = Table(
        columns=(
            Column(heading="Name", name="name", right=False),
            Column(heading="Size", name="size_bytes"),
        ),
        rows=((Cell("a|b"), Cell(1500, "1.5 kB")), (Cell("c, d"), Cell(2))),
    )
    assert table.markdown() == "| Name | Size |\n| :-- | --: |\n| a\\|b | 1.5 kB |\n| c, d | 2 |\n"
    assert table.csv() == 'name,size_bytes\na|b,1500\n"c, d",2\n'


def test_a_short_row_is_refused():
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        Table(columns=(Column(heading="A", name="a"), Column(heading="B", name="b")),
              rows=((Cell(1),),))  # fmt: skip
