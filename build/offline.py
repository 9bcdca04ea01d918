"""Copies of the site that need no server and no network: a zip of all pages, and one file.

A page opened from a disk may load scripts, styles and pictures, but fetches nothing and imports no
module. So our modules become one script, what would be fetched is carried in scripts (see
web/carried.js), links name the files that they lead to, and search begins from a script, as the
theme knows how to. Nothing is computed anew: a copy is the built site, written another way.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bundling import esbuild
from csp import inline_scripts, source_hash, with_policy
from finish import pages_of, way_to_root
from places import CACHE, WEB

NAME = "where-training-memory-goes"

#: Where a copy carries what a site has fetched.
CARRIED = "assets/carried"
SCRIPT = "assets/site.js"
#: The modules of the page that a copy runs; early.js and offline.js have no meaning there.
ENTRIES = ("calculator", "deck", "player", "decoder")

# Any fixed time will do, so that the same site is the same zip; a zip knows none before.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODULE = re.compile(r'\s*<script\b[^>]*\btype="?module\b[^>]*></script>')
_FIRST = re.compile(r"\s*<script data-python=.*?</script>", re.DOTALL)
_PRELOAD = re.compile(r'\s*<link rel="(?:modulepreload|manifest)"[^>]*>')
_VERSION = re.compile(r'\s*<meta name="tm-version"[^>]*>')
_ADDRESS = re.compile(r'(?P<name>\bhref=)(?P<quote>["\']?)(?P<address>[^"\'\s>]*)(?P=quote)')
_THEME = re.compile(
    r'<script (?:type="text/plain" data-later|src)='
    r'"(?P<address>[^"]*assets/javascripts/bundle\.[^"]*)"></script>'
)
_HTML = re.compile(r"<html\b")
_HEAD = re.compile(r"<head\b[^>]*>")
_SIZE = re.compile(r'(<span data-size-of="[^"]*">)(</span>)')
# From a disk the theme would end its own stream of pages before the first of them.
_INSTANT = re.compile(r'"navigation\.instant[a-z.]*", ?')
_OWN_FOLDER = re.compile(r"assets/(?P<folder>[0-9a-f]{12})/calculator/")


def make_copy(site: Path, into: Path) -> None:
    """Write the copy that a zip holds into the emptied folder ``into``."""
    shutil.rmtree(into, ignore_errors=True)
    left_out = shutil.ignore_patterns(
        "*.gz", "sw.js", "*.webmanifest", "sitemap.xml", "runtime", "downloads", "*.js"
    )
    shutil.copytree(site, into, ignore=left_out)
    for script in sorted((site / "assets" / "javascripts").rglob("*.js")):
        copied = into / script.relative_to(site)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(script, copied)
    (into / SCRIPT).write_text(page_script(), encoding="utf-8")
    (into / CARRIED).mkdir(parents=True)
    shutil.copy(WEB / "carried.js", into / CARRIED / "carried.js")
    for path, data in packed_once(carried(site)).items():
        text = f"carried.put({json.dumps(path)}, {json.dumps(data)});\n"
        (into / CARRIED / f"{path.rpartition('/')[2]}.js").write_text(text, encoding="utf-8")
    _write_search(site, into)
    texts = {page: page.read_text(encoding="utf-8") for page in pages_of(into)}
    (into / "404.html").unlink()  # for servers
    texts.pop(into / "404.html")
    texts = {page: page_of_copy(text, page, into) for page, text in texts.items()}
    policy = policy_of_copy(list(texts.values()))
    for page, text in texts.items():
        page.write_text(with_policy(text, policy), encoding="utf-8")


def page_of_copy(text: str, page: Path, copy: Path) -> str:
    """A page of the site as a page of the copy."""
    root = way_to_root(page, copy, "")
    own = _OWN_FOLDER.search(text)
    text = _SIZE.sub(r"\1on the site\2", _INSTANT.sub("", text))
    text = _VERSION.sub("", _PRELOAD.sub("", _MODULE.sub("", _FIRST.sub("", text))))
    text = _ADDRESS.sub(lambda found: _with_file(found, page, copy), text)
    where = f'data-root="{root or "./"}" data-own="{own[0] if own else ""}"'
    text = _HTML.sub(f"<html {where}", text, count=1)
    # Before everything: the theme makes its search worker at once.
    first = f'<script src="{root}{CARRIED}/carried.js"></script>'
    last = f'\n<script src="{root}{SCRIPT}"></script>'
    text, count = _THEME.subn(
        lambda theme: f'{first}<script src="{theme["address"]}"></script>{last}', text
    )
    if count != 1:
        raise ValueError(f"{page.relative_to(copy)} does not load the theme's script as was known")
    return text


def _with_file(found: re.Match[str], page: Path, copy: Path) -> str:
    """A link to a folder, naming the page in it; what is not in the copy is no link."""
    parts = urlsplit(found["address"])
    if parts.scheme or parts.netloc or not parts.path:
        return found[0]
    target = (page.parent / unquote(parts.path)).resolve()
    if not target.is_relative_to(copy.resolve()) or not target.exists():
        return 'data-elsewhere=""'
    path = parts.path
    if target.is_dir():
        path = f"{path.rstrip('/')}/index.html" if path.rstrip("/") else "index.html"
    quote = found["quote"] or '"'
    return f"{found['name']}{quote}{parts._replace(path=path).geturl()}{quote}"


def _write_search(site: Path, into: Path) -> None:
    """The search index as the script that the theme loads from a disk, leading to files."""
    index = json.loads((site / "search" / "search_index.json").read_bytes())
    for doc in index["docs"]:
        path, hash_, place = doc["location"].partition("#")
        if not path or path.endswith("/"):
            path += "index.html"
        doc["location"] = path + hash_ + place
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    (into / "search" / "search_index.js").write_text(f"var __index={text}\n", encoding="utf-8")
    (into / "search" / "search_index.json").unlink()


def policy_of_copy(pages: list[str]) -> str:
    """The policy of a copy's pages: a disk is no host to name, and nothing is fetched."""
    hashes = sorted({source_hash(code) for page in pages for code in inline_scripts(page)})
    return "; ".join(
        [
            "default-src 'none'",
            " ".join(["script-src 'self' file: blob: 'wasm-unsafe-eval'", *hashes]),
            "style-src 'self' file:",
            "img-src 'self' file: data:",
            "worker-src blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def carried(site: Path) -> dict[str, bytes]:
    """What a copy carries, by its path in the site: Python, and the scripts of workers."""
    runtime = json.loads((site / "assets" / "runtime" / "manifest.json").read_bytes())
    files = [*runtime["files"], *runtime["apart"].values()]
    found = {file["path"]: (site / file["path"]).read_bytes() for file in files}
    worker = (WEB / "carried-worker.js").read_text(encoding="utf-8") + bundled("worker")
    found[f"{own_folder(site)}worker.js"] = worker.encode()
    for script in sorted((site / "assets" / "javascripts" / "workers").glob("search.*.js")):
        found[script.relative_to(site).as_posix()] = script.read_bytes()
    return found


def packed(data: bytes) -> str:
    """Bytes as a script carries them: gzip in base64."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def packed_once(files: Mapping[str, bytes], kept: Path = CACHE / "packed") -> dict[str, str]:
    """Each of ``files`` as :func:`packed` has it; what was packed before is taken from ``kept``.

    ``kept`` has a file for each, named by the hash of its bytes, and loses all others.
    """
    kept.mkdir(parents=True, exist_ok=True)
    names = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    found = {}
    for path, name in names.items():
        file = kept / name
        if not file.is_file():
            # Moved into place when whole: a build may be broken off, and two may run at once.
            whole = kept.parent / f"{name}.{os.getpid()}"
            whole.write_text(packed(files[path]), encoding="ascii")
            whole.replace(file)
        found[path] = file.read_text(encoding="ascii")
    for file in set(kept.iterdir()) - {kept / name for name in names.values()}:
        file.unlink(missing_ok=True)
    return found


def own_folder(site: Path) -> str:
    """The path of the folder with our own modules in the site, with its closing slash."""
    found = _OWN_FOLDER.search((site / "index.html").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError("the site's first page names no script of ours")
    return found[0]


def page_script(entries: tuple[str, ...] = ENTRIES) -> str:
    """Our modules for the page as one script."""
    return bundled(*entries)


def bundled(*modules: str) -> str:
    """Modules of calculator/web as one plain script.

    Modules know by their own address where the site's root is; the script takes it from the page.
    """
    entry = "".join(f'import "./{module}.js";\n' for module in modules)
    told = "--define:import.meta.url=SITE_MODULE"
    script = esbuild("--bundle", "--format=iife", told, cwd=WEB, source=entry)
    return f"{_MODULE_ADDRESS}{script}"


#: Where the modules of a copy would be: three folders below its root, as in the site.
_MODULE_ADDRESS = (
    "var SITE_MODULE=typeof document==='undefined'?'':"
    "new URL((document.documentElement.dataset.root||'./')"
    "+(document.documentElement.dataset.own||''),location.href)+'module.js';\n"
)


def make_zip(copy: Path, into: Path, version: str, kept: Path = CACHE / "zipped") -> Path:
    """Put a copy into a zip in the folder ``into``; its name and its one folder say the version.

    What is carried comes first, and the zip of it is taken from ``kept`` while it stays the same:
    it is most of the bytes, and changes with no page.
    """
    into.mkdir(parents=True, exist_ok=True)
    name = f"{NAME}-{version}"
    made = into / f"{name}.zip"
    files = [file for file in sorted(copy.rglob("*")) if file.is_file()]
    carries = [file for file in files if file.is_relative_to(copy / CARRIED)]
    shutil.copyfile(_zipped_once(carries, copy, name, kept), made)
    _add_to_zip(made, [file for file in files if file not in set(carries)], copy, name)
    return made


def _zipped_once(files: list[Path], copy: Path, name: str, kept: Path) -> Path:
    """A zip of files alone, which ``kept`` has by their names and bytes, and no other."""
    kept.mkdir(parents=True, exist_ok=True)
    whole = hashlib.sha256(name.encode())
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{file.relative_to(copy).as_posix()} {digest}\n".encode())
    zipped = kept / f"{whole.hexdigest()}.zip"
    if not zipped.is_file():
        # Moved into place when whole, as packed_once does.
        begun = kept.parent / f"{zipped.name}.{os.getpid()}"
        begun.unlink(missing_ok=True)
        _add_to_zip(begun, files, copy, name)
        begun.replace(zipped)
    for file in set(kept.iterdir()) - {zipped}:
        file.unlink(missing_ok=True)
    return zipped


def _add_to_zip(made: Path, files: list[Path], copy: Path, name: str) -> None:
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED, compresslevel=6) as zipped:
        for file in files:
            entry = zipfile.ZipInfo(f"{name}/{file.relative_to(copy).as_posix()}", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            zipped.writestr(entry, file.read_bytes())
