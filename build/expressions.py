"""The numbers in the prose: what an expression ``{{ … }}`` on a page can ask the calculator.

Nothing here knows a size. ``macros.py`` makes these available to the pages; a name that does not
exist, or a value a filter cannot show, stops the build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from training_memory import catalog, gpus, units
from training_memory import recipe as recipes
from training_memory.estimate import estimate as calculate
from training_memory.gpus import Gpu
from training_memory.model import Model
from training_memory.recipe import Recipe
from training_memory.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An estimate as prose asks for it: short names, bytes as ``int``.

    ``totals`` holds the largest size of each category over the step, ``parts`` what the peak is
    made of (``totals.weights``, ``parts.logits``), ``moment`` completes "the peak comes …", ``run``
    is what was asked. ``capacity`` is the GPU's memory and ``room`` what it leaves, None where no
    GPU is named.
    """

    peak: int
    moment: str
    states: int
    totals: Mapping[str, int]
    parts: Mapping[str, int]
    parameters: int
    run: Run
    capacity: int | None
    room: int | None
    fits: bool | None


def estimate(model: str, **run: object) -> Answer:
    """The answer for a run, by the names of its JSON: ``estimate("llama-7b", sequence=4096)``.

    Raises the calculator's ``InputErrors`` for a field that cannot be.
    """
    found = calculate(Run.from_json({"model": model, **run}))
    room = found.room_bytes
    return Answer(
        peak=found.worst.peak_bytes,
        moment=found.worst.peak_moment,
        states=found.worst.states_bytes,
        totals={str(category): size for category, size in found.worst.totals.items()},
        parts={str(category): size for category, size in found.worst.peak_parts.items()},
        parameters=found.parameters,
        run=found.run,
        capacity=found.capacity_bytes,
        room=room,
        fits=None if room is None else room >= 0,
    )


def model(model_id: str, **shape: object) -> Model:
    """A model of the catalog, with shape fields changed where given."""
    return catalog.with_shape(catalog.get(model_id), shape)


def recipe(recipe_id: str) -> Recipe:
    """A recipe: ``recipe("mixed-adam").bytes_per_parameter``."""
    return recipes.get(recipe_id)


def gpu(gpu_id: str) -> Gpu:
    """A GPU: ``gpu("h100-80gb").memory_bytes``."""
    return gpus.get(gpu_id)


def ratio(numerator: int, denominator: int, digits: int = 1) -> str:
    """How many times the second number the first is: ``"2.5"``."""
    return units.ratio(_whole(numerator), _whole(denominator), digits)


def percent(part: int, whole: int, digits: int = 0) -> str:
    """A share in percent, without the sign: ``"70"``."""
    return units.percent(_whole(part), _whole(whole), digits)


def gb(value: int, digits: int = 1) -> str:
    """Bytes in GB (10**9): ``"199.5 GB"``."""
    return _with_unit(units.gb(_whole(value), digits), "GB")


def gib(value: int, digits: int = 1) -> str:
    """Bytes in GiB (2**30): ``"185.8 GiB"``."""
    return _with_unit(units.gib(_whole(value), digits), "GiB")


def in_bytes(value: int, digits: int = 1, *, binary: bool = False) -> str:
    """Bytes in the largest unit that leaves at least one: ``"286.2 kB"``."""
    return _with_unit(*units.show_bytes(_whole(value), binary=binary, digits=digits).split(" "))


def count(value: int) -> str:
    """A whole number with its thousands apart: ``"6,738,415,616"``."""
    return f"{_whole(value):,}"


def billions(value: int, digits: int = 1) -> str:
    """A count in billions, without the word: ``"6.7"``."""
    return units.ratio(_whole(value), 10**9, digits)


def _with_unit(number: str, unit: str) -> str:
    """Joined by a no-break space: a line that ends between them reads badly."""
    return f"{number}\u00a0{unit}"


def _whole(value: object) -> int:
    """The value, which must be a whole number: a missing capacity is a mistake in the prose."""
    if isinstance(value, bool) or not isinstance(value, int):
        # Not repr(): a name that does not exist says so itself when it is made text.
        raise TypeError(f"{value} is not a whole number of bytes or things")
    return value


#: What a page can call, and what it can put after a ``|``.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "estimate": estimate,
    "model": model,
    "recipe": recipe,
    "gpu": gpu,
    "ratio": ratio,
    "percent": percent,
}
FILTERS: Mapping[str, Callable[..., str]] = {
    "GB": gb,
    "GiB": gib,
    "bytes": in_bytes,
    "count": count,
    "billions": billions,
}
