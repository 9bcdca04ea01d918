"""Optimizers: what each keeps for every weight between steps, and what updates the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from . import updates
from .errors import InputError
from .layouts import Weight
from .records import dataclass

#: What each weight has in an optimizer's state: a name, and bytes.
States = Callable[[Weight, int], Iterator[tuple[str, int]]]


def _none(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
    yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """One optimizer by one way of running it.

    ``states`` and ``update`` are given the bytes of the numbers that it works on: 2 where it
    updates 16-bit weights, 4 for 32-bit weights or master copies. ``paged`` are states in memory
    that the driver moves, which is not PyTorch's. ``source`` says whose code it is.
    """

    id: str
    name: str
    states: States
    update: updates.Update
    source: str
    paged: States = _none


def _adamw(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
    yield "first moment", weight.numel * item_bytes
    yield "second moment", weight.numel * item_bytes


def _adamw_fused(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
    yield from _adamw(weight, item_bytes)
    yield "step counter", 4


def _momentum(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
    yield "momentum", weight.numel * item_bytes


def _adafactor(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
    if len(weight.shape) < 2:
        yield "second moment", weight.numel * item_bytes
        return
    yield "second moment of rows", weight.numel // weight.shape[-1] * item_bytes
    yield "second moment of columns", weight.numel // weight.shape[-2] * item_bytes


def _adafactor_of_transformers(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
    yield from _adafactor(weight, 4)
    yield "size of the weights", 4


def is_hidden_matrix(weight: Weight) -> bool:
    """Whether Muon takes it: a matrix that is no embedding and no head."""
    return len(weight.shape) == 2 and not weight.vocabulary


def _muon(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
    if is_hidden_matrix(weight):
        yield from _momentum(weight, item_bytes)
    else:
        yield from _adamw_fused(weight, item_bytes)


#: 8-bit states have a scale for each block of so many numbers; smaller tensors stay in 32 bits.
BLOCK = 256
LEAST_IN_8_BITS = 4096
#: What each of 256 codes stands for, in fp32; one table for each of the two states.
CODES_BYTES = 4 * 256


def _adamw_8bit(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
    if weight.numel < LEAST_IN_8_BITS:
        yield from _adamw(weight, 4)
        return
    for name in ("first moment", "second moment"):
        yield name, weight.numel
        yield f"scales of the {name}", 4 * -(-weight.numel // BLOCK)


#: bitsandbytes leaves smaller states where the weights are (optim/optimizer.py, get_state_buffer).
LEAST_PAGED = 100_000


def _adamw_32bit(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
    """In 32 bits whatever the weights are in, as bitsandbytes has it."""
    yield from _adamw(weight, 4)


def _is_paged(weight: Weight, name: str) -> bool:
    return weight.numel >= LEAST_PAGED and not name.startswith("scales")


def _those(states: States, *, paged: bool) -> States:
    """Those of the states that are paged, or those that are not."""

    def found(weight: Weight, item_bytes: int) -> Iterator[tuple[str, int]]:
        for name, size in states(weight, item_bytes):
            if _is_paged(weight, name) is paged:
                yield name, size

    return found


_PAGED_ADAM = "bitsandbytes/optim/adamw.py; Dettmers et al. 2023, arXiv:2305.14314, section 3"
_ADAM = "torch/optim/adam.py"
OPTIMIZERS: Mapping[str, Optimizer] = {
    one.id: one
    for one in (
        Optimizer(
            id="adamw-forloop",
            name="AdamW, a loop over tensors",
            states=_adamw,
            update=updates.adamw_for_loop,
            source=f"{_ADAM}, _single_tensor_adam",
        ),
        Optimizer(
            id="adamw-foreach",
            name="AdamW, foreach",
            states=_adamw,
            update=updates.adamw_foreach,
            source=f"{_ADAM}, _multi_tensor_adam",
        ),
        Optimizer(
            id="adamw-fused",
            name="AdamW, fused",
            states=_adamw_fused,
            update=updates.in_place,
            source=f"{_ADAM}, _fused_adam",
        ),
        Optimizer(
            id="adamw-deepspeed",
            name="AdamW, DeepSpeed's FusedAdam",
            states=_adamw,
            update=updates.in_place,
            source="deepspeed/ops/adam/fused_adam.py",
        ),
        Optimizer(
            id="sgd-momentum",
            name="SGD with momentum",
            states=_momentum,
            update=updates.in_place,
            source="torch/optim/sgd.py, _multi_tensor_sgd",
        ),
        Optimizer(
            id="adafactor",
            name="Adafactor",
            states=_adafactor,
            update=updates.adafactor,
            source="torch/optim/_adafactor.py, _single_tensor_adafactor",
        ),
        Optimizer(
            id="adafactor-hf",
            name="Adafactor of transformers",
            states=_adafactor_of_transformers,
            update=updates.adafactor_of_transformers,
            source="transformers/optimization.py, Adafactor",
        ),
        Optimizer(
            id="muon",
            name="Muon for the layers' matrices, fused AdamW for the rest",
            states=_muon,
            update=updates.muon,
            source="torch/optim/_muon.py",
        ),
        Optimizer(
            id="adamw-8bit",
            name="AdamW in 8 bits",
            states=_adamw_8bit,
            update=updates.in_place,
            source="bitsandbytes/optim/optimizer.py, Optimizer2State; Dettmers et al. 2021, "
            "arXiv:2110.02861",
        ),
        Optimizer(
            id="paged-adamw",
            name="paged AdamW",
            states=_those(_adamw_32bit, paged=False),
            update=updates.in_place,
            source=_PAGED_ADAM,
            paged=_those(_adamw_32bit, paged=True),
        ),
        Optimizer(
            id="paged-adamw-8bit",
            name="paged AdamW in 8 bits",
            states=_those(_adamw_8bit, paged=False),
            update=updates.in_place,
            source=_PAGED_ADAM,
            paged=_those(_adamw_8bit, paged=True),
        ),
    )
}


def get(optimizer_id: object) -> Optimizer:
    """The optimizer of that id. Raises :class:`InputError` naming the nearest one."""
    if isinstance(optimizer_id, str) and optimizer_id in OPTIMIZERS:
        return OPTIMIZERS[optimizer_id]
    raise InputError.unknown_name("optimizer", optimizer_id, tuple(OPTIMIZERS))
