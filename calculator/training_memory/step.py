"""One training step of one GPU as a tree of events, by the textbook's schedule.

What stays for the whole run comes first: weights, master copy, optimizer states. Forward, each
layer adds what it keeps, then the logits. Backward, the head's gradient is written while the
logits are still held; the logits go; then from the last layer to the first: what recomputation
dropped is made again on top of everything kept, the layer's activations go, its gradient is
written. The optimizer updates in place and the gradients go. With a pipeline the passes come in the
order of its schedule (:mod:`.pipeline`); where that halves the backward pass, the layers' gradients
are written in its second half, and what they are made of waits until then. The head's is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache

from .blocks import paper
from .blocks.ledger import Ledger, RankRow, Recompute
from .categories import Category
from .events import Counter, Event, Group, Node, Phase, Repeat
from .formula import Formula
from .implementations import BY_STAGES, Implementation
from .pipeline import Pass, Schedule, rounds, tree
from .rank import Rank
from .recipe import State
from .records import dataclass
from .run import Run

_LAYER = Counter("layer")


def values(run: Run) -> dict[str, int]:
    """The run's numbers under the ledger's symbols; the vocabulary padded to divide evenly."""
    model, tensor = run.model, run.layout.tensor
    return {
        "L": model.layers,
        "a": model.heads,
        "s": run.sequence,
        "b": run.micro_batch,
        "h": model.hidden,
        "V": -(-model.vocabulary // tensor) * tensor,
        "t": tensor,
        "C": run.layout.context,
    }


def layer_rows(run: Run) -> tuple[RankRow, ...]:
    """One layer's ledger on one GPU of the run."""
    return _rows(tuple(values(run).items()), run.recompute, run.layout.sequence_parallel)


def waiting_rows(run: Run) -> tuple[RankRow, ...]:
    """What one layer holds between a halved backward pass's halves; nothing if it is whole."""
    if run.layout.schedule is not Schedule.ZERO_BUBBLE:
        return ()
    return _rows(
        tuple(values(run).items()), Recompute.NONE, run.layout.sequence_parallel, paper.WAITING
    )


@lru_cache(maxsize=256)
def _rows(
    numbers: tuple[tuple[str, int], ...],
    recompute: Recompute,
    sequence_parallel: bool,
    ledger: Ledger = paper.LAYER,
) -> tuple[RankRow, ...]:
    # The same on every stage, and in a search the same for many runs.
    return ledger.on_rank(dict(numbers), recompute, sequence_parallel=sequence_parallel)


def logits_bytes(run: Run) -> int:
    """The loss's logits on one GPU of the last stage."""
    return logits_formula(run).evaluate(values(run))


def logits_formula(run: Run) -> Formula:
    """The same in symbols."""
    return paper.LOGITS.rank_bytes(
        tensor=run.layout.tensor > 1,
        sequence_parallel=False,
        context=run.layout.context > 1,
    )


def sharded(run: Run, rank: Rank, zero_stage: int) -> int:
    """How many of a rank's parameters it holds: from ``zero_stage`` on a data-parallel share.

    GPUs that share a sequence hold the same parameters, so they share these as replicas do. Routed
    experts have replicas of their own.
    """
    if run.layout.zero < zero_stage:
        return rank.parameters
    rest = rank.parameters - rank.expert_parameters
    shares = _share(rest, run.layout.replicas)
    return shares + _share(rank.expert_parameters, run.layout.expert_replicas)


