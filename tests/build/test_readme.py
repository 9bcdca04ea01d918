"""What the repository's own pages point to is there, and the commands they name run."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps import sweep

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


#: What the commands of the pages read.
CALCULATOR_DATA = ROOT / "tests" / "calculator" / "data"
COPIED = {
    "config.json": CALCULATOR_DATA / "configs" / "llama-7b.json",
    "train.yaml": CALCULATOR_DATA / "files" / "trainer-full.yaml",
    "ds_config.json": CALCULATOR_DATA / "files" / "ds-auto.json",
}
WRITTEN = {
    "error.txt": "CUDA out of memory. Tried to allocate 3.91 GiB.",
    "run.json": '{"model": "llama-7b", "sequence": 4096, "gpu": "a100-80gb"}',
    "before.json": '{"model": "llama-7b", "sequence": 4096}',
    "after.json": '{"model": "llama-7b", "sequence": 8192, "recompute": "full"}',
}


def _commands() -> list[str]:
    """Every command line of the README and of the site's pages, each once."""
    found: dict[str, None] = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if page.parent.name == "generated":
            continue
        blocks = re.findall(
            r"^```(?:console|sh)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S
        )
        for block in blocks:
            joined = re.sub(r"\\\n\s*", "", block)
            found |= dict.fromkeys(re.findall(r"^(?:\$ )?(training-memory [^#\n]+)", joined, re.M))
    return list(found)


def test_commands_are_found_on_many_pages():
    commands = "\n".join(_commands())
    assert len(_commands()) > 20
    for command in ("estimate", "explain", "fit", "oom", "curve", "diff", "read", "verify"):
        assert f"training-memory {command}" in commands


@pytest.mark.parametrize("command", sweep(_commands(), one_in=4))
def test_every_command_of_the_pages_runs(command, tmp_path):
    _, *arguments = shlex.split(command)
    if ">" in arguments:
        del arguments[arguments.index(">") :]  # where a shell puts what is printed
    if arguments[0] == "verify":
        arguments.append("--dry-run")
    for name, source in COPIED.items():
        shutil.copy(source, tmp_path / name)
    for name, text in WRITTEN.items():
        (tmp_path / name).write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "training_memory", *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "calculator")},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stdout
