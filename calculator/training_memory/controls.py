"""What the controls say, as one flat set of words, and the run that it means.

A :data:`State` holds the run's fields and those of the shape that the reader set: a field that
follows from another (``head_dim`` from ``hidden``) is left to follow. It is written as a page's
address carries it: ``model=llama-7b&sequence=4096&hidden=8192``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode

from . import catalog, recipe, sharding, switches, tuning
from .errors import InputError, InputErrors
from .implementations import Implementation
from .model import SHAPE_FIELDS, checked
from .presets import PRESETS
from .run import DEFAULTS, Run
from .units import parse_count

#: Field by field what was set: text as typed, or values of a run.
State = Mapping[str, object]

#: Fields of a state that are no fields of the run: the preset it comes from, the units in which
#: sizes are shown, and the address of a run that was pinned to compare with.
PRESET = "preset"
UNITS = "units"
PIN = "pin"
_ASIDE = (PRESET, UNITS, PIN)

#: The units there are, the usual ones first.
UNIT_NAMES = ("GB", "GiB")

_SHAPE = frozenset(SHAPE_FIELDS)
#: Written into every address, so that a link keeps its meaning should a default ever change.
_ALWAYS = ("model", "sequence", "micro_batch", "recipe", "recompute", "gpu")
_NO_GPU = "none"


def parse(address: str) -> dict[str, object]:
    """The state that an address's fragment carries; the last of fields given twice."""
    return dict(_pairs(address))


@lru_cache(maxsize=8)  # a request's is read for what it means, and for what it does not
def _pairs(address: str) -> tuple[tuple[str, object], ...]:
    return tuple(parse_qsl(address.removeprefix("#"), keep_blank_values=True))


def known(state: State) -> tuple[dict[str, object], dict[str, object]]:
    """A state in two: what is understood, and what is not, as in a link of another version."""
    understood = {
        name: value
        for name, value in state.items()
        if name in _SHAPE or name in _ASIDE or (name in DEFAULTS and name != "shape")
    }
    return understood, {name: state[name] for name in state if name not in understood}


def of_preset(preset_id: object) -> dict[str, object]:
    """A preset's state. Raises :class:`InputError` naming the nearest one."""
    if preset_id not in PRESETS:
        raise InputError.unknown_name(PRESET, preset_id, list(PRESETS))
    return {**PRESETS[str(preset_id)].run, PRESET: preset_id}


def of_request(run: Mapping[str, object]) -> dict[str, object]:
    """The state of a run's JSON."""
    shape = run.get("shape")
    flat = {name: value for name, value in run.items() if name != "shape"}
    return {**flat, **(shape if isinstance(shape, Mapping) else {})}


#: Fields whose control may be empty: then they are as usual.
_LEFT_OPEN = (
    *catalog.CUSTOM,
    *switches.USUAL,
    *tuning.USUAL,
    *sharding.USUAL,
    "schedule",
    "layers_per_stage",
    "expert_tensor",
)


def request(state: State) -> dict[str, object]:
    """The JSON of the run that a state means, still to be checked."""
    fields = {
        name: value for name, value in state.items() if name not in _SHAPE and name not in _ASIDE
    }
    if fields.get("gpu") == _NO_GPU:
        fields["gpu"] = None
    for name in _LEFT_OPEN:
        if fields.get(name) == "":
            fields[name] = DEFAULTS[name]
    return {**fields, "shape": {name: state[name] for name in SHAPE_FIELDS if name in state}}


def changed(state: State, changes: Mapping[str, object]) -> dict[str, object]:
    """The state after the reader set some fields.

    A preset fills everything. A model fills the shape, and shortens the sequence where the model's
    learned positions end before it.
    """
    after = dict(state)
    rest = dict(changes)
    if PRESET in rest:
        kept = {name: state[name] for name in (UNITS, PIN) if name in state}
        if kept.get(UNITS, UNIT_NAMES[0]) not in UNIT_NAMES:
            del kept[UNITS]
        after = {**of_preset(rest.pop(PRESET)), **kept}
    if "model" in rest:
        after = _with_model(after, rest.pop("model"))
    # A stage of ZeRO, an implementation and a way of sharding bring each their own of the others.
    if "sharding" in rest:
        after.pop("zero", None)
    elif "zero" in rest or "implementation" in rest:
        after.pop("sharding", None)
    if "recipe" not in rest and _MEANS_ANOTHER_RECIPE & rest.keys() and _has_usual_recipe(after):
        after.pop("recipe", None)
    after.update(rest)
    if rest.get("implementation") == Implementation.PAPER:
        # The textbook has none of these, so they go with what had them.
        after = _without(after, (*switches.USUAL, *tuning.USUAL, *sharding.USUAL))
    if "adapter" in rest:
        after = _with_adapter(after, rest["adapter"])
    return after


#: What decides which recipe a run has that names none.
_MEANS_ANOTHER_RECIPE = {"implementation", "sharding", "zero", "data"}


def _has_usual_recipe(state: State) -> bool:
    """Whether a state's recipe is the one that it would have if it named none."""
    try:
        usual = Run.from_json(request(_without(state, ["recipe"]))).recipe.id
    except InputErrors:
        return False
    return state.get("recipe", usual) == usual


def _without(state: State, names: Iterable[str]) -> dict[str, object]:
    gone = set(names)
    return {name: value for name, value in state.items() if name not in gone}


