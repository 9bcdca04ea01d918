"""What all tests share."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent

# A machine's load says nothing about a property, so there is no deadline. Where a failure must be
# the same for everyone who looks at it (CI), the random cases are the same every time.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and never among the thousands of tests, which stay to the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session")
def built_site() -> Path:
    """The built site; a test that asks for it is marked ``site`` or ``page``."""
    site = ROOT / "site"
    if not (site / "index.html").is_file():
        pytest.fail("there is no built site; `make site` builds it, and `make test` does both")
    return site
