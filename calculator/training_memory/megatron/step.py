"""One training step of one GPU as Megatron-Core runs it."""

from __future__ import annotations

from collections.abc import Iterator

from ..blocks.ledger import Recompute
from ..categories import Category
from ..events import Event, Group, Node, Phase
from ..held import Held, before_step
from ..layouts import rounded
from ..pipeline import Pass, rounds, tree
from ..rank import Rank
from ..recorded import Sized, sizes_of
from ..recording import MOST
from ..records import dataclass
from ..run import Run
from ..walk import Shared
from .held import BF16_BYTES, FP32_BYTES, held_rows, left_of
from .recording import record
from .shape import dense_layers, mixed_layers, structure, values


def step(run: Run, rank: Rank) -> Group:
    """The whole step."""
    rows = held_rows(run, rank)
    return Group(
        label="one training step",
        children=(
            before_step(rows),
            Group(label="forward and backward", children=tuple(_Schedule(run, rank).nodes())),
            Group(label="optimizer", children=tuple(_optimizer(run, rows))),
        ),
    )


def sized(run: Run, rank: Rank, part: int = 0, *, waits: bool = False) -> Sized:
    """The recording of one part of the model on a stage, with its sizes."""
    first = rank.stage == 0 and part == 0
    mixed, dense = mixed_layers(run, rank, part), dense_layers(run, rank, part)
    decided = structure(
        run,
        first=first,
        last=rank.has_head(part),
        mixed=mixed > 0,
        alone=rank.in_flight == 1,
        waits=waits,
    )
    if not mixed:
        # Whatever layers there are are of one kind.
        mixed, dense = rank.layers_at_once, 0
    recording = record(decided, min(mixed, MOST), min(dense, MOST))
    return Sized(
        recording=recording,
        sizes=sizes_of(recording, values(run)),
        repeats={"layer": mixed, **({"dense": dense} if dense else {})},
        several=run.micro_batches > 1,
        first_layer=rank.first_layer_of(part) + dense,
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """A pass apart from its micro-batch.

    ``same``: the part's pass before went the same way; ``other``: the part whose gradient is there
    early, or whose is given back, if any; ``starts``: it is the part's first; ``late``: no forward
    pass came between it and the one before.
    """

    forward: bool
    part: int
    same: bool
    other: int | None
    starts: bool
    late: bool


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
        self.made: dict[Kind, Shared] = {}
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
            (forward, same): _shared(one.phase("forward" if forward else "backward"))
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
        """A pass with what its variables do; passes of one kind are one node."""
        kind = self._kind(one)
        self.before[one.part] = one.forward
        if kind not in self.made:
            self.made[kind] = self._made(one, kind)
        return self.made[kind]

    def _kind(self, one: Pass) -> Kind:
        """All that decides what happens in a pass: see :class:`Kind`."""
        same = self.before[one.part] is one.forward
        turn = one.rank - self.ahead if one.forward else one.rank - 1
        other = self._part_of_backward(turn) if turn >= (1 if one.forward else 0) else None
        starts = one.forward and not one.micro_batch
        late = not one.forward and one.rank + self.ahead > self.last
        return Kind(one.forward, one.part, same, other, starts, late)

    def _made(self, one: Pass, kind: Kind) -> Shared:
        body = self.ways[one.part][one.forward, kind.same]
        interleaved = self.rank.parts > 1
        if one.forward:
            nodes = (
                self._interleaved_forward(body, kind) if interleaved else self._forward(body, kind)
            )
            nodes += self._routed_goes(one.part) if kind.starts else []
        elif interleaved:
            nodes = self._interleaved_backward(body, kind)
        else:
            nodes = self._backward(body, kind)
        return Shared("forward" if one.forward else "backward", tuple(nodes))

    def _forward(self, body: Group, kind: Kind) -> list[Node]:
        return [body, *([] if kind.other is None else [self._ends(0)])]

    def _backward(self, body: Group, kind: Kind) -> list[Node]:
        if kind.other is None:
            return [body]
        # Where no forward pass came between, the output is given the next now.
        before = [self._ends(0)] if kind.late else []
        return [*before, *self._came(0), body, *self._goes_back(0)]

    def _interleaved_forward(self, body: Group, kind: Kind) -> list[Node]:
        early = [] if kind.other is None else self._came(kind.other)
        return [*map(_opposite, early), body, *early]

    def _interleaved_backward(self, body: Group, kind: Kind) -> list[Node]:
        sent = [] if kind.other is None else self._goes_back(kind.other)
        return [body, self._ends(kind.part), *self._came(kind.part), *sent]

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


def _shared(group: Group) -> Shared:
    return Shared(group.label, group.children)


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


def _optimizer(run: Run, rows: tuple[Held, ...]) -> Iterator[Node]:
    if run.recipe.by_category[Category.GRADIENTS] < FP32_BYTES:
        size = sum(row.bytes for row in rows if row.category is Category.MASTER)
        for sign in (1, -1):
            yield Event(
                phase=Phase.OPTIMIZER,
                category=Category.TEMPORARY,
                bytes=sign * size,
                label="gradients in 32 bits" if sign > 0 else "they go",
                why="The optimizer reads 32-bit gradients; all 16-bit ones are cast before.",
                moment="in the optimizer's step, as the gradients are cast",
            )
