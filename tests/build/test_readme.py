"""What the repository's own pages point to is there, and the commands they name run."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


@pytest.mark.parametrize("name", PAGES)
def test_every_local_link_and_picture_is_there(name):
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    missing = [link for link in local if not (ROOT / link.split("#")[0]).exists()]
    assert not missing
    assert local or name == "CHANGELOG.md"


def test_every_make_target_named_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for name in PAGES
        for target in re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text(encoding="utf-8"))
    }
    assert named
    assert named <= targets


def _commands() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^\$ (training-memory [^#\n]+)", text, re.MULTILINE)


@pytest.mark.parametrize("command", _commands())
def test_every_command_of_the_readme_runs(command, tmp_path):
    _, *arguments = shlex.split(command)
    if ">" in arguments:
        del arguments[arguments.index(">") :]  # where a shell puts what is printed
    if arguments[0] == "verify":
        arguments.append("--dry-run")
    if "config.json" in arguments:
        config = ROOT / "tests" / "calculator" / "data" / "configs" / "llama-7b.json"
        arguments[arguments.index("config.json")] = str(config)
    files = ROOT / "tests" / "calculator" / "data" / "files"
    for name, source in (("train.yaml", "trainer-full.yaml"), ("ds_config.json", "ds-auto.json")):
        shutil.copy(files / source, tmp_path / name)
    (tmp_path / "error.txt").write_text("CUDA out of memory. Tried to allocate 3.91 GiB.")
    ran = subprocess.run(
        [sys.executable, "-m", "training_memory", *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "calculator")},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stdout
