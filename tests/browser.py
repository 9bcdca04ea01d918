"""The browser that the page tests drive: Playwright's own where it has one, else the system's.

``python tests/browser.py --install`` makes sure that there is one, and, where the system's packages
can be installed, that there is a Firefox for the few tests that want a second browser.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Playwright, sync_playwright

#: The names under which systems install Chromium, the likeliest first.
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

REMEDY = "Install Chromium or Google Chrome under one of these names: " + ", ".join(NAMES) + "."

FIREFOX = ("firefox-esr", "firefox")

ARGUMENTS = (
    "--no-sandbox",  # containers and root have no user namespaces to make a sandbox of
    "--disable-quic",
    # A browser's own errands are no requests of the page, and would be told apart from none.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Nothing but this machine can be reached, whatever a page tries.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def find(playwright: Playwright) -> Path | None:
    """The browser to start, or None where there is none yet."""
    own = Path(playwright.chromium.executable_path)
    if own.is_file():
        return own
    for name in NAMES:
        if path := shutil.which(name):
            return Path(path)
    return None


def firefox() -> Path | None:
    """The system's Firefox, or None where there is none."""
    return next((Path(path) for name in FIREFOX if (path := shutil.which(name))), None)


def has_packages() -> bool:
    """Whether the system's packages can be installed."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install() -> None:
    """Install a browser: Debian's as root, else the one Playwright offers.

    Raises ``CalledProcessError`` where neither can be had.
    """
    if has_packages():
        print("Installing Chromium from the system's packages", flush=True)
        install_package("chromium")
    else:
        print("Installing Chromium by Playwright", flush=True)
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)


def install_package(name: str) -> None:
    """Install one of the system's packages. Raises ``CalledProcessError``."""
    subprocess.run(["apt-get", "update", "-q"], check=True)
    subprocess.run(
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", name],
        check=True,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    )


def install_firefox() -> None:
    """Install Debian's Firefox where that can be done; its tests are skipped elsewhere."""
    if not has_packages():
        return
    print("Installing Firefox from the system's packages", flush=True)
    try:
        install_package("firefox-esr")
    except subprocess.CalledProcessError as error:
        print(f"There is none to be had ({error}); tests with Firefox will be skipped.")


def main() -> int:
    """Say which browser the tests will take, after installing one if asked; the exit status."""
    installs = "--install" in sys.argv[1:]
    if installs and firefox() is None:
        install_firefox()
    with sync_playwright() as playwright:
        found = find(playwright)
        if found is None and installs:
            try:
                install()
            except subprocess.CalledProcessError as error:
                print(f"No browser could be installed ({error}).\n{REMEDY}", file=sys.stderr)
                return 1
            found = find(playwright)
    print(found or f"There is no browser; `make test` installs one.\n{REMEDY}")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
