"""What must stop a build stops it, with words that help, and leaves the last good site."""

import shutil
import subprocess
import sys

import pytest

import finish
import make_site
from make_site import BuildError, build_pages
from places import BUILD, DECODER, DOCS, PACKAGE, ROOT, RUNTIME, WEB, WHEEL
from snapshot import SNAPSHOT
from stages import Stages, files_under

pytestmark = pytest.mark.site

GOOD = '# A page\n\n{{ 4096 | count }} tokens, [here](#a-page).\n\n--8<-- "results.md"\n'


@pytest.fixture
def build(tmp_path):
    """Build a page of one's own with the site's own settings and macros."""
    for folder in ("generated", "data"):
        shutil.copytree(ROOT / "docs" / folder, tmp_path / "docs" / folder)
    (tmp_path / "build").symlink_to(ROOT / "build")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav: [index.md]\nextra_css: []\nextra_javascript: []\n"
    )

    def build(text):
        (tmp_path / "docs" / "index.md").write_text(text)
        build_pages(tmp_path / "site", config=config)
        return (tmp_path / "site" / "index.html").read_text()

    return build


def test_a_good_page_is_built(build):
    page = build(GOOD)
    assert "4,096 tokens" in page
    assert '<td align="right">199.5</td>' in page
    assert "style=" not in page.split("<article", 1)[1]


@pytest.mark.parametrize(
    ("added", "says"),
    [
        ("{{ unheard_of }}", "unheard_of"),
        ('{{ estimate("llama-7b").peek }}', "peek"),
        ('{{ estimate("lama-7b").peak | GB }}', "llama-7b"),
        ("{{ 13.5 | GB }}", "13.5 is not a whole number"),
        ('--8<-- "no-such-table.md"', "no-such-table.md"),
        ("[away](nowhere.md)", "nowhere.md"),
        ("[there](#nowhere)", "#nowhere"),
        ('{{ fact("no-such-fact") }}', "no-such-fact"),
        ('{{ math("\\\\unheardof{x}") }}', "unheardof"),
    ],
)
def test_what_does_not_exist_stops_it(build, added, says):
    with pytest.raises(BuildError) as caught:
        build(f"{GOOD}\n{added}\n")
    assert says in str(caught.value)


def test_a_failed_build_leaves_the_last_good_site(tmp_path, monkeypatch):
    site, runtime, web = tmp_path / "site", tmp_path / "runtime", tmp_path / "web"
    for folder in (site, runtime, web):
        folder.mkdir()
    (runtime / "manifest.json").write_text('{"files": [], "apart": {}}')
    (site / "index.html").write_text("the last good one")
    monkeypatch.setattr(make_site, "SITE", site)
    monkeypatch.setattr(make_site, "NEXT", tmp_path / "next")
    monkeypatch.setattr(make_site, "RUNTIME", runtime)
    monkeypatch.setattr(make_site, "WEB", web)

    def broken(into):
        scripts = into / "assets" / "javascripts"
        scripts.mkdir(parents=True)
        bundle = "function f(a,b){return a.protocol=b.protocol,a.hostname=b.hostname,a}"
        (scripts / "bundle.1.min.js").write_text(bundle)
        (into / "index.html").write_text(
            '<html><head><meta charset="utf-8"></head><a href="gone/">x</a></html>'
        )

    monkeypatch.setattr(make_site, "build_pages", broken)
    monkeypatch.setattr(make_site, "bundle", lambda assets: None)
    monkeypatch.setattr(make_site, "make_downloads", lambda site: {})
    monkeypatch.setattr(finish, "keeping_styles", lambda script: script)
    with pytest.raises(BuildError, match=r"- index\.html: the link 'gone/' leads nowhere"):
        make_site._make_pages()
    assert (site / "index.html").read_text() == "the last good one"


def test_a_rebuild_without_a_change_does_nothing(built_site, monkeypatch, capsys):
    def refuse(*_args, **_options):
        pytest.fail("a stage ran; is the site up to date? `make site` brings it there")

    for maker in ("make_wheel", "make_snapshot", "make_runtime", "_check_tables", "_make_pages"):
        monkeypatch.setattr(make_site, maker, refuse)
    before = {file: file.stat().st_mtime_ns for file in built_site.rglob("*")}
    make_site.make_site()
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 5
    assert all(line.endswith("unchanged") for line in said)
    assert {file: file.stat().st_mtime_ns for file in built_site.rglob("*")} == before


@pytest.fixture
def reads(built_site, monkeypatch):
    """The files that each stage reads: a change of any has it done again."""
    found = {}

    def noted(self, name, action, *, reads, makes, settings=()):
        found[name] = {file for path in reads for file in files_under(path)}
        return False

    monkeypatch.setattr(Stages, "run", noted)
    make_site.make_site()
    return found


@pytest.mark.parametrize(
    ("source", "stages"),
    [
        (PACKAGE, {"wheel", "tables", "pages"}),
        (WHEEL, {"snapshot", "runtime"}),
        (SNAPSHOT, {"runtime"}),
        (RUNTIME, {"pages"}),
        (DECODER, {"runtime", "tables", "pages"}),
        (DOCS / "data", {"tables", "pages"}),
        (DOCS, {"pages"}),
        (WEB, {"pages"}),
        (BUILD, {"pages"}),
        (ROOT / "mkdocs.yml", {"pages"}),
        (ROOT / "pyproject.toml", {"wheel"}),
        (ROOT / "package-lock.json", {"wheel", "runtime", "pages"}),
        (ROOT / "requirements" / "site.txt", {"wheel", "runtime", "pages"}),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else "",
)
def test_whatever_is_made_from_a_source_is_made_anew_with_it(reads, source, stages):
    files = set(files_under(source))
    assert files
    for stage in stages:
        assert files <= reads[stage], f"{stage}: {sorted(files - reads[stage])[:3]}"


@pytest.mark.parametrize(
    ("stage", "modules"),
    [
        ("wheel", "wheel"),
        ("snapshot", "snapshot"),
        ("runtime", "runtime, decoder_package, files_package"),
        ("tables", "make_tables"),
        ("pages", "macros, make_site"),
    ],
)
def test_a_stage_is_done_again_when_its_own_code_changes(reads, stage, modules):
    # As Python itself imports them, not as they are read.
    program = (
        f"import sys; sys.path.insert(0, {str(BUILD)!r}); import {modules}; "
        "print(*(getattr(one, '__file__', '') for one in sys.modules.values()), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = {file for file in files_under(BUILD) if str(file) in done.stdout.splitlines()}
    assert imported
    assert imported <= reads[stage]
