"""The parameters of a recorded step, made when the layers' code first names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..formula import Formula, product
from .tensors import Edge, Parameter

#: Changes a parameter as it is made: what is frozen, what has an adapter.
Fitting = Callable[[Parameter], None]


class Weights:
    """Parameters by name, all of one dtype, shared by whoever asks for the same name."""

    def __init__(self, dtype: str, fit: Fitting | None = None) -> None:
        self.dtype = dtype
        self.fit = fit
        #: Where gradients of parts of a flat weight go.
        self.flat: Callable[[str], Edge] | None = None
        self._made: dict[str, Parameter] = {}

    def __call__(self, name: str, *shape: str | int) -> Parameter:
        """The parameter of that name; its shape in the run's symbols."""
        return self._made.get(name) or self.of(name, product(shape))

    def of(self, name: str, numel: Formula) -> Parameter:
        """The parameter of that name, of so many numbers."""
        if name not in self._made:
            made = self._made[name] = Parameter(name, numel, self.dtype)
            made.flat = self.flat
            if self.fit:
                self.fit(made)
        return self._made[name]

    @property
    def made(self) -> Mapping[str, Parameter]:
        """Those that were asked for so far, by name."""
        return self._made

    def optional(self, wanted: bool, name: str, *shape: str | int) -> Parameter | None:
        """The same, or None where the model has none (a bias, mostly)."""
        return self(name, *shape) if wanted else None

    def forget_gradients(self) -> None:
        """Let every gradient go."""
        for parameter in self._made.values():
            parameter.grad = None
