"""From a file's text to its values: JSON, YAML, TOML, a script's arguments, a Python file.

YAML alone needs a package, PyYAML: the reader that Hugging Face's libraries, axolotl,
LLaMA-Factory and torchtune use themselves, so that ``yes`` and ``1e-5`` mean here what they mean
there. Its loader in plain Python is taken, which the calculator's page can run as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from ..errors import InputError
from . import shell
from .json_file import parse_object
from .twice import Twice, twice_in

# For type checkers alone: only a file in YAML needs the package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import yaml

#: Far more than any YAML that a person writes; parsing more would take seconds.
MOST_YAML = 256 * 2**10
_MOST_DIGITS = 400

_BY_SUFFIX = {
    "json": "JSON",
    "jsonc": "JSON",
    "yaml": "YAML",
    "yml": "YAML",
    "toml": "TOML",
    "sh": "shell",
    "bash": "shell",
    "slurm": "shell",
    "sbatch": "shell",
    "py": "Python",
}
_TABLE = re.compile(r"^\[\[?[A-Za-z0-9_.\"' -]+\]\]?\s*(?:#.*)?$", re.MULTILINE)
_EQUALS = re.compile(r"^[A-Za-z0-9_.-]+\s*=\s*\S", re.MULTILINE)
_KEY = re.compile(r"^[ ]*(?:- )?[\w.\"'/-]+[ ]*:(?:\s|$)", re.MULTILINE)
_PYTHON = re.compile(
    r"from [\w.]+ import |import [\w.]+(?: as \w+)?$|def \w+\(|@?\w+ = [\w.]+Config\(", re.MULTILINE
)
_COMMAND = re.compile(
    r"^\s*(?:export\s+\w+=|\w+=\(|\w+=\$|(?:torchrun|python3?|deepspeed|srun|accelerate|bash)\s)"
    r"|^#!.*sh\b|^\s*--[a-z][\w.-]*(?:[ =]\S.*)?\\?$|\s--[a-z][\w-]+.*\\$",
    re.MULTILINE,
)


def syntax_of(name: str, text: str) -> str:
    """How a file is written, by the ending of its name or else by what it looks like."""
    ending = path_of(name).rpartition(".")[2].lower()
    if ending in _BY_SUFFIX and ending != name.lower():
        return _BY_SUFFIX[ending]
    first = text.lstrip("\ufeff \t\r\n")
    lines = (line for line in first.splitlines() if line.strip() and not line.startswith("#"))
    if _PYTHON.match(next(lines, "")):
        return "Python"
    if first.startswith(("{", "//", "/*")):
        return "JSON"
    keys = len(_KEY.findall(text))
    if _TABLE.search(text) and len(_EQUALS.findall(text)) > keys:
        return "TOML"
    if len(_COMMAND.findall(text)) > keys:
        return "shell"
    if not keys and first.startswith("--"):
        return "shell"
    return "YAML"


def values_of(field: str, name: str, text: str) -> dict[str, object]:
    """The values of a file by key; arguments of a script are keys without their dashes.

    Raises :class:`InputError` for ``field``, naming the file as ``name``.
    """
    syntax = syntax_of(name, text)
    if not text.strip() and syntax != "JSON":
        raise InputError(field, name, "it is empty; a configuration is needed")
    return _PARSERS[syntax](field, name, text)


def _toml(field: str, name: str, text: str) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(field, name, f"it is not TOML that can be read: {_said(error)}") from None


def _yaml(field: str, name: str, text: str) -> dict[str, object]:
    try:
        import yaml
    except ImportError:
        allowed = "reading YAML needs PyYAML: pip install PyYAML, or write the file as JSON"
        raise InputError(field, name, allowed) from None
    if len(text) > MOST_YAML:
        allowed = f"it is larger than {MOST_YAML // 2**10} KiB; a configuration is smaller"
        raise InputError(field, name, allowed)
    try:
        found = yaml.load(text, Loader=_loader())
    # PyYAML lets through what its constructors run into, such as a date that is none.
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(field, name, f"it is not YAML that can be read: {_said(error)}") from None
    except (RecursionError, OverflowError):
        allowed = "it is not YAML that can be read: it is nested too deeply"
        raise InputError(field, name, allowed) from None
    if not isinstance(found, dict):
        allowed = "it holds no keys; a configuration such as `bf16: true` is needed"
        raise InputError(field, name, allowed)
    return Twice({str(key): value for key, value in found.items()}, twice_in(found))


@lru_cache(maxsize=1)
def _loader() -> type[yaml.SafeLoader]:
    """PyYAML's loader of plain values, less the numbers that Python itself refuses to write."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML carries no types
        def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
            if len(node.value) > _MOST_DIGITS:
                raise yaml.constructor.ConstructorError(
                    None, None, "a number of too many digits", node.start_mark
                )
            return int(super().construct_yaml_int(node))

        def construct_yaml_map(self, node: yaml.MappingNode) -> Iterator[dict[str, object]]:
            # What a merge (<<) brings in may be said again; a key of the mapping's own may not.
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            again = [name for name in names if name != "<<" and names.count(name) > 1]
            found: dict[str, object] = Twice({}, again) if again else {}
            yield found  # before what is in it, which may refer to it
            found.update(self.construct_mapping(node))

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    Loader.add_constructor("tag:yaml.org,2002:map", Loader.construct_yaml_map)
    return Loader


def _said(error: Exception) -> str:
    """What a library says of a text, in one line, with the place."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = getattr(error, "problem", None) or str(error) or type(error).__name__
    said = " ".join(said.split())
    said = said if len(said) <= 120 else f"{said[:119]}…"
    return f"{said}, line {mark.line + 1}, column {mark.column + 1}" if mark else said


def _shell(field: str, name: str, text: str) -> dict[str, object]:
    return shell.arguments(field, name, text)


def _python(field: str, name: str, text: str) -> dict[str, object]:
    from . import python_file

    return python_file.values(field, name, text)


def path_of(name: str) -> str:
    """A file's path, without the function in it that is meant: ``registry.py::llama3_8b``."""
    path, mark, function = name.rpartition("::")
    return path if mark and path.endswith(".py") and function.isidentifier() else name


_PARSERS: Mapping[str, Callable[[str, str, str], dict[str, object]]] = {
    "JSON": parse_object,
    "YAML": _yaml,
    "TOML": _toml,
    "shell": _shell,
    "Python": _python,
}
