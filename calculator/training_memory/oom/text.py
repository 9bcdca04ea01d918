"""From the text of a job that died to its error: noise goes, the first error counts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import InputError
from .forms import FORMS, Form
from .reading import OomReading
from .traceback import innermost, when

#: Of a longer text the beginning is looked at, where its first error is.
MOST_CHARACTERS = 20_000_000
#: So much before an error is searched for its traceback, so much after it for its numbers.
_BEFORE, _AFTER = 24_000, 8_000
#: Two findings nearer than this are one error's.
_NEAR = 500

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\-_])")
#: What launchers and loggers put before every line, and the sides of a drawn box.
_PREFIX = re.compile(
    r"^[ \t]*(?:"
    r"\[(?:rank|default|worker)[ _-]?\d+\]:?"  # torchrun
    r"|\d+: "  # srun --label
    r"|\[\d+,\d+\]<std(?:err|out)>:"  # mpirun --tag-output
    r"|\([\w.]+(?:\(\w+\))? pid=\d+[^)\n]{0,120}\)"  # Ray
    r"|[\w.-]+ +\| "  # docker compose
    r"|[a-z][\w.-]*\d: "  # pdsh, by the host's name
    r"|(?:SUBPROCESS|STDERR|stderr): "
    r"|(?:\w+: )?\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\s\]]*\]?:? "
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d [^\]\n]{1,60}\] "
    r"|[│┃╎|] "
    r")[ \t]?",
    re.MULTILINE,
)
_SIDE = re.compile(r"[ \t]*[│┃]+[ \t]*$", re.MULTILINE)
_RANK = re.compile(
    r"\[(?:rank|default|worker)[ _-]?(\d+)\]|^\s*(\d+): |\[\d+,(\d+)\]<std|\brank[ =:]+(\d+)\b",
    re.IGNORECASE,
)


def read(text: str) -> OomReading:
    """What the first out-of-memory error in ``text`` says.

    Raises :class:`InputError` for a text in which none is known.
    """
    lines = _ANSI.sub("", text[:MOST_CHARACTERS].replace("\r\n", "\n").replace("\r", "\n"))
    plain = _plain(lines)
    hits = _hits(plain)
    if not hits:
        raise InputError("error", None, _why_none(plain))
    at, form = hits[0]
    stop = next((other for other, _ in hits[1:]), len(plain))
    block = plain[at : min(stop, at + _AFTER)]
    values = _best(form, block)
    return OomReading(
        kind=form.kind,
        says=" ".join(block[:600].split())[:240],
        errors=len({(_rank(lines, plain, place), plain[place : place + 160]) for place, _ in hits}),
        rank=_rank(lines, plain, at),
        when=when(plain[max(0, at - _BEFORE) : at]),
        line=innermost(plain[max(0, at - _BEFORE) : at]),
        **values,  # type: ignore[arg-type]
    )


def _plain(lines: str) -> str:
    """Lines without what was put before and after them; as many lines as before."""
    for _ in range(3):  # prefixes stand in rows
        lines = _PREFIX.sub("", lines)
    return _SIDE.sub("", lines)


def _hits(plain: str) -> list[tuple[int, Form]]:
    """Where errors begin, in order; those that may be only echoes where there are no others."""
    strong = sorted(_found(plain, weak=False), key=lambda hit: hit[0])
    hits = strong or sorted(_found(plain, weak=True), key=lambda hit: hit[0])
    kept: list[tuple[int, Form]] = []
    for at, form in hits:
        # An error may fit a form twice, or another one's as well, as NCCL's does CUDA's.
        if not kept or at - kept[-1][0] > _NEAR or plain[kept[-1][0] : at].count("Tried to") > 0:
            kept.append((at, form))
    return kept


def _found(plain: str, *, weak: bool) -> Iterator[tuple[int, Form]]:
    for form in FORMS:
        if form.weak is weak:
            for match in re.finditer(_spaced(form.pattern), plain, re.MULTILINE):
                yield match.start(), form


def _spaced(pattern: str) -> str:
    """The same pattern where a space may have become the end of a line."""
    return pattern.replace(" ?", r"\s*").replace(" *", r"\s*").replace(" ", r"\s+")


def _best(form: Form, block: str) -> dict[str, object]:
    """The numbers of an error whose lines may have been broken between words or within them."""
    flat = form.values(" ".join(block.split()))
    joined = form.values(block.replace("\n", ""))
    known = [sum(value not in (None, ()) for value in one.values()) for one in (flat, joined)]
    return joined if known[1] > known[0] else flat


def _rank(lines: str, plain: str, at: int) -> int | None:
    """The rank that the line says it is from."""
    line = lines.split("\n", plain.count("\n", 0, at) + 1)[-2:][0]
    match = _RANK.search(line[:200])
    return int(next(group for group in match.groups() if group)[:9]) if match else None


def _why_none(plain: str) -> str:
    found = "no out-of-memory error is in this text" if plain.strip() else "the text is empty"
    return (
        f"{found}; paste the error with the lines before it (looked for: CUDA, HIP or MPS out of "
        "memory, RESOURCE_EXHAUSTED (JAX), NCCL, cuBLAS and cuDNN failing to allocate, and the "
        "machine's own memory running out)"
    )
