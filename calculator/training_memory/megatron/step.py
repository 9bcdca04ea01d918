"""One training step of one GPU as Megatron-Core runs it."""

from __future__ import annotations

from collections.abc import Iterator

from ..categories import Category
from ..events import Event, Group, Node, Phase
from ..held import before_step
from ..layouts import rounded
from ..pipeline import Pass, rounds, tree
from ..rank import Rank
from ..recorded import Sized, sizes_of
from ..recording import MOST
from ..run import Run
from .held import BF16_BYTES, FP32_BYTES, held_rows
from .recording import record
from .shape import structure, values


def step(run: Run, rank: Rank) -> Group:
    """The whole step."""
    return Group(
        label="one training step",
        children=(
            before_step(held_rows(run, rank)),
            Group(label="forward and backward", children=tuple(_Schedule(run, rank).nodes())),
            Group(label="optimizer", children=tuple(_optimizer(run, rank))),
        ),
    )


def sized(run: Run, rank: Rank, part: int = 0) -> Sized:
    """The recording of one part of the model on a stage, with its sizes."""
    layers = rank.layers_at_once
    first = rank.stage == 0 and part == 0
    recording = record(structure(run, first=first, last=rank.has_head(part)), min(layers, MOST))
    return Sized(
        recording=recording,
        sizes=sizes_of(recording, values(run)),
        repeats={"layer": layers},
        several=run.micro_batches > 1,
        first_layer=rank.first_layer_of(part),
    )


class _Schedule:
    """The passes of a stage, and what the schedule's own variables hold between them.

    Megatron-Core 0.16, core/pipeline_parallel/schedules.py. Without interleaving, what came from
    the next stage, and what goes to the one before, is held until the variable is given the next,
    and the input and output of a micro-batch until the next one's forward pass is done. With it
    (``forward_backward_pipelining_with_interleaving``) functions of their own take the passes, so
    only what goes to the stage before is left; but the next gradient is there a pass early.
    """

    def __init__(self, run: Run, rank: Rank) -> None:
        self.run, self.rank = run, rank
        known = values(run)
        self.sent_bytes = rounded(BF16_BYTES * known["z"] * known["b"] * known["h"])
        made = [sized(run, rank, part) for part in range(rank.parts)]
        self.forward = [one.phase("forward") for one in made]
        self.backward = [one.phase("backward") for one in made]
        self.last = run.micro_batches * rank.parts - 1
        self.ahead = rank.in_flight - 1

    def nodes(self) -> list[Node]:
        """Everything in order; at the end the last variables go."""
        rank = self.rank
        passes = tree(
            rounds(
                self.run.layout.schedule,
                stages=rank.stages,
                stage=rank.stage,
                micro_batches=self.run.micro_batches,
                parts=rank.parts,
            ),
            self._node,
        )
        # The last backward pass is through the first part.
        left = [] if rank.parts > 1 else [self._ends(0), *self._came(0)]
        return [*passes, *left, *self._goes_back(0)]

    def _node(self, one: Pass) -> Node:
        if one.forward:
            nodes = self._interleaved_forward(one) if self.rank.parts > 1 else self._forward(one)
            label = self.forward[one.part].label
        else:
            nodes = self._interleaved_backward(one) if self.rank.parts > 1 else self._backward(one)
            label = self.backward[one.part].label
        return nodes[0] if len(nodes) == 1 else Group(label=label, children=tuple(nodes))

    def _forward(self, one: Pass) -> list[Node]:
        after = [self._ends(0)] if one.rank > self.ahead else []
        return [self.forward[0], *after]

    def _backward(self, one: Pass) -> list[Node]:
        if not one.rank:
            return [self.backward[0]]
        # Where no forward pass came between, the output is given the next now.
        before = [self._ends(0)] if one.rank + self.ahead > self.last else []
        return [*before, *self._came(0), self.backward[0], *self._goes_back(0)]

    def _interleaved_forward(self, one: Pass) -> list[Node]:
        early = []
        if one.rank > self.ahead:
            early = self._came(self._part_of_backward(one.rank - self.ahead))
        return [*map(_opposite, early), self.forward[one.part], *early]

    def _interleaved_backward(self, one: Pass) -> list[Node]:
        part = one.part
        sent = self._goes_back(self._part_of_backward(one.rank - 1)) if one.rank else []
        return [self.backward[part], self._ends(part), *self._came(part), *sent]

    def _part_of_backward(self, rank: int) -> int:
        """The part that the backward pass of this place goes through."""
        parts, stages = self.rank.parts, self.rank.stages
        return parts - 1 - rank % (stages * parts) // stages

    def _receives(self, part: int) -> bool:
        return self.rank.stage > 0 or part > 0

    def _ends(self, part: int) -> Event:
        """A micro-batch's input and output go."""
        size = rounded(1) + self.sent_bytes * self._receives(part)
        return _goes("input and output of the micro-batch before", size, Category.ACTIVATIONS)

    def _came(self, part: int) -> list[Event]:
        """What the next stage sent back goes."""
        if self.rank.has_head(part):
            return []
        return [_goes("gradient from the next stage", self.sent_bytes, Category.TEMPORARY)]

    def _goes_back(self, part: int) -> list[Event]:
        """What the stage before was sent back goes."""
        if not self._receives(part):
            return []
        return [_goes("gradient for the stage before", self.sent_bytes, Category.TEMPORARY)]


def _goes(name: str, size: int, category: Category) -> Event:
    return Event(
        phase=Phase.BACKWARD,
        category=category,
        bytes=-size,
        label=f"{name}: no longer held",
        why="The schedule's variable that held it is given the next.",
        moment="",
    )


def _opposite(event: Event) -> Event:
    return Event(
        phase=event.phase,
        category=event.category,
        bytes=-event.bytes,
        label=event.label.replace("no longer held", "there a pass early"),
        why="It is received before the forward pass that precedes its backward pass.",
        moment="as the gradient from the next stage arrives",
    )


def _optimizer(run: Run, rank: Rank) -> Iterator[Node]:
    rows = {row.category: row for row in held_rows(run, rank)}
    if run.recipe.by_category[Category.GRADIENTS] < FP32_BYTES:
        size = rows[Category.MASTER].bytes
        for sign in (1, -1):
            yield Event(
                phase=Phase.OPTIMIZER,
                category=Category.TEMPORARY,
                bytes=sign * size,
                label="gradients in 32 bits" if sign > 0 else "they go",
                why="The optimizer reads 32-bit gradients; all 16-bit ones are cast before.",
                moment="in the optimizer's step, as the gradients are cast",
            )
