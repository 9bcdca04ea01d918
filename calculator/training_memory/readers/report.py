"""What became of every key of a file: the report that comes with a run read from other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from .. import sharding, switches, tuning
from ..records import dataclass

#: Said where the way in which a program runs its step is not counted yet.
TEXTBOOK = (
    "this cannot be counted as its program runs it yet, so the textbook's way stands in; selective "
    "recomputation in it stands for FlashAttention, which keeps no scores"
)

#: Choices that change what is counted, each with the one that the textbook's way comes to.
_CHOICES = {"optimizer": "adamw", "loss": "full", "attention": "flash", "adapter": "none"}
_LONGEST = 60
_FEW = 4


class Standing(StrEnum):
    """What was made of a key."""

    UNDERSTOOD = "understood"
    ASSUMED = "assumed"
    ASKED = "asked"
    LOST = "not modelled"
    UNKNOWN = "unknown"
    BESIDE = "beside"


#: What each standing means, in the order in which a report shows them.
MEANINGS: Mapping[Standing, str] = {
    Standing.UNDERSTOOD: "decides a field of the run",
    Standing.ASSUMED: "not said: what its program does then",
    Standing.ASKED: "left open: say it yourself",
    Standing.LOST: "bears on memory, and is not in the answer",
    Standing.UNKNOWN: "not known here: may bear on memory",
    Standing.BESIDE: "does not bear on memory",
}

#: The standings that a reader must know of before trusting the answer.
DOUBTS = (Standing.ASKED, Standing.LOST, Standing.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One key of one file. ``field`` is the run's field that it decides, or empty."""

    standing: Standing
    file: str
    key: str
    value: str
    field: str = ""
    said: str = ""

    def to_json(self) -> dict[str, str]:
        """The same as plain values."""
        return {
            "standing": str(self.standing),
            "file": self.file,
            "key": self.key,
            "value": self.value,
            "field": self.field,
            "said": self.said,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The files that were read, each with its format's name, and what became of their keys."""

    files: Mapping[str, str]
    findings: Sequence[Finding]

    def of(self, *standings: Standing) -> list[Finding]:
        """The findings of these standings."""
        return [finding for finding in self.findings if finding.standing in standings]

    @property
    def doubts(self) -> list[Finding]:
        """What bears on memory, or may, and is not in the answer; the most certain first."""
        return sorted(self.of(*DOUBTS), key=lambda finding: DOUBTS.index(finding.standing))

    def in_the_textbooks_way(
        self, fields: Mapping[str, object], instead_of: str, why: str = ""
    ) -> Report:
        """The same, of a run that is counted so for want of its own way.

        What ``fields`` choose of a way that the textbook does not have is lost. ``why`` is what
        stands against their own way.
        """
        lost = {name for name in _CHOICES if fields.get(name) not in (None, _CHOICES[name])}
        finding = Finding(
            standing=Standing.LOST,
            file="",
            key="implementation",
            value=instead_of,
            field="implementation",
            said=f"{TEXTBOOK} ({why})" if why else TEXTBOOK,
        )
        return Report(
            files=self.files,
            findings=[*(_of_the_textbook(one, lost) for one in self.findings), finding],
        )

    def to_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "files": dict(self.files),
            "findings": [finding.to_json() for finding in self.findings],
        }


def _of_the_textbook(finding: Finding, fields: set[str]) -> Finding:
    """A finding where the textbook, which has one way only, takes the place of a library's way."""
    own = {*finding.field.split(", ")}
    if finding.standing in DOUBTS or own - {*switches.USUAL, *tuning.USUAL, *sharding.USUAL}:
        return finding
    lost = bool(own & fields)
    why = "the textbook has one way only"
    if "adapter" in own:
        why = "in the textbook's way every weight is counted as trained: the job needs far less"
    return Finding(
        standing=Standing.LOST if lost else Standing.BESIDE,
        file=finding.file,
        key=finding.key,
        value=finding.value,
        said=why if lost else finding.said,
    )


def shown(value: object) -> str:
    """A value as a report shows it: short, whatever it is, and however it refers to itself."""
    if isinstance(value, Mapping):
        return f"{{{len(value)} keys}}" if value else "{}"
    if isinstance(value, list | tuple):
        if len(value) > _FEW or any(isinstance(item, Mapping | list | tuple) for item in value):
            return f"[{len(value)} items]"
        return "[" + ", ".join(shown(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        return "a number of too many digits"  # which Python refuses to write
    text = str(value)
    text = " ".join(text.split()) if text.strip() else repr(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
