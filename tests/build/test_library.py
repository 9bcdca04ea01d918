"""The standard library as the page gets it: fewer files, each of them as it was."""

import io
import sys
import zipfile

import pytest

from library import ENCODINGS, LEFT_OUT, stays, trimmed
from places import PYODIDE

LIBRARY = PYODIDE / "python_stdlib.zip"


@pytest.fixture(scope="module")
def whole():
    if not LIBRARY.is_file():
        pytest.fail("node_modules/ is missing; `make site` fills it")
    return LIBRARY.read_bytes()


@pytest.mark.site
def test_what_stays_is_as_it_was(whole):
    before, after = (zipfile.ZipFile(io.BytesIO(data)) for data in (whole, trimmed(whole)))
    assert after.namelist() == sorted(name for name in before.namelist() if stays(name))
    for name in after.namelist():
        assert after.read(name) == before.read(name), name


@pytest.mark.site
def test_a_third_is_left_out_and_the_same_bytes_are_made_again(whole):
    made = trimmed(whole)
    assert made == trimmed(whole)
    assert len(made) < 0.67 * len(whole)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("json/__init__.py", True),
        ("encodings/utf_8.py", True),
        ("encodings/", True),
        ("encodings/big5.py", False),
        ("unittest/mock.py", False),
        ("pdb.py", False),
        ("codecs.py", True),  # begins like code.py, which is left out
        ("_pydatetime.py", False),
        ("_pyodide/_base.py", True),
    ],
)
def test_which_files_stay(path, kept):
    assert stays(path) is kept


def test_what_is_left_out_is_part_of_the_standard_library():
    named = [name for names in LEFT_OUT.values() for name in names]
    assert len(named) == len(set(named))
    assert set(named) <= sys.stdlib_module_names
    assert {"__init__", "aliases", "utf_8"} <= ENCODINGS
