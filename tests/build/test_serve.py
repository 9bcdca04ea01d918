"""The server does what a static host does: types, compression, caching, paths."""

import gzip
import http.client
from threading import Thread

import pytest

from serve import SiteServer, content_type, main


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text("<h1>first</h1>")
    (folder / "404.html").write_text("<h1>no such page</h1>")
    (folder / "deep").mkdir()
    (folder / "deep" / "index.html").write_text("<h1>deep</h1>")
    (folder / "app.wasm").write_bytes(b"\0asm" * 500)
    (folder / "file.zip").write_bytes(b"PK" * 500)
    (folder.parent / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(scope="module", params=["/", "/a/book/"])
def server(request, site):
    with SiteServer(site, base=request.param) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def ask(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)

    def ask(path, method="GET", whole=False, **headers):
        target = path if whole else server.base + path
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, target, headers=named)
        response = connection.getresponse()
        return response, response.read()

    yield ask
    connection.close()


def test_a_folder_is_its_page(ask, server):
    assert server.url.endswith(server.base)
    response, body = ask("")
    assert (response.status, body) == (200, b"<h1>first</h1>")
    assert ask("deep/")[1] == b"<h1>deep</h1>"


def test_a_folder_without_its_slash_is_redirected(ask, server):
    response, _ = ask("deep")
    assert response.status == 301
    assert response.headers["Location"] == f"{server.base}deep/"


def test_a_missing_page_is_answered_by_the_sites_own(ask):
    response, body = ask("nowhere/")
    assert (response.status, body) == (404, b"<h1>no such page</h1>")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("path", ["../secret.txt", "%2e%2e/secret.txt", "deep/../../secret.txt"])
def test_nothing_outside_the_folder_is_served(ask, path):
    response, body = ask(path)
    assert response.status == 404
    assert b"secret" not in body


def test_text_is_compressed_for_those_who_take_it(ask):
    response, body = ask("app.wasm", Accept_Encoding="br, gzip")
    assert response.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == b"\0asm" * 500
    assert len(body) == int(response.headers["Content-Length"]) < 500
    response, body = ask("app.wasm")
    assert "Content-Encoding" not in response.headers
    assert body == b"\0asm" * 500


def test_what_is_compressed_already_is_left_alone(ask):
    response, body = ask("file.zip", Accept_Encoding="gzip")
    assert "Content-Encoding" not in response.headers
    assert body == b"PK" * 500


def test_an_unchanged_file_is_not_sent_again(ask):
    tag = ask("")[0].headers["ETag"]
    response, body = ask("", If_None_Match=tag)
    assert (response.status, body) == (304, b"")
    assert ask("", If_None_Match='"another"')[0].status == 200


def test_head_is_get_without_the_body(ask):
    got, _ = ask("app.wasm")
    head, body = ask("app.wasm", method="HEAD")
    assert body == b""
    assert head.headers["Content-Length"] == got.headers["Content-Length"]


@pytest.mark.parametrize("server", ["/a/book/"], indirect=True)
def test_outside_its_path_there_is_nothing(ask):
    assert ask("/", whole=True)[0].status == 404
    response, _ = ask("/a/book", whole=True)
    assert (response.status, response.headers["Location"]) == (301, "/a/book/")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.wasm", "application/wasm"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.zip", "application/zip"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.unknown", "application/octet-stream"),
    ],
)
def test_types_do_not_depend_on_the_machine(name, kind):
    assert content_type(name) == kind


def test_without_a_site_it_says_what_to_do(tmp_path, capsys):
    assert main(["--site", str(tmp_path)]) == 2
    assert "make site" in capsys.readouterr().err


def test_a_taken_port_is_explained(site, server, capsys):
    assert main(["--site", str(site), "--port", str(server.server_port)]) == 2
    assert "PORT=8001" in capsys.readouterr().err


def test_a_reader_that_hangs_up_is_no_news_and_anything_else_is(server, capsys):
    for problem, told in ((ConnectionResetError(), False), (ValueError("odd"), True)):
        try:
            raise problem
        except type(problem):
            server.handle_error(None, ("127.0.0.1", 1))
        assert bool(capsys.readouterr().err) is told
