"""Trace steps with kernels and dropouts exchanged: ``python -m measure.switches``.

Small models of every family, so that the layers decide the peak; written beside the tests that
hold the calculator against them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import cycle, product
from pathlib import Path

from .case import PRECISIONS, RECOMPUTES, Case

FILE = Path(__file__).parents[2] / "tests" / "calculator" / "data" / "switch-steps.json"
_GROUPED = (("heads", 8), ("kv_heads", 2), ("head_dim", 64))
_SMALL = (("layers", 3), ("hidden", 512), ("ffn", 1376), ("vocabulary", 1024))
MODELS = (
    ("huggingface", "gpt2", (*_SMALL, ("heads", 8), ("positions", 512))),
    ("huggingface", "llama-3.2-1b", (*_SMALL, *_GROUPED)),
    ("huggingface", "qwen3-0.6b", (*_SMALL, *_GROUPED)),
    ("huggingface", "gemma-2-2b", (*_SMALL, *_GROUPED)),
    ("huggingface", "gemma-3-1b", (*_SMALL, *_GROUPED)),
    ("huggingface", "phi-3-mini", (*_SMALL, *_GROUPED)),
    ("torchtitan", "llama-3.2-1b", (*_SMALL, *_GROUPED)),
)
#: norm, mlp, dropout.
WAYS = (("fused", "own", "own"), ("own", "fused", "own"), ("fused", "fused", "off"))
DROPS = (("own", "own", "on"), ("own", "own", "off"))


def cases() -> Iterator[Case]:
    """Every model in every precision and with both attentions, recomputation taking turns."""
    again = cycle(RECOMPUTES)
    for (implementation, model, shape), precision, attention in product(
        MODELS, PRECISIONS[:3], ("flash", "eager")
    ):
        if (model, attention) == ("gemma-2-2b", "flash"):
            continue  # transformers gives Gemma 2 eager attention alone
        for norm, mlp, dropout in _ways(implementation, model):
            yield Case(
                implementation=implementation,
                model=model,
                shape=shape,
                micro_batch=2,
                sequence=384,
                precision=precision,
                attention=attention,
                recompute=next(again),
                optimizer="adamw-fused",
                mlp=mlp,
                norm=norm,
                dropout=dropout,
            )


def _ways(implementation: str, model: str) -> Iterator[tuple[str, str, str]]:
    if implementation == "torchtitan":
        yield from (("unfused", "own", "own"), ("own", "fused", "own"))
    elif model in ("gpt2", "gemma-3-1b"):
        yield from (("own", "fused", "own"), ("own", "fused", "off"))
    else:
        yield from WAYS
    if implementation != "torchtitan":
        yield from DROPS


def main() -> None:
    """Trace them all and write the file."""
    from .record import PACKAGES
    from .step import trace

    rows = []
    for case in cases():
        found = trace(case)
        peaks = {phase: peak.bytes for phase, peak in found.peaks.items() if phase != "clip"}
        rows.append({**case.to_row(), "persistent": found.persistent, "peaks": peaks})
        print(len(rows), case.model, flush=True)
    shared = {name: rows[0][name] for name in rows[0] if len({str(r[name]) for r in rows}) == 1}
    lines = [
        json.dumps({name: value for name, value in row.items() if name not in shared})
        for row in rows
    ]
    head = {
        "what": "Peaks of small steps by phase, with norms, gates and dropouts exchanged.",
        "date": datetime.now(tz=UTC).date().isoformat(),
        "versions": {package: version(package) for package in PACKAGES},
        "all": shared,
    }
    text = json.dumps(head, indent=1).removesuffix("\n}")
    FILE.write_text(text + ',\n "rows": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n")


if __name__ == "__main__":
    main()
