"""Trace everything and write it down: ``python -m measure.record`` (``make measure``).

Needs PyTorch and transformers, and ``PYTHONPATH=calculator:scripts``. What one run traced the next
one takes from a cache, as long as neither this package nor PyTorch or transformers changed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from . import (
    blocks,
    context_matrix,
    fake_cuda,
    matrix,
    sharded_matrix,
    sharded_tuned,
    tables,
    tuned,
)
from .case import Case
from .sharded_case import ShardedCase
from .versions import write_versions

PACKAGES = ("torch", "transformers", "bitsandbytes", "peft")
#: What can be changed without changing what is measured, for all and for each kind.
NOT_MEASURING = {
    *(
        "record.py",
        "record_apart.py",
        "tables.py",
        "matrix.py",
        "sharded_matrix.py",
        "context_matrix.py",
        "blocks.py",
        "trace.py",
    ),
    *("oplog.py", "tuned.py", "sharded_tuned.py", "compiled.py"),
}
SPLITTING = {
    *("fsdp1_case.py", "fsdp1_matrix.py", "fsdp1_step.py", "record_fsdp1.py"),
    *("sharded_case.py", "sharded_step.py", "sharding.py", "data_parallel.py", "fake_group.py"),
}
NOT_FOR = {
    "block": {"real.py", *SPLITTING},
    "step": {"real.py", "saved.py", *SPLITTING},
    "sharded": {
        *("real.py", "saved.py", "fsdp1_case.py", "fsdp1_matrix.py", "fsdp1_step.py"),
        "record_fsdp1.py",
    },
    "real": {"saved.py", *SPLITTING},
}


class Cache:
    """Results by what they are the result of."""

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self.folder, self.fresh = folder, fresh
        self.versions = [importlib.metadata.version(package) for package in PACKAGES]

    def _made_of(self, kind: str) -> Iterator[str]:
        here = Path(__file__).parent
        for path in sorted((*here.glob("*.py"), *here.glob("*.cpp"))):
            if path.name not in NOT_MEASURING | NOT_FOR[kind]:
                yield path.read_text(encoding="utf-8")
        shapes = here.parents[1] / "calculator" / "training_memory" / "models.toml"
        yield shapes.read_text(encoding="utf-8")
        yield from self.versions

    def get(self, kind: str, case: Case | ShardedCase, find: Callable[[], Any]) -> tuple[Any, bool]:
        """The result, found or looked up, and whether it was looked up."""
        text = "\0".join((kind, json.dumps(asdict(case)), *self._made_of(kind)))
        path = self.folder / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"
        if path.exists() and not self.fresh:
            return json.loads(path.read_text(encoding="utf-8")), True
        result = find()
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result), encoding="utf-8")
        return json.loads(json.dumps(result)), False


def record_blocks(cache: Cache) -> None:
    """Take every layer apart and write both tables."""
    heads, tensors = [], []
    for number, (family, size, case) in enumerate(_shown(list(blocks.block_cases())), start=1):
        found, _ = cache.get("block", case, partial(_block, case))
        block = f"B{number:03}"
        sums = {
            kind: sum(t["bytes"] for t in found if t["kind"] == kind)
            for kind in ("kept", "weight copy", "shared")
        }
        row = case.to_row()
        heads.append(
            {
                **{column: row[column] for column in tables.BLOCK_COLUMNS if column in row},
                "block": block,
                "family": family,
                "size": size,
                "kept_bytes": sums["kept"],
                "weight_copy_bytes": sums["weight copy"],
                "shared_bytes": sums["shared"],
            }
        )
        tensors += [
            {
                **tensor,
                "block": block,
                "shape": "x".join(map(str, tensor["shape"])),
                "needed_by": " ".join(tensor["needed_by"]),
            }
            for tensor in found
        ]
    tables.write(tables.BLOCKS, heads)
    tables.write(tables.TENSORS, tensors)


def record_steps(cache: Cache) -> None:
    """Trace every step of the matrix and write both tables."""
    _record_traced(cache, "step", matrix.cases(), (tables.STEPS, tables.PEAKS))


def record_sharded(cache: Cache) -> None:
    """Trace every step of one of several GPUs and write both tables."""
    names = (tables.SHARDED, tables.SHARDED_PEAKS)
    _record_traced(cache, "sharded", sharded_matrix.cases(), names)


def _record_traced(
    cache: Cache, kind: str, todo: Iterable[Case | ShardedCase], names: tuple[str, str]
) -> None:
    steps, peaks = [], []
    for number, case in enumerate(_shown(todo), start=1):
        found, _ = cache.get(kind, case, partial(_step, case))
        step = f"{_LETTERS[kind]}{number:03}"
        highest = max(found["peaks"], key=lambda peak: peak["bytes"])
        steps.append(
            {
                **_known(case, names[0]),
                **{name: size for name, size in found["totals"].items() if name != "trained"},
                "step": step,
                "peak_bytes": highest["bytes"],
                "peak_phase": highest["phase"],
            }
        )
        peaks += [{**peak, "step": step} for peak in found["peaks"]]
    tables.write(names[0], steps)
    tables.write(names[1], peaks)


#: What a row's name begins with.
_LETTERS = {"step": "S", "sharded": "D"}


def record_tuning(cache: Cache) -> None:
    """Trace every step of fine-tuning and write their table."""
    _record_tuned(cache, "step", tuned.cases(), tables.TUNED)


def record_sharded_tuning(cache: Cache) -> None:
    """Trace every step of fine-tuning on one of several GPUs and write their table."""
    _record_tuned(cache, "sharded", sharded_tuned.cases(), tables.SHARDED_TUNED)


def record_context(cache: Cache) -> None:
    """Trace every step of GPUs that share each sequence and write their table."""
    _record_tuned(cache, "sharded", context_matrix.cases(), tables.CONTEXT)


def _record_tuned(cache: Cache, kind: str, todo: Iterable[Case | ShardedCase], table: str) -> None:
    rows = []
    for number, case in enumerate(_shown(todo), start=1):
        found, _ = cache.get(kind, case, partial(_step, case))
        totals = {k: v for k, v in found["totals"].items() if k in tables.COLUMNS[table]}
        peaks = {f"{peak['phase']}_peak_bytes": peak["bytes"] for peak in found["peaks"]}
        letter = {tables.TUNED: "T", tables.SHARDED_TUNED: "U", tables.CONTEXT: "C"}[table]
        rows.append({**_known(case, table), **totals, **peaks, "step": f"{letter}{number:03}"})
    tables.write(table, rows)


def _known(case: Case | ShardedCase, table: str) -> dict[str, str]:
    """Those of a case's choices that a table has."""
    return {k: v for k, v in case.to_row().items() if k in tables.COLUMNS[table]}


