"""Python's standard library for the page: Pyodide's own files, without those no page of ours uses.

A page that restores the snapshot needs none of it; it is fetched where that fails. Each file that
stays is byte for byte the one that Pyodide publishes, so its licence asks for no more than to say
so; the licences page does.
"""

from __future__ import annotations

import io
import zipfile

#: Packages and modules that are left out, by why a page has no use for them.
LEFT_OUT = {
    "programs of their own, and what only a terminal shows": (
        "_pyrepl", "bdb", "cmd", "code", "codeop", "curses", "doctest", "getpass", "pdb",
        "pickletools", "pydoc", "pydoc_data", "timeit", "trace", "unittest",
    ),
    "what talks to other machines by itself, which a page cannot": (
        "ftplib", "imaplib", "mailbox", "poplib", "smtplib", "socketserver", "wsgiref", "xmlrpc",
    ),
    "processes of the system": ("multiprocessing", "pty"),
    "formats that nothing here reads": ("dbm", "plistlib", "sqlite3", "wave", "xml"),
    "doubles in Python of what Pyodide has in C": ("_pydatetime", "_pydecimal", "_pyio"),
}  # fmt: skip

#: Encodings that are kept; the others are for texts of other decades.
ENCODINGS = frozenset({"__init__", "aliases", "ascii", "cp437", "idna", "latin_1", "utf_8"})

_LEFT_OUT = frozenset(name for names in LEFT_OUT.values() for name in names)
# Any fixed time will do, so that the same files are the same bytes; a zip knows none before.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def stays(path: str) -> bool:
    """Whether the file at ``path`` of the library stays."""
    first, *rest = path.removesuffix(".py").split("/")
    if first == "encodings" and rest[-1:] != [""]:
        return rest[-1] in ENCODINGS
    return first not in _LEFT_OUT


def trimmed(library: bytes) -> bytes:
    """The library's zip without what is left out; the same bytes from the same zip."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(library)) as whole,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as part,
    ):
        for name in sorted(name for name in whole.namelist() if stays(name)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            part.writestr(entry, whole.read(name))
    return made.getvalue()
