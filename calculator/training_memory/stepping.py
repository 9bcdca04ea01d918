"""Clipping and the optimizer's step as events."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from . import flat, updates
from .autograd.memory import Storage
from .events import Group
from .held import item_bytes_of
from .layouts import Layout, Weight, bytes_of, layout_of, rounded
from .model import Model
from .optimizers import Optimizer, get, is_hidden_matrix
from .recorded import Sized, sizes_of
from .recording import MOST, of_memory
from .scratch import Room
from .splitting import WHOLE, Share, is_divided, share_of_layout
from .tuning import FULL, Tuning


@lru_cache(maxsize=64)
def step(
    model: Model,
    *,
    implementation: str,
    precision: str,
    optimizer: str,
    clip: bool,
    tuning: Tuning = FULL,
    share: Share = WHOLE,
    apart: bool = False,
) -> Group:
    """Clipping and the optimizer's step as events: scratch memory and 32-bit gradient copies.

    ``apart`` says that norms and biases are a group of their own.
    """
    if share.away and not (clip and share.flat):
        return Group(label="the optimizer", children=())  # it steps on the CPU
    whole = layout_of(model, implementation)
    if share.flat:
        layout = flat.stepped(whole, share, tied=model.tied, tuning=tuning)
    else:
        layout = share_of_layout(whole, share, tuning)
    chosen = get(optimizer)
    item_bytes = item_bytes_of(precision, tuning)
    room = Room()
    if share.away:
        _clip_away(room)
        return _events(room, layout)
    room.mark("step", "all")
    copies = None
    if precision == "master":
        copies = room.take("gradients in fp32", bytes_of(layout, 4), COPIES)
    groups = _groups(layout, share, implementation, apart=apart)
    # A head's gradient, too, has a GPU's own rows; what is added to it is brought to those.
    own_rows = model.tied or not tuning.trains_all
    if clip and share.flat and share.shards > 1:
        _clip_flat(room, layout, item_bytes)
    elif clip:
        meshes = _groups(layout, share, implementation, apart=False)
        _clip(room, meshes, item_bytes, share, own_rows=own_rows)
    if share.tensor > 1 and share.shards == 1 and not own_rows:
        # Its gradient has the rows of all GPUs, of which the optimizer is handed this one's.
        table = layout.first[0]
        room.mark("step", "all")
        own = room.take(f"{table.name}'s gradient, own rows", table.numel * item_bytes, OWN_ROWS)
        if share.sequence:
            room.take("norms' gradients, summed", _norms(layout, item_bytes), SUMMED)
        del own
    if chosen.id == "adamw-foreach":
        room.mark("step", "all")
        for part in groups:
            roots = room.take(
                "roots of the second moments", bytes_of(part, item_bytes), updates.ROOT
            )
            del roots
    else:
        for part in _groups(layout, WHOLE, implementation, apart=apart):
            chosen.update(room, _loop(room, part, chosen), item_bytes)
    room.mark("step", "all")
    del copies
    return _events(room, layout)


def _events(room: Room, layout: Layout) -> Group:
    recording = of_memory(room)
    sizes = sizes_of(recording, {})
    return Sized(recording=recording, sizes=sizes, repeats={"layer": layout.layers}).phases()


SUMMED = "Each GPU's norms saw some of the tokens; their gradients are summed for the update."
OWN_ROWS = "A GPU updates its own rows alone; the gradient was made for the whole vocabulary."
COPIES = "The optimizer reads 32-bit gradients; all 16-bit ones are cast before it starts."


def _groups(
    layout: Layout, share: Share, implementation: str, *, apart: bool
) -> tuple[Layout, ...]:
    """The weights that an optimizer steps at once.

    transformers' Trainer has those that tensor-parallel GPUs share apart from the others.
    """
    if apart:
        parts = (layout.where(decays), layout.where(lambda weight: not decays(weight)))
        return tuple(part for part in parts if part.tensors)
    if share.tensor == 1 or implementation != "huggingface":
        return (layout,)
    parts = (layout.where(is_divided), layout.where(lambda weight: not is_divided(weight)))
    # The model's first tensor is in the first group.
    first = (*layout.first, *layout.layer)[0]
    return parts if is_divided(first) else parts[::-1]


def decays(weight: Weight) -> bool:
    """Whether weight decay is for it: matrices, and neither norms nor biases."""
    return len(weight.shape) > 1


def _norms(layout: Layout, item_bytes: int) -> int:
    """The bytes of all norms' gradients."""
    sizes = {
        where: sum(
            rounded(weight.numel * item_bytes)
            for weight in getattr(layout, where)
            if "norm" in weight.name
        )
        for where in ("layer", "last")
    }
    return layout.layers * sizes["layer"] + sizes["last"]


