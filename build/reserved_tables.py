"""What PyTorch's allocator reserves beyond what is allocated: published, and played."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import accuracy_tables
from measured import Measured, measured
from table import Cell, Column, Table
from training_memory.estimate import estimate
from training_memory.need import ALL_TO_ALL, COMMUNICATOR, CONTEXT
from training_memory.replay import replay
from training_memory.units import ratio, show_bytes

#: Every so many traced steps one is played; playing all would take longer than all other tables.
EVERY = 8
_RESERVED = re.compile(r"peak reserved (\d+) MiB")


def _published() -> list[tuple[int, int]]:
    """What was reserved and allocated in the same run, in bytes, where a source gives both."""
    found = ((_RESERVED.search(one.row["also_measured"]), one) for one in measured())
    return [_pair(match, one) for match, one in found if match]


def _pair(match: re.Match[str], one: Measured) -> tuple[int, int]:
    return int(match[1]) * 2**20, one.bytes


@cache
def _played() -> tuple[tuple[int, int], ...]:
    """The same of some traced steps, the allocator played."""
    steps = (accuracy_tables.run_of(one.row) for one in accuracy_tables.compared()[::EVERY])
    allocators = [replay(step, estimate(step).worst.rank) for step in steps]
    return tuple((one.most_reserved, one.most_allocated) for one in allocators)


@cache
def _played_as_published() -> tuple[tuple[int, int], ...]:
    """The published runs, played."""
    found = []
    for one in measured():
        if one.run and _RESERVED.search(one.row["also_measured"]):
            played = replay(one.run, estimate(one.run).worst.rank)
            found.append((played.most_reserved, played.most_allocated))
    return tuple(found)


def shares() -> Table:
    """How much more is reserved than allocated: the least, the median and the most."""
    return Table(
        columns=(
            Column(heading="Where", name="where", right=False),
            Column(heading="Runs", name="runs"),
            Column(heading="Least", name="least_percent"),
            Column(heading="Median", name="median_percent"),
            Column(heading="Most", name="most_percent"),
        ),
        rows=(
            _row("Published (nanotron, 8 GPUs)", _published()),
            _row("The same runs, played through the allocator", _played_as_published()),
            _row("Played through the allocator (traced steps, one GPU)", _played()),
        ),
    )


def _row(name: str, pairs: Sequence[tuple[int, int]]) -> tuple[Cell, ...]:
    ordered = sorted(pairs, key=lambda pair: pair[0] / pair[1])
    chosen = (ordered[0], ordered[len(ordered) // 2], ordered[-1])
    beyond = [ratio(100 * (reserved - held), held) for reserved, held in chosen]
    return (Cell(name), Cell(len(ordered)), *(Cell(one, f"{one} %") for one in beyond))


def beside() -> Table:
    """What a GPU holds beside PyTorch's own memory, as it was seen, and where."""
    seen = (
        ("The CUDA context, the least", CONTEXT[0], Cell("llm.c on an RTX 3060 (row M0195)")),
        ("The CUDA context, the most", CONTEXT[1], _linked("Model training anatomy", _GUIDE)),
        ("NCCL, a communicator of two GPUs", COMMUNICATOR[0], _linked("four A100s", _OF_GROUPS)),
        ("NCCL, a communicator of more", COMMUNICATOR[1], _linked("four A100s", _OF_GROUPS)),
        ("NCCL, the first all-to-all", ALL_TO_ALL, _linked("eight H100s", _TO_ALL)),
    )
    return Table(
        columns=(
            Column(heading="What", name="what", right=False),
            Column(heading="Bytes", name="bytes"),
            Column(heading="Where it was seen", name="source", right=False),
        ),
        rows=tuple(
            (Cell(what), Cell(size, show_bytes(size)), source) for what, size, source in seen
        ),
    )


_GUIDE = "https://huggingface.co/docs/transformers/model_memory_anatomy"
_OF_GROUPS, _TO_ALL = (f"https://github.com/NVIDIA/nccl/issues/{one}" for one in (964, 1685))


def _linked(words: str, address: str) -> Cell:
    return Cell(f"{words}, {address}", f"[{words}]({address})")
