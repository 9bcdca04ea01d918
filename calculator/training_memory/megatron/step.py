"""One training step of one GPU as Megatron-Core runs it."""

from __future__ import annotations

from collections.abc import Iterator

from ..blocks.ledger import Recompute
from ..categories import Category
from ..events import Event, Group, Node, Phase, Repeat
from ..held import Held, before_step
from ..layouts import rounded
from ..pipeline import Pass, rounds, tree
from ..rank import Rank
from ..recorded import RecordedStep, Sized, sizes_of
from ..recording import MOST
from ..records import dataclass
from ..run import Run
from ..walk import Shared
from .held import BF16_BYTES, FP32_BYTES, held_rows, left_of, places_of
from .recording import record
from .shape import part_structure, values


def step(run: Run, rank: Rank) -> Group:
    """The whole step."""
    rows, schedule = held_rows(run, rank), _Schedule(run, rank)
    return RecordedStep(
        (
            before_step(rows),
            Group(label="forward and backward", children=tuple(schedule.nodes())),
            Group(label="optimizer", children=tuple(_optimizer(run, rows))),
        ),
        made=schedule.sized[0],
        rows=rows,
    )


def sized(run: Run, rank: Rank, part: int = 0, *, waits: bool = False) -> Sized:
    """The recording of one part of the model on a stage, with its sizes."""
    decided, mixed, dense = part_structure(run, rank, part, waits=waits)
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
    pass came between it and the one before. Where parts interleave, ``unsent``: the pass leaves an
    output to be sent after the backward pass that follows, or is that; ``given``: how
    many of the part's last input and its gradient, which the model held on to, go as this begins,
    or outlast it.
    """

    forward: bool
    part: int
    same: bool
    other: int | None
    starts: bool
    late: bool
    unsent: bool = False
    given: int = 0


class _Schedule:
    """The passes of a stage, and what the schedule's own variables hold between them.

    Megatron-Core 0.16, core/pipeline_parallel/schedules.py. Without interleaving, what came from
    the next stage, and what goes to the one before, is held until the variable is given the next,
    and the input and output of a micro-batch until the next one's forward pass is done. With it
    (``forward_backward_pipelining_with_interleaving``) functions of their own take the passes, so
    only what goes to the stage before is left; but the next gradient is there a pass early, an
    output is sent only after the backward pass that follows, and each part of the model holds the
    input that it was given last (``set_input_tensor``).
    """

    def __init__(self, run: Run, rank: Rank) -> None:
        self.run, self.rank = run, rank
        known = values(run)
        self.sent_bytes = rounded(BF16_BYTES * known["z"] * known["b"] * known["h"])
        self.sized = [sized(run, rank, part) for part in range(rank.parts)]
        #: Each part's forward and backward pass, after one in the other direction and in the same.
        self.ways = [self._ways(part) for part in range(rank.parts)]
        #: Which direction each part's pass before went in.
        self.before = [False] * rank.parts
        self.made: dict[Kind, Shared] = {}
        self.last = run.micro_batches * rank.parts - 1
        self.ahead = rank.in_flight - 1
        #: Whether forward and backward passes come in pairs at all.
        wanted = (rank.stages - rank.stage - 1) * 2 + (rank.parts - 1) * rank.stages
        self.pairs = wanted <= self.last
        #: Of a part's last routing, what goes when it first routes again, and is back at the end.
        self.routed = [left_of(run, rank, part) for part in range(rank.parts)]

    def _ways(self, part: int) -> dict[tuple[bool, bool], Group]:
        run, rank = self.run, self.rank
        made = dict.fromkeys((False, True), _both(self.sized[part]))
        if run.model.experts and run.recompute is Recompute.FULL and rank.in_flight > 1:
            made[True] = _both(sized(run, rank, part, waits=True))
        return {
            (forward, same): passes[forward]
            for same, passes in made.items()
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
        left = [self._ends(0), *self._came(0)]
        if rank.parts > 1:
            held = sum(self._held(part, 2 if part else 1) for part in range(rank.parts))
            left = [_goes("the last inputs", held, Category.ACTIVATIONS)]
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
        if self.rank.parts == 1:
            return Kind(one.forward, one.part, same, other, starts, late)
        place = one.rank if one.forward else one.rank + self.ahead
        unsent = self.pairs and self.ahead <= place <= self.last
        unsent = unsent and not self.rank.has_head(self._part_of_forward(place))
        given = self._given(one)
        if not one.forward and other is not None and self._outlasts(one.rank - 1, one.rank):
            other = None  # the model holds that gradient with its input
        return Kind(one.forward, one.part, same, other, starts, late, unsent, given)

    def _given(self, one: Pass) -> int:
        """Of what the model held on to of a part: what goes with this pass, or outlasts it."""
        if not one.forward:
            return int(self._outlasts(one.rank, one.rank))
        if not one.micro_batch:
            return 0
        parts, stages = self.rank.parts, self.rank.stages
        period = stages * parts
        # The pass before through this part: the one before in its group, or the last of a group.
        before = one.rank - (1 if one.micro_batch % stages else period - stages + 1)
        turn = before // period * period + (parts - 1 - one.part) * stages + before % stages
        # Its gradient was held by a variable until the backward pass that came next.
        return (turn + self.ahead < one.rank) + (turn + 1 + self.ahead < one.rank)

    def _outlasts(self, turn: int, now: int) -> bool:
        """Whether a backward pass's part was given no other input up to the backward pass ``now``.

        ``turn`` and ``now`` are places among the backward passes.
        """
        stages, period = self.rank.stages, self.rank.stages * self.rank.parts
        part = self._part_of_backward(turn)
        given = min(now + self.ahead, self.last)
        while self._part_of_forward(given) != part:
            given -= 1
        places = (one // period * stages + one % stages for one in (turn, given))
        return next(places) == next(places)

    def _made(self, one: Pass, kind: Kind) -> Shared:
        body = self.ways[one.part][one.forward, kind.same]
        if kind.starts and (goes := self._routed_goes(one.part)):
            # By the end of the layers all of them have routed anew.
            end = max(at for at, node in enumerate(body.children) if isinstance(node, Repeat)) + 1
            body = Group(
                label=body.label, children=(*body.children[:end], *goes, *body.children[end:])
            )
        interleaved = self.rank.parts > 1
        if one.forward:
            nodes = (
                self._interleaved_forward(body, kind) if interleaved else self._forward(body, kind)
            )
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
        given = self._last_input(kind.part, kind.given)
        unsent = map(_opposite, self._unsent(kind))
        return [*given, *map(_opposite, early), body, *early, *unsent]

    def _interleaved_backward(self, body: Group, kind: Kind) -> list[Node]:
        sent = [] if kind.other is None else self._goes_back(kind.other)
        ends = [self._ends(kind.part), *self._unsent(kind)]
        ends += map(_opposite, self._last_input(kind.part, kind.given))
        return [body, *ends, *self._came(kind.part), *sent]

    def _last_input(self, part: int, given: int) -> list[Event]:
        size = self._held(part, given)
        return [_goes("the last input", size, Category.ACTIVATIONS)] if size else []

    def _held(self, part: int, given: int) -> int:
        """A part's last input, its gradient, and the places where its tokens went."""
        sent = given * self.sent_bytes * self._receives(part)
        return sent + (places_of(self.run, self.rank, part) if given else 0)

    def _unsent(self, kind: Kind) -> list[Event]:
        if not kind.unsent:
            return []
        size = self.sent_bytes - rounded(1)  # of which one number would be left
        return [_goes("output for the next stage", size, Category.ACTIVATIONS)]

    def _part_of_forward(self, rank: int) -> int:
        parts, stages = self.rank.parts, self.rank.stages
        return rank % (stages * parts) // stages

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


def _both(made: Sized) -> dict[bool, Group]:
    """A part's forward pass, and its backward pass."""
    return {
        forward: _shared(made.phase("forward" if forward else "backward"))
        for forward in (True, False)
    }


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
