"""What a run holds from one step to the next: weights, copies, the optimizer's states, tables."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from . import flat
from .autograd.memory import ITEM_BYTES
from .categories import Category
from .events import Event, Group, Phase
from .frozen import frozen, stays_on_the_gpu
from .layouts import Layout, buffers_of, bytes_of, layout_of, rounded
from .model import Model
from .optimizers import CODES_BYTES, LEAST_IN_8_BITS, Optimizer, get
from .records import dataclass
from .splitting import WHOLE, Share, share_of_layout, total_bytes
from .structure import computes_in
from .tuning import FULL, Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Memory held from one step to the next: every tensor of one kind, as the allocator counts."""

    name: str
    category: Category
    bytes: int
    why: str


#: What of the weights is trained: all of them, or these.
TRAINED = ("weights", "adapters")
#: Precisions with a 32-bit copy of 16-bit weights, on which the optimizer works.
MASTER_COPIES = ("master", "master-fp32-grad")


def item_bytes_of(precision: str, tuning: Tuning = FULL) -> int:
    """The bytes of the numbers that the optimizer works on."""
    if not tuning.trains_all and precision not in MASTER_COPIES:
        return ITEM_BYTES[tuning.adapter_dtype]
    return 2 if precision == "bf16" else 4


@lru_cache(maxsize=64)
def held(
    model: Model,
    *,
    implementation: str,
    precision: str,
    optimizer: str,
    tuning: Tuning = FULL,
    share: Share = WHOLE,
    in_backward: bool = False,
) -> tuple[Held, ...]:
    """What a GPU holds between steps, but for the batch: weights, copies, states, buffers.

    Where weights are updated ``in_backward``, each has an optimizer of its own.
    """
    whole = layout_of(model, implementation)
    if share.flat:
        stored = flat.kept(whole, share, tied=model.tied, tuning=tuning)
        layout = flat.stepped(whole, share, tied=model.tied, tuning=tuning)
    else:
        stored = layout = share_of_layout(whole, share, tuning)
    if share.away:
        rows = [
            (name, Category.WEIGHTS, size, why)
            for name, size, why in stays_on_the_gpu(whole, tuning)
        ]
    elif tuning.trains_all:
        weight_bytes = 4 if computes_in(precision) == "fp32" else 2
        rows = [(TRAINED[0], Category.WEIGHTS, bytes_of(stored, weight_bytes), WEIGHTS)]
    else:
        weight_bytes = ITEM_BYTES[tuning.adapter_dtype]
        rows = [
            *(
                (name, Category.WEIGHTS, size, why)
                for name, size, why in frozen_on(whole, tuning, share, tied=model.tied)
            ),
            (TRAINED[1], Category.WEIGHTS, bytes_of(stored, weight_bytes), ADAPTERS),
        ]
    if precision in MASTER_COPIES:
        rows.append(("master copy", Category.MASTER, bytes_of(layout, 4), MASTER))
    if precision == "master-fp32-grad":
        rows.append(("gradients in fp32", Category.GRADIENTS, bytes_of(layout, 4), BUFFERS))
    if share.buckets:
        rows.append(("buckets", Category.GRADIENTS, total_bytes(layout, weight_bytes), BUCKETS))
    item_bytes = item_bytes_of(precision, tuning)
    states = {} if share.away else _states(layout, get(optimizer), item_bytes, apart=in_backward)
    rows += [
        (name, Category.OPTIMIZER, size, STATES.get(name, SCALES)) for name, size in states.items()
    ]
    if tables := sum(rounded(size) for _, size in buffers_of(model, implementation)):
        rows.append(("tables of the model", Category.ACTIVATIONS, tables, TABLES))
    return tuple(
        Held(name=name, category=category, bytes=size, why=why)
        for name, category, size, why in rows
    )


def frozen_on(
    whole: Layout, tuning: Tuning, share: Share, *, tied: bool
) -> Iterable[tuple[str, int, str]]:
    """(name, bytes, why) of what is frozen, as a GPU holds it."""
    if share.flat:
        return flat.frozen_flat(whole, tuning, share, tied=tied)
    return frozen(whole, tuning, share)


def _states(
    layout: Layout, optimizer: Optimizer, item_bytes: int, *, apart: bool
) -> dict[str, int]:
    """The bytes of each kind of state; ``apart`` says that each tensor has its own optimizer."""
    sizes: dict[str, int] = {}
    for where, times in (("first", 1), ("layer", layout.layers), ("last", 1)):
        for weight in getattr(layout, where):
            for name, size in optimizer.states(weight, item_bytes):
                sizes[name] = sizes.get(name, 0) + times * rounded(size)
    # The codes are made when an optimizer puts its first tensor into 8 bits.
    times = layout.count(lambda one: one.numel >= LEAST_IN_8_BITS) if apart else 1
    return sizes | {name: times * size for name, size in once(optimizer.id).items()}


def once(optimizer: str) -> dict[str, int]:
    """What an optimizer keeps once for all its tensors: name and bytes."""
    if optimizer in ("adamw-8bit", "paged-adamw-8bit"):
        return {"codes of both states": 2 * rounded(CODES_BYTES)}
    return {"flag of an overflow": rounded(4)} if optimizer == "adamw-deepspeed" else {}


WEIGHTS = "Every product with a weight reads it."
ADAPTERS = "These alone are trained; what they make is added to what the frozen weights make."
MASTER = "A small update to a 16-bit weight is rounded away; it is added here instead."
BUFFERS = "Each 16-bit gradient is added to a 32-bit sum as it arrives."
BUCKETS = "DDP sums gradients over the GPUs in buckets of 25 MiB, side by side, which stay."
TABLES = "Rotary positions are worked out from these."
STATES = {
    "first moment": "The running mean of the gradient, which the update follows.",
    "second moment": "The running mean of the squared gradient, which scales the update.",
    "momentum": "The running sum of gradients, which the update follows.",
    "step counter": "The fused kernel reads how many steps were taken on the GPU.",
    "second moment of rows": "One mean of squared gradients for each row stands for all of it.",
    "second moment of columns": "One mean of squared gradients for each column, as well.",
    "size of the weights": "The update may be scaled by how large the weights are.",
    "flag of an overflow": "FusedAdam's kernel could write there that a gradient was infinite.",
    "codes of both states": "What each of the 256 codes of an 8-bit number stands for.",
}
SCALES = "Each block of 256 numbers in 8 bits has a scale of its own, in fp32."


def before_step(rows: Iterable[Held]) -> Group:
    """What stays from step to step, as the events with which a step's tree begins."""
    return Group(
        label="before the step",
        children=tuple(
            Event(
                phase=Phase.BEFORE,
                category=row.category,
                bytes=row.bytes,
                label=row.name,
                why=row.why,
                moment="before the step begins",
            )
            for row in rows
        ),
    )
