"""No number of the site outlives the constant it came from.

Each case changes one constant in a copy of the repository, builds the pages there as the site is
built, and compares: every quantity that the calculator now gives differently must be gone from the
pages, and its new value must stand there instead. A number that was typed anywhere (prose, data,
table, macro) would stay behind and fail.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import decoder_run
from make_site import build_pages
from places import ROOT

pytestmark = [pytest.mark.site, pytest.mark.drift]

COPIED = (
    "calculator",
    "build",
    "docs",
    "scripts/decoder",
    "mkdocs.yml",
    "pyproject.toml",
    "LICENSE",
)

# What the site says in many places, asked of the copy's own calculator, as it is shown.
QUESTIONS = """
import json, sys
sys.path[:0] = ["calculator", "scripts", "build"]
import decoder_run
import expressions as ask
from training_memory import recipe
from training_memory.blocks import paper
shown = {}
for name in ("mixed-adam none", "mixed-adam selective", "mixed-adam full", "fp32-adam none"):
    recipe_id, recompute = name.split()
    run = ask.estimate("llama-7b", sequence=4096, recipe=recipe_id, recompute=recompute)
    shown[f"{name} peak"] = ask.gb(run.peak)
    shown[f"{name} peak, in a table"] = ask.gb(run.peak).split()[0]
    shown[f"{name} states"] = ask.gb(run.states)
    for category, size in run.totals.items():
        shown[f"{name} {category}"] = ask.gb(size)
shown["decoder peak"] = ask.count(ask.estimate("decoder", sequence=8, micro_batch=16).peak)
shown["decoder states"] = ask.count(ask.estimate("decoder", sequence=8, micro_batch=16).states)
shown["decoder formula"] = ask.count(decoder_run.counted()[1].textbook_values)
shown["decoder count"] = ask.count(decoder_run.counted()[1].counted_values)
shown["parameters"] = ask.count(ask.model("llama-7b").parameters.total)
shown["formula"] = paper.LAYER.kept_bytes().text()
shown["per parameter"] = f"{recipe.get('mixed-adam').bytes_per_parameter} bytes"
print(json.dumps({name: " ".join(text.split()) for name, text in shown.items()}))
"""


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One constant changed: the first ``old`` after ``after`` in a file of the calculator."""

    name: str
    file: str
    after: str
    old: str
    new: str
    #: Quantities that must change with it, by their names in QUESTIONS.
    changes: frozenset[str]
    #: Quantities that must not.
    keeps: frozenset[str]

    def apply(self, root: Path) -> None:
        file = root / "calculator" / "training_memory" / self.file
        text = file.read_text(encoding="utf-8")
        start = text.index(self.old, text.index(self.after))
        file.write_text(text[:start] + self.new + text[start + len(self.old) :], encoding="utf-8")


MUTATIONS = (
    Mutation(
        name="optimizer-bytes",
        file="recipe.py",
        after='name="Adam\'s second moment"',
        old="item_bytes=item_bytes",
        new="item_bytes=item_bytes + 1",
        changes=frozenset(
            {"mixed-adam none peak", "mixed-adam full peak", "fp32-adam none peak"}
            | {"mixed-adam none states", "mixed-adam none optimizer", "decoder peak"}
            | {"decoder states", "per parameter"}
        ),
        keeps=frozenset({"mixed-adam none activations", "mixed-adam none weights", "formula"}),
    ),
    Mutation(
        name="kept-scores",
        file="blocks/paper.py",
        after='name="softmax output"',
        old="item_bytes=2",
        new="item_bytes=3",
        changes=frozenset(
            {"mixed-adam none peak", "mixed-adam none activations", "decoder peak", "formula"}
            | {"decoder formula"}
        ),
        keeps=frozenset(
            {"mixed-adam none states", "mixed-adam full activations", "per parameter"}
            | {"decoder count"}
        ),
    ),
    Mutation(
        name="logits-bytes",
        file="blocks/paper.py",
        after='name="logits"',
        old="item_bytes=6",
        new="item_bytes=10",  # with 8, another moment of the step comes to what the peak was
        changes=frozenset({"mixed-adam none peak", "mixed-adam none logits", "decoder peak"}),
        keeps=frozenset({"mixed-adam none activations", "mixed-adam none states", "formula"}),
    ),
    Mutation(
        name="llama-width",
        file="models.toml",
        after="\nllama-7b = {",
        old="ffn = 11008",
        new="ffn = 12000",
        changes=frozenset(
            {"parameters", "mixed-adam none peak", "mixed-adam none weights"}
            | {"mixed-adam none states", "fp32-adam none peak"}
        ),
        keeps=frozenset({"decoder peak", "mixed-adam none activations", "per parameter"}),
    ),
)


