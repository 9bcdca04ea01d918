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
from .units import parse_count

# For type checkers alone: a command without --config reads none.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .readers.report import Report
    from .readers.resolve import Resolved

UNITS = ("GB", "GiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one command was asked: the run, and how to show its answer."""

    run: Run
    binary: bool
    json: bool
    report: Report | None = None


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
    return Request(
        run=run, binary=unit == UNITS[1], json=bool(given.get("json")), report=reader.report
    )


def read_configs(given: Mapping[str, object], *, field: str = flag("config")) -> Resolved:
    """What the files of ``--config`` say; raises :class:`InputErrors`, for ``field``."""
    from .readers.formats import read_files, split_name
    from .readers.source import read_text
    from .readers.syntax import path_of

    files, errors = [], list[InputError]()
    paths = given.get("config")
    for path in paths if isinstance(paths, list) else []:
        try:
            files.append((path, read_text(field, path_of(split_name(path)[1]))))
        except InputError as error:
            errors.append(error)
    if errors:
        raise InputErrors(errors)
    return read_files(files, _beside(given), field=field)


def _beside(given: Mapping[str, object]) -> dict[str, object]:
    """The flags that change how files are understood, where they can be at all."""
    found: dict[str, object] = {}
    for name in ("data", "tensor", "pipeline", "vocabulary"):
        if name in given:
            try:
                found[name] = parse_count(name, given[name])
            except InputError:
                continue  # said with everything else that cannot be
    return found | ({"model": given["model"]} if "model" in given else {})


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
        self.report: Report | None = None
        #: The file that a field was read from.
        self.origin: dict[str, str] = {}
        self.shape = {name: self.given[name] for name in SHAPE_FIELDS if name in self.given}

    def run(self) -> Run | None:
        """The run; None, or one to throw away, where there are errors."""
        configs = self.given.get("config")
        if isinstance(configs, list) and "-" in configs and self.given.get("run") == "-":
            allowed = "standard input holds one file, and --config reads it"
            self._lack(InputError("--run", None, allowed))
            return None
        request = self._file()
        resolved = self._configs()
        model = self._config(resolved)
        if resolved:
            request |= resolved.fields
            self.report = resolved.report
        if model is None:
            request["shape"] = self._changed(request)
        else:
            shape = {name: getattr(model, name) for name in SHAPE_FIELDS}
            own = {name: getattr(model, name) for name in catalog.CUSTOM}
            request |= {"model": "custom", "shape": shape, **own}
        request |= {name: self.given[name] for name in DEFAULTS if name in self.given}
        if self.given.get("gpu") == "none":
            request["gpu"] = None
        self._with_gradients(request)
        if self.lacks_file:
            # The model is unknown, so nothing that depends on it is checked, but the rest can be.
            request |= {"model": None, "shape": {}}
        try:
            run = self._checked(request, model)
        except InputErrors as found:
            self.errors += [
                self._named(error)
                for error in found.errors
                if not (self.lacks_file and error.field in ("model", "shape"))
            ]
            return None
        return run

    def _checked(self, request: dict[str, object], model: Model | None) -> Run:
        """The run, in the textbook's way where a file's own way is not counted."""
        try:
            return _run(request, model)
        except InputErrors as found:
            from .readers.stand_in import textbook

            other = textbook(request, found.errors)
            if other is None or not self.report or "implementation" in self.given:
                raise
            run = _run(other, model)
            way = str(request["implementation"])
            why = found.errors[0].message.rstrip(".")
            self.report = self.report.in_the_textbooks_way(request, way, why)
            return run

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

    def _configs(self) -> Resolved | None:
        """What the files of ``--config`` say."""
        if "config" not in self.given:
            return None
        try:
            resolved = read_configs(self.given)
        except InputErrors as found:
            self._lack(*found.errors)
            return None
        self.origin |= resolved.origin
        return resolved

    def _config(self, resolved: Resolved | None) -> Model | None:
        """The model that one of the files gives the shape of, with the flags' changes."""
        if resolved is None:
            return None
        if resolved.model is None:
            if not {"model", "run"} & {*self.given, *resolved.fields}:
                allowed = (
                    "no file gives the model's shape: add its config.json with one more --config, "
                    "or name a model with --model"
                )
                self._lack(InputError("--config", None, allowed))
            return None
        if "model" in self.given:
            allowed = "name a model with --model or with --config, not with both"
            self.errors.append(InputError("--config", None, allowed))
        try:
            return catalog.with_shape(resolved.model, self.shape)
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
        where = self.origin[field]
        return _renamed(error, where if " in " in where else _in_file(field, where))


def _each(found: InputError | InputErrors) -> tuple[InputError, ...]:
    return found.errors if isinstance(found, InputErrors) else (found,)


def _in_file(field: str, path: str) -> str:
    return f"{field} in {'standard input' if path == '-' else path}"


def _renamed(error: InputError, name: str) -> InputError:
    return InputError(name, error.value, error.allowed, suggestion=error.suggestion)


def _run(request: Mapping[str, object], model: Model | None) -> Run:
    run = Run.from_json(request)
    return run if model is None else _sourced(run, model)


def _sourced(run: Run, model: Model) -> Run:
    """The run with its model's source as in the file, of which a run's JSON tells nothing."""
    from dataclasses import replace

    known = {field: getattr(model, field) for field in ("context", "source")}
    return replace(run, model=replace(run.model, **known))
