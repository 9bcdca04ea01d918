"""A small server for the built site: what a static host does, and nothing more.

``python build/serve.py`` serves site/ at http://127.0.0.1:8000/. With ``--base /some/path/`` it
serves it there instead, as hosts that give each project a folder do.
"""

from __future__ import annotations

import argparse
import gzip
import mimetypes
import sys
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from places import SITE

# What the page's Python and its modules need is not left to the machine's own list of types.
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".xml": "application/xml",
    ".zip": "application/zip",
}
_COMPRESSED = {".css", ".csv", ".html", ".js", ".json", ".mjs", ".svg", ".txt", ".wasm", ".xml"}


class SiteServer(ThreadingHTTPServer):
    """Serves one folder under one path. ``port`` 0 takes any free one; ``url`` says which."""

    daemon_threads = True
    # A browser opens several connections for a page; one that finds no room waits for seconds.
    request_queue_size = 128

    def __init__(
        self, site: Path, *, host: str = "127.0.0.1", port: int = 0, base: str = "/"
    ) -> None:
        self.site = site.resolve()
        self.base = f"/{base.strip('/')}/" if base.strip("/") else "/"
        super().__init__((host, port), SiteHandler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that leaves a page hangs up on what it asked for; anything else is told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as it came

    @property
    def url(self) -> str:
        """The address of the first page, with its closing slash."""
        return f"http://{self.server_address[0]!s}:{self.server_port}{self.base}"


class SiteHandler(SimpleHTTPRequestHandler):
    """Answers GET and HEAD from the server's folder, compressed where the reader takes gzip."""

    protocol_version = "HTTP/1.1"  # one connection for many files
    server: SiteServer

    def do_GET(self) -> None:
        """Send a file, a redirect to a folder's page, or the site's own 404 page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Send what GET would, without the body."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Keep quiet about the ordinary; errors are worth a line."""
        if len(args) > 1 and str(args[1]).startswith(("4", "5")):
            super().log_message(format, *args)

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        if not path.startswith(self.server.base):
            if f"{path}/" == self.server.base:
                return self._redirect(self.server.base)
            return self._send(HTTPStatus.NOT_FOUND, None, with_body)
        file = self.server.site / path.removeprefix(self.server.base)
        if not file.resolve().is_relative_to(self.server.site):
            return self._send(HTTPStatus.NOT_FOUND, None, with_body)
        if file.is_dir():
            if not path.endswith("/"):
                return self._redirect(f"{path}/")
            file /= "index.html"
        if not file.is_file():
            return self._send(HTTPStatus.NOT_FOUND, self.server.site / "404.html", with_body)
        return self._send(HTTPStatus.OK, file, with_body)

    def _redirect(self, path: str) -> None:
        self.send_response(HTTPStatus.MOVED_PERMANENTLY)
        self.send_header("Location", path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, status: HTTPStatus, file: Path | None, with_body: bool) -> None:
        body, kind, tag = b"Not found\n", "text/plain", None
        squeezed = False
        if file is not None and file.is_file():
            kind = content_type(file.name)
            squeezed = PurePosixPath(file.name).suffix in _COMPRESSED and self._takes_gzip()
            stat = file.stat()
            body = _read(file, stat.st_mtime_ns, squeezed)
            tag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}{"-gz" if squeezed else ""}"'
            if status is HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
                status, body = HTTPStatus.NOT_MODIFIED, b""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if squeezed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Vary", "Accept-Encoding")
        # A reader of a site being worked on should see each build; asking again costs no download.
        self.send_header("Cache-Control", "no-cache")
        if tag:
            self.send_header("ETag", tag)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _takes_gzip(self) -> bool:
        return "gzip" in self.headers.get("Accept-Encoding", "")


def content_type(name: str) -> str:
    """The media type of a file by its name, with the charset where it is text."""
    suffix = PurePosixPath(name).suffix
    return TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


@lru_cache(maxsize=256)
def _read(file: Path, changed_ns: int, squeezed: bool) -> bytes:
    """A file's bytes, compressed once for as long as the file stays as it is."""
    data = file.read_bytes()
    return gzip.compress(data, 6, mtime=0) if squeezed else data


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Serve the built site.")
    parser.add_argument("--site", type=Path, default=SITE, help="the built folder")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free port")
    parser.add_argument("--base", default="/", help="path to serve under, such as /book/")
    options = parser.parse_args(arguments)
    if not (options.site / "index.html").is_file():
        print(f"{options.site} holds no built site; `make site` builds it.", file=sys.stderr)
        return 2
    try:
        server = SiteServer(options.site, host=options.host, port=options.port, base=options.base)
    except OSError as error:
        print(
            f"Port {options.port} cannot be used ({error.strerror}); choose another: "
            "make serve PORT=8001",
            file=sys.stderr,
        )
        return 2
    with server:
        print(f"Serving {options.site.name}/ at {server.url} (Ctrl+C stops)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
