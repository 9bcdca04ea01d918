"""The wheel: the same bytes from the same source, the calculator whole and nothing else."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

import wheel
from places import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return wheel.make_wheel(tmp_path_factory.mktemp("wheel"))


def test_a_copy_elsewhere_gives_the_same_bytes(built, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "calculator", copy / "calculator")
    # Another machine's files have other times and rights, and its tools leave things behind.
    for file in copy.rglob("*.py"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
        file.chmod(0o600)
    left = copy / "calculator" / "training_memory" / "__pycache__"
    left.mkdir(exist_ok=True)
    (left / "left.cpython-313.pyc").write_bytes(b"x")
    monkeypatch.setattr(wheel, "ROOT", copy)
    again = wheel.make_wheel(tmp_path / "again")
    assert again.name == built.name
    assert again.read_bytes() == built.read_bytes()


def test_it_holds_the_package_with_its_data_and_nothing_else(built):
    packed = set(zipfile.ZipFile(built).namelist())
    package = ROOT / "calculator" / "training_memory"
    source = {
        file.relative_to(package.parent).as_posix()
        for pattern in ("*.py", "*.toml", "py.typed")
        for file in package.rglob(pattern)
    }
    assert "training_memory/models.toml" in source
    others = {name for name in packed if not name.startswith("training_memory/")}
    assert packed - others == source
    assert all(".dist-info/" in name for name in others)


def test_it_needs_nothing_and_brings_the_command(built):
    archive = zipfile.ZipFile(built)
    (info,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = archive.read(info).decode()
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    extras = {"pyyaml>=6; extra == 'yaml'", "torch>=2.6; extra == 'torch'"}
    assert {line.removeprefix("Requires-Dist: ") for line in required} == extras
    assert "Requires-Python: >=3.11" in metadata
    entry_points = archive.read(info.replace("METADATA", "entry_points.txt")).decode()
    assert "training-memory = training_memory.cli:main" in entry_points


def test_unpacked_alone_it_answers(built, tmp_path):
    zipfile.ZipFile(built).extractall(tmp_path)
    question = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from training_memory import Run, estimate\n"
        "print(estimate(Run.from_json({})).worst.peak_bytes)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", question], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 199_539_351_552


def test_a_failure_says_what_the_builder_said(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[project\n")
    monkeypatch.setattr(wheel, "ROOT", tmp_path)
    with pytest.raises(RuntimeError, match=r"could not be built:\n(.|\n)*end of a table"):
        wheel.make_wheel(tmp_path / "wheel")
