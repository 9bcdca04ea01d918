"""The runtime's files: named by what they hold, and counted in the manifest."""

import gzip
import hashlib
import io
import json
import zipfile

import pytest

from runtime import LIBRARY, PYODIDE_FILES, make_runtime, manifest
from snapshot import Snapshot

INFO = {"python": "3.13.2", "abi_version": "2025_0"}


@pytest.fixture
def pyodide(tmp_path):
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for name in PYODIDE_FILES:
        (folder / name).write_bytes(f"contents of {name} ".encode() * 100)
    with zipfile.ZipFile(folder / LIBRARY, "w") as library:
        library.writestr("json/__init__.py", "kept = True")
        library.writestr("unittest/__init__.py", "kept = False")
    (folder / "package.json").write_text('{"version": "1.2.3"}')
    lock = {"info": INFO, "packages": {"numpy": {"file_name": "numpy.whl"}}}
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))
    (folder / "console.html").write_text("not shipped")
    return folder


@pytest.fixture
def wheel(tmp_path):
    file = tmp_path / "training_memory-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("training_memory/web.py", "answered = True")
        made.writestr("training_memory/cli.py", "answered = False")
    return file


SNAPSHOT = Snapshot(file=gzip.compress(b"memory"), memory_bytes=4, whole_bytes=6)


def test_the_manifest_tells_what_is_there(tmp_path, pyodide, wheel):
    into = tmp_path / "runtime"
    made = make_runtime(wheel, SNAPSHOT, into, pyodide, apart={"more": b"PK more"})
    assert made == manifest(into)
    assert made["pyodide"]["version"] == "1.2.3"
    assert made["pyodide"]["info"] == INFO
    files = [*made["files"], *made["apart"].values()]
    for file in files:
        data = (into / file["path"].removeprefix("assets/runtime/")).read_bytes()
        assert file["bytes"] == len(data)
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
        assert file["gzip_bytes"] == len(gzip.compress(data, 6))
    assert {file.name for file in into.rglob("*") if file.is_file()} == {
        "manifest.json",
        *(file["path"].rsplit("/", 1)[-1] for file in files),
    }


def test_a_start_fetches_what_it_needs_and_no_more(tmp_path, pyodide, wheel):
    made = make_runtime(wheel, SNAPSHOT, tmp_path / "runtime", pyodide, apart={"more": b"PK"})
    python = {made["pyodide"]["base"] + name for name in PYODIDE_FILES}
    quick, plain = (made["starts"][kind] for kind in ("quick", "plain"))
    assert set(quick["files"]) == python | {made["snapshot"]["path"]}
    assert set(plain["files"]) == python | {made["library"], made["package"]["path"]}
    for start in (quick, plain):
        sizes = {file["path"]: file for file in made["files"]}
        assert start["files"] == {path: sizes[path]["bytes"] for path in start["files"]}
        assert start["gzip_bytes"] == sum(sizes[path]["gzip_bytes"] for path in start["files"])
    assert (made["snapshot"]["memory"], made["snapshot"]["whole"]) == (4, 6)


def test_pyodide_is_where_the_manifest_says_under_its_own_names(tmp_path, pyodide, wheel):
    made = make_runtime(wheel, SNAPSHOT, tmp_path / "runtime", pyodide)
    base = tmp_path / "runtime" / made["pyodide"]["base"].removeprefix("assets/runtime/")
    for name in PYODIDE_FILES:
        assert (base / name).read_bytes() == (pyodide / name).read_bytes()


def test_the_library_travels_without_what_no_page_uses(tmp_path, pyodide, wheel):
    path = make_runtime(wheel, SNAPSHOT, tmp_path / "runtime", pyodide)["library"]
    data = (tmp_path / "runtime" / path.removeprefix("assets/runtime/")).read_bytes()
    assert zipfile.ZipFile(io.BytesIO(data)).namelist() == ["json/__init__.py"]


def test_what_pages_run_of_the_wheel_travels_as_a_zip(tmp_path, pyodide, wheel):
    path = make_runtime(wheel, SNAPSHOT, tmp_path / "runtime", pyodide)["package"]["path"]
    data = (tmp_path / "runtime" / path.removeprefix("assets/runtime/")).read_bytes()
    digest = hashlib.sha256(data).hexdigest()[:12]
    assert path == f"assets/runtime/training_memory-0.1.0-{digest}.zip"
    assert zipfile.ZipFile(io.BytesIO(data)).namelist() == ["training_memory/web.py"]


def test_other_contents_have_other_names_and_no_others_are_left(tmp_path, pyodide, wheel):
    into = tmp_path / "runtime"
    first = make_runtime(wheel, SNAPSHOT, into, pyodide)
    assert make_runtime(wheel, SNAPSHOT, into, pyodide) == first
    with zipfile.ZipFile(wheel, "a") as made:
        made.writestr("training_memory/answer.py", "another = True")
    (pyodide / "pyodide.asm.wasm").write_bytes(b"another")
    other = Snapshot(file=gzip.compress(b"another"), memory_bytes=4, whole_bytes=7)
    second = make_runtime(wheel, other, into, pyodide)
    assert second["package"]["path"] != first["package"]["path"]
    assert second["pyodide"]["base"] != first["pyodide"]["base"]
    assert second["snapshot"]["path"] != first["snapshot"]["path"]
    assert second["library"] == first["library"]
    assert len([file for file in into.rglob("*") if file.is_file()]) == len(second["files"]) + 1


def test_what_is_missing_is_named(tmp_path, pyodide, wheel):
    (pyodide / "pyodide.asm.wasm").unlink()
    with pytest.raises(FileNotFoundError, match=r"pyodide\.asm\.wasm"):
        make_runtime(wheel, SNAPSHOT, tmp_path / "runtime", pyodide)
    with pytest.raises(FileNotFoundError, match="make site"):
        manifest(tmp_path / "nowhere")