def _loop(room: Room, layout: Layout, optimizer: Optimizer) -> Iterator[Weight]:
    """The weights in the order of the optimizer's loop; the layers as far as they differ."""
    wanted = is_hidden_matrix if optimizer.id == "muon" else lambda weight: True
    parts = [
        (("first", 0), layout.first),
        *((("layer", index), layout.layer) for index in range(min(layout.layers, MOST))),
        (("last", 0), layout.last),
    ]
    for part, weights in parts:
        room.mark("step", *part)
        yield from filter(wanted, weights)


def _clip(
    room: Room, groups: tuple[Layout, ...], item_bytes: int, share: Share, *, own_rows: bool
) -> None:
    """``clip_grad_norm_``, torch/nn/utils/clip_grad.py: a norm for each tensor, then one of all.

    Where tensors are on several meshes each has a norm of its own (transformers' trainer.py,
    _mixed_mesh_grad_norm). The embedding's gradient has every GPU's rows unless ``own_rows``.
    """
    room.mark("clip", "all")
    # A GPU's norms saw some of the tokens alone.
    partial = _norms(groups[0], item_bytes) if share.sequence and share.shards == 1 else 0
    norms = []
    for group in groups:
        several = share.tensor > 1 and group.count(is_divided) > 0
        alike = 0
        if several:
            alike = group.count(lambda weight: not is_divided(weight))
            alike += share.shards == 1 and not own_rows
        over = (share.shards > 1) + several
        numbers = {"partial": partial, "alike": alike, "over": over}
        norms += [_norm_of(room, group.tensors, item_bytes, **numbers)]
    if len(norms) > 1:
        stacked = room.take("the norms, side by side", len(norms) * item_bytes, NORMS)
        norms.append(room.take("norm of everything", item_bytes, NORMS))
        del stacked
    for _ in groups:
        more = room.take("norm of everything, and a little", item_bytes, NORMS)
        inverse = room.take("inverse of the norm", item_bytes, NORMS)
        factor = room.take("factor", item_bytes, NORMS)
        del more, inverse
        least = room.take("factor, or one", item_bytes, NORMS)
        del factor, least
    norms.clear()


def _norm_of(
    room: Room, tensors: int, item_bytes: int, *, partial: int, alike: int, over: int
) -> Storage:
    """``get_total_norm`` of so many gradients, whose squares are summed ``over`` kinds of groups.

    ``partial`` bytes of them are of some tokens, and are summed over GPUs for it.
    Of weights that GPUs share each norm is a part (torch/distributed/tensor/_ops/_math_ops.py,
    _NormPartial); of those that are ``alike`` on tensor-parallel GPUs each gets an equal part.
    """
    gradients = room.take("norms' gradients, summed", partial, SUMMED)
    norms = room.take("norms of all gradients", tensors * rounded(item_bytes), NORMS)
    del gradients
    parts = room.take("equal parts of norms", alike * rounded(item_bytes), OF_ALL)
    stacked = room.take("norms, side by side", tensors * item_bytes, NORMS)
    del parts
    whole = None
    for _ in range(over):
        squares = room.take("their squares", tensors * item_bytes, OF_ALL)
        summed = room.take("squares of all GPUs", tensors * item_bytes, OF_ALL)
        roots = room.take("norms of all GPUs", tensors * item_bytes, OF_ALL)
        del squares, summed
        whole = roots
        del roots
    norm = room.take("norm of everything", item_bytes, NORMS)
    del whole, norms, stacked
    return norm


def _clip_flat(room: Room, layout: Layout, item_bytes: int) -> None:
    """FullyShardedDataParallel.clip_grad_norm_: always in fp32, a gradient after the other."""
    room.mark("clip", "all")
    norms = room.take("norms of all gradients", layout.tensors * rounded(4), NORMS)
    stacked = room.take("norms, side by side", layout.tensors * 4, NORMS)
    del norms
    own = room.take("norm of this GPU's share", 4, NORMS)
    del stacked
    total = room.take("its square, and of all GPUs", 4, OF_ALL)
    root = room.take("norm of everything", 4, NORMS)
    total = root
    del root
    more = room.take("norm of everything, and a little", 4, NORMS)
    inverse = room.take("inverse of the norm", 4, NORMS)
    del more
    factor = room.take("factor", 4, NORMS)
    del inverse
    least = room.take("factor, or one", 4, NORMS)
    if item_bytes != 4:
        room.take("factor, as the gradient is", item_bytes, NORMS)
    del own, total, factor, least


def _clip_away(room: Room) -> None:
    """The same of gradients in the CPU's memory, whose norm comes to be summed over the GPUs."""
    room.mark("clip", "all")
    own = room.take("norm of this GPU's share", 4, NORMS)
    total = room.take("its square, and of all GPUs", 4, OF_ALL)
    root = room.take("norm of everything", 4, NORMS)
    del own, total, root


OF_ALL = "Each GPU knows the norm of its own share; squares are summed over them."
NORMS = "Gradients whose norm is too large are scaled down together."
