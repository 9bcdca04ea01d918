"""What `make test-fast` leaves out: what it says, and no module's every test by accident."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LEFT_OUT = ("page", "site", "thorough")

#: Modules without a quick test: what builds pages is what they are about, or PyTorch is.
WHOLLY_LEFT_OUT = {
    *(file.relative_to(TESTS).as_posix() for file in (TESTS / "page").glob("test_*.py")),
    "build/test_bundling.py",
    "build/test_drift.py",
    "build/test_licenses.py",
    "build/test_make_site.py",
    "build/test_site.py",
    "build/test_snapshot.py",
    "calculator/test_verify_torch.py",
    "scripts/test_measure_trace.py",
}


def test_every_module_has_a_quick_test(request: pytest.FixtureRequest) -> None:
    option = request.config.option
    if option.file_or_dir or option.keyword or option.deselect or option.lf:
        pytest.skip("only some modules are run")
    quick = {
        item.path.relative_to(TESTS).as_posix()
        for item in request.session.items
        if not any(item.get_closest_marker(name) for name in LEFT_OUT)
    }
    modules = {file.relative_to(TESTS).as_posix() for file in TESTS.rglob("test_*.py")}
    assert quick <= modules
    assert modules - quick <= WHOLLY_LEFT_OUT
    assert modules >= WHOLLY_LEFT_OUT


def test_the_whole_run_leaves_out_only_what_has_a_target_of_its_own() -> None:
    recipes = re.findall(
        r'^(test[a-z-]*):.*\n(?:\t@#.*\n)?\t\$\(BIN\)/pytest .*-m "?([^"\n]+)"?',
        (TESTS.parent / "Makefile").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert dict(recipes) == {
        "test": "not drift",
        "test-drift": "drift",
        "test-fast": " and ".join(f"not {name}" for name in LEFT_OUT),
    }
