"""The values that a Python file gives to a configuration, read from its text and never run.

It follows what such files do: a function returns ``Config(section=Section(key=value))``, or takes
what another function of the file returns and sets some of its attributes. A call is a mapping of
its arguments, with what was called under ``_component_``. What only a run can tell stays as it is
written, between ``$(`` and ``)``, for the report to ask about.
"""

from __future__ import annotations

# The classes of the parser itself: the library around them is larger than all that is read with it,
# and a page does not have it.
import _ast as ast
import operator
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy

from ..errors import InputError

#: Where a call's mapping says what was called, as torchtune's files do.
COMPONENT = "_component_"
#: Under which key stand lines that were not followed.
LINES = "lines that only a run can follow"
#: What stands between a file's name and the function in it that is meant.
PICK = "::"

_MOST_PYTHON = 512 * 2**10
_DEEPEST = 20
#: More than any file that a person writes comes to; functions that call each other have no end.
_MOST_EXPRESSIONS = 20_000
#: What computes a value and does not make a part of a configuration.
_COMPUTING = frozenset({"bool", "float", "getattr", "int", "len", "max", "min", "os", "str", "sum"})
_SUMS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def values(field: str, name: str, text: str) -> dict[str, object]:
    """The configuration that a file makes, by its only function that makes one or the named one.

    Raises :class:`InputError` for ``field``, naming the file as ``name``.
    """
    file, _, wanted = name.partition(PICK)
    if len(text) > _MOST_PYTHON:
        allowed = f"it is larger than {_MOST_PYTHON // 2**10} KiB; a configuration is smaller"
        raise InputError(field, file, allowed)
    try:
        with warnings.catch_warnings(action="ignore"):  # of what its writer will be told
            tree = compile(text, "<file>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = getattr(error, "msg", "") or str(error) or "it is nested too deeply"
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise InputError(field, file, f"it is not Python that can be read: {said}{where}") from None
    assert isinstance(tree, ast.Module)
    reader = _Reader(tree, text)
    if wanted and wanted not in reader.makers:
        raise InputError.unknown_name(f"function in {file}", wanted, tuple(reader.makers))
    chosen = wanted or reader.only
    if not chosen:
        if not reader.makers:
            allowed = "no function in it returns a configuration, such as Trainer.Config(...)"
            raise InputError(field, file, allowed)
        names = ", ".join(reader.makers)
        allowed = (
            f"it makes several configurations ({names}): say which, as {file}{PICK}NAME, or add "
            "what starts the job (--module llama3 --config NAME)"
        )
        raise InputError(field, file, allowed)
    found = reader.made(chosen)
    return {**found, "function": chosen}


class _Reader:
    """Follows the functions of one file."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        #: Columns are counted in bytes.
        self.lines = text.encode().splitlines()
        self.room = _MOST_EXPRESSIONS
        self.functions = {
            node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)
        }
        #: Names that the file itself gives a value.
        self.names: dict[str, object] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        self.names[target.id] = self.value(node.value, self.names, 0)
        self.makers = {name: None for name, node in self.functions.items() if self._makes(node)} | {
            name: None for name, one in self.names.items() if _is_config(one)
        }

    @property
    def only(self) -> str:
        """The one configuration that the file makes, if it is one."""
        return next(iter(self.makers)) if len(self.makers) == 1 else ""

    def _makes(self, node: ast.FunctionDef) -> bool:
        returns = self._text(node.returns) if node.returns else ""
        if returns.strip("'\"").endswith("Config"):
            return True
        return any(
            isinstance(one, ast.Return)
            and isinstance(one.value, ast.Call)
            and _dotted(one.value.func).endswith("Config")
            for one in node.body
        )

    def made(self, name: str, depth: int = 0) -> dict[str, object]:
        """The configuration that a function returns, or that stands under a name."""
        if name in self.names:
            found = self.names[name]
            return deepcopy(found) if isinstance(found, dict) else {}
        known = deepcopy(self.names)
        unfollowed = list[str]()
        for node in self.functions[name].body:
            if isinstance(node, ast.Return):
                found = self.value(node.value, known, depth) if node.value else {}
                made = dict(found) if isinstance(found, dict) else {}
                earlier = made.get(LINES)
                lines = [*(earlier if isinstance(earlier, list) else []), *unfollowed]
                return {**made, LINES: lines} if lines else made
            if not self._followed(node, known, depth):
                first = self.lines[node.lineno - 1].decode().strip()
                unfollowed.append(f"line {node.lineno}: {first}")
        return {}

    def _followed(self, node: ast.stmt, known: dict[str, object], depth: int) -> bool:
        """Do what a line does to names and attributes; whether that is understood."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return True  # what is said of the function
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Assert | ast.FunctionDef):
            return True
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return _set(node.target, self.value(node.value, known, depth), known)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            return _set(node.targets[0], self.value(node.value, known, depth), known)
        return False

    def value(self, node: ast.expr, known: Mapping[str, object], depth: int) -> object:
        """What an expression comes to."""
        self.room -= 1
        if depth > _DEEPEST or self.room < 0:
            return self._unsaid(node)
        if isinstance(node, ast.Constant):
            return node.value if not isinstance(node.value, bytes | complex) else self._unsaid(node)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._looked_up(node, known)
        if isinstance(node, ast.List | ast.Tuple):
            return [self.value(item, known, depth + 1) for item in node.elts]
        if isinstance(node, ast.Dict):
            return {
                str(self.value(key, known, depth + 1)): self.value(item, known, depth + 1)
                for key, item in zip(node.keys, node.values, strict=True)
                if key is not None
            }
        if isinstance(node, ast.Call):
            return self._called(node, known, depth)
        return self._sum(node, known, depth)

    def _sum(self, node: ast.expr, known: Mapping[str, object], depth: int) -> object:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, known, depth + 1)
            return -inner if isinstance(inner, int | float) else self._unsaid(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
            left = self.value(node.left, known, depth + 1)
            right = self.value(node.right, known, depth + 1)
            if isinstance(left, int) and isinstance(right, int) and (right or _adds(node.op)):
                return _SUMS[type(node.op)](left, right)
        return self._unsaid(node)

    def _called(self, node: ast.Call, known: Mapping[str, object], depth: int) -> object:
        name = _dotted(node.func)
        if name in self.functions and not node.args and not node.keywords:
            return self.made(name, depth + 1)
        if name.partition(".")[0] in _COMPUTING:
            return self._unsaid(node)
        found: dict[str, object] = {COMPONENT: name}
        if name.rpartition(".")[2] == "replace" and len(node.args) == 1:  # dataclasses.replace
            base = self.value(node.args[0], known, depth + 1)
            if isinstance(base, dict):
                words = node.keywords
                return base | {
                    one.arg: self.value(one.value, known, depth + 1) for one in words if one.arg
                }
        for at, item in enumerate(node.args):
            found[f"argument {at + 1}"] = self.value(item, known, depth + 1)
        for word in node.keywords:
            found[word.arg or "**"] = self.value(word.value, known, depth + 1)
        return found

    def _looked_up(self, node: ast.expr, known: Mapping[str, object]) -> object:
        """A name's value, an attribute of one, or a dotted name of something imported."""
        words = _dotted(node).split(".")
        if words == [""]:
            return self._unsaid(node)
        if words[0] not in known:
            return ".".join(words)  # such as torch.bfloat16
        found = known[words[0]]
        for word in words[1:]:
            if not isinstance(found, dict) or word not in found:
                return self._unsaid(node)
            found = found[word]
        return deepcopy(found)  # what takes it over may change it

    def _unsaid(self, node: ast.expr) -> str:
        """An expression that only a run can tell, as a variable in other files is written."""
        return f"$({self._text(node)})"

    def _text(self, node: ast.expr) -> str:
        """How an expression is written, in one line."""
        last = node.end_lineno or node.lineno
        lines = self.lines[node.lineno - 1 : last]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode(errors="replace").split())


def _adds(sign: ast.operator) -> bool:
    return not isinstance(sign, ast.FloorDiv)


def _is_config(value: object) -> bool:
    return isinstance(value, dict) and str(value.get(COMPONENT, "")).endswith("Config")


def _dotted(node: ast.expr) -> str:
    """The dotted name of a value or of what is called; nothing where it is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        above = _dotted(node.value)
        return f"{above}.{node.attr}" if above else ""
    return ""


def _set(target: ast.expr, value: object, known: dict[str, object]) -> bool:
    """Give a name or an attribute of a configuration its value."""
    if isinstance(target, ast.Name):
        known[target.id] = value
        return True
    words = _dotted(target).split(".")
    inner = known.get(words[0])
    for word in words[1:-1]:
        if not isinstance(inner, dict):
            return False
        inner = inner.setdefault(word, {})
    if not isinstance(target, ast.Attribute) or not isinstance(inner, dict):
        return False
    inner[words[-1]] = value
    return True
