"""What each traced layer keeps for its backward pass, ours against PyTorch's, tensor by tensor.

The traces are data (docs/data/traces, made by scripts/measure); ours is asked of the calculator
whenever the tables are made. Tensors are paired by whose they are, dtype and bytes.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from places import DOCS
from table import Cell, Column, Table
from training_memory import catalog
from training_memory.kept import KeptRow, Kind, kept_rows
from training_memory.recording import record
from training_memory.structure import structure_of, values_of
from training_memory.units import show_bytes

_TRACES = DOCS / "data" / "traces"
#: Layers of a recording: what the one in the middle keeps is the block's.
_LAYERS = 3
_FAMILIES = {
    "classic-gpt": "GPT as in the papers",
    "gpt2": "GPT-2",
    "llama": "Llama",
    "plain-llama": "Llama in torchtitan's way",
}

Traced = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A traced block: PyTorch's tensors, each with ours that is equal to it, and ours left over."""

    row: Traced
    pairs: tuple[tuple[Traced, KeptRow | None], ...]
    extra: tuple[KeptRow, ...]

    @property
    def equal(self) -> int:
        """How many tensors are equal."""
        return sum(ours is not None for _, ours in self.pairs)

    @property
    def is_exact(self) -> bool:
        """Whether every tensor of either side is one of the other's."""
        return self.equal == len(self.pairs) and not self.extra

    @property
    def traced_bytes(self) -> int:
        """What PyTorch keeps."""
        return sum(int(traced["bytes"]) for traced, _ in self.pairs)

    @property
    def our_bytes(self) -> int:
        """What the calculator says."""
        both = (*(ours for _, ours in self.pairs if ours), *self.extra)
        return sum(ours.bytes for ours in both)


@cache
def blocks() -> tuple[Block, ...]:
    """Every traced block."""
    tensors: dict[str, list[Traced]] = defaultdict(list)
    for tensor in _rows("block-tensors.csv"):
        # What all layers share (rotary tables, masks) is made once a step and is no block's own.
        if tensor["kind"] != Kind.SHARED:
            tensors[tensor["block"]].append(tensor)
    return tuple(_block(row, tensors[row["block"]]) for row in _rows("blocks.csv"))


