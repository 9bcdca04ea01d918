"""The tensors that a run holds from one step to the next, one by one as they are made.

An estimate counts them by kind, all of a kind together. A job that dies while its model loads or in
its optimizer's first step dies over one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import flat
from ..autograd.memory import ITEM_BYTES
from ..categories import Category
from ..estimate import RankEstimate
from ..events import Phase
from ..formula import product
from ..held import MASTER_COPIES, item_bytes_of
from ..layouts import Weight, layout_of
from ..model import Model
from ..optimizers import get
from ..recorded_step import optimizer_id
from ..run import Run
from ..shares import share_of
from ..splitting import share_of_layout
from ..structure import computes_in
from .suspects import Asks, Suspect


def held_tensors(run: Run, on: RankEstimate, asks: Asks) -> Iterator[Suspect]:
    """Each weight as the model is loaded, and each optimizer state as its first step makes it.

    Of a GPU's own part where weights are shared out, and of what is trained where that is not all.
    """
    whole = layout_of(run.model, str(run.implementation))
    share = share_of(run)
    if share.flat:
        layout = flat.kept(whole, share, tied=run.model.tied, tuning=run.tuning)
    else:
        layout = share_of_layout(whole, share, run.tuning)
    precision = run.recipe.precision
    weight_bytes = 4 if computes_in(precision) == "fp32" else 2
    if not run.tuning.trains_all:
        weight_bytes = ITEM_BYTES[run.tuning.adapter_dtype]
    weights = on.totals[Category.WEIGHTS]
    loaded = weights + (on.totals[Category.MASTER] if precision in MASTER_COPIES else 0)
    made = loaded + on.totals[Category.GRADIENTS]
    optimizer = get(optimizer_id(run))
    for weights_of, times in ((layout.first, 1), (layout.layer, layout.layers), (layout.last, 1)):
        for weight in weights_of:
            each = "each layer's " if times > 1 else "the "
            yield _suspect(
                f"{each}{weight.name} weight, as the model is loaded",
                "Every weight is brought to the GPU before the first step.",
                "while the model loads",
                run.model, weight, weight_bytes, asks, (0, weights), times, Phase.BEFORE,
            )  # fmt: skip
            if precision in MASTER_COPIES:
                yield _suspect(
                    f"{each}{weight.name} master copy",
                    "The optimizer works on a 32-bit copy of every weight.",
                    "before the first step",
                    run.model, weight, 4, asks, (weights, loaded), times, Phase.BEFORE,
                )  # fmt: skip
            for name, size in optimizer.states(weight, item_bytes_of(precision, run.tuning)):
                each_bytes, rest = divmod(size, weight.numel)
                if rest or not each_bytes:
                    continue
                yield _suspect(
                    f"{name} of {each}{weight.name} weight",
                    "The optimizer makes its states in its first step, when all gradients are "
                    "there.",
                    "in the optimizer's first step",
                    run.model, weight, each_bytes, asks,
                    (made, made + on.totals[Category.OPTIMIZER]), times, Phase.OPTIMIZER,
                )  # fmt: skip


def _suspect(
    label: str,
    why: str,
    moment: str,
    model: Model,
    weight: Weight,
    item_bytes: int,
    asks: Asks,
    held: tuple[int, int],
    times: int,
    phase: Phase,
) -> Suspect:
    names = {model.vocabulary: "V", model.hidden: "h", model.ffn: "f", model.positions: "P"}
    sides: list[str | int] = [
        "V" if weight.vocabulary and side == model.vocabulary else names.get(side, side)
        for side in weight.shape
    ]
    formula = product((item_bytes, *sides))
    values = {name: size for size, name in names.items()} | {"V": model.vocabulary}
    size = formula.evaluate(values)
    return Suspect(
        label=label,
        why=why,
        moment=moment,
        phase=phase,
        formula=formula.text(),
        numbers=formula.text(values=values),
        bytes=size,
        asked_bytes=asks(size),
        least_held_bytes=held[0],
        most_held_bytes=held[1],
        times=times,
    )
