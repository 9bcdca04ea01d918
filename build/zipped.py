"""Files in one zip, the same bytes from the same files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

# Any fixed time will do; a zip knows none before.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def zipped(contents: Mapping[str, bytes]) -> bytes:
    """A zip of the files, by their paths in it and in their order."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            made.writestr(entry, data, compresslevel=9)
    return archive.getvalue()