@dataclass(frozen=True)
class Built:
    """A copy's quantities as shown, and the words of its pages."""

    shown: dict[str, str]
    pages: dict[str, str]

    def pages_with(self, quantity: str) -> list[str]:
        # As a whole number: "13.5 GB" is not in "113.5 GB", nor "16 bytes" in "BF16 bytes".
        whole = re.compile(rf"(?<![\w.,]){re.escape(quantity)}(?![\d])")
        return [name for name, text in self.pages.items() if whole.search(text)]


def build_copy(root: Path, mutation: Mutation | None) -> Built:
    """Copy the repository's sources, change a constant, make its tables and its pages."""
    root.mkdir()
    for name in COPIED:
        source = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__")
        (root / name).parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=ignored)
        else:
            shutil.copy(source, root / name)
    (root / ".cache").mkdir()
    # The mutations are the calculator's: the Decoder trains as it did, and need not do so again.
    for made in ("runtime", "decoder"):
        shutil.copytree(ROOT / ".cache" / made, root / ".cache" / made)
    (root / "node_modules").symlink_to(ROOT / "node_modules")
    if mutation:
        mutation.apply(root)
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    for command in (["build/make_tables.py"], ["-c", QUESTIONS]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=root, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
    build_pages(root / "site", config=root / "mkdocs.yml")
    pages = {
        page.relative_to(root / "site").as_posix(): words(page.read_text(encoding="utf-8"))
        for page in (root / "site").rglob("*.html")
    }
    return Built(json.loads(done.stdout), pages)


def words(page: str) -> str:
    """The page's text, a space wherever a tag was, so that cells do not run together.

    Without the data of scripts: a film of a step holds hundreds of sizes, some of which happen to
    be what another quantity was. And without the size of Llama 2 7B, which has LLaMA 7B's shape and
    keeps it where LLaMA 7B's is changed, and what NCCL was measured to take for an all-to-all.
    """
    (article,) = re.findall(r"<article\b.*</article>", page, re.DOTALL) or [""]
    article = re.sub(r"<(script|template)\b.*?</\1>", " ", article, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", article)))
    text = re.sub(r"\bNCCL, the first all-to-all [\d.]+ GB", "NCCL, the first all-to-all", text)
    return re.sub(r"\bLlama 2 7B [\d,]+", "Llama 2 7B", text)


@pytest.fixture(scope="module")
def built(tmp_path_factory, built_site) -> dict[str, Built]:  # the site brings the runtime
    """The site as it is and under each mutation, two at a time."""
    decoder_run.trained()  # so that there is something to copy
    folder = tmp_path_factory.mktemp("drift")
    cases: dict[str, Mutation | None] = {"as it is": None}
    cases |= {mutation.name: mutation for mutation in MUTATIONS}
    with ThreadPoolExecutor(2) as pool:
        builds = {
            name: pool.submit(build_copy, folder / name.replace(" ", "-"), mutation)
            for name, mutation in cases.items()
        }
        return {name: build.result() for name, build in builds.items()}


@pytest.fixture(params=MUTATIONS, ids=lambda mutation: mutation.name)
def mutation(request):
    return request.param


def test_the_calculator_changes_where_it_should(built, mutation):
    before, after = built["as it is"].shown, built[mutation.name].shown
    changed = {name for name in before if before[name] != after[name]}
    assert changed >= mutation.changes
    assert not changed & mutation.keeps


def test_the_pages_follow(built, mutation):
    before, after = built["as it is"], built[mutation.name]
    changed = {name for name in before.shown if before.shown[name] != after.shown[name]}
    seen = set()
    for name in sorted(changed):
        old, new = before.shown[name], after.shown[name]
        where = before.pages_with(old)
        # The same words may be another quantity's, which has not changed or has come to them.
        if not where or old in after.shown.values():
            continue
        seen.add(name)
        assert not after.pages_with(old), f"{name}: {old} is still on {after.pages_with(old)}"
        missing = set(where) - set(after.pages_with(new))
        assert not missing, f"{name}: {new} is not on {missing}, where {old} was"
    assert seen, "no page shows anything that this constant decides"


def test_what_does_not_depend_on_it_stays(built, mutation):
    before, after = built["as it is"], built[mutation.name]
    for name in mutation.keeps:
        shown = before.shown[name]
        assert after.pages_with(shown) == before.pages_with(shown), name


def test_a_number_typed_by_hand_would_be_caught(built):
    mutation = MUTATIONS[0]
    before, after = built["as it is"], built[mutation.name]
    name = "mixed-adam none peak"
    typed = Built(after.shown, {**after.pages, "typed": f"It needs {before.shown[name]} in all."})
    with pytest.raises(AssertionError, match=r"199\.5 GB is still on \['typed'\]"):
        test_the_pages_follow({"as it is": before, mutation.name: typed}, mutation)
