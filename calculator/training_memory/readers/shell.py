"""The arguments that a launch script gives to its program, without running anything.

It follows what such scripts do: variables and arrays assigned in the script, ``${NAME:-usual}``,
sums such as ``$(($GPUS*$NODES))``, quotes, and lines continued with a backslash. What only a run
can tell (a variable from outside, another command's output) stays as it is written, for the report
to ask about. Slurm's ``#SBATCH`` lines are arguments too, under ``sbatch.``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import InputError
from .twice import Twice, twice_in, with_twice

#: Far more than any script that starts a job, and than its variables come to.
_MOST_SCRIPT = 256 * 2**10
_MOST_EXPANDED = 2**20

_SUM = r"\$\(\([^\n]{0,200}?\)\)"
_OUTPUT = r"\$\([^()]{0,300}(?:\([^()]{0,300}\)[^()]{0,300}){0,3}\)|`[^`]{0,300}`"
_BRACED = r"\$\{[^}]{0,300}\}"
_QUOTED = r"'[^']*'|\"(?:\\.|[^\"\\])*\""
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\r]+|\\\r?\n)
    |(?P<comment>\#[^\n]*)
    |(?P<end>\n|;+|&&?|\|\|?)
    |(?P<open>\()|(?P<close>\))
    |(?P<redirect>[<>]+[&-]?)
    |(?P<word>(?:{_QUOTED}|{_SUM}|{_OUTPUT}|{_BRACED}|\\(?!\r?\n).|[^\s;&|()<>"'\\`]|\\\r?\n)+)""",
    re.VERBOSE | re.DOTALL,
)
_PART = re.compile(
    rf"""'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)"
    |(?P<variable>{_SUM}|{_BRACED}|\$\w+)
    |(?P<aside>{_OUTPUT})
    |\\\r?\n|\\(?P<escaped>.)|(?P<plain>[^'"$\\`]+|.)""",
    re.VERBOSE | re.DOTALL,
)
_VARIABLE = re.compile(rf"{_SUM}|{_OUTPUT}|{_BRACED}|\$\w+", re.DOTALL)
_NAME = re.compile(r"\$\{?(\w+)(?:\[[@*]\])?(?::?[-=]([^}]*))?\}?")
_ASSIGNED = re.compile(r"(\w+)(\+?)=", re.ASCII)
_PLACE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_CONDITION = {"if": 1, "case": 1, "fi": -1, "esac": -1}
_GOES_ON = frozenset(
    {"then", "else", "elif", "for", "while", "until", "select", "do", "done", "{", "}", "!"}
    | {"function", "exec", "time"}
)
#: What Slurm sets in a job, by the argument that says it.
_FROM_SLURM = {
    "SLURM_NNODES": "sbatch.nodes",
    "SLURM_JOB_NUM_NODES": "sbatch.nodes",
    "SLURM_NTASKS_PER_NODE": "sbatch.ntasks-per-node",
    "SLURM_GPUS_PER_NODE": "sbatch.gpus-per-node",
    "SLURM_GPUS_ON_NODE": "sbatch.gpus-per-node",
}
_DECLARES = frozenset({"export", "local", "declare", "readonly", "typeset", "env"})


def arguments(field: str, name: str, text: str) -> dict[str, object]:
    """The arguments of the script's program by name, without dashes in front.

    An argument is its value as text, a list of several, or True where it has none. Raises
    :class:`InputError` for ``field`` where the text is no script, naming the file as ``name``.
    """
    if len(text) > _MOST_SCRIPT:
        allowed = f"it is larger than {_MOST_SCRIPT // 2**10} KiB; a launch script is smaller"
        raise InputError(field, name, allowed)
    found: dict[str, object] = dict(_slurm(text))
    script = _Script(field, name)
    for variable, said in _FROM_SLURM.items():
        if said in found:
            script.variables[variable] = [str(found[said])]
    script.read(text)
    named = with_twice(_named(script.words()))
    found |= named
    if not found:
        allowed = "it has no arguments (--name value) in it; a launch script is needed"
        raise InputError(field, name, allowed)
    return Twice(found, twice_in(named))


