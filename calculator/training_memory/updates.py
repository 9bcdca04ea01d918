"""What optimizers hold for a moment as they step: PyTorch's code, run on tensors without values.

Each function follows the loop of the optimizer named, variable by variable, since a variable of one
round is released only when the next round sets it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .autograd.memory import Storage
from .layouts import Weight
from .scratch import Room

#: The weights of one kind of tensor after the other, as a loop meets them.
Weights = Iterable[Weight]
Update = Callable[[Room, Weights, int], None]

ROOT = "The update is divided by the root of the second moment."
ESTIMATE = "The second moment of each number is estimated from its row's and its column's."
SUMS = "The squares' means over rows and columns bring the second moment up to date."
ORTHOGONAL = "The update is made nearly orthogonal, in 16 bits, by five rounds of products."


def adamw_for_loop(room: Room, weights: Weights, item_bytes: int) -> None:
    """torch/optim/adam.py, _single_tensor_adam: the root, and the root over the correction."""
    denominator = None
    for weight in weights:
        root = room.take(f"root of {weight.name}'s second moment", weight.numel * item_bytes, ROOT)
        quotient = room.take(f"divisor of {weight.name}'s update", weight.numel * item_bytes, ROOT)
        del root
        denominator = quotient
        del quotient
    del denominator


def adamw_foreach(room: Room, weights: Weights, item_bytes: int) -> None:
    """torch/optim/adam.py, _multi_tensor_adam: ``_foreach_sqrt`` makes all roots at once."""
    roots = [
        room.take(f"root of {weight.name}'s second moment", weight.numel * item_bytes, ROOT)
        for weight in weights
    ]
    del roots


def in_place(room: Room, weights: Weights, item_bytes: int) -> None:
    """Fused kernels, SGD, and 8-bit Adam take no memory of their own."""
    for _ in weights:
        pass


def adafactor(room: Room, weights: Weights, item_bytes: int) -> None:
    """torch/optim/_adafactor.py, _single_tensor_adafactor."""
    row_mean = column_mean = estimate = update = squared = None
    for weight in weights:
        room.take(f"norm of {weight.name}", item_bytes, SUMS)
        numel = weight.numel
        if len(weight.shape) > 1:
            rows, columns = numel // weight.shape[-1], numel // weight.shape[-2]
            row_mean = room.take(f"{weight.name}'s row means", rows * item_bytes, SUMS)
            column_mean = room.take(f"{weight.name}'s column means", columns * item_bytes, SUMS)
            estimate = room.take(f"{weight.name}'s second moment", numel * item_bytes, ESTIMATE)
            matrices = rows // weight.shape[-2]
            room.take("mean of the row means", matrices * item_bytes, ESTIMATE)
        else:
            squared = room.take(f"{weight.name}'s gradient squared", numel * item_bytes, SUMS)
            estimate = room.take(f"{weight.name}'s second moment", numel * item_bytes, ESTIMATE)
        update = estimate
        room.take(f"norm of {weight.name}'s update", item_bytes, ESTIMATE)
    del row_mean, column_mean, estimate, update, squared


def adafactor_of_transformers(room: Room, weights: Weights, item_bytes: int) -> None:
    """transformers/optimization.py, Adafactor.step: in 32 bits, whatever the weights are."""
    gradient = weight_copy = update = None
    for weight in weights:
        size = 4 * weight.numel
        if item_bytes != 4:
            gradient = room.take(f"{weight.name}'s gradient in fp32", size, IN_FP32)
            weight_copy = room.take(f"{weight.name} in fp32", size, IN_FP32)
        norm = room.take(f"norm of {weight.name}", 4, SUMS)
        room.take(f"size of {weight.name}, made anew", 4, SUMS)
        del norm
        squared = room.take(f"{weight.name}'s gradient squared", size, SUMS)
        update = room.take(f"{weight.name}'s gradient squared, and more", size, SUMS)
        del squared
        update = _of_transformers(room, weight, update)
        norm = room.take(f"norm of {weight.name}'s update", 4, ESTIMATE)
        scaled = room.take(f"size of {weight.name}'s update", 4, ESTIMATE)
        del norm
        room.take(f"clipping of {weight.name}'s update", 4, ESTIMATE)
        del scaled
        room.take(f"{weight.name}'s update, negative", size, "It is added to the weights.")
    del gradient, weight_copy, update


def _of_transformers(room: Room, weight: Weight, update: Storage) -> Storage:
    """The squares become the update."""
    numel, name = weight.numel, weight.name
    if len(weight.shape) < 2:
        return room.take(f"{name}'s update", 4 * numel, ROOT)
    rows, columns = numel // weight.shape[-1], numel // weight.shape[-2]
    room.take(f"{name}'s row means", 4 * rows, SUMS)
    room.take(f"{name}'s column means", 4 * columns, SUMS)
    mean = room.take("mean of the row means", 4 * rows // weight.shape[-2], ESTIMATE)
    row_factor = room.take(f"{name}'s row factors", 4 * rows, ESTIMATE)
    del mean
    column_factor = room.take(f"{name}'s column factors", 4 * columns, ESTIMATE)
    made = room.take(f"{name}'s update", 4 * numel, ESTIMATE)
    del row_factor, column_factor
    return made


IN_FP32 = "Its arithmetic is in 32 bits."
ROUNDS = 5


def muon(room: Room, weights: Weights, item_bytes: int) -> None:
    """torch/optim/_muon.py, _single_tensor_muon, for the layers' matrices."""
    update = None
    for weight in weights:
        looked_ahead = room.take(f"{weight.name}'s update", weight.numel * item_bytes, NESTEROV)
        update = looked_ahead
        del looked_ahead
        update = _orthogonal(room, weight, update, item_bytes)
    del update


NESTEROV = "The momentum is looked ahead by one step."


def _orthogonal(room: Room, weight: Weight, update: Storage, item_bytes: int) -> Storage:
    """_zeropower_via_newtonschulz: products of the smaller side's width, and of the whole."""
    size, gram_bytes = 2 * weight.numel, 2 * min(weight.shape) ** 2
    name = f"{weight.name}'s orthogonal update"
    orthogonal = update if item_bytes == 2 else room.take(name, size, ORTHOGONAL)
    norm = room.take(f"norm of {weight.name}'s update", 2, ORTHOGONAL)
    least = room.take(f"norm of {weight.name}'s update, or more", 2, ORTHOGONAL)
    del norm
    del least
    for _ in range(ROUNDS):
        gram = room.take(f"{weight.name}'s Gram matrix", gram_bytes, ORTHOGONAL)
        change = room.take(f"{weight.name}'s Gram matrix, changed", gram_bytes, ORTHOGONAL)
        orthogonal = room.take(name, size, ORTHOGONAL)
    del gram, change
    return orthogonal
