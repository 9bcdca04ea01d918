"""Which browser the page tests take, and how one is got where there is none."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import browser


@pytest.fixture
def machine(monkeypatch):
    """Make a machine of a user and some programs, on which commands are noted instead of run."""
    ran: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))

    def has(user, *programs):
        monkeypatch.setattr(os, "geteuid", lambda: user)
        monkeypatch.setattr(
            shutil, "which", lambda name: f"/usr/bin/{name}" if name in programs else None
        )
        return ran

    return has


def playwright(path):
    """As much of Playwright as is asked: where its own browser would be."""
    return SimpleNamespace(chromium=SimpleNamespace(executable_path=str(path)))


def test_root_on_debian_takes_the_systems_packages(machine):
    ran = machine(0, "apt-get")
    browser.install()
    assert [command[:2] for command in ran] == [["apt-get", "update"], ["apt-get", "install"]]
    assert ran[1][-1] == "chromium"


@pytest.mark.parametrize(("user", "programs"), [(1000, ["apt-get"]), (0, ["dnf"])])
def test_everyone_else_takes_playwrights(machine, user, programs):
    ran = machine(user, *programs)
    browser.install()
    assert ran == [[sys.executable, "-m", "playwright", "install", "chromium"]]


def test_playwrights_own_comes_first(machine, tmp_path):
    machine(0, "chromium")
    own = tmp_path / "chrome"
    assert browser.find(playwright(own)) == Path("/usr/bin/chromium")
    own.write_text("")
    assert browser.find(playwright(own)) == own


def test_the_systems_is_found_by_its_usual_names(machine, tmp_path):
    machine(0, "google-chrome")
    assert browser.find(playwright(tmp_path / "none")) == Path("/usr/bin/google-chrome")
    machine(0)
    assert browser.find(playwright(tmp_path / "none")) is None


def test_firefox_is_installed_where_the_systems_packages_can_be(machine):
    ran = machine(0, "apt-get")
    browser.install_firefox()
    assert ran[-1][-1] == "firefox-esr"


def test_elsewhere_the_tests_with_firefox_are_skipped(machine, monkeypatch, capsys):
    ran = machine(1000, "apt-get")
    browser.install_firefox()
    assert ran == []
    machine(0, "apt-get")

    def fail(command, **_):
        raise subprocess.CalledProcessError(100, command)

    monkeypatch.setattr(subprocess, "run", fail)
    browser.install_firefox()
    assert "will be skipped" in capsys.readouterr().out


def test_firefox_is_found_by_its_usual_names(machine):
    machine(0)
    assert browser.firefox() is None
    machine(0, "firefox")
    assert browser.firefox() == Path("/usr/bin/firefox")


def test_a_machine_that_gets_no_browser_is_told_what_would_do(machine, monkeypatch, capsys):
    machine(0, "apt-get")

    @contextmanager
    def started():
        yield playwright(Path("none"))

    def fail(command, **_):
        raise subprocess.CalledProcessError(100, command)

    monkeypatch.setattr(browser, "sync_playwright", started)
    monkeypatch.setattr(subprocess, "run", fail)
    monkeypatch.setattr(sys, "argv", ["browser.py", "--install"])
    assert browser.main() == 1
    assert "google-chrome" in capsys.readouterr().err
