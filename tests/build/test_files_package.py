"""The zip that reads a reader's own files in a page."""

import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import files_package

ROOT = Path(__file__).parents[2]


def test_the_same_sources_are_the_same_bytes():
    assert files_package.packed() == files_package.packed()


def test_it_brings_the_readers_and_yaml_in_plain_python():
    names = files_package.contents()
    readers = (ROOT / "calculator" / "training_memory" / "readers").glob("*.py")
    assert {f"training_memory/readers/{path.name}" for path in readers} <= names.keys()
    assert {
        "training_memory/files_door.py",
        "yaml/loader.py",
        "tomllib/__init__.py",
    } <= names.keys()
    assert not any(name.endswith((".so", ".pyd")) for name in names)


def test_it_reads_without_anything_installed(tmp_path):
    zipfile.ZipFile(BytesIO(files_package.packed())).extractall(tmp_path)
    reading = (
        "import sys, json\n"
        f"sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / 'calculator')!r}]\n"
        "import yaml\n"
        f"assert yaml.__file__.startswith({str(tmp_path)!r})\n"
        "from training_memory import files_door\n"
        "files = [{'name': 'a.yml', 'text': 'base_model: gpt2\\nsequence_len: 128\\n'}]\n"
        "told = json.loads(files_door.answer(json.dumps({'files': files})))\n"
        "print(told['ok'], told['state'])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", reading], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("True model=gpt2&sequence=128")
