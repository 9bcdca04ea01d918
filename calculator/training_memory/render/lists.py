"""The lists of what is known by name, as text in columns and as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import InputError, InputErrors, nearest
from ..gpus import Gpu, Rates
from ..model import Model
from ..records import fields
from ..units import show_bytes
from .table import fitting
from .terminal import Terminal

# For type checkers alone: typing takes a while to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Known = TypeVar("Known", Model, Gpu)


def named(
    known: Mapping[str, Known], given: Mapping[str, object], mistakes: Sequence[InputError]
) -> list[Known]:
    """Those with every one of the ``words`` given in their id or name, in the catalog's order.

    Raises :class:`InputErrors` with ``mistakes``, and where nothing has the words.
    """
    listed = given.get("words")
    words = [str(word).lower() for word in listed] if isinstance(listed, list) else []
    chosen = [
        one
        for one in known.values()
        if all(word in f"{one.id} {one.name}".lower() for word in words)
    ]
    errors = list(mistakes)
    if not chosen:
        said = " ".join(words)
        allowed = "no name known here has that in it"
        errors.append(InputError("WORD", said, allowed, suggestion=nearest(said, known)))
    if errors:
        raise InputErrors(errors)
    return chosen


def models_text(models: Sequence[Model], terminal: Terminal) -> str:
    """The models in columns; where there is little room, without the least of them."""
    head = ["id", "name", "parameters", "layers", "hidden", "heads", "kv heads", "vocabulary"]
    rows = [head]
    for model in models:
        shape = (model.layers, model.hidden, model.heads, model.kv_heads, model.vocabulary)
        rows.append(
            [model.id, model.name, f"{model.parameters.total:,}", *(f"{size:,}" for size in shape)]
        )
    lines = fitting(rows, "<<>>>>>>", terminal.width, spare=(1, 7, 6, 5, 4, 3))
    return "\n".join([terminal.strong(lines[0]), *lines[1:]]) + "\n"


def models_json(models: Sequence[Model]) -> dict[str, object]:
    """The models as plain values."""
    fields = ("id", "name", "family", "layers", "hidden", "heads", "kv_heads", "vocabulary")
    return {
        "models": [
            {
                **{field: getattr(model, field) for field in fields},
                "parameters": model.parameters.total,
                "active_parameters": model.parameters.active,
                "by_component": model.parameters.by_component,
                "context": model.context,
                "source": model.source,
            }
            for model in models
        ]
    }


def gpus_text(gpus: Sequence[Gpu], terminal: Terminal) -> str:
    """The GPUs in columns: what their name promises, and what PyTorch was seen to report."""
    rows = [["id", "name", "memory", "PyTorch sees", "", "where that was seen"]]
    for gpu in gpus:
        seen = ["", ""]
        if gpu.usable_bytes is not None:
            seen = [show_bytes(gpu.usable_bytes), show_bytes(gpu.usable_bytes, binary=True)]
        rows.append([gpu.id, gpu.name, show_bytes(gpu.memory_bytes), *seen, gpu.source])
    lines = fitting(rows, "<<>>><", terminal.width, spare=(5, 4, 1))
    return "\n".join([terminal.strong(lines[0]), *lines[1:]]) + "\n"


def gpus_json(gpus: Sequence[Gpu]) -> dict[str, object]:
    """The GPUs as plain values."""
    plain = ("id", "name", "memory_bytes", "usable_bytes", "source", "no_rates")
    return {
        "gpus": [
            {field: getattr(gpu, field) for field in plain} | {"rates": _rates(gpu.rates)}
            for gpu in gpus
        ]
    }


def _rates(rates: Rates | None) -> dict[str, object] | None:
    return {one.name: getattr(rates, one.name) for one in fields(Rates)} if rates else None
