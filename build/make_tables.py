"""Write the site's tables into docs/generated/, or check that they are what they should be.

``make tables`` writes them. With ``--check`` the files are compared with what the calculator says
now; the difference is shown, cut short, with the command that mends it.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from places import GENERATED
from tables import TABLES

CUT_LINES = 40


def files() -> dict[str, str]:
    """Every generated file's name and contents, as the calculator has them now."""
    return {file: text for name in sorted(TABLES) for file, text in files_of(name).items()}


def files_of(name: str) -> dict[str, str]:
    """The files of one table."""
    one = TABLES[name]()
    return {f"{name}.md": one.markdown(), f"{name}.csv": one.csv()}


def write(into: Path = GENERATED) -> list[str]:
    """Bring ``into`` up to date and return the names of the files that changed or went."""
    into.mkdir(parents=True, exist_ok=True)
    changed = []
    made = files()
    for name, text in made.items():
        file = into / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            changed.append(name)
    for file in strangers(into):
        file.unlink()
        changed.append(file.name)
    return changed


def differences(into: Path = GENERATED) -> str:
    """A unified diff from what lies in ``into`` to what should, cut short; "" where none."""
    lines: list[str] = []
    made = files()
    for name, text in made.items():
        file = into / name
        there = file.read_text(encoding="utf-8") if file.exists() else ""
        lines += difflib.unified_diff(
            there.splitlines(), text.splitlines(), f"{name} (file)", f"{name} (calculator)", "", "",
            lineterm="", n=1,
        )  # fmt: skip
    lines += [f"{file.name}: no table makes this file" for file in strangers(into)]
    if len(lines) > CUT_LINES:
        lines[CUT_LINES:] = [f"… and {len(lines) - CUT_LINES} more lines"]
    return "\n".join(lines)


def strangers(into: Path = GENERATED) -> list[Path]:
    """Files left by a table that is no longer made."""
    found = [*into.glob("*.md"), *into.glob("*.csv")]
    return sorted(file for file in found if file.stem not in TABLES)


def check(into: Path = GENERATED) -> str:
    """What to tell whoever changed a number without the tables; "" where all agree."""
    diff = differences(into)
    return diff and f"{diff}\n\nThe tables are not what the calculator says; run `make tables`."


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or check them. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Make the site's tables from the calculator.")
    parser.add_argument("--check", action="store_true", help="compare only; write nothing")
    parser.add_argument("--into", type=Path, default=GENERATED, help="the folder of the tables")
    options = parser.parse_args(arguments)
    if options.check:
        if wrong := check(options.into):
            print(wrong, file=sys.stderr)
            return 1
        print("The tables are what the calculator says.")
        return 0
    changed = write(options.into)
    print("\n".join(f"wrote {name}" for name in changed) or "The tables were up to date.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
