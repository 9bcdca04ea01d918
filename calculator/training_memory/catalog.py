"""The models known by name, read from models.toml, and shapes changed from them."""

from __future__ import annotations

import os.path
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import lru_cache

from .errors import InputError
from .model import SHAPE_FIELDS, Model, Norm, checked, raise_if_any, unknown_field
from .records import fields

_REQUIRED = ("layers", "hidden", "heads", "vocabulary")


def read_tables(file_name: str) -> dict[str, str]:
    """The text of each table of a TOML file beside this one, by its header; none is parsed yet.

    A run needs one model of many, so only the lines that describe that one are ever parsed.
    """
    path = os.path.join(os.path.dirname(__file__), file_name)  # noqa: PTH118, PTH120 - see below
    # pathlib takes longer to import than this module does.
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    tables = (table.partition("]\n") for table in text.split("\n[")[1:])
    return {header.replace('"', ""): body for header, _, body in tables}


def parse_lines(table: str) -> dict[str, str]:
    """The keys of a table, each with the text of its value."""
    lines = (line.partition(" = ") for line in table.splitlines() if not line.startswith("#"))
    return {key.strip('"'): text for key, equals, text in lines if equals}


def parse_value(text: str) -> int | bool | str:
    """A whole number, a flag or plain text.

    The files keep to this part of TOML, and a test compares this reading of them with the standard
    library's, whose import would take a tenth of the time in which the command line has to start.
    """
    if text.startswith('"'):
        return text[1:-1]
    return text == "true" if text in ("true", "false") else int(text)


class _Catalog(Mapping[str, Model]):
    """The models of the file, each built when it is first asked for."""

    def __init__(self) -> None:
        self._tables = read_tables("models.toml")
        self._lines = parse_lines(self._tables["models"])
        self._built: dict[str, Model] = {}

    def __getitem__(self, model_id: str) -> Model:
        if model_id not in self._built:
            pairs = self._lines[model_id].strip("{ }").split(", ")
            own = dict(pair.split(" = ") for pair in pairs)
            values = {**self._base(own.pop("base")), **_parsed(own)}
            if config := values.pop("config", None):
                values["source"] = f"{values['source']}; config.json of {config}"
            self._built[model_id] = build({"id": model_id, **values})
        return self._built[model_id]

    def published(self) -> Iterator[tuple[str, str]]:
        """Each id with the name under which its config.json is published, where it is."""
        for model_id, line in self._lines.items():
            for pair in line.strip("{ }").split(", "):
                key, _, value = pair.partition(" = ")
                if key == "config":
                    yield model_id, str(parse_value(value))

    def _base(self, quoted: str) -> dict[str, int | bool | str]:
        """The values of a base, over those of the base that it names, if it names one."""
        own = parse_lines(self._tables[f"base.{parse_value(quoted)}"])
        below = own.pop("base", None)
        return {**(self._base(below) if below else {}), **_parsed(own)}

    def __contains__(self, model_id: object) -> bool:
        return model_id in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def _parsed(texts: dict[str, str]) -> dict[str, int | bool | str]:
    return {key: parse_value(text) for key, text in texts.items()}


@lru_cache(maxsize=1)
def models() -> _Catalog:
    """Every model of the catalog by its id, in the order of the file."""
    return _Catalog()


def get(model_id: object) -> Model:
    """The model of that id. Raises :class:`InputError` with the nearest id where there is none."""
    known = models()
    if not isinstance(model_id, str) or model_id not in known:
        raise InputError.unknown_name("model", model_id, list(known))
    return known[model_id]


def build(values: Mapping[str, object]) -> Model:
    """A model from the fields given; others have their defaults, or follow from those given.

    ``layers``, ``hidden``, ``heads`` and ``vocabulary`` are needed. ``kv_heads`` is ``heads`` where
    not given, ``head_dim`` hidden / heads, ``ffn`` four times ``hidden``; with experts,
    ``expert_ffn`` is ``ffn`` and ``experts_per_token`` two. Raises :class:`InputError` or
    :class:`InputErrors`.
    """
    needed = "needed: no value is usual"
    missing = [InputError(field, None, needed) for field in _REQUIRED if field not in values]
    return Model(**_completed(_checked(values, _DEFAULTS, missing)))  # type: ignore[arg-type]


