"""Traced training steps, and the same steps as the calculator records them, for tests."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_memory import catalog
from training_memory.categories import Category
from training_memory.events import Counter, Group, Node, Repeat
from training_memory.held import held
from training_memory.model import Model
from training_memory.recorded import Sized, sizes_of
from training_memory.recorded_step import held_rows, optimizer_step, sized
from training_memory.recording import Recording, recording_of
from training_memory.run import Run
from training_memory.shares import splitting_of
from training_memory.stepping import step
from training_memory.structure import Structure, repeats_of, structure_of, values_of
from training_memory.tuning import FULL, Adapter, Dtype, Targets, Tuning
from training_memory.walk import walk

TRACES = Path(__file__).parents[1] / "docs" / "data" / "traces"
DATA = Path(__file__).parent / "calculator" / "data"

Row = Mapping[str, Any]

#: What a trace calls a precision, and the recipe that it is.
RECIPES = {
    "fp32": "fp32-adam",
    "autocast": "autocast-adam",
    "bf16": "bf16-adam",
    "master": "mixed-adam",
    "master-fp32-grad": "mixed-adam-fp32-grad",
}
#: An optimizer of the traces, and AdamW's kernel.
OPTIMIZERS = {
    "adamw-fused": ("adamw", "fused"),
    "adamw-foreach": ("adamw", "foreach"),
    "adamw-forloop": ("adamw", "forloop"),
    "adamw-deepspeed": ("adamw", "deepspeed"),
    "sgd-momentum": ("sgd-momentum", None),
    "adafactor": ("adafactor", None),
    "adafactor-hf": ("adafactor-hf", None),
    "muon": ("muon", None),
    "adamw-8bit": ("adamw-8bit", None),
    "paged-adamw": ("paged-adamw", None),
    "paged-adamw-8bit": ("paged-adamw-8bit", None),
}


def asked(row: Row) -> dict[str, Any]:
    """The run that a row traced, as far as every table of steps says it."""
    optimizer, kernel = OPTIMIZERS[row["optimizer"]]
    return {
        "model": row["model"],
        "shape": dict(pair.split("=") for pair in row["shape"].split()),
        **{name: row[name] for name in ("sequence", "micro_batch", "micro_batches", "recompute")},
        **{name: row[name] for name in ("implementation", "attention", "loss")},
        "recipe": RECIPES[row["precision"]],
        "optimizer": optimizer,
        "optimizer_kernel": kernel,
        **{name: row[name] for name in ("clip", "hold_logits")},
    }


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of one of the recorded tables."""
    with (TRACES / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def steps_of(name: str) -> list[dict[str, Any]]:
    """The steps of one of the files beside the tests, each with what all of them share."""
    found = json.loads((DATA / name).read_text(encoding="utf-8"))
    return [{**found["all"], **row} for row in found["rows"]]


def _own(text: str | None) -> str | None:
    """A switch as the calculator has it: None for the implementation's own way."""
    return None if text == "own" else text


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest point of a phase: bytes, where, and at which layer, if at one."""

    bytes: int
    moment: str
    layer: int | None


class Case:
    """A traced row as the calculator sees it."""

    def __init__(self, row: Row, *, scratch: bool = False) -> None:
        self.row = row
        #: Whether what attention's kernel holds inside itself counts as well.
        self.scratch = scratch
        shape = dict(pair.split("=") for pair in row["shape"].split())
        self.model: Model = catalog.with_shape(catalog.get(row["model"]), shape)
        self.sequence = int(row["sequence"])
        self.micro_batch = int(row["micro_batch"])
        self.loss = row.get("loss", "full")
        self.micro_batches = int(row.get("micro_batches", 1))

    @property
    def structure(self) -> Structure:
        """The order of its events."""
        row = self.row
        return structure_of(
            self.model,
            sequence=self.sequence,
            micro_batch=self.micro_batch,
            micro_batches=self.micro_batches,
            implementation=row["implementation"],
            precision=row["precision"],
            attention=row["attention"],
            recompute=row.get("recompute", "none"),
            loss=self.loss,
            hold_logits=row.get("hold_logits") == "yes",
            mlp=_own(row.get("mlp")),
            norm=_own(row.get("norm")),
            dropout={None: None, "on": True, "off": False}[_own(row.get("dropout"))],
            scratch=self.scratch,
            tuning=self.tuning,
            in_backward=row.get("in_backward") == "yes",
            offload=row.get("offload", "none"),
        )

    @property
    def repeats(self) -> dict[str, int]:
        """How many layers there are, and chunks of the loss."""
        return repeats_of(
            self.model, sequence=self.sequence, micro_batch=self.micro_batch, loss=self.loss
        )

    @property
    def tuning(self) -> Tuning:
        """What it trains: all weights, where the row says nothing else."""
        row = self.row
        if row.get("adapter", "none") == "none":
            return FULL
        return Tuning(
            adapter=Adapter(row["adapter"]),
            adapter_rank=int(row["adapter_rank"]),
            adapter_targets=Targets(row["adapter_targets"]),
            adapter_dtype=Dtype(row["adapter_dtype"]),
            adapter_dropout=row["adapter_dropout"] == "yes",
            frozen_dtype=Dtype(row["frozen_dtype"]),
        )

    @property
    def values(self) -> dict[str, int]:
        """Its numbers by their symbols."""
        return values_of(
            self.model,
            sequence=self.sequence,
            micro_batch=self.micro_batch,
            loss=self.loss,
            tuning=self.tuning,
        )

    @property
    def recording(self) -> Recording:
        """The recording that serves it."""
        return recording_of(self.structure, self.repeats)

    @property
    def sized(self) -> Sized:
        """The recording with its sizes."""
        recording = self.recording
        return Sized(
            recording=recording,
            sizes=sizes_of(recording, self.values),
            repeats=self.repeats,
            several=self.micro_batches > 1,
        )

    @property
    def held(self) -> int:
        """What stays between steps, the batch aside."""
        row = self.row
        return sum(
            one.bytes
            for one in held(
                self.model,
                implementation=row["implementation"],
                precision=row["precision"],
                optimizer=row["optimizer"],
                tuning=self.tuning,
                in_backward=row.get("in_backward") == "yes",
            )
        )

    @property
    def step(self) -> Group:
        """Clipping and the optimizer's step."""
        row = self.row
        return step(
            self.model,
            implementation=row["implementation"],
            precision=row["precision"],
            optimizer=row["optimizer"],
            clip=row["clip"] == "yes",
            tuning=self.tuning,
        )

    def passes(self) -> Iterator[tuple[str, Node]]:
        """Every forward and backward pass in order, further micro-batches each by itself."""
        sized = self.sized
        for turn in range(self.micro_batches):
            yield from zip(("forward", "backward"), sized.micro_batch(min(turn, 1)), strict=True)

    def highest(self) -> dict[str, Highest]:
        """The highest point of each phase."""
        parts = (*self.passes(), *(("step", node) for node in self.step.children))
        return highest_of(self.held, parts)


def whole(case: Case) -> Group:
    """All passes as one tree, as a step has them."""
    times = [1] if case.micro_batches == 1 else [1, case.micro_batches - 1]
    nodes = tuple(
        Repeat(
            count=count,
            child=Group(label="a micro-batch", children=case.sized.micro_batch(turn)),
            counters=(Counter("forward", 1 + turn), Counter("backward", 1 + turn)),
        )
        for turn, count in enumerate(times)
    )
    return Group(label="forward and backward", children=nodes)


def highest_of(start: int, parts: tuple[tuple[str, Node], ...]) -> dict[str, Highest]:
    """The highest point of each phase, from what is held before the step."""
    found: dict[str, Highest] = {}
    total = start
    for phase, node in parts:
        found.setdefault(phase, Highest(total, f"the start of the {phase}", None))
        segment = walk(node)
        if segment.at is not None:
            here = "clip" if segment.at.moment.startswith("in clipping") else phase
            peak = total + segment.peak
            if here not in found or peak > found[here].bytes:
                found[here] = Highest(peak, segment.at.moment, segment.counters.get("layer"))
        total += sum(segment.remains)
    return found


def highest_of_run(run: Run) -> dict[str, Highest]:
    """The highest point of each phase, as the calculator has it."""
    made = sized(run)
    # Gradients may wait for the last micro-batch, which then is like none before it.
    turns = [min(turn, 1) for turn in range(run.micro_batches)]
    if kinds := splitting_of(run).waits:
        turns[-1] = kinds - 1
    parts = [
        part
        for turn in turns
        for part in zip(("forward", "backward"), made.micro_batch(turn), strict=True)
    ]
    steps = (("step", node) for node in optimizer_step(run).children)
    return highest_of(found_by(run), (*parts, *steps))


def found_by(run: Run) -> int:
    """What a step finds: the first one no states of the optimizer."""
    first = run.sharding.first_step
    return sum(
        row.bytes for row in held_rows(run) if not (first and row.category is Category.OPTIMIZER)
    )
