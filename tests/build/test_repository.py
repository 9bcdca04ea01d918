"""The repository's own promises: pinned, hashed, no addresses, commands that explain themselves."""

import json
import re
import shutil
import subprocess
import tomllib

import pytest

from places import BUILD, ROOT

MAKE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["site", "dev"])
def test_python_packages_are_pinned_with_hashes_and_without_addresses(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    pins = re.findall(r"^[a-z0-9][\w.\-\[\]]*==\S+", text, re.MULTILINE)
    assert len(pins) > 20
    blocks = re.split(r"\n(?=[a-z0-9])", text)[1:]
    assert len(blocks) == len(pins)
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text
    assert not re.search(r"^\s*(-i|--index-url|--extra-index-url|--find-links)", text, re.MULTILINE)


def test_what_builds_the_site_is_the_same_where_it_is_tested():
    def pins(name):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        return dict(re.findall(r"^([a-z0-9][\w.-]*)==(\S+)", text, re.MULTILINE))

    assert pins("site").items() <= pins("dev").items()


def test_npm_packages_are_locked_by_hash_and_without_addresses():
    text = (ROOT / "package-lock.json").read_text()
    assert "://" not in text
    assert '"resolved"' not in text
    package = json.loads((ROOT / "package.json").read_text())
    wanted = package["dependencies"] | package["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    locked = json.loads(text)["packages"]
    for name, version in wanted.items():
        assert locked[f"node_modules/{name}"]["version"] == version
    assert all("integrity" in entry for path, entry in locked.items() if path)


def test_the_calculator_depends_on_nothing():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    assert project["requires-python"] == ">=3.11"


def test_build_is_source_and_hides_no_package():
    assert not (BUILD / "__init__.py").exists()
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    ignored = subprocess.run(
        ["git", "check-ignore", *sorted(str(file) for file in BUILD.glob("*.py"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ignored.stdout == ""


def test_no_module_of_the_build_hides_one_of_pythons():
    import sys

    names = {
        file.stem
        for folder in ("build", "scripts", "tests")
        for file in (ROOT / folder).glob("*.py")
    }
    assert not names & set(sys.stdlib_module_names)


def test_make_alone_lists_every_command_for_people():
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKE, re.MULTILINE)
    for command in phony.split():
        assert f"make {command} " in said, f"{command} has no ## text"


def test_ci_is_what_anyone_can_run():
    script = (ROOT / ".ci" / "run").read_text()
    assert "make test" in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


class TestFindPython:
    @staticmethod
    def run(path, **environment):
        return subprocess.run(
            [shutil.which("sh") or "sh", str(BUILD / "find_python.sh")],
            env={"PATH": str(path), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    @staticmethod
    def stand_in(folder, name, answer):
        file = folder / name
        file.write_text(f"#!/bin/sh\nexit {answer}\n")
        file.chmod(0o755)

    def test_the_first_that_is_313_is_taken(self, tmp_path):
        self.stand_in(tmp_path, "python3.13", 127)  # a version manager's stand-in that refuses
        self.stand_in(tmp_path, "python3", 1)  # another version
        self.stand_in(tmp_path, "python", 0)
        done = self.run(tmp_path)
        assert (done.returncode, done.stdout) == (0, "python\n")

    def test_a_named_one_is_taken_or_refused(self, tmp_path):
        self.stand_in(tmp_path, "mine", 0)
        self.stand_in(tmp_path, "python3", 0)
        self.stand_in(tmp_path, "theirs", 1)
        assert self.run(tmp_path, PYTHON=str(tmp_path / "mine")).stdout == f"{tmp_path}/mine\n"
        refused = self.run(tmp_path, PYTHON="theirs")
        assert refused.returncode == 1
        assert "PYTHON=theirs is not Python 3.13" in refused.stderr

    def test_none_is_explained(self, tmp_path):
        (tmp_path / "cat").symlink_to(shutil.which("cat"))
        done = self.run(tmp_path)
        assert done.returncode == 1
        assert done.stdout == ""
        for way in ("apt-get install python3.13", "brew install", "pyenv install", "PYTHON=/path"):
            assert way in done.stderr