def _with_adapter(state: State, adapter: object) -> dict[str, object]:
    """The state with an adapter's way of running and a recipe that adapters have, or with none."""
    if adapter == "none":
        return _without(state, tuning.USUAL)
    after = dict(state)
    if after.get("implementation", DEFAULTS["implementation"]) != Implementation.HUGGINGFACE:
        after["implementation"] = str(Implementation.HUGGINGFACE)
    known = recipe.RECIPES.get(str(after.get("recipe", DEFAULTS["recipe"])))
    if known is None or known.precision.startswith("master"):
        after["recipe"] = recipe.AUTOCAST_ADAM.id
    return after


def _with_model(state: State, model_id: object) -> dict[str, object]:
    gone = {*_SHAPE, *catalog.CUSTOM, PRESET}
    after = {name: value for name, value in state.items() if name not in gone}
    if model_id == "custom":
        model = Run.from_json(request({**state, "sequence": 1})).model
        after["family"] = model.family
        after |= {name: getattr(model, name) for name in SHAPE_FIELDS}
    elif isinstance(model_id, str) and model_id in catalog.models():
        positions = catalog.get(model_id).positions
        sequence = after.get("sequence", DEFAULTS["sequence"])
        if positions and parse_count("sequence", sequence) > positions:
            after["sequence"] = positions
    return {**after, "model": model_id}


def stepped(state: State, field: str, times: int) -> dict[str, object]:
    """The state with a number doubled ``times`` times, or halved if negative.

    0 doubles to 1, and 1 halves to 0 where the field can be 0. Raises :class:`InputError` for a
    value that is no number.
    """
    value = parse_count(field, _value(state, field), least=0)
    least = _least(field)
    for _ in range(abs(times)):
        value = max(least, value * 2 if value else 1) if times > 0 else max(least, value // 2)
    return {**state, field: value}


def _value(state: State, field: str) -> object:
    if field in state:
        return state[field]
    if field in DEFAULTS:
        return DEFAULTS[field]
    if field in _SHAPE:
        return getattr(Run.from_json(request({**state, "sequence": 1})).model, field)
    raise InputError(field, None, "a run has no such field")


def _least(field: str) -> int:
    if field not in _SHAPE:
        return 1
    try:
        checked(field, 0)
    except InputError:
        return 1
    return 0


def normal(state: State, run: Run) -> dict[str, object]:
    """The state with every value as the run understood it, in one order."""
    values = run.to_json()
    values.pop("shape")
    shown: dict[str, object] = {
        name: value for name, value in values.items() if name in _ALWAYS or value != DEFAULTS[name]
    }
    if shown["gpu"] is None:
        shown["gpu"] = _NO_GPU
    # Where the shape is the catalog's again, nothing of it needs to be said.
    edited = run.shape if run.model.id != "custom" else dict.fromkeys(SHAPE_FIELDS)
    if edited:
        shown |= {
            name: getattr(run.model, name)
            for name in SHAPE_FIELDS
            if name in state or run.model.id == "custom"
        }
    if PRESET in state:
        shown[PRESET] = state[PRESET]
    if is_binary(state):
        shown[UNITS] = state[UNITS]
    if state.get(PIN):
        shown[PIN] = state[PIN]
    return shown


def pin(state: State) -> str:
    """The address under which a state is pinned: its run alone."""
    return address({name: value for name, value in state.items() if name not in _ASIDE})


def pinned(state: State) -> Run | None:
    """The run that was pinned, if any. Raises :class:`InputErrors` where it cannot be."""
    if not state.get(PIN):
        return None
    understood, _ = known(parse(str(state[PIN])))
    return read({name: value for name, value in understood.items() if name not in _ASIDE})


def is_binary(state: State) -> bool:
    """Whether sizes are shown in powers of two."""
    return state.get(UNITS) == UNIT_NAMES[1]


def address(state: State) -> str:
    """A state as an address's fragment carries it, without the ``#``."""
    words = {name: _word(value) for name, value in state.items()}
    if _PLAIN("".join(words) + "".join(words.values())):
        return "&".join(map("=".join, words.items()))
    return urlencode(words, safe=",", encoding="utf-8")


#: Finds words in which nothing need be quoted; quoting goes through them letter by letter.
_PLAIN = re.compile(r"[\w.~,-]*", re.ASCII).fullmatch


def setting(name: str, value: str) -> str:
    """A change of one field to an address, or to nothing, as a link carries it."""
    for mark in "%=&+,":
        value = value.replace(mark, f"%{ord(mark):X}")
    return f"{name}={value}"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_preset(state: State, run: Run) -> bool:
    """Whether a state is still what its preset filled in."""
    preset = PRESETS.get(str(state.get(PRESET)))
    if preset is None:
        return False
    return Run.from_json(preset.run).to_json() == run.to_json()


def read(state: State) -> Run:
    """The run a state means. Raises :class:`InputErrors` with every field that cannot be."""
    known = {PRESET: list(PRESETS), UNITS: UNIT_NAMES}
    errors = [
        InputError.unknown_name(field, state[field], names)
        for field, names in known.items()
        if field in state and state[field] not in names
    ]
    try:
        run = Run.from_json(request(state))
    except InputErrors as found:
        raise InputErrors([*errors, *found.errors]) from None
    if errors:
        raise InputErrors(errors)
    return run
