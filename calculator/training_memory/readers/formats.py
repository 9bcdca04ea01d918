"""The formats that can be read, which of them a file is, and several files read together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import InputError, InputErrors, nearest
from . import (
    accelerate,
    axolotl,
    config,
    deepspeed,
    llamafactory,
    megatron,
    torchtitan,
    torchtune,
    training_arguments,
)
from .resolve import Resolved, resolve
from .syntax import values_of
from .table import Format, Part, read_values

#: Every format by its id. Of two that a file fits equally, the earlier is taken; of several files,
#: what a later format says goes before what an earlier one says.
FORMATS: Mapping[str, Format] = {
    form.id: form
    for form in (
        config.FORMAT,
        accelerate.FORMAT,
        deepspeed.FORMAT,
        training_arguments.FORMAT,
        training_arguments.TRL,
        torchtitan.FORMAT,
        megatron.FORMAT,
        axolotl.FORMAT,
        llamafactory.FORMAT,
        torchtune.FORMAT,
    )
}

_FEW = 12


def read_files(
    files: Iterable[tuple[str, str]], given: Mapping[str, object], *, field: str = "file"
) -> Resolved:
    """What some files, each a name and its text, say together.

    A name may begin with the format that it is to be read as: ``axolotl:train.yml``. ``given`` is
    as in :func:`.resolve.resolve`. Raises :class:`InputErrors` with everything that cannot be.
    """
    parts, errors = [], list[InputError]()
    for name, text in files:
        try:
            parts.append(_read(field, name, text))
        except InputErrors as found:
            errors += found.errors
        except InputError as found:
            errors.append(found)
    if errors:
        raise InputErrors(errors)
    order = [*FORMATS]
    parts.sort(key=lambda part: order.index(part.format.id))
    try:
        return resolve(parts, given)
    except InputError as found:
        raise InputErrors([found]) from None
    except OverflowError:
        raise InputErrors([InputError(field, None, "its numbers are too large")]) from None


def split_name(name: str) -> tuple[Format | None, str]:
    """The format that stands before a file's name, if one does, and the name itself."""
    first, colon, rest = name.partition(":")
    return (FORMATS[first], rest) if colon and rest and first in FORMATS else (None, name)


def _read(field: str, name: str, text: str) -> Part:
    form, file = split_name(name)
    values = values_of(field, file, text)
    form = form or format_of(field, file, values)
    reads = config.read_config if form is config.FORMAT else read_values
    return reads(form, file, values)


def format_of(field: str, name: str, values: Mapping[str, object]) -> Format:
    """The format whose marks a file bears most. Raises :class:`InputError` where it bears none."""
    keys = [*_paths("", values, depth=3)]
    best, most = None, 0
    for form in FORMATS.values():
        known = {form.plain(key) for key in keys}
        score = len(known & {*form.marks})
        if score > most:
            best, most = form, score
    if best is not None:
        return best
    listed = ", ".join(form.name for form in FORMATS.values())
    allowed = (
        f"it is none of the files that are known ({listed}); put its format before its name, such "
        f"as axolotl:{name}, if it is one of them"
    )
    raise InputError(field, name, allowed, suggestion=_nearest(keys))


def _nearest(keys: list[str]) -> str | None:
    """A mark that the first keys may have meant."""
    marks = [mark for form in FORMATS.values() for mark in form.marks]
    found = (nearest(key, marks) for key in keys[:_FEW])
    return next((near for near in found if near), None)


def _paths(above: str, values: Mapping[str, object], depth: int) -> Iterable[str]:
    for name, value in [*values.items()][:500]:
        yield f"{above}{name}"
        if isinstance(value, Mapping) and depth > 1:
            yield from _paths(f"{above}{name}.", value, depth - 1)
