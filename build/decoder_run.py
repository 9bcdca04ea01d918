"""The Decoder's run that the site shows: trained, counted and checked here, never typed.

Counting takes a moment and is done anew each time. Training and checking take some seconds, and
their results depend on nothing but the trainer's sources and this Python: they are kept under a
hash of both.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from decoder import Checked, Comparison, Count, compare, count_step, gradient_check, train
from decoder.training import SEQUENCES
from decoder_package import fingerprint
from places import CACHE
from training_memory.blocks.paper import LAYER

STEPS = 100
"""Training steps of the page's curve."""

ELEMENTS = 8
"""Elements of each matrix whose gradient is checked by itself."""

SEED = 0
"""What weights, passages and elements are drawn by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What takes a while: the loss of each step, and each tensor's gradient checked."""

    losses: tuple[float, ...]
    gradients: tuple[Checked, ...]


@cache
def counted() -> tuple[Count, Comparison]:
    """One step of the trainer, counted, and the count beside the textbook's ledger."""
    count = count_step(sequences=SEQUENCES, seed=SEED)
    return count, compare(LAYER.rows, counted=count.block)


@cache
def trained(folder: Path = CACHE / "decoder") -> Trained:
    """Train and check, or read what came of it when the same sources last did under ``folder``."""
    settings = f"{STEPS}-{ELEMENTS}-{SEED}-{sys.version}-{sys.platform}"
    key = fingerprint()
    file = folder / "trained.json"
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["settings"] == settings and kept["sources"] == key:
            return _read(kept)
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        pass  # never trained here, or half written: train
    made = Trained(
        losses=tuple(train(STEPS, seed=SEED)),
        gradients=tuple(gradient_check(elements=ELEMENTS, seed=SEED)),
    )
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"settings": settings, "sources": key, **asdict(made)}, indent=1)
    file.write_text(text + "\n", encoding="utf-8")
    return made


def _read(kept: Any) -> Trained:
    gradients = [Checked(**{**one, "shape": tuple(one["shape"])}) for one in kept["gradients"]]
    return Trained(losses=tuple(kept["losses"]), gradients=tuple(gradients))
