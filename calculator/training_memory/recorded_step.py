"""One training step of one GPU as PyTorch runs it: what stays, the recorded passes, AdamW's step.

The textbook's step is in :mod:`.step`; this is the other implementations'. Every size is what the
allocator takes for the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

from .categories import CATEGORIES, Category
from .events import Counter, Event, Group, Node, Phase, Repeat
from .recipe import State
from .recorded import Sized, rounded, sizes_of
from .recording import recording_of
from .run import Run
from .structure import Structure, chunk_sizes, structure_of, values_of
from .walk import walk


def structure(run: Run) -> Structure:
    """The order of a run's events, as far as sizes do not decide it."""
    return structure_of(
        run.model,
        sequence=run.sequence,
        micro_batch=run.micro_batch,
        micro_batches=run.micro_batches,
        implementation=str(run.implementation),
        precision=run.recipe.precision,
        attention=str(run.attention),
        recompute=str(run.recompute),
        loss=str(run.loss),
        hold_logits=run.hold_logits,
    )


def values(run: Run) -> Mapping[str, int]:
    """The run's numbers under the symbols of its recording."""
    return values_of(
        run.model, sequence=run.sequence, micro_batch=run.micro_batch, loss=str(run.loss)
    )


def sized(run: Run) -> Sized:
    """The recording of a run with its sizes."""
    tokens = run.sequence * run.micro_batch
    repeats = {
        "layer": run.model.layers,
        "chunk": len(chunk_sizes(run.model, str(run.loss), tokens)),
    }
    recording = recording_of(structure(run), repeats)
    return Sized(
        recording=recording,
        sizes=sizes_of(recording, values(run)),
        repeats=repeats,
        several=run.micro_batches > 1,
    )


def state_bytes(run: Run, state: State) -> int:
    """One number kept for every parameter, as the allocator holds it: tensor by tensor."""
    return sum(
        row.repeats * rounded(row.count_each * state.item_bytes) for row in run.model.tensors()
    )


def keeps_gradients(run: Run) -> bool:
    """Whether gradients live in buffers of their own that stay from step to step."""
    return run.recipe.precision == "master-fp32-grad"


def recorded_step(run: Run) -> Group:
    """The whole step."""
    made = sized(run)
    passes = Group(label="forward and backward", children=tuple(_micro_batches(run, made)))
    left = dict(zip(CATEGORIES, walk(passes).remains, strict=True))
    return Group(
        label="one training step",
        children=(
            _persistent(run),
            passes,
            Group(label="optimizer", children=tuple(_optimizer(run, left))),
        ),
    )


def _persistent(run: Run) -> Group:
    stays = [
        state
        for state in run.recipe.states
        if state.category is not Category.GRADIENTS or keeps_gradients(run)
    ]
    return Group(
        label="before the step",
        children=tuple(
            Event(
                phase=Phase.BEFORE,
                category=state.category,
                bytes=state_bytes(run, state),
                label=state.name,
                why=state.why,
                moment="before the step begins",
            )
            for state in stays
        ),
    )


def _micro_batches(run: Run, made: Sized) -> list[Node]:
    forward, backward = made.micro_batch(0)
    first = Group(label="the first micro-batch", children=(forward, backward))
    counters = (Counter("forward"), Counter("backward"))
    nodes: list[Node] = [Repeat(count=1, child=first, counters=counters)]
    if run.micro_batches > 1:
        further = Group(label="a further micro-batch", children=made.micro_batch(1))
        counters = (Counter("forward", 2), Counter("backward", 2))
        nodes.append(Repeat(count=run.micro_batches - 1, child=further, counters=counters))
    return nodes


def _optimizer(run: Run, left: Mapping[Category, int]) -> list[Event]:
    """AdamW's step, and what goes with it."""
    events: list[Event] = []

    def for_a_moment(size: int, label: str, why: str) -> None:
        for sign, verb in ((1, "is made"), (-1, "is freed")):
            events.append(
                Event(
                    phase=Phase.OPTIMIZER,
                    category=Category.TEMPORARY,
                    bytes=sign * size,
                    label=f"{label} {verb}",
                    why=why,
                    moment=f"in the optimizer step, at the {label}",
                )
            )

    # The optimizer works on the master copy where there is one, else on the weights themselves.
    states = {state.name: state for state in run.recipe.states}
    moment = next(state for state in states.values() if state.category is Category.OPTIMIZER)
    casts = run.recipe.precision == "master"
    if casts:
        # Every 16-bit gradient is cast before the first update (as apex and Megatron do), so the
        # step's own copies come on top of them.
        events.append(_cast_gradients(run, 1))
    if run.optimizer_kernel == "foreach":
        for_a_moment(
            state_bytes(run, moment),
            "root of the second moments",
            "The foreach kernel works on all tensors at once: torch._foreach_sqrt makes a whole "
            "copy of the second moments (torch/optim/adamw.py).",
        )
    elif run.optimizer_kernel == "forloop":
        largest = max(rounded(row.count_each * moment.item_bytes) for row in run.model.tensors())
        for_a_moment(
            2 * largest,
            "denominators of the largest tensor",
            "The loop takes one tensor after the other; for each it makes the root of its second "
            "moment and that divided (torch/optim/adamw.py).",
        )
    if casts:
        events.append(_cast_gradients(run, -1))
    for category, size in left.items():
        if size:
            events.append(_goes(category, size))
    return events


def _cast_gradients(run: Run, sign: int) -> Event:
    size = sum(row.repeats * rounded(row.count_each * 4) for row in run.model.tensors())
    return Event(
        phase=Phase.OPTIMIZER,
        category=Category.TEMPORARY,
        bytes=sign * size,
        label="32-bit copies of the gradients are " + ("made" if sign > 0 else "freed"),
        why="The optimizer updates 32-bit weights and wants gradients of their kind.",
        moment="in the optimizer step, at the 32-bit copies of the gradients",
    )


def _goes(category: Category, size: int) -> Event:
    gradients = category is Category.GRADIENTS
    return Event(
        phase=Phase.OPTIMIZER,
        category=category,
        bytes=-size,
        label="the gradients go" if gradients else f"what is left of the batch goes ({category})",
        why="The next step writes its own gradients."
        if gradients
        else "The next step brings its own tokens and labels.",
        moment="",
    )
