"""DeepSpeed without ZeRO (stage 0): each GPU has everything, and gradients are summed at the end.

As DeepSpeed has it (deepspeed/runtime/engine.py, _do_optimizer_sanity_check): 32-bit weights keep
the optimizer that they came with; 16-bit weights get one that works on 32-bit copies, of each
tensor (deepspeed/runtime/fp16/unfused_optimizer.py) or, where it is DeepSpeed's own FusedAdam, of
all tensors side by side (fused_optimizer.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..categories import Category
from ..events import Event, Node, Phase
from ..held import MASTER, WEIGHTS, Held, held
from ..layouts import UNIT_BYTES, rounded
from ..run import Run
from ..stepping import step
from . import flat
from .events import GOES, event, for_a_moment

#: Gradients are summed so many numbers at a time (engine.py, MEMORY_OPT_ALLREDUCE_SIZE); of
#: DeepSpeed's configuration nothing changes it.
BUCKET = 500_000_000

SIDE_BY_SIDE = "Gradients are copied side by side, to be summed over the GPUs in one go."
NORM = "The norm of a gradient is taken in 32 bits, of one tensor at a time."
NORMS = "Gradients whose norm is too large are scaled down together."
IN_FP32 = "The optimizer works in 32 bits."
FLAT = "FusedAdam's 32-bit gradients are one tensor; they are copied together for it."


def is_flat(run: Run, optimizer: str) -> bool:
    """Whether all weights lie side by side: FusedAdam's, with 32-bit copies."""
    return optimizer == "adamw-deepspeed" and run.recipe.precision != "fp32"


def held_rows(run: Run, groups: Sequence[flat.Group], optimizer: str) -> tuple[Held, ...]:
    """What stays from step to step."""
    whole = held(
        run.model,
        implementation=str(run.implementation),
        precision=run.recipe.precision,
        optimizer=optimizer,
        tuning=run.tuning,
    )
    if not is_flat(run, optimizer):
        return whole
    sizes = [sum(group.numels) for group in groups]
    trained = "weights" if run.tuning.trains_all else "adapters"
    rows = [
        (trained, Category.WEIGHTS, sum(rounded(2 * one) for one in sizes), WEIGHTS),
        ("master copy", Category.MASTER, sum(rounded(4 * one) for one in sizes), MASTER),
        *(
            (name, Category.OPTIMIZER, size, why)
            for name, size, why in flat.states_of(sizes, optimizer)
        ),
    ]
    apart = {Category.MASTER, Category.OPTIMIZER}
    rest = [row for row in whole if row.category not in apart and row.name != trained]
    return (
        *(Held(name=name, category=of, bytes=size, why=why) for name, of, size, why in rows),
        *rest,
    )


def summed(numels: Sequence[int], item_bytes: int) -> Iterator[Event]:
    """All gradients summed over the GPUs, once the last micro-batch has made them."""
    together: list[int] = []
    for numel in numels:
        together.append(numel)
        if sum(together) > BUCKET:
            yield from _side_by_side(together, item_bytes)
            together = []
    yield from _side_by_side(together, item_bytes)


def _side_by_side(numels: Sequence[int], item_bytes: int) -> Iterator[Event]:
    if len(numels) > 1:  # one is summed where it is
        name, size = "gradients, side by side", sum(numels) * item_bytes
        yield from for_a_moment(name, size, SIDE_BY_SIDE, phase=Phase.BACKWARD)


def optimizer_nodes(run: Run, groups: Sequence[flat.Group], optimizer: str) -> Iterator[Node]:
    """Clipping and the optimizer's step."""
    if is_flat(run, optimizer):
        yield from _flat_step(groups)
        return
    if run.recipe.precision == "fp32":
        if run.switches.clip:
            yield from _clip(sum(len(group.numels) for group in groups))
    else:
        for place, group in enumerate(groups):
            # The first tensor's norm is the only one yet; the others' are added to a sum.
            sizes = [rounded(4 * numel) + 3 * UNIT_BYTES for numel in group.numels]
            sizes[0] -= 2 * UNIT_BYTES
            before = sum(rounded(4 * numel) for one in groups[:place] for numel in one.numels)
            name = "own gradients in fp32" if before else ""
            yield from _beside(name, before, max(sizes))
    yield step(
        run.model,
        implementation=str(run.implementation),
        precision=run.recipe.precision,
        optimizer=optimizer,
        clip=False,
        tuning=run.tuning,
        apart=True,
    )


def _beside(name: str, before: int, norm: int) -> Iterator[Event]:
    """A norm is taken while the groups before have been cast already."""
    if before:
        yield event(name, before, Category.TEMPORARY, IN_FP32)
    yield from for_a_moment("a gradient in fp32 and its norm", norm, NORM)
    if before:
        yield event(name, -before, Category.TEMPORARY, GOES)


def _clip(tensors: int) -> Iterator[Event]:
    """deepspeed/runtime/utils.py, clip_grad_norm_: a norm for each tensor, then one of all."""
    norms, squares = tensors * UNIT_BYTES, 2 * rounded(4 * tensors)
    yield event("norms of all gradients", norms, Category.TEMPORARY, NORMS)
    yield from for_a_moment("norms and their squares", squares, NORMS)
    yield from for_a_moment("norm of everything, and the factor", 5 * UNIT_BYTES, NORMS)
    yield event("norms of all gradients", -norms, Category.TEMPORARY, GOES)


def _flat_step(groups: Sequence[flat.Group]) -> Iterator[Event]:
    """FP16_Optimizer.step: group by group gradients are cast, and then copied together."""
    total = 0
    for group in groups:
        casts = sum(rounded(4 * numel) for numel in group.numels)
        yield event("gradients in fp32", casts, Category.TEMPORARY, IN_FP32)
        size = rounded(4 * sum(group.numels)) if len(group.numels) > 1 else 0
        if size:
            yield event("gradients in fp32, side by side", size, Category.TEMPORARY, FLAT)
            yield event("gradients in fp32", -casts, Category.TEMPORARY, GOES)
        total += size or casts
        own = sum(rounded(2 * numel) for numel in group.numels)
        yield event("gradients", -own, Category.GRADIENTS, GOES)
    yield from for_a_moment("norms of all gradients", 2 * UNIT_BYTES, NORM)
    yield event("gradients in fp32, side by side", -total, Category.TEMPORARY, GOES)
