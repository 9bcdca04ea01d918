"""The standard library as the page gets it: fewer files, each of them as it was."""

import io
import subprocess
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
def test_half_is_left_out_and_the_same_bytes_are_made_again(whole):
    made = trimmed(whole)
    assert made == trimmed(whole)
    assert len(made) < 0.5 * len(whole)


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
        ("email/", True),
        ("email/__init__.py", True),
        ("email/message.py", False),
        ("urllib/parse.py", True),
        ("urllib/request.py", False),
    ],
)
def test_which_files_stay(path, kept):
    assert stays(path) is kept


def test_what_is_left_out_is_part_of_the_standard_library():
    named = [name for names in LEFT_OUT.values() for name in names]
    assert len(named) == len(set(named))
    assert {name.partition("/")[0] for name in named} <= sys.stdlib_module_names
    assert {"aliases", "utf_8"} <= ENCODINGS


EVERYTHING = """
const [loader, library, lock, ...packages] = process.argv.slice(2);
const { loadPyodide } = await import(loader);
const { readFileSync } = await import("node:fs");
const { info } = JSON.parse(readFileSync(lock, "utf8"));
const python = await loadPyodide({ stdLibURL: library, lockFileContents: { info, packages: {} } });
const site = python.runPython("import site; site.getsitepackages()[0]");
for (const file of packages) {
  python.unpackArchive(new Uint8Array(readFileSync(file)), "zip", { extractDir: site });
}
const imported = python.runPython(`
import ast, importlib, pathlib, pkgutil, sys
importlib.invalidate_caches()
names = [module.name for module in pkgutil.walk_packages([${JSON.stringify(site)}])]
for name in names:
    # PyTorch's and LibYAML's are for elsewhere, and the programs would run.
    if ".verify" not in name and name != "yaml.cyaml" and not name.endswith("__main__"):
        importlib.import_module(name)
# Some import late, within a function.
late = set()
for name in names:
    if ".verify" in name or not name.startswith("training_memory"):
        continue
    file = importlib.util.find_spec(name).origin
    for node in ast.walk(ast.parse(pathlib.Path(file).read_text())):
        if isinstance(node, ast.Import):
            late.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            late.add(node.module)
assert "fractions" in late
for name in late:
    importlib.import_module(name)
import asyncio, html, logging, traceback
len(names)`);
console.log(imported);
"""


@pytest.mark.site
def test_all_that_a_page_runs_finds_what_it_imports(whole, built_site, tmp_path):
    library, script = tmp_path / "python_stdlib.zip", tmp_path / "everything.mjs"
    library.write_bytes(trimmed(whole))
    script.write_text(EVERYTHING)
    runtime = built_site / "assets" / "runtime"
    packages = [file for file in sorted(runtime.glob("*.zip")) if "library" not in file.name]
    assert len(packages) == 3
    done = subprocess.run(
        [
            "node",
            script,
            PYODIDE / "pyodide.mjs",
            library,
            PYODIDE / "pyodide-lock.json",
            *packages,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 200
