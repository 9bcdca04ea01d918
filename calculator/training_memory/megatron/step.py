"""One training step of one GPU as Megatron-Core runs it."""

from __future__ import annotations

from collections.abc import Iterator

from ..blocks.ledger import Recompute
from ..categories import Category
from ..events import Event, Group, Node, Phase
from ..held import before_step
from ..layouts import rounded
from ..pipeline import Pass, rounds, tree
from ..rank import Rank
from ..recorded import Sized, sizes_of
from ..recording import MOST
from ..run import Run
from .held import BF16_BYTES, FP32_BYTES, held_rows, left_of
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


def sized(run: Run, rank: Rank, part: int = 0, *, waits: bool = False) -> Sized:
    """The recording of one part of the model on a stage, with its sizes."""
    layers = rank.layers_at_once
    first = rank.stage == 0 and part == 0
    alone = rank.in_flight == 1
    last = rank.has_head(part)
    decided = structure(run, first=first, last=last, alone=alone, waits=waits)
    recording = record(decided, min(layers, MOST))
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
        #: Each part's forward and backward pass, after one in the other direction and in the same.
        self.ways = [self._ways(part) for part in range(rank.parts)]
        #: Which direction each part's pass before went in.
        self.before = [False] * rank.parts
        self.last = run.micro_batches * rank.parts - 1
        self.ahead = rank.in_flight - 1
        #: Of a part's last routing, what goes when it first routes again, and is back at the end.
        self.routed = [left_of(run, rank, part) for part in range(rank.parts)]

    def _ways(self, part: int) -> dict[tuple[bool, bool], Group]:
        run, rank = self.run, self.rank
        made = dict.fromkeys((False, True), sized(run, rank, part))
        if run.model.experts and run.recompute is Recompute.FULL and rank.in_flight > 1:
            made[True] = sized(run, rank, part, waits=True)
        return {
            (forward, same): one.phase("forward" if forward else "backward")
            for same, one in made.items()
            for forward in (True, False)
        }

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
        stay = [_opposite(one) for part in range(rank.parts) for one in self._routed_goes(part)]
        return [*passes, *left, *self._goes_back(0), *stay]

    def _node(self, one: Pass) -> Node:
        if one.forward:
            nodes = self._interleaved_forward(one) if self.rank.parts > 1 else self._forward(one)
            if not one.micro_batch:
                nodes += self._routed_goes(one.part)
        else:
            nodes = self._interleaved_backward(one) if self.rank.parts > 1 else self._backward(one)
        self.before[one.part] = one.forward
        label = "forward" if one.forward else "backward"
        return nodes[0] if len(nodes) == 1 else Group(label=label, children=tuple(nodes))

    def _pass(self, one: Pass) -> Group:
        return self.ways[one.part][one.forward, self.before[one.part] is one.forward]

    def _forward(self, one: Pass) -> list[Node]:
        after = [self._ends(0)] if one.rank > self.ahead else []
        return [self._pass(one), *after]

    def _backward(self, one: Pass) -> list[Node]:
        if not one.rank:
            return [self._pass(one)]
        # Where no forward pass came between, the output is given the next now.
        before = [self._ends(0)] if one.rank + self.ahead > self.last else []
        return [*before, *self._came(0), self._pass(one), *self._goes_back(0)]

    def _interleaved_forward(self, one: Pass) -> list[Node]:
        early = []
        if one.rank > self.ahead:
            early = self._came(self._part_of_backward(one.rank - self.ahead))
        return [*map(_opposite, early), self._pass(one), *early]

    def _interleaved_backward(self, one: Pass) -> list[Node]:
        part = one.part
        sent = self._goes_back(self._part_of_backward(one.rank - 1)) if one.rank else []
        return [self._pass(one), self._ends(part), *self._came(part), *sent]

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

    def _routed_goes(self, part: int) -> list[Event]:
        """What a part's dispatchers hold of the step before goes."""
        size = self.routed[part]
        return [_goes("of the last routing", size, Category.ACTIVATIONS)] if size else []

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
