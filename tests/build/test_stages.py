"""A stage of the build runs when something it reads has changed, and only then."""

import re
from pathlib import Path

import pytest

from stages import Stages, code_of, files_under, fingerprint


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "b.txt").write_text("b")
    return folder


class Build:
    """One stage over a folder, made anew for every run as a new process would."""

    def __init__(self, tmp_path: Path, source: Path) -> None:
        self.record = tmp_path / "cache" / "stages.json"
        self.made = tmp_path / "made"
        self.source = source
        self.runs = 0
        self.said: list[str] = []

    def work(self):
        self.runs += 1
        self.made.write_text("made")

    def __call__(self, action=None, settings=()):
        return Stages(record=self.record, say=self.said.append).run(
            "stage", action or self.work, reads=[self.source], makes=[self.made], settings=settings
        )


@pytest.fixture
def build(tmp_path, source):
    return Build(tmp_path, source)


def test_nothing_changed_nothing_done(build):
    assert build()
    assert not build()
    assert build.runs == 1
    assert build.said[2:] == ["stage      unchanged"]


def test_a_stage_is_named_before_it_begins(build):
    begun = []
    build(lambda: begun.extend(build.said))
    assert begun == ["stage      …"]
    assert re.fullmatch(r"stage      [\d.]+ s", build.said[1])


def test_a_touched_file_is_not_a_changed_one(build, source):
    build()
    (source / "a.txt").touch()
    assert not build()


@pytest.mark.parametrize(
    "change",
    [
        lambda source: (source / "a.txt").write_text("A"),
        lambda source: (source / "new.txt").write_text("new"),
        lambda source: (source / "b.txt").unlink(),
        lambda source: (source / "a.txt").rename(source / "c.txt"),
        lambda source: (source / "a.txt").rename(source / "aa.txt"),
    ],
    ids=["changed", "added", "deleted", "renamed", "renamed in its place"],
)
def test_any_change_is_seen(build, source, change):
    build()
    change(source)
    assert build()
    assert not build()


def test_another_setting_is_a_change(build):
    assert build(settings=["one"])
    assert not build(settings=["one"])
    assert build(settings=["two"])


def test_a_missing_result_is_made_again(build):
    build()
    build.made.unlink()
    assert build()


def test_a_failure_is_not_remembered_as_done(build, source):
    build()
    (source / "a.txt").write_text("A")

    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        build(fail)
    (source / "a.txt").write_text("a")
    assert build(), "even back at the old contents: the failed attempt may have left half a result"


def test_a_spoilt_record_only_costs_a_build(build):
    build()
    build.record.write_text("{")
    assert build()


def test_what_tools_leave_behind_is_not_read(source):
    before = fingerprint([source])
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "a.pyc").write_text("x")
    assert fingerprint([source]) == before
    assert [file.name for file in files_under(source)] == ["a.txt", "b.txt"]


def test_a_modules_code_is_all_that_it_imports_from_beside_it(tmp_path):
    for name, text in {
        "first": "import os\nfrom second import thing\n",
        "second": "from pathlib import Path\n\n\ndef later():\n    import third.inner as _\n",
        "third": "import first",
        "other": "import first",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = code_of(tmp_path / "first.py")
    assert [file.stem for file in found] == ["first", "second", "third"]