#: What a model of the reader's own is, unless it is said.
CUSTOM: Mapping[str, str] = {"name": "Custom", "family": "gpt"}


def custom(
    shape: Mapping[str, object], *, name: str | None = None, family: str | None = None
) -> Model:
    """A model of the reader's own, from shape fields alone, as :func:`build` makes one."""
    own = {"name": name or CUSTOM["name"], "family": family or CUSTOM["family"]}
    return build({"id": "custom", **own, **_checked(shape, SHAPE_FIELDS)})


def with_shape(model: Model, overrides: Mapping[str, object]) -> Model:
    """``model`` with some shape fields changed, and with them the fields that follow from them.

    A field follows only where it did before: ``head_dim`` where it was hidden / heads, ``ffn``
    where it was four times hidden, ``kv_heads`` where it was ``heads``, ``expert_ffn`` where it was
    ``ffn``. What can no longer be goes with its reason: shared experts with experts, a norm's bias
    with LayerNorm. Values may be text ("4,096").
    Raises :class:`InputError` or :class:`InputErrors`.
    """
    if not overrides:
        return model
    changes = _checked(overrides, SHAPE_FIELDS)
    fields_left = {field: getattr(model, field) for field in _DEFAULTS}
    for field in _following(model) | _without_reason(changes):
        del fields_left[field]
    return build({**fields_left, **changes})


_DEFAULTS = {field.name: field.default for field in fields(Model)}


def _checked(
    values: Mapping[str, object], known: Container[str], errors: Iterable[InputError] = ()
) -> dict[str, int | bool | str]:
    """The values as their fields hold them. Raises for every one that cannot be, and ``errors``."""
    good, found = {}, list(errors)
    for field, value in values.items():
        if field not in known:
            found.append(unknown_field(field, value))
            continue
        try:
            good[field] = checked(field, value)
        except InputError as error:
            found.append(error)
    raise_if_any(found)
    return good


def _following(model: Model) -> set[str]:
    """The fields that hold what they would, were they left out."""
    found = set()
    if model.latent:
        found |= {"head_dim", "kv_heads"}
    if model.kv_heads == model.heads:
        found.add("kv_heads")
    if model.head_dim * model.heads == model.hidden:
        found.add("head_dim")
    if model.ffn == 4 * model.hidden:
        found.add("ffn")
    if not model.experts:
        found |= {"expert_ffn", "experts_per_token"}
    elif model.expert_ffn == model.ffn:
        found.add("expert_ffn")
    return found


def _without_reason(changes: Mapping[str, int | bool | str]) -> set[str]:
    """The fields that mean nothing any more after these changes."""
    found = set()
    if changes.get("experts") == 0:
        found |= {"shared_experts", "shared_expert_gate", "dense_layers"}
    if changes.get("kv_lora_rank") == 0:
        found.add("q_lora_rank")
    if changes.get("norm") == Norm.RMSNORM:
        found.add("norm_bias")
    return found


def _completed(given: Mapping[str, int | bool | str]) -> dict[str, int | bool | str]:
    """``given`` with the fields that follow from it."""
    values = dict(given)
    hidden, heads = int(values["hidden"]), int(values["heads"])
    values.setdefault("kv_heads", heads)
    values.setdefault("ffn", 4 * hidden)
    if values.get("norm") == Norm.RMSNORM:
        values.setdefault("norm_bias", False)
    if experts := values.get("experts"):
        values.setdefault("expert_ffn", values["ffn"])
        values.setdefault("experts_per_token", min(2, int(experts)))
    if "head_dim" not in values:
        if values.get("kv_lora_rank"):
            nope, rope = (values.get(f"qk_{part}_head_dim", 0) for part in ("nope", "rope"))
            values["head_dim"] = max(1, int(nope) + int(rope))
        elif hidden % heads:
            allowed = f"a divisor of hidden ({hidden}) where head_dim is not given"
            raise InputError("heads", heads, allowed)
        else:
            values["head_dim"] = hidden // heads
    return values
