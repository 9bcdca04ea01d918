"""Are the gradients right? Move a parameter a little both ways, and see what the loss does.

A numerical derivative needs only the forward pass, so it can judge the backward pass. With
``f(h) = loss(θ + h·direction)``, the central difference of fourth order (Fornberg 1988, Table 1)

    f′(0) ≈ (8 (f(h) − f(−h)) − (f(2h) − f(−2h))) / 12h

is off by about h⁴ from the curve and by about 10⁻¹⁶/h from rounding: h = 10⁻³ leaves some 10⁻¹².
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt

from .data import TEXT, draw_batch, encode
from .matrix import Rows, count, dot
from .model import DECODER, Decoder, Shape
from .parameter import Parameter
from .tape import Tape

STEP = 1e-3
"""h of the difference formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One tensor's gradient beside numerical derivatives.

    ``max_relative_error`` is the largest difference among the ``elements`` checked, and
    ``direction_relative_error`` the difference along one random direction through all ``values`` of
    the tensor at once. Both are relative to the root mean square of the tensor's gradient, so that
    an element that happens to be near zero is not measured by its own size.
    """

    tensor: str
    shape: tuple[int, ...]
    values: int
    elements: int
    max_relative_error: float
    direction_relative_error: float


def gradient_check(
    *,
    elements: int | None = 8,
    shape: Shape = DECODER,
    sequences: int = 1,
    seed: int = 0,
    model: Decoder | None = None,
) -> list[Checked]:
    """Every parameter tensor, checked; see :func:`gradient_checks`."""
    return list(
        gradient_checks(elements=elements, shape=shape, sequences=sequences, seed=seed, model=model)
    )


def gradient_checks(
    *,
    elements: int | None = 8,
    shape: Shape = DECODER,
    sequences: int = 1,
    seed: int = 0,
    model: Decoder | None = None,
) -> Iterator[Checked]:
    """Check one parameter tensor after the other, each when it is asked for.

    ``elements`` places are drawn from each, or all of them with None. Vectors (the norms' scales
    and shifts) are always checked whole. Without a ``model`` a new one is made in which no tensor
    starts at a special value.
    """
    source = random.Random(seed)
    decoder = model or Decoder(shape, seed=seed, settled=False)
    inputs, targets = draw_batch(
        encode(TEXT), source, sequences=sequences, sequence=decoder.shape.sequence
    )
    decoder.gradients(inputs, targets)

    def loss() -> float:
        return decoder.forward(Tape(), inputs, targets)

    for parameter in decoder.parameters.values():
        yield _check(parameter, loss, elements, source)


def _check(
    parameter: Parameter, loss: Callable[[], float], elements: int | None, source: random.Random
) -> Checked:
    places = [(i, j) for i, row in enumerate(parameter.rows) for j in range(len(row))]
    if elements is not None and len(parameter.rows) > 1:
        places = source.sample(places, min(elements, len(places)))
    typical = sqrt(_inner(parameter.gradient, parameter.gradient) / parameter.values)
    worst = 0.0
    for i, j in places:
        direction = [[0.0] * len(row) for row in parameter.rows]
        direction[i][j] = 1.0
        numerical = _derivative(parameter, direction, loss)
        worst = max(worst, abs(parameter.gradient[i][j] - numerical))
    # A direction of unit length on average weighs every element alike.
    spread = 1 / sqrt(parameter.values)
    direction = [[source.gauss(0.0, spread) for _ in row] for row in parameter.rows]
    along = _inner(parameter.gradient, direction)
    off_direction = abs(along - _derivative(parameter, direction, loss))
    return Checked(
        tensor=parameter.name,
        shape=parameter.shape,
        values=count(parameter.rows),
        elements=len(places),
        max_relative_error=worst / typical,
        direction_relative_error=off_direction / typical,
    )


def _derivative(parameter: Parameter, direction: Rows, loss: Callable[[], float]) -> float:
    """The loss's slope along ``direction`` by the formula above; the parameter stays as it was."""
    here = parameter.rows

    def moved(factor: float) -> float:
        parameter.rows = [
            [x + factor * d for x, d in zip(row, way, strict=True)]
            for row, way in zip(here, direction, strict=True)
        ]
        return loss()

    try:
        near = moved(STEP) - moved(-STEP)
        far = moved(2 * STEP) - moved(-2 * STEP)
    finally:
        parameter.rows = here
    return (8 * near - far) / (12 * STEP)


def _inner(a: Rows, b: Rows) -> float:
    """The sum of products of two matrices of one shape."""
    return sum(dot(p, q) for p, q in zip(a, b, strict=True))
