"""Python's standard library for the page: Pyodide's own files, without those no page of ours uses.

A page that restores the snapshot needs none of it; it is fetched where that fails. Each file that
stays is byte for byte the one that Pyodide publishes, so its licence asks for no more than to say
so; the licences page does.
"""

from __future__ import annotations

import io
import zipfile

from zipped import zipped

#: Packages and modules that are left out, by why a page has no use for them; of a package with
#: ``/*`` its first file stays, since others import it for nothing.
LEFT_OUT = {
    "programs of their own, and what only a terminal shows": (
        "_pyrepl", "bdb", "cProfile", "cmd", "code", "codeop", "compileall", "curses", "doctest",
        "filecmp", "fileinput", "getopt", "getpass", "modulefinder", "optparse", "pdb",
        "pickletools", "profile", "pstats", "py_compile", "pyclbr", "pydoc", "pydoc_data",
        "rlcompleter", "symtable", "tabnanny", "timeit", "trace", "tracemalloc", "unittest",
        "zipapp",
    ),
    "what talks to other machines by itself, which a page cannot": (
        "email/*", "ftplib", "http", "imaplib", "mailbox", "mimetypes", "poplib", "smtplib",
        "socketserver", "urllib/error", "urllib/request", "urllib/response", "urllib/robotparser",
        "uuid", "wsgiref", "xmlrpc",
    ),
    "processes of the system, and which system it is": (
        "_android_support", "_ios_support", "_osx_support",
        "asyncio/windows_events", "asyncio/windows_utils", "concurrent/futures/process", "ctypes",
        "multiprocessing", "platform", "pty",
    ),
    "formats that nothing here reads": (
        "_compat_pickle", "_markupbase", "calendar", "configparser", "dbm", "gzip", "html/parser",
        "logging/*", "pickle", "plistlib", "quopri", "shelve", "sqlite3", "tarfile", "wave", "xml",
        "zoneinfo",
    ),
    "other ways to count than the calculator's": ("_strptime", "sched", "statistics"),
    "doubles in Python of what Pyodide has in C": ("_pydatetime", "_pydecimal", "_pyio"),
}  # fmt: skip

#: Encodings that are kept; the others are for texts of other decades.
ENCODINGS = frozenset({"aliases", "ascii", "cp437", "idna", "latin_1", "utf_8"})

_LEFT_OUT = frozenset(name for names in LEFT_OUT.values() for name in names)


def stays(path: str) -> bool:
    """Whether the file at ``path`` of the library stays."""
    module = path.removesuffix(".py").removesuffix("/__init__")
    first, _, inner = module.partition("/")
    if first == "encodings":
        return inner in ENCODINGS or not inner
    if inner and f"{first}/*" in _LEFT_OUT:
        return False
    return _LEFT_OUT.isdisjoint({first, module})


def trimmed(library: bytes) -> bytes:
    """The library's zip without what is left out; the same bytes from the same zip."""
    with zipfile.ZipFile(io.BytesIO(library)) as whole:
        return zipped({name: whole.read(name) for name in sorted(whole.namelist()) if stays(name)})
