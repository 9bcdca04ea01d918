"""From the command line's flags and files to a run, with every mistake named as it was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import catalog, recipe
from .errors import InputError, InputErrors
from .flags import flag
from .model import SHAPE_FIELDS, Model
from .records import dataclass
from .run import DEFAULTS, Run
from .switches import Fusion

UNITS = ("GB", "GiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one command was asked: the run, and how to show its answer."""

    run: Run
    binary: bool
    json: bool


def read_request(given: Mapping[str, object], mistakes: Iterable[InputError] = ()) -> Request:
    """The request that flags make, ``given`` by field, with what files they name.

    A flag goes before a file, a file before what is usual. Raises :class:`InputErrors` with
    ``mistakes`` and everything else that cannot be: ``--micro-batch`` for a flag, ``micro_batch in
    run.json`` for a file's field.
    """
    reader = _Reader(given)
    reader.errors += mistakes
    unit = given.get("units", UNITS[0])
    if unit not in UNITS:
        reader.errors.append(InputError.unknown_name("--units", unit, UNITS))
    run = reader.run()
    if run is None or reader.errors:
        raise InputErrors(reader.errors)
    return Request(run=run, binary=unit == UNITS[1], json=bool(given.get("json")))


def _by_meaning(given: Mapping[str, object]) -> Mapping[str, object]:
    """The flags with ``--norm fused`` taken for ``--norm-kernel``: a shape has a norm as well."""
    if given.get("norm") not in tuple(Fusion):
        return given
    rest = {name: value for name, value in given.items() if name != "norm"}
    return {"norm_kernel": given["norm"], **rest}


class _Reader:
    """Puts a run's JSON together from its sources, and remembers which field is from where."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self.given = _by_meaning(given)
        self.errors: list[InputError] = []
        self.lacks_file = False
        #: The file that a field was read from.
        self.origin: dict[str, str] = {}
        self.shape = {name: self.given[name] for name in SHAPE_FIELDS if name in self.given}

    def run(self) -> Run | None:
        """The run; None, or one to throw away, where there are errors."""
        if "config" in self.given and "model" in self.given:
            allowed = "name a model with --model or with --config, not with both"
            self.errors.append(InputError("--config", None, allowed))
        if self.given.get("config") == self.given.get("run") == "-":
            allowed = "standard input holds one file, and --config reads it"
            self._lack(InputError("--run", None, allowed))
            return None
        request = self._file()
        model = self._config()
        if model is None:
            request["shape"] = self._changed(request)
        else:
            shape = {name: getattr(model, name) for name in SHAPE_FIELDS}
            request |= {"model": "custom", "shape": shape}
        request |= {name: self.given[name] for name in DEFAULTS if name in self.given}
        if self.given.get("gpu") == "none":
            request["gpu"] = None
        self._with_gradients(request)
        if self.lacks_file:
            # The model is unknown, so nothing that depends on it is checked, but the rest can be.
            request |= {"model": None, "shape": {}}
        try:
            run = Run.from_json(request)
        except InputErrors as found:
            self.errors += [
                self._named(error)
                for error in found.errors
                if not (self.lacks_file and error.field in ("model", "shape"))
            ]
            return None
        return run if model is None else _with_name(run, model)

    def _with_gradients(self, request: dict[str, object]) -> None:
        """Exchange the recipe for its like with gradients of the dtype asked for, if any is."""
        if "gradient_dtype" not in self.given:
            return
        try:
            named = recipe.get(request.get("recipe", DEFAULTS["recipe"]))
        except InputError:
            return  # said when the run is read
        try:
            request["recipe"] = recipe.with_gradients(named, self.given["gradient_dtype"]).id
        except InputError as error:
            self.errors.append(self._named(error))

    def _file(self) -> dict[str, object]:
        """The run in the file of ``--run``; an estimate's is the run it answers."""
        if "run" not in self.given:
            return {}
        path = str(self.given["run"])
        try:
            found = self._object("run", path)
        except InputError as error:
            self._lack(error)
            return {}
        inner = found.get("run")
        if "peak" in found and isinstance(inner, dict):
            found = inner
        shape = found.get("shape")
        for field in (*found, *(shape if isinstance(shape, dict) else ())):
            self.origin[field] = path
        return found

    def _changed(self, request: Mapping[str, object]) -> object:
        """The shape changes of the file and of the flags; a file's go with the file's model."""
        below = request.get("shape", {})
        if self.given.get("model", request.get("model")) != request.get("model"):
            below = {}
        return {**below, **self.shape} if isinstance(below, Mapping) else below

    def _config(self) -> Model | None:
        """The model of ``--config`` with the flags' changes."""
        if "config" not in self.given:
            return None
        path = str(self.given["config"])
        try:
            config = self._object("config", path)
        except InputError as error:
            self._lack(error)
            return None
        from .readers.huggingface import model_from_config

        try:
            model = model_from_config(config)
        except (InputError, InputErrors) as found:
            self._lack(*(_renamed(one, _in_file(one.field, path)) for one in _each(found)))
            return None
        self.origin |= dict.fromkeys(SHAPE_FIELDS, path)
        try:
            return catalog.with_shape(model, self.shape)
        except (InputError, InputErrors) as found:
            self._lack(*(self._named(one) for one in _each(found)))
            return None

    def _object(self, field: str, path: str) -> dict[str, object]:
        from .readers.json_file import read_object

        return read_object(flag(field), path)

    def _lack(self, *errors: InputError) -> None:
        """Go on without a file that cannot be used."""
        self.errors += errors
        self.lacks_file = True

    def _named(self, error: InputError) -> InputError:
        """The error under the name by which the field was written."""
        field = error.field
        if field in self.given or field not in self.origin:
            if isinstance(error.value, bool):
                # A flag without a value: --tied or --no-tied, so there is no value to show.
                name = flag(field) if error.value else flag("no_" + field)
                return InputError(name, None, error.allowed, suggestion=error.suggestion)
            if field not in self.given and error.value is not None:
                allowed = f"{error.allowed} (it was not given, so the usual value was taken)"
                return InputError(flag(field), error.value, allowed, suggestion=error.suggestion)
            return _renamed(error, flag(field))
        return _renamed(error, _in_file(field, self.origin[field]))


def _each(found: InputError | InputErrors) -> tuple[InputError, ...]:
    return found.errors if isinstance(found, InputErrors) else (found,)


def _in_file(field: str, path: str) -> str:
    return f"{field} in {'standard input' if path == '-' else path}"


def _renamed(error: InputError, name: str) -> InputError:
    return InputError(name, error.value, error.allowed, suggestion=error.suggestion)


def _with_name(run: Run, model: Model) -> Run:
    """The run with its model called as in the file; a run's JSON has no name for a shape."""
    from dataclasses import replace

    known = {field: getattr(model, field) for field in ("name", "family", "context", "source")}
    return replace(run, model=replace(run.model, **known))
