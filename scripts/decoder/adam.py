"""Adam (Kingma and Ba 2015, arXiv:1412.6980, Algorithm 1): two more numbers for every parameter."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from .matrix import Row, count, zeros_like
from .parameter import Parameter


class Adam:
    """Moves every parameter against its gradient, by an amount that its own history decides."""

    def __init__(
        self,
        parameters: Iterable[Parameter],
        *,
        rate: float = 1e-2,
        beta1: float = 0.9,
        beta2: float = 0.99,
        epsilon: float = 1e-8,
    ) -> None:
        self.rate, self.beta1, self.beta2, self.epsilon = rate, beta1, beta2, epsilon
        self.steps = 0
        self.parameters = list(parameters)
        # The optimizer's memory: as many numbers again as there are parameters, twice over.
        self.first_moments = [zeros_like(p.rows) for p in self.parameters]
        self.second_moments = [zeros_like(p.rows) for p in self.parameters]

    @property
    def first_values(self) -> int:
        """How many numbers the first moments are, counted."""
        return sum(count(rows) for rows in self.first_moments)

    @property
    def second_values(self) -> int:
        """How many numbers the second moments are, counted."""
        return sum(count(rows) for rows in self.second_moments)

    def step(self) -> None:
        """One update of every parameter from the gradient beside it."""
        self.steps += 1
        for parameter, first, second in zip(
            self.parameters, self.first_moments, self.second_moments, strict=True
        ):
            rows = zip(parameter.rows, parameter.gradient, first, second, strict=True)
            for theta, g, m, v in rows:
                self._update(theta, g, m, v)

    def _update(self, theta: Row, g: Row, m: Row, v: Row) -> None:
        """One row in place: m and v forget slowly, and their start at zero is corrected for."""
        correct1 = 1 - self.beta1**self.steps
        correct2 = 1 - self.beta2**self.steps
        for i, gradient in enumerate(g):
            m[i] = self.beta1 * m[i] + (1 - self.beta1) * gradient
            v[i] = self.beta2 * v[i] + (1 - self.beta2) * gradient * gradient
            theta[i] -= self.rate * (m[i] / correct1) / (sqrt(v[i] / correct2) + self.epsilon)
