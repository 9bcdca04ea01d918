"""``dataclass``, ``field`` and ``fields`` as the standard library means them, without its start-up.

``import dataclasses`` brings in ``inspect``, and each decorated class compiles its methods anew:
together that was half of the time in which the command line has to start. The part of it that the
calculator uses (no inheritance between records, no ordering) needs neither. To a type checker, and
to ``dataclasses.replace`` or ``asdict``, these are dataclasses like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import repeat
from operator import attrgetter, call

__all__ = ["FrozenRecordError", "dataclass", "field", "fields"]

_MISSING = object()
_set = object.__setattr__

#: Instances of a class that are made in its plain way; who makes more gets a quicker one.
_FEW = 50


class FrozenRecordError(AttributeError):
    """A field of a frozen record was to be changed or deleted."""


class _Field:
    """One field: its name, what it holds where nothing is given, whether equality looks at it."""

    __slots__ = ("compare", "default", "default_factory", "name")

    def __init__(
        self,
        *,
        default: object = _MISSING,
        default_factory: Callable[[], object] | None = None,
        compare: bool = True,
    ) -> None:
        self.name = ""
        self.default = default
        self.default_factory = default_factory
        self.compare = compare


def _record(
    cls: type | None = None, *, frozen: bool = False, slots: bool = False, kw_only: bool = False
) -> type | Callable[[type], type]:
    """The class with the methods of a frozen dataclass; all records here are frozen."""
    if not frozen:
        raise TypeError("a record is frozen: write @dataclass(frozen=True)")

    def decorate(plain: type) -> type:
        return _made(plain, slots=slots, kw_only=kw_only)

    return decorate if cls is None else decorate(cls)


def _made(plain: type, *, slots: bool, kw_only: bool) -> type:
    contents = dict(plain.__dict__)
    contents.pop("__dict__", None)
    contents.pop("__weakref__", None)
    found = tuple(_field(name, contents) for name in plain.__annotations__)
    names = tuple(one.name for one in found)
    if slots:
        contents["__slots__"] = names
        contents |= {"__getstate__": _state, "__setstate__": _restore}
    else:
        contents |= {one.name: one.default for one in found if one.default is not _MISSING}
    contents |= {
        "__record_fields__": found,
        "__dataclass_fields__": _AsDataclass(kw_only=kw_only),
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }
    compared = [one.name for one in found if one.compare]
    for name, method in {"__repr__": _repr, **_comparisons(compared)}.items():
        contents.setdefault(name, method)
    made = type(plain)(plain.__name__, plain.__bases__, contents)
    checked = hasattr(plain, "__post_init__")
    made.__init__ = _initializer(made, found, kw_only=kw_only, checked=checked)  # type: ignore[misc]
    return made


def _field(name: str, contents: dict[str, object]) -> _Field:
    """The field that an annotation declares; its default leaves the class, where a slot will be."""
    given = contents.pop(name, _MISSING)
    one = given if isinstance(given, _Field) else _Field(default=given)
    one.name = name
    return one


def _initializer(
    cls: type, found: tuple[_Field, ...], *, kw_only: bool, checked: bool
) -> Callable[..., None]:
    names = tuple(one.name for one in found)
    placed = () if kw_only else names
    setters = _setters(cls, names)
    made = 0

    def initialize(self: object, *args: object, **given: object) -> None:
        nonlocal made
        made += 1
        if made == _FEW and not checked:
            _quicken(cls, found, setters, initialize, kw_only=kw_only)
        if args or (*given,) != names:
            given = _completed(self, found, args, given, placed)
        if setters:
            any(map(call, setters, repeat(self), given.values()))  # by a loop of Python's own
        else:
            self.__dict__.update(given)
        if checked:
            self.__post_init__()  # type: ignore[attr-defined]  # the record's own check

    return initialize


def _setters(cls: type, names: tuple[str, ...]) -> tuple[Callable[[object, object], None], ...]:
    """What fills each slot, past the refusal of changes; nothing where there are no slots."""
    return tuple(vars(cls)[name].__set__ for name in names) if "__slots__" in vars(cls) else ()


def _quicken(
    cls: type,
    found: tuple[_Field, ...],
    setters: tuple[Callable[[object, object], None], ...],
    plain: Callable[..., None],
    *,
    kw_only: bool,
) -> None:
    """Compile the ``__init__`` of a class of which many are made.

    Compiling takes as long as some fifty instances, so a command that makes few never does.
    """
    if cls.__dict__.get("__init__") is not plain:
        return
    given = {f"_{one.name}": one.default for one in found if one.default is not _MISSING}
    makes = {f"_make_{one.name}": one.default_factory for one in found if one.default_factory}
    sets = {f"_set_{one.name}": setter for one, setter in zip(found, setters, strict=False)}
    takes = ", ".join(
        f"{one.name}=_{one.name}"
        if f"_{one.name}" in given
        else f"{one.name}=_missing"
        if f"_make_{one.name}" in makes
        else one.name
        for one in found
    )
    body = "".join(
        (f"\n    _set_{one.name}(self, " if sets else f"\n    _set(self, {one.name!r}, ")
        + (f"_make_{one.name}() if {one.name} is _missing else " if one.default_factory else "")
        + f"{one.name})"
        for one in found
    )
    names = {"_set": _set, "_missing": _MISSING, **given, **makes, **sets}
    # Nothing but the names of the class's own fields is in it.
    exec(f"def __init__(self, {'*, ' if kw_only else ''}{takes}):{body}", names)  # noqa: S102
    cls.__init__ = names["__init__"]  # type: ignore[misc]  # the same, compiled


def _completed(
    record: object,
    found: tuple[_Field, ...],
    args: tuple[object, ...],
    given: dict[str, object],
    placed: tuple[str, ...],
) -> dict[str, object]:
    """Every field's value, in order: what is given, and for the others what they usually hold."""
    if args:
        given = _with_positions(record, args, given, placed)
    values: dict[str, object] = {}
    for one in found:
        if one.name in given:
            values[one.name] = given[one.name]
        elif one.default_factory:
            values[one.name] = one.default_factory()
        elif one.default is not _MISSING:
            values[one.name] = one.default
    if len(values) < len(found) or not given.keys() <= values.keys():
        raise TypeError(
            _mismatch(record, values.keys() | given.keys(), [one.name for one in found])
        )
    return values


