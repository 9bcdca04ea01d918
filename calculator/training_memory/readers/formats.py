"""The formats that can be read, which of them a file is, and several files read together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

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
    trl,
)
from .json_file import parse_object
from .one_file import read_values
from .python_file import PICK
from .resolve import Resolved, resolve
from .syntax import path_of, syntax_of, values_of
from .table import Format, Part

#: Every format by its id. Of two that a file fits equally, the earlier is taken; of several files,
#: what a later format says goes before what an earlier one says.
FORMATS: Mapping[str, Format] = {
    form.id: form
    for form in (
        config.FORMAT,
        accelerate.FORMAT,
        deepspeed.FORMAT,
        training_arguments.FORMAT,
        trl.FORMAT,
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
    for name, text in _picked([*files]):
        try:
            parts += _read(field, name, text)
        except InputErrors as found:
            errors += found.errors
        except InputError as found:
            errors.append(found)
    if errors:
        raise InputErrors(errors)
    if any(map(_is_python, parts)):
        parts = [_found(part) for part in parts]
    order = [*FORMATS]
    # A script's flags go before what the Python file says that it names.
    parts.sort(key=lambda part: (order.index(part.format.id), not _is_python(part)))
    try:
        return resolve(parts, given)
    except InputError as found:
        raise InputErrors([found]) from None
    except OverflowError:
        raise InputErrors([InputError(field, None, "its numbers are too large")]) from None


def _picked(files: list[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """The files, a Python file with the function that a script among them names."""
    named = {match[1] for _, text in files for match in _NAMED.finditer(text)}
    for name, text in files:
        plain = path_of(name) == name and syntax_of(name, text) == "Python"
        yield (f"{name}{PICK}{next(iter(named))}" if plain and len(named) == 1 else name), text


#: How a script names a function of torchtitan's Python configurations.
_NAMED = re.compile(r"--config[ =](\w+)(?![\w./])")


def _is_python(part: Part) -> bool:
    return any(note.key == "function" for note in part.notes)


def _found(part: Part) -> Part:
    """A script's part once the Python file is there that it names."""
    return replace(part, notes=[note for note in part.notes if note.key != "config"])


def split_name(name: str) -> tuple[Format | None, str]:
    """The format that stands before a file's name, if one does, and the name itself."""
    first, colon, rest = name.partition(":")
    return (FORMATS[first], rest) if colon and rest and first in FORMATS else (None, name)


def _read(field: str, name: str, text: str) -> list[Part]:
    """What a file says, and what a DeepSpeed configuration that stands in it says."""
    form, file = split_name(name)
    values = values_of(field, file, text)
    form = form or format_of(field, file, values)
    reads = config.read_config if form is config.FORMAT else read_values
    parts = [reads(form, file, values)]
    engine = values.get("deepspeed")
    if isinstance(engine, str) and engine.lstrip().startswith("{"):  # as a flag's value has it
        engine = parse_object(field, f"deepspeed in {file}", engine)
    if isinstance(engine, Mapping) and _takes_engine(form):
        inside = {str(key): value for key, value in engine.items()}
        parts.append(read_values(deepspeed.FORMAT, f"deepspeed in {file}", inside))
    return parts


def _takes_engine(form: Format) -> bool:
    return any(row is training_arguments.deepspeed_file for row in form.rows)


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
