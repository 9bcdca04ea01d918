"""The Decoder as a page gets it: the trainer's sources, and what shows its results, in one zip.

The calculator's wheel holds none of this, since it knows nothing of the trainer; a page fetches the
zip only when its reader asks for a run.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from places import BUILD, DECODER
from zipped import zipped

#: What only a terminal or PyTorch can use.
LEFT_OUT = frozenset({"__main__.py", "check_against_torch.py"})

#: The build's own files that go along: they show a run in the page as they show it here.
ALONG = ("table.py", "decoder_tables.py", "decoder_curve.py", "decoder_door.py")


def trainer(folder: Path = DECODER) -> dict[str, bytes]:
    """The trainer's sources by their paths in the zip, in a fixed order."""
    return {
        f"{folder.name}/{file.name}": file.read_bytes()
        for file in sorted(folder.glob("*.py"))
        if file.name not in LEFT_OUT
    }


def fingerprint() -> str:
    """A hash of the trainer's sources: another one may train in another way."""
    whole = hashlib.sha256()
    for name, data in trainer().items():
        whole.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
    return whole.hexdigest()


def packed() -> bytes:
    """The zip; the same bytes from the same sources."""
    return zipped(trainer() | {name: (BUILD / name).read_bytes() for name in ALONG})