def _rows(name: str) -> list[dict[str, str]]:
    with (_TRACES / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _block(row: Traced, tensors: Sequence[Traced]) -> Block:
    waiting: dict[tuple[str, str, int], list[KeptRow]] = defaultdict(list)
    for ours in _kept(row):
        if ours.kind is not Kind.SHARED:
            waiting[str(ours.kind), ours.dtype, ours.bytes].append(ours)
    pairs = []
    for traced in tensors:
        same = waiting[traced["kind"], traced["dtype"], int(traced["bytes"])]
        pairs.append((traced, same.pop(_nearest(traced, same)) if same else None))
    extra = tuple(ours for left in waiting.values() for ours in left)
    return Block(row=row, pairs=tuple(pairs), extra=extra)


def _nearest(traced: Traced, same: Sequence[KeptRow]) -> int:
    """Which of ours that are equal bears its name: a key for ``.key``; else the first."""
    role = traced["needed_by"].rpartition(".")[2]
    named = [place for place, ours in enumerate(same) if ours.name.startswith(role)]
    # Keys and queries are called what was last done to them; values are never turned.
    others = [place for place, ours in enumerate(same) if not ours.name.startswith("value")]
    return (named or others or [0])[0]


def _kept(row: Traced) -> tuple[KeptRow, ...]:
    """What the calculator says that a layer of the block keeps."""
    shape = dict(pair.split("=") for pair in row["shape"].split())
    model = catalog.with_shape(catalog.get(row["model"]), {**shape, "layers": str(_LAYERS)})
    sequence, micro_batch = int(row["sequence"]), int(row["micro_batch"])
    structure = structure_of(
        model,
        sequence=sequence,
        micro_batch=micro_batch,
        implementation=row["implementation"],
        precision=row["precision"],
        attention=row["attention"],
    )
    values = values_of(model, sequence=sequence, micro_batch=micro_batch)
    return kept_rows(record(structure, _LAYERS), values)


def _name(family: str) -> str:
    return _FAMILIES.get(family, family.replace("gemma", "Gemma ").replace("phi", "Phi-").title())


def summary() -> Table:
    """By family: how many blocks and tensors, and how many of them are equal."""
    families = dict.fromkeys(block.row["family"] for block in blocks())
    rows = []
    for family in (*families, None):
        some = [block for block in blocks() if family in (None, block.row["family"])]
        name = "All" if family is None else _name(family)
        rows.append(
            (
                Cell(name, f"**{name}**" if family is None else name),
                Cell(len(some)),
                Cell(sum(block.is_exact for block in some)),
                Cell(sum(len(block.pairs) for block in some)),
                Cell(sum(block.equal for block in some)),
            )
        )
    return Table(
        columns=(
            Column(heading="Family", name="family", right=False),
            Column(heading="Blocks", name="blocks"),
            Column(heading="Equal to the byte", name="equal_blocks"),
            Column(heading="Kept tensors", name="tensors"),
            Column(heading="Equal", name="equal_tensors"),
        ),
        rows=tuple(rows),
    )


def every() -> Table:
    """Every block: what it is, how many tensors it keeps, and the bytes of both sides."""
    return Table(
        columns=(
            Column(heading="Block", name="block", right=False),
            Column(heading="Family", name="family", right=False),
            Column(heading="Shape", name="shape", right=False),
            Column(heading="Tokens", name="tokens", right=False),
            Column(heading="Precision", name="precision", right=False),
            Column(heading="Attention", name="attention", right=False),
            Column(heading="Tensors", name="tensors"),
            Column(heading="Equal", name="equal_tensors"),
            Column(heading="PyTorch", name="traced_bytes"),
            Column(heading="Calculator", name="calculator_bytes"),
        ),
        rows=tuple(_line(block) for block in blocks()),
    )


def _line(block: Block) -> tuple[Cell, ...]:
    row = block.row
    return (
        Cell(row["block"]),
        Cell(_name(row["family"])),
        Cell(row["shape"]),
        Cell(f"{row['micro_batch']} × {row['sequence']}"),
        Cell(row["precision"]),
        Cell(row["attention"]),
        Cell(len(block.pairs)),
        Cell(block.equal),
        Cell(block.traced_bytes, f"{block.traced_bytes:,}"),
        Cell(block.our_bytes, f"{block.our_bytes:,}"),
    )


def _needed(traced: Traced) -> str:
    """The operations that need it: ``mlp.act_fn: Silu``."""
    names = (use.replace("Backward0", "").partition(":") for use in traced["needed_by"].split())
    return ", ".join(f"{module}: {use.partition('.')[0]}" for module, _, use in names)


#: The block that is shown tensor by tensor: what most people run.
SHOWN = {"family": "llama", "precision": "autocast", "attention": "flash"}


def tensors() -> Table:
    """One block tensor by tensor: PyTorch's, and ours beside it with its formula and its reason."""
    shown = next(block for block in blocks() if SHOWN.items() <= block.row.items())
    rows = []
    for traced, ours in shown.pairs:
        size = int(traced["bytes"])
        rows.append(
            (
                Cell(traced["shape"], traced["shape"].replace("x", " × ")),
                Cell(traced["dtype"]),
                Cell(size, show_bytes(size)),
                Cell(traced["needed_by"], _needed(traced)),
                Cell(ours.name if ours else "none"),
                Cell(ours.formula.text() if ours else ""),
                Cell(ours.bytes if ours else 0, show_bytes(ours.bytes) if ours else "–"),
                Cell(" ".join(ours.why) if ours else ""),
            )
        )
    return Table(
        columns=(
            Column(heading="PyTorch's tensor", name="shape", right=False),
            Column(heading="Type", name="dtype", right=False),
            Column(heading="Size", name="traced_bytes"),
            Column(heading="Needed by", name="needed_by", right=False),
            Column(heading="The calculator's", name="name", right=False),
            Column(heading="Bytes", name="formula", right=False),
            Column(heading="Size", name="calculator_bytes"),
            Column(heading="Why", name="why", right=False),
        ),
        rows=tuple(rows),
    )