def _with_positions(
    record: object, args: tuple[object, ...], given: dict[str, object], names: tuple[str, ...]
) -> dict[str, object]:
    placed = dict(zip(names, args, strict=False))
    if len(args) > len(names) or placed.keys() & given.keys():
        raise TypeError(f"{type(record).__name__} takes each field once, in order or by its name")
    return {**placed, **given}


def _mismatch(record: object, given: Collection[str], names: Collection[str]) -> str:
    missing = [name for name in names if name not in given]
    unknown = [name for name in given if name not in names]
    return f"{type(record).__name__}: missing {missing}, unknown {unknown}"


def _comparisons(compared: list[str]) -> dict[str, Callable[..., object]]:
    key = attrgetter(*compared) if compared else bool

    def equal(self: object, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(key(self))

    return {"__eq__": equal, "__hash__": hashed}


def _repr(self: object) -> str:
    values = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in _fields(self))
    return f"{type(self).__qualname__}({values})"


def _refuse(self: object, name: str, *value: object) -> None:
    raise FrozenRecordError(f"{type(self).__name__} is frozen; {name!r} stays as it is")


def _state(self: object) -> list[object]:
    return [getattr(self, one.name) for one in _fields(self)]


def _restore(self: object, state: list[object]) -> None:
    for one, value in zip(_fields(self), state, strict=True):
        _set(self, one.name, value)


def _fields(record: object) -> tuple[_Field, ...]:
    """The fields of a record or of its class, in order."""
    found: tuple[_Field, ...] = record.__record_fields__  # type: ignore[attr-defined]
    return found


class _AsDataclass:
    """``__dataclass_fields__``, made by ``dataclasses`` itself when one of its functions asks."""

    def __init__(self, *, kw_only: bool) -> None:
        self.kw_only = kw_only

    def __get__(self, record: object, owner: type) -> dict[str, object]:
        import dataclasses

        twin = dataclasses.make_dataclass(
            owner.__name__,
            [(one.name, object, _as_dataclass_field(one)) for one in _fields(owner)],
            frozen=True,
            kw_only=self.kw_only,
        )
        made: dict[str, object] = vars(twin)["__dataclass_fields__"]
        owner.__dataclass_fields__ = made  # type: ignore[attr-defined]
        return made


def _as_dataclass_field(one: _Field) -> object:
    import dataclasses

    if one.default_factory:
        return dataclasses.field(default_factory=one.default_factory, compare=one.compare)
    if one.default is _MISSING:
        return dataclasses.field(compare=one.compare)
    return dataclasses.field(default=one.default, compare=one.compare)


# typing.TYPE_CHECKING would import typing; every type checker knows the bare name as well.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields
else:
    dataclass, field, fields = _record, _Field, _fields
