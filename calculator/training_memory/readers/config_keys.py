"""The keys of a config.json as its reader asks for them: which were there, and what was wrong."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InputError
from ..model import Activation
from ..units import parse_count

_ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_fast": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
}
_MOST = 2**30


class _Seen(dict[str, object]):
    """A configuration that remembers which of its keys were asked for."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        self.seen: set[str] = set()

    def get(self, key: str, default: object = None) -> object:
        if key in self:
            self.seen.add(key)
        return super().get(key, default)


class Keys:
    """A configuration's keys, and what was wrong with those read so far."""

    def __init__(self, config: Mapping[str, object], model_type: str) -> None:
        self.config = _Seen(config)
        self.model_type = model_type
        self.errors: dict[str, InputError] = {}

    @property
    def seen(self) -> set[str]:
        """The keys that were asked for and are there."""
        return {"model_type", *self.config.seen}

    def count(self, key: str, missing: int | None = None, *, least: int = 1) -> int:
        """A whole number; ``missing`` where there is no such key or it is null."""
        value = self.config.get(key)
        if value is None and missing is not None:
            return missing
        if value is None:
            allowed = f"needed in the config.json of a {self.model_type}"
            self.errors[key] = InputError(key, value, allowed)
            return 1  # only so that the keys after this one are read as well
        try:
            return parse_count(key, value, least=least, most=_MOST)
        except InputError as error:
            self.errors[key] = error
            return 1

    def flag(self, key: str, missing: bool) -> bool:
        """A true or false; ``missing`` where there is no such key or it is null."""
        value = self.config.get(key)
        if value is None:
            return missing
        if not isinstance(value, bool):
            self.errors[key] = InputError(key, value, "allowed: true, false")
        return bool(value)

    def activation(self, key: str, missing: str) -> str:
        """An activation by transformers' name for it."""
        value = self.config.get(key) or missing
        if not isinstance(value, str) or value not in _ACTIVATIONS:
            self.errors[key] = InputError.unknown_name(key, value, [*_ACTIVATIONS])
            return Activation.SILU
        return _ACTIVATIONS[value]

    def only(self, key: str, value: object) -> None:
        """An error where the key is there with any value but this one."""
        given = self.config.get(key, value)
        if given != value:
            self.errors[key] = InputError(key, given, f"only {value!r} can be read")
