"""``PYTHONPATH=calculator:scripts python3 -m decoder``: run the Decoder and show what it kept."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from .report import as_text, make_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run everything, print it; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m decoder",
        description="Train a tiny decoder in plain Python, count every value that it keeps for the "
        "backward pass, check its gradients, and compare the count with the textbook's formula.",
    )
    parser.add_argument(
        "--steps", type=_whole, default=100, help="training steps (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="for weights and passages (default: 0)")
    parser.add_argument(
        "--every-element",
        action="store_true",
        help="check the gradient of every parameter and not only of a sample (about half a minute)",
    )
    parser.add_argument("--json", action="store_true", help="print data in place of tables")
    options = parser.parse_args(arguments)
    report = make_report(
        steps=options.steps, elements=None if options.every_element else 8, seed=options.seed
    )
    print(json.dumps(report.to_json(), indent=2) if options.json else as_text(report))
    return 0


def _whole(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} cannot be used; give 0 or more")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
