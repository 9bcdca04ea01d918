"""An answer to take away: JSON, CSV, SVG, Markdown, BibTeX, or a link."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from .. import __version__, controls
from ..estimate import Estimate
from ..records import dataclass
from ..units import percent, show_bytes
from .answer import answer, label
from .picture import picture

#: How the site is cited; a test holds this to CITATION.cff.
TITLE, AUTHORS, YEAR = (
    "Where Training Memory Goes",
    "The authors of Where Training Memory Goes",
    "2026",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One format: what it is called, how its files end and what they are, and how one is made.

    ``made`` is given the estimate, whether sizes are in powers of two, and the address of the
    calculator's page, or "" where it is not known. ``needs`` says that it tells what must be free,
    which takes longer than all else together.
    """

    id: str
    name: str
    ending: str
    kind: str
    made: Callable[[Estimate, bool, str], str]
    needs: bool = False


def link(estimate: Estimate, binary: bool, page: str) -> str:
    """The page's address with the run in it; of an unknown page the fragment alone."""
    state: controls.State = controls.of_request(estimate.run.to_json())
    if binary:
        state = {**state, controls.UNITS: controls.UNIT_NAMES[1]}
    return f"{page}#{controls.address(controls.normal(state, estimate.run))}\n"


def _json(estimate: Estimate, binary: bool, page: str) -> str:
    return json.dumps(estimate.to_json(), ensure_ascii=False, indent=2) + "\n"


def _csv(estimate: Estimate, binary: bool, page: str) -> str:
    """A row for each kind of memory on each kind of GPU, in bytes (RFC 4180)."""
    rows = [["gpu", "kind", "largest_bytes", "at_peak_bytes"]]
    for on in estimate.ranks:
        for category, size in on.totals.items():
            rows.append([on.rank.label, str(category), str(size), str(on.peak_parts[category])])
        rows.append([on.rank.label, "peak", "", str(on.peak_bytes)])
    return "".join(",".join(map(_cell, row)) + "\r\n" for row in rows)


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\r\n]', text) else text


def _svg(estimate: Estimate, binary: bool, page: str) -> str:
    return picture(estimate, binary=binary)


def _markdown(estimate: Estimate, binary: bool, page: str) -> str:
    return "\n".join(_lines(estimate, binary, page)) + "\n"


def _lines(estimate: Estimate, binary: bool, page: str) -> Iterator[str]:
    worst = estimate.worst
    yield f"**{_escaped(answer(estimate, binary=binary))}**"
    yield ""
    yield "| Memory | At its largest | At the peak | Share |"
    yield "|:--|--:|--:|--:|"
    for category, size in worst.totals.items():
        if size:
            part = worst.peak_parts[category]
            shown = (show_bytes(amount, binary=binary) for amount in (size, part))
            share = percent(part, worst.peak_bytes)
            yield f"| {category.heading} | {' | '.join(shown)} | {share}% |"
    yield f"| **Peak** | | **{show_bytes(worst.peak_bytes, binary=binary)}** | 100% |"
    yield ""
    yield "Not counted:"
    yield ""
    yield from (f"- {_escaped(one)}" for one in estimate.omitted)
    yield ""
    where = f" [The run]({link(estimate, binary, page).strip()})." if page else ""
    yield f"{worst.peak_bytes:,} bytes, by {TITLE}, version {__version__}.{where}"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def _bibtex(estimate: Estimate, binary: bool, page: str) -> str:
    """The calculator as a piece of software, with the run and its answer as a note."""
    key = re.sub(r"[^a-z0-9]+", "-", estimate.run.model.name.lower()).strip("-") or "run"
    fields = {
        "title": f"{{{TITLE}}}: {_tex(label(estimate.run))}",
        "author": f"{{{AUTHORS}}}",
        "year": YEAR,
        "version": __version__,
        "note": _tex(answer(estimate, binary=binary)),
    }
    if page:
        fields["url"] = link(estimate, binary, page).strip()
    inside = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@software{{training-memory-{key},\n{inside}\n}}\n"


def _tex(text: str) -> str:
    """Plain text in which nothing means anything to TeX."""
    text = re.sub(r"[\\{}]", "", text)
    return re.sub(r"([&%$#_])", r"\\\1", text).replace("~", " ").replace("^", " ")


_TEXT = "text/plain"
EXPORTS: Mapping[str, Export] = {
    one.id: one
    for one in (
        Export(
            id="json",
            name="JSON",
            ending="json",
            kind="application/json",
            made=_json,
            needs=True,
        ),
        Export(id="csv", name="CSV", ending="csv", kind="text/csv", made=_csv),
        Export(id="svg", name="SVG", ending="svg", kind="image/svg+xml", made=_svg),
        Export(id="markdown", name="Markdown", ending="md", kind="text/markdown", made=_markdown),
        Export(id="bibtex", name="BibTeX", ending="bib", kind=_TEXT, made=_bibtex),
        Export(id="link", name="Link", ending="txt", kind=_TEXT, made=link),
    )
}
