"""What of the calculator's wheel a page gets."""

import io
import subprocess
import sys
import zipfile

import pytest

import files_package
from page_package import NOT_IN, packed, stays
from places import PACKAGE
from zipped import zipped


@pytest.fixture(scope="module")
def wheel():
    """A wheel's files, as the builder lays them out."""
    files = {
        str(path.relative_to(PACKAGE.parent)): path.read_bytes()
        for path in sorted(PACKAGE.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    about = {"training_memory-0.1.0.dist-info/" + name: b"" for name in ("METADATA", "RECORD")}
    return zipped({**files, **about})


def test_the_same_wheel_is_the_same_bytes(wheel):
    assert packed(wheel) == packed(wheel)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("training_memory/web.py", True),
        ("training_memory/models.toml", True),
        ("training_memory/render/form.py", True),
        ("training_memory/cli.py", False),
        ("training_memory/verify/plan.py", False),
        ("training_memory-0.1.0.dist-info/METADATA", True),
        ("training_memory-0.1.0.dist-info/licenses/LICENSE", True),
        ("training_memory-0.1.0.dist-info/RECORD", False),
    ],
)
def test_which_files_stay(path, kept):
    assert stays(path) is kept


def test_what_is_left_out_is_there_to_leave_out(wheel):
    names = zipfile.ZipFile(io.BytesIO(wheel)).namelist()
    left = {name for name in names if not stays(name)}
    for beginning in NOT_IN:
        path = "training_memory/" + beginning.replace(".", "/")
        assert any(name.startswith(path) for name in left), beginning


def test_the_readers_travel_once(wheel):
    assert not set(zipfile.ZipFile(io.BytesIO(packed(wheel))).namelist()) & set(
        files_package.contents()
    )


def test_every_door_of_the_page_opens_without_what_is_left_out(wheel, tmp_path):
    zipfile.ZipFile(io.BytesIO(packed(wheel))).extractall(tmp_path)
    # Whatever is imported late is imported here as well.
    opening = (
        "import importlib, pkgutil, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import training_memory\n"
        "for one in pkgutil.walk_packages(training_memory.__path__, 'training_memory.'):\n"
        "    importlib.import_module(one.name)\n"
        "from training_memory import web\n"
        'print(web.answer(\'{"state": "", "set": {}}\')[:11])\n'
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", opening], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
