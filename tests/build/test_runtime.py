"""The runtime's files: named by what they hold, and counted in the manifest."""

import gzip
import hashlib
import json

import pytest

from runtime import PYODIDE_FILES, make_runtime, manifest


@pytest.fixture
def pyodide(tmp_path):
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for name in PYODIDE_FILES:
        (folder / name).write_bytes(f"contents of {name} ".encode() * 100)
    (folder / "package.json").write_text('{"version": "1.2.3"}')
    lock = {"info": {"python": "3.13.2"}, "packages": {"numpy": {"file_name": "numpy.whl"}}}
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))
    (folder / "console.html").write_text("not shipped")
    return folder


@pytest.fixture
def wheel(tmp_path):
    file = tmp_path / "training_memory-0.1.0-py3-none-any.whl"
    file.write_bytes(b"PK wheel")
    return file


def test_the_manifest_tells_what_is_there(tmp_path, pyodide, wheel):
    into = tmp_path / "runtime"
    made = make_runtime(wheel, into, pyodide)
    assert made == manifest(into)
    assert made["pyodide"]["version"] == "1.2.3"
    assert made["pyodide"]["python"] == "3.13.2"
    assert len(made["files"]) == len(PYODIDE_FILES) + 2
    for file in made["files"]:
        data = (into / file["path"].removeprefix("assets/runtime/")).read_bytes()
        assert file["bytes"] == len(data)
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
        assert file["gzip_bytes"] == len(gzip.compress(data, 6))
    assert made["bytes"] == sum(file["bytes"] for file in made["files"])
    assert made["gzip_bytes"] == sum(file["gzip_bytes"] for file in made["files"])
    assert {file.name for file in into.rglob("*") if file.is_file()} == {
        "manifest.json",
        *(file["path"].rsplit("/", 1)[-1] for file in made["files"]),
    }


def test_pyodide_is_where_the_manifest_says_under_its_own_names(tmp_path, pyodide, wheel):
    made = make_runtime(wheel, tmp_path / "runtime", pyodide)
    base = tmp_path / "runtime" / made["pyodide"]["base"].removeprefix("assets/runtime/")
    for name in PYODIDE_FILES:
        assert (base / name).read_bytes() == (pyodide / name).read_bytes()
    lock = json.loads((base / "pyodide-lock.json").read_text())
    assert lock == {"info": {"python": "3.13.2"}, "packages": {}}


def test_the_wheel_travels_as_a_zip(tmp_path, pyodide, wheel):
    path = make_runtime(wheel, tmp_path / "runtime", pyodide)["package"]["path"]
    digest = hashlib.sha256(b"PK wheel").hexdigest()[:12]
    assert path == f"assets/runtime/training_memory-0.1.0-{digest}.zip"


def test_other_contents_have_other_names_and_no_others_are_left(tmp_path, pyodide, wheel):
    into = tmp_path / "runtime"
    first = make_runtime(wheel, into, pyodide)
    assert make_runtime(wheel, into, pyodide) == first
    wheel.write_bytes(b"PK another")
    (pyodide / "python_stdlib.zip").write_bytes(b"another")
    second = make_runtime(wheel, into, pyodide)
    assert second["package"]["path"] != first["package"]["path"]
    assert second["pyodide"]["base"] != first["pyodide"]["base"]
    assert len([file for file in into.rglob("*") if file.is_file()]) == len(second["files"]) + 1


def test_what_lies_apart_is_there_and_not_part_of_a_start(tmp_path, pyodide, wheel):
    into = tmp_path / "runtime"
    plain = make_runtime(wheel, into, pyodide)
    made = make_runtime(wheel, into, pyodide, apart={"decoder": b"PK decoder"})
    apart = made["apart"]["decoder"]
    digest = hashlib.sha256(b"PK decoder").hexdigest()
    assert apart["path"] == f"assets/runtime/decoder-{digest[:12]}.zip"
    assert apart["sha256"] == digest
    assert (into / apart["path"].rsplit("/", 1)[-1]).read_bytes() == b"PK decoder"
    assert plain["apart"] == {}
    assert {**made, "apart": {}} == plain


def test_what_is_missing_is_named(tmp_path, pyodide, wheel):
    (pyodide / "pyodide.asm.wasm").unlink()
    with pytest.raises(FileNotFoundError, match=r"pyodide\.asm\.wasm"):
        make_runtime(wheel, tmp_path / "runtime", pyodide)
    with pytest.raises(FileNotFoundError, match="make site"):
        manifest(tmp_path / "nowhere")