def _slurm(text: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(r"^#SBATCH\s+--?([\w-]+)(?:[= ](\S+))?", text, re.MULTILINE):
        short = {"N": "nodes", "n": "ntasks", "G": "gpus"}
        yield f"sbatch.{short.get(match[1], match[1])}", match[2] or ""


def _named(words: list[str]) -> Iterator[tuple[str, object]]:
    """The words after each ``--name``, up to the next."""
    name, values = "", list[str]()
    for word in [*words, "--"]:
        if not re.match(r"--(?:[A-Za-z]|$)", word):
            values.append(word)
            continue
        if name:
            yield name, values[0] if len(values) == 1 else (values or True)
        name, equals, value = word[2:].partition("=")
        values = [value] if equals else []


class _Script:
    """The commands of a script with its own variables in their places."""

    def __init__(self, field: str, name: str) -> None:
        self.field = field
        self.name = name
        self.variables: dict[str, list[str]] = {}
        self.commands: list[list[str]] = []
        self.arrays: list[str] = []
        #: How many conditions stand around the command being read.
        self.conditions = 0
        self.room = _MOST_EXPANDED

    def words(self) -> list[str]:
        """The command with the most arguments; all arrays where none has any."""
        fullest = max(self.commands, key=_dashed, default=[])
        if _dashed(fullest):
            return fullest
        return [word for name in self.arrays for word in self.variables[name]]

    def read(self, text: str) -> None:
        """Follow the script from its first line to its last."""
        command: list[str] = []
        array: list[str] | None = None
        start, until = 0, ""
        while start < len(text):
            match = _TOKEN.match(text, start)
            if match is None:
                line = text.count("\n", 0, start) + 1
                allowed = f"it is not a script that can be read: a quote opened in line {line}"
                raise InputError(self.field, self.name, allowed)
            start, kind, token = match.end(), match.lastgroup, match[0]
            if kind == "redirect" and (place := _PLACE.match(text, match.start())):
                start, until = place.end(), place[2]
            elif kind == "open" and command and command[-1].endswith("="):
                array = []
            elif kind == "close" and array is not None:
                self._assign_array(command.pop(), array)
                array = None
            elif kind == "word" and array is not None:
                array += self._expanded(token)
            elif kind == "word":
                command.append(token)
            elif kind in ("end", "open", "close") and array is None:
                self._end(command)
                command = []
                if until and token == "\n":
                    # What a command reads from the script itself is no command.
                    end = re.compile(rf"^\s*{until}$", re.MULTILINE).search(text, start)
                    start, until = (end.end() if end else len(text)), ""
        self._end(command)

    def _end(self, command: list[str]) -> None:
        while command and command[0] in _GOES_ON | _DECLARES | _CONDITION.keys():
            self.conditions += _CONDITION.get(command[0], 0)
            command = command[1:]
        words: list[str] = []
        for raw in command:
            assigned = None if words else _ASSIGNED.match(raw)
            if assigned is None:
                words += self._expanded(raw)
                continue
            value = self._expanded(raw[assigned.end() :], splits=False)
            before = self.variables.get(assigned[1], []) if assigned[2] else []
            self._keep(assigned[1], ["".join(before + value)], adds=bool(assigned[2]))
        if words:
            self.commands.append(words)

    def _assign_array(self, raw: str, words: list[str]) -> None:
        assigned = _ASSIGNED.match(raw)
        if assigned is None:
            return
        before = self.variables.get(assigned[1], []) if assigned[2] else []
        self._keep(assigned[1], before + words, adds=bool(assigned[2]))
        self.arrays = [*dict.fromkeys([*self.arrays, assigned[1]])]

    def _keep(self, name: str, words: list[str], *, adds: bool) -> None:
        if self.conditions and not adds and self.variables.get(name, words) != words:
            # Either value may be the one, so it is as unknown as a variable from outside.
            words = [f"${name}"]
        self.variables[name] = words

    def _expanded(self, raw: str, *, splits: bool = True) -> list[str]:
        """The words that one word as written becomes."""
        words, open_word = list[str](), False
        for part in _PART.finditer(raw):
            if (double := part["double"]) is not None:
                found = self._quoted(double)
            elif part["variable"] is not None:
                found = self._value(part["variable"])
                if splits:
                    found = [piece for word in found for piece in word.split()]
                    if not found:
                        continue
            else:
                whole = part["single"] or part["escaped"] or part["aside"] or part["plain"]
                found = [whole or ""]
            if open_word and words and found:
                words[-1] += found.pop(0)
            words += found
            open_word = True
        self.room -= sum(map(len, words))
        if self.room < 0:
            allowed = "its variables grow beyond what any launch script needs"
            raise InputError(self.field, self.name, allowed)
        return words

    def _quoted(self, text: str) -> list[str]:
        """Text between double quotes; an array alone in it stays several words."""
        if re.fullmatch(r"\$\{\w+\[@\]\}", text):
            return self._value(text)
        inner = re.sub(r"\\\r?\n", "", text)
        inner = _VARIABLE.sub(lambda match: " ".join(self._value(match[0])), inner)
        return [re.sub(r"\\([\"\\$`])", r"\1", inner)]

    def _value(self, written: str) -> list[str]:
        """What a variable or a sum stands for; itself where the script does not say."""
        if written.startswith("$(("):
            return [self._sum(written)]
        match = _NAME.fullmatch(written)
        if match is None:
            return [written]
        if match[1] in self.variables:
            return self.variables[match[1]]
        if match[2] is not None and "$" in match[2]:
            usual = _VARIABLE.sub(lambda inner: " ".join(self._value(inner[0])), match[2])
            return [f"${{{match[1]}:-{usual}}}"]
        return [written]

    def _sum(self, written: str) -> str:
        def number(match: re.Match[str]) -> str:
            words = self.variables.get(match[1], [match[0]])
            value = _USUAL.sub(r"\1", " ".join(words))
            return value if value.isdecimal() else match[0]

        inside = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", number, written[3:-2])
        total = calculated(inside)
        return written if total is None else str(total)


_USUAL = re.compile(r"\$\{\w+:?[-=](\d+)\}")


def _dashed(words: list[str]) -> int:
    return sum(word.startswith("--") for word in words)


def calculated(text: str) -> int | None:
    """The value of a sum of whole numbers with + - * / % and brackets, as a shell computes it."""
    tokens = re.findall(r"\d+|[-+*/%()]|\S", text)
    if len(tokens) > 100 or any(len(token) > 18 for token in tokens):
        return None
    try:
        value, rest = _added(tokens)
    except (ValueError, IndexError, ZeroDivisionError, RecursionError):
        return None
    return None if rest or abs(value) > 10**18 else value


def _added(tokens: list[str]) -> tuple[int, list[str]]:
    value, tokens = _multiplied(tokens)
    while tokens and tokens[0] in "+-":
        other, rest = _multiplied(tokens[1:])
        value, tokens = (value + other if tokens[0] == "+" else value - other), rest
    return value, tokens


def _multiplied(tokens: list[str]) -> tuple[int, list[str]]:
    value, tokens = _one(tokens)
    while tokens and tokens[0] in "*/%":
        other, rest = _one(tokens[1:])
        if tokens[0] == "*":
            value *= other
        else:
            value = value // other if tokens[0] == "/" else value % other
        tokens = rest
    return value, tokens


def _one(tokens: list[str]) -> tuple[int, list[str]]:
    if tokens[0] == "(":
        value, rest = _added(tokens[1:])
        if rest[0] != ")":
            raise ValueError(rest[0])
        return value, rest[1:]
    return int(tokens[0]), tokens[1:]
