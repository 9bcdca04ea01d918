"""The calculator's wheel, the same bytes from the same source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from places import ROOT, WHEEL

# Zip entries carry a time. Any fixed one will do; this is the oldest a zip can hold.
EPOCH = "315532800"


def make_wheel(into: Path = WHEEL) -> Path:
    """Build the wheel into the emptied folder ``into`` and return its path.

    Raises ``RuntimeError`` with the builder's own words when it fails.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)],
        cwd=ROOT,
        env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"The wheel could not be built:\n{done.stdout}{done.stderr}")
    (wheel,) = into.glob("*.whl")
    return wheel


if __name__ == "__main__":
    print(make_wheel(Path(sys.argv[1]) if len(sys.argv) > 1 else WHEEL))