def _share(parameters: int, replicas: int) -> int:
    return -(-parameters // replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gradients:
    """Gradient bytes a stage writes: the head's, then each layer's.

    What does not divide evenly makes ``longer`` layers one element (``item_bytes``) longer.
    """

    head: int
    layer: int
    longer: int
    item_bytes: int

    @classmethod
    def of(cls, run: Run, rank: Rank) -> _Gradients:
        stage = run.recipe.zero_stage[Category.GRADIENTS]
        item_bytes = run.recipe.by_category[Category.GRADIENTS]
        head = rank.head_parameters
        if run.layout.zero >= stage:
            head = _share(head, run.layout.replicas)
        rest = sharded(run, rank, stage) - head
        layer, longer = divmod(rest, rank.layers)
        return cls(
            head=head * item_bytes, layer=layer * item_bytes, longer=longer, item_bytes=item_bytes
        )


def _of(run: Run, direction: str) -> str:
    """Names the micro-batch in a label where there are several."""
    return f" of micro-batch {{{direction}}}" if run.micro_batches > 1 else ""


def states(run: Run, rank: Rank) -> tuple[tuple[State, int], ...]:
    """Each number kept per parameter with its bytes on this GPU, gradients included."""
    return tuple(
        (state, sharded(run, rank, state.zero_stage) * state.item_bytes)
        for state in run.recipe.states
    )


def _persistent(run: Run, rank: Rank) -> Group:
    return Group(
        label="before the step",
        children=tuple(
            Event(
                phase=Phase.BEFORE,
                category=state.category,
                bytes=size,
                label=state.name,
                why=state.why,
                moment="before the step begins",
            )
            for state, size in states(run, rank)
            if state.category is not Category.GRADIENTS
        ),
    )


def _forward(run: Run, rank: Rank, rows: Sequence[RankRow], part: int) -> Group:
    of = _of(run, "forward")
    layer = Group(
        label="forward, layer {layer}" + of,
        children=tuple(
            Event(
                phase=Phase.FORWARD,
                category=Category.ACTIVATIONS,
                bytes=kept.bytes,
                label=f"layer {{layer}} keeps {kept.row.name}",
                why=kept.row.why,
                moment=f"in the forward pass{of}, in layer {{layer}}",
            )
            for kept in rows
            if kept.kept
        ),
    )
    children: list[Node] = [
        Repeat(
            count=rank.layers_at_once,
            child=layer,
            counters=(Counter(_LAYER.name, rank.first_layer_of(part)),),
        )
    ]
    if rank.has_head(part):
        children.append(
            Event(
                phase=Phase.LOSS,
                category=Category.LOGITS,
                bytes=logits_bytes(run),
                label="the logits",
                why=paper.LOGITS.why,
                moment=f"as the loss{of} is computed",
            )
        )
    return Group(label="forward" + of, children=tuple(children))


def _written(of: str, gradient_bytes: int, said: str = "") -> Event:
    return Event(
        phase=Phase.BACKWARD,
        category=Category.GRADIENTS,
        bytes=gradient_bytes,
        label="layer {layer}'s gradient is written" + said,
        why="It waits for the optimizer; the embedding's share is counted with the layers.",
        moment=f"in the backward pass{of}, as layer {{layer}}'s gradient is written",
    )


def _layer_backward(
    run: Run, rows: Sequence[RankRow], gradient_bytes: int, *, writes: bool
) -> Group:
    of = _of(run, "backward")
    events = []
    if run.recompute is not Recompute.NONE:
        events += [
            Event(
                phase=Phase.BACKWARD,
                category=Category.RECOMPUTED,
                bytes=again.bytes,
                label=f"layer {{layer}} makes {again.row.name} again",
                why="The forward pass kept too little of this layer to compute its gradients, so "
                "its forward pass runs once more.",
                moment=f"in the backward pass{of}, as layer {{layer}}'s activations are made again",
            )
            for again in rows
        ]
        events.append(
            Event(
                phase=Phase.BACKWARD,
                category=Category.RECOMPUTED,
                bytes=-sum(again.bytes for again in rows),
                label="layer {layer} drops what it made again",
                why="Its gradients are computed; nothing reads these values any more.",
                moment="",
            )
        )
    events.append(
        Event(
            phase=Phase.BACKWARD,
            category=Category.ACTIVATIONS,
            bytes=-sum(kept.bytes for kept in rows if kept.kept),
            label="layer {layer} frees its activations",
            why="The backward pass has read them, and nothing else will.",
            moment="",
        )
    )
    if halved := waiting_rows(run):
        events.append(
            Event(
                phase=Phase.BACKWARD,
                category=Category.ACTIVATIONS,
                bytes=sum(row.bytes for row in halved),
                label="layer {layer} keeps what its weights' gradients wait for",
                why="The weights' half of the backward pass comes later; until then each product's "
                "input and its output's gradient stay.",
                moment=f"in the backward pass{of}, as layer {{layer}}'s input's gradient is done",
            )
        )
    elif writes:
        events.append(_written(of, gradient_bytes))
    return Group(label="backward, layer {layer}" + of, children=tuple(events))


def _layer_weights(run: Run, gradient_bytes: int, *, writes: bool) -> Group:
    """The second half of a layer's halved backward pass."""
    of = _of(run, "weights")
    freed = Event(
        phase=Phase.BACKWARD,
        category=Category.ACTIVATIONS,
        bytes=-sum(row.bytes for row in waiting_rows(run)),
        label="layer {layer} frees what its weights' gradients waited for" + of,
        why="They are computed now.",
        moment="",
    )
    events = (_written(of, gradient_bytes, said=of), freed) if writes else (freed,)
    return Group(label="weights' gradients, layer {layer}" + of, children=events)


def _backward(run: Run, rank: Rank, rows: Sequence[RankRow], part: int, *, writes: bool) -> Group:
    """One micro-batch's backward pass: a step's first ``writes`` gradients, others add to them."""
    of = _of(run, "backward")
    gradients = _Gradients.of(run, rank)
    children: list[Node] = []
    if rank.has_head(part):
        if writes:
            children.append(
                Event(
                    phase=Phase.BACKWARD,
                    category=Category.GRADIENTS,
                    bytes=gradients.head,
                    label="the head's gradient is written",
                    why="The head comes last in the forward pass, so it is first in the backward "
                    "pass, and its gradient is computed from the logits' gradient.",
                    moment=f"as the backward pass{of} begins, with the logits still held",
                )
            )
        children.append(
            Event(
                phase=Phase.BACKWARD,
                category=Category.LOGITS,
                bytes=-logits_bytes(run),
                label="the logits are freed",
                why="The loss's gradient has passed the head.",
                moment="",
            )
        )
    children += _backwards(
        rank, part, gradients, lambda size: _layer_backward(run, rows, size, writes=writes)
    )
    return Group(label="backward" + of, children=tuple(children))


def _weights(run: Run, rank: Rank, *, writes: bool) -> Group:
    """The second half of one micro-batch's halved backward pass."""
    layers = _backwards(
        rank, 0, _Gradients.of(run, rank), lambda size: _layer_weights(run, size, writes=writes)
    )
    return Group(label="weights' gradients" + _of(run, "weights"), children=tuple(layers))


def _backwards(
    rank: Rank, part: int, gradients: _Gradients, layer_of: Callable[[int], Group]
) -> Iterator[Repeat]:
    """A part's layers from the last to the first, ``layer_of`` each one's gradient's size."""
    last_layer = rank.first_layer_of(part) + rank.layers_at_once - 1
    # The longer ones are the first layers of the first parts.
    longer = min(max(0, gradients.longer - part * rank.layers_at_once), rank.layers_at_once)
    even = rank.layers_at_once - longer
    for count, first, size in (
        (even, last_layer, gradients.layer),
        (longer, last_layer - even, gradients.layer + gradients.item_bytes),
    ):
        if count:
            counters = (Counter(_LAYER.name, first, -1),)
            yield Repeat(count=count, child=layer_of(size), counters=counters)


def _micro_batches(run: Run, rank: Rank) -> list[Node]:
    """Every micro-batch's forward and backward passes, in the schedule's order."""
    rows = layer_rows(run)

    @cache
    def forward(part: int) -> Node:
        return _forward(run, rank, rows, part)

    @cache
    def backward(part: int, writes: bool) -> Node:
        return _backward(run, rank, rows, part, writes=writes)

    @cache
    def weights(writes: bool) -> Node:
        return _weights(run, rank, writes=writes)

    def node_of(one: Pass) -> Node:
        if one.forward:
            return forward(one.part)
        # The first micro-batch writes gradients, the others add to them.
        first = not one.micro_batch
        return weights(first) if one.weights else backward(one.part, first)

    return tree(
        rounds(
            run.layout.schedule,
            stages=rank.stages,
            stage=rank.stage,
            micro_batches=run.micro_batches,
            parts=rank.parts,
        ),
        node_of,
    )


def _optimizer(run: Run, rank: Rank) -> Event:
    gradient_bytes = sum(
        size for state, size in states(run, rank) if state.category is Category.GRADIENTS
    )
    return Event(
        phase=Phase.OPTIMIZER,
        category=Category.GRADIENTS,
        bytes=-gradient_bytes,
        label="the optimizer steps, and the gradients go",
        why="Weights, master copy and states are updated where they lie; the next step writes its "
        "own gradients.",
        moment="",
    )


def step(run: Run, rank: Rank) -> Group:
    """The whole step of one GPU, by its implementation's schedule."""
    if run.implementation in BY_STAGES:
        from .megatron.step import step as megatron_step

        return megatron_step(run, rank)
    if run.implementation is not Implementation.PAPER:
        # Recording a step is work that the textbook's answer should not wait for.
        from .recorded_step import recorded_step

        return recorded_step(run)
    return Group(
        label="one training step",
        children=(_persistent(run, rank), *_micro_batches(run, rank), _optimizer(run, rank)),
    )