def _block(case: Case) -> list[dict[str, Any]]:
    from .saved import saved_tensors

    return [asdict(tensor) for tensor in saved_tensors(case)]


def _real(case: Case) -> list[dict[str, Any]]:
    from .real import compare

    return [asdict(agreement) for agreement in compare(case)]


def _step(case: Case | ShardedCase) -> dict[str, Any]:
    from . import sharded_step, step
    from .places import place
    from .storages import Category

    found = step.trace(case) if isinstance(case, Case) else sharded_step.trace(case)
    peaks = []
    for phase, peak in found.peaks.items():
        # DDP is one more module around the model.
        module = found.modules[phase].removeprefix("module").removeprefix(".")
        where = place(module) if phase in ("forward", "backward") else None
        peaks.append(
            {
                "phase": phase,
                "bytes": peak.bytes,
                "moment": f"{phase}: {where.name}" if where else phase,
                "layer": "" if where is None or where.layer is None else where.layer,
                "operation": peak.operation.removeprefix("aten."),
                "module": module,
                "again": "yes" if peak.recomputing else "no",
                "with_workspace_bytes": found.with_workspace[phase],
                **{f"{c}_bytes": peak.by_category.get(c, 0) for c in Category},
            }
        )
    totals = {
        "parameters": found.parameters,
        "trained": found.trainable,
        "persistent_bytes": found.persistent,
        "after_forward_bytes": found.after_forward,
        "after_backward_bytes": found.after_backward,
    }
    return {"totals": totals, "peaks": peaks}


def record_real(cache: Cache) -> None:
    """Run the small steps for real and write what each way of counting found."""
    from .real import real_cases

    rows = []
    for number, case in enumerate(_shown(list(real_cases())), start=1):
        found, _ = cache.get("real", case, partial(_real, case))
        rows += [
            {
                **case.to_row(),
                "step": f"R{number:03}",
                "phase": agreement["phase"],
                "fake_bytes": agreement["fake"],
                "real_bytes": agreement["real"],
                "allocator_bytes": agreement["allocator"],
            }
            for agreement in found
        ]
    tables.write(tables.REAL, rows)


def record_compiled(_: Cache) -> None:
    """What compiled layers and losses keep; a minute, and nothing of it in the cache."""
    from . import compiled  # looks into parts of PyTorch that nothing else needs

    compiled.main()


def _shown(todo: Iterable[Any]) -> Iterable[Any]:
    todo, began = list(todo), time.perf_counter()
    for done, item in enumerate(todo, start=1):
        yield item
        print(f"\r{done} of {len(todo)}, {time.perf_counter() - began:.0f} s", end="", flush=True)
    print()


KINDS: dict[str, Callable[[Cache], None]] = {
    "blocks": record_blocks,
    "steps": record_steps,
    "tuning": record_tuning,
    "sharded": record_sharded,
    "sharded-tuning": record_sharded_tuning,
    "context": record_context,
    "real": record_real,
    "compiled": record_compiled,
}


def main(arguments: list[str] | None = None) -> int:
    """Record what is asked for, or everything. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="measure.record", description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; all where none is named")
    parser.add_argument("--fresh", action="store_true", help="trace again what the cache has")
    given = parser.parse_args(arguments)
    if unknown := set(given.kinds) - set(KINDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    if why := fake_cuda.missing():
        print(
            f"Nothing can be measured here: {why}. In an environment of its own:\n  make measure",
            file=sys.stderr,
        )
        return 2
    cache = Cache(fake_cuda.CACHE / "results", fresh=given.fresh)
    for kind in given.kinds or KINDS:
        print(f"{kind}:")
        KINDS[kind](cache)
    write_versions(given.kinds or KINDS, PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
