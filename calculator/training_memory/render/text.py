"""An estimate for a terminal: the answer, the bar, the table, and what is left out."""

from __future__ import annotations

from ..categories import CATEGORIES, Category
from ..estimate import Estimate, RankEstimate
from ..need import Fits
from ..switches import Optimizer
from ..units import GB, GIB, percent, ratio, show_bytes
from . import need as needed
from .answer import answer, layout_words
from .table import fitting
from .terminal import GLYPHS, LETTERS, Terminal
from .text_bar import bar

_MARGIN = "  "

_SIZES = {
    False: (("GB", GB), ("MB", 10**6), ("kB", 10**3), ("B", 1)),
    True: (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)),
}


def text(estimate: Estimate, terminal: Terminal, *, binary: bool = False) -> str:
    """The whole answer in lines that ``terminal`` can show, ``binary`` for GiB instead of GB."""
    worst = estimate.worst
    blocks = [
        headline(estimate, terminal, binary=binary),
        _indented(bar(worst, estimate.run.gpu, terminal, width=terminal.width - 4, binary=binary)),
        _indented(_table(worst, terminal, binary=binary)),
        _facts(estimate, terminal, binary=binary),
    ]
    if len(estimate.ranks) > 1:
        blocks.append(ranks(estimate, terminal, binary=binary))
    blocks.append(left_out(estimate, terminal))
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def headline(estimate: Estimate, terminal: Terminal, *, binary: bool) -> list[str]:
    """The answer in a sentence or two."""
    lines = terminal.prose(answer(estimate, binary=binary))
    return [terminal.strong(line) for line in lines]


def left_out(estimate: Estimate, terminal: Terminal) -> list[str]:
    """What the accounting leaves out, a bullet each."""
    lines = ["Not counted:"]
    for sentence in estimate.omitted:
        lines += terminal.prose(sentence, first=f"{_MARGIN}- ")
    return lines


def unit_of(size: int, *, binary: bool) -> tuple[str, int]:
    """The unit for a column of sizes that come to ``size``: its name and its bytes, GB at most.

    At least ten of the unit, so that one decimal tells the parts apart.
    """
    return next((unit for unit in _SIZES[binary] if size >= 10 * unit[1]), ("B", 1))


def _table(on: RankEstimate, terminal: Terminal, *, binary: bool) -> list[str]:
    name, unit = unit_of(on.peak_bytes, binary=binary)
    digits = 1 if unit > 1 else 0

    def shown(size: int) -> str:
        return ratio(size, unit, digits)

    rows = [["", f"in {name}", "largest", "at peak", "share"]]
    held = [category for category in CATEGORIES if on.totals[category]]
    for category in held:
        part = on.peak_parts[category]
        share = percent(part, on.peak_bytes)
        share = "<1" if part and share == "0" else share
        row = [_key(category, terminal), category.heading, shown(on.totals[category]), shown(part)]
        rows.append([*row, f"{share}%"])
    rows.append(["", "Together", shown(sum(on.totals.values())), shown(on.peak_bytes), "100%"])
    head, *lines, foot = fitting(rows, "<<>>>", terminal.width - 2, spare=(4,))
    rule = ("─" if terminal.unicode else "-") * max(len(head), len(foot))
    for place, category in enumerate(held):
        key = _key(category, terminal)
        lines[place] = terminal.paint(key, category) + lines[place][len(key) :]
    return [head, rule, *lines, rule, terminal.strong(foot)]


def _key(category: Category, terminal: Terminal) -> str:
    """What stands for the category in the bar."""
    letter = LETTERS[category]
    return f"{GLYPHS[category]} {letter}" if terminal.unicode else letter


def _facts(estimate: Estimate, terminal: Terminal, *, binary: bool) -> list[str]:
    """Plain facts under the table, one a line."""
    worst, gpu, room = estimate.worst, estimate.run.gpu, estimate.room_bytes
    states = show_bytes(worst.states_bytes, binary=binary)
    trains_all = estimate.run.tuning.trains_all
    if (
        estimate.run.switches.optimizer is Optimizer.ADAMW and trains_all
    ):  # the recipe's bytes are those with Adam
        each = estimate.run.recipe.bytes_per_parameter
        states += f" ({each} bytes a parameter before any splitting)"
    facts = [
        ("Peak", f"{worst.peak_bytes:,} bytes"),
        ("States", states),
        ("Parameters", f"{estimate.parameters:,}"),
    ]
    if not trains_all:
        facts.append(("Trained", f"{estimate.trained_parameters:,} parameters, in adapters"))
    if estimate.run.layout.gpus > 1:
        facts[2:] = [
            ("Parameters", f"{estimate.parameters:,}{_own(estimate)}"),
            ("Split", layout_words(estimate.run)),
            ("Counted on", worst.rank.label),
        ]
    if gpu and room is not None:
        size = show_bytes(abs(room), binary=binary)
        said = f"{gpu.name}: short by {size}" if room < 0 else f"{gpu.name}: {size} left"
        if gpu.usable_bytes:
            said += f" (PyTorch sees {show_bytes(gpu.usable_bytes, binary=binary)} of memory)"
        if but := needed.verdict(estimate):
            said += f"; {but}"
        facts.append(("GPU", said))
    bounds = needed.bounds(estimate.need, binary=binary)
    facts.append(("To be free", f"{bounds}. {needed.made_of(estimate.need, binary=binary)}"))
    if gpu:
        facts.append(("Fits", _fits(estimate, binary=binary)))
    width = max(len(name) for name, _ in facts) + 2
    return [
        line
        for name, said in facts
        for line in terminal.prose(said, first=f"{_MARGIN}{name:{width}}")
    ]


def _fits(estimate: Estimate, *, binary: bool) -> str:
    """Yes, tight or no, with what helps where it is tight."""
    if estimate.fits is not Fits.TIGHT:
        return str(estimate.fits)
    return f"tight. {needed.helps(estimate.need, binary=binary)}".strip()


def ranks(estimate: Estimate, terminal: Terminal, *, binary: bool) -> list[str]:
    """Each kind of GPU in a row, the one that needs most pointed out."""
    rows = [["GPUs", "layers", "parameters", "states", "peak", ""]]
    for on in estimate.ranks:
        rows.append(
            [
                on.rank.label,
                f"{on.rank.layers:,}",
                f"{on.rank.parameters:,}",
                show_bytes(on.states_bytes, binary=binary),
                show_bytes(on.peak_bytes, binary=binary),
                "<- most" if on is estimate.worst else "",
            ]
        )
    return _indented(fitting(rows, "<>>>><", terminal.width - 2, spare=(3, 2, 1)))


def _own(estimate: Estimate) -> str:
    """The fullest GPU's own parameters, where tensor or pipeline parallelism splits them."""
    own = estimate.worst.rank.parameters
    return "" if own == estimate.parameters else f"; {own:,} in this GPU's part of the layers"


def _indented(lines: list[str]) -> list[str]:
    return [f"{_MARGIN}{line}".rstrip() for line in lines]
