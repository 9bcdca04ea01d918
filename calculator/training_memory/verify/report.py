"""A check as text: predicted and measured side by side, with the error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..estimate import estimate
from ..records import dataclass
from ..render.table import wrapped
from ..run import Run
from ..units import percent, show_bytes
from .differences import departures, known
from .moments import Moment, predicted
from .plan import Plan, dropout_of
from .record import Machine, Measurement

#: The textbook's layer as the check builds it.
LAYER = "every attention score kept, dropout at three places, GELU, layer norm, 16-bit (bfloat16)"

#: What every run takes besides, for a moment, and no prediction counts.
PASSING = (
    "and what operations hold for a moment: scores before their softmax, gradients on their way, "
    "the libraries' workspaces"
)
_WIDTH = 88


def error(predicted_bytes: int, measured_bytes: int) -> str:
    """How far the prediction is above (+) or below (−) what was measured, of what was measured."""
    difference = predicted_bytes - measured_bytes
    sign = "+" if difference > 0 else "−" if difference < 0 else "±"
    return f"{sign}{percent(abs(difference), measured_bytes, 1)} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Writes each part of a check, in GB or, if ``binary``, in GiB."""

    binary: bool = False

    def opening(self, plan: Plan) -> str:
        """What is run, and how that differs from what is counted."""
        run, model = plan.run, plan.run.model
        size = f"{_counted(model.layers, 'layer')}, {model.parameters.total:,} parameters"
        batch = f"{_counted(run.micro_batch, 'sequence')} of {run.sequence:,} tokens"
        lines = [
            f"{model.name}: {size}, {run.recipe.name}; {batch}, {_counted(plan.steps, 'step')}."
        ]
        differing = departures(model)
        if differing:
            lines += [
                f"The prediction counts activations as the textbook's GPT layer: {LAYER}.",
                f"The run has {model.name}'s own layer, so that these show as error:",
                *(f"  - {one}" for one in differing),
            ]
        else:
            lines.append(f"The layer is the textbook's, tensor for tensor: {LAYER}.")
        if dropout_of(model):
            lines.append(f"Dropout drops {dropout_of(model):g} of the values.")
        return _lines(*lines)

    def prediction(self, run: Run) -> str:
        """What the calculator says of one run, with nothing measured."""
        worst = estimate(run).worst
        rows = [
            (moment.heading, self._size(size)) for moment, size in predicted(worst.tree).items()
        ]
        rows.append(("peak", self._size(worst.peak_bytes)))
        lines = [_title(run), *_table(("", "predicted"), rows)]
        lines.append(f"The peak comes {worst.peak_moment}.")
        return "\n".join(lines) + "\n"

    def comparison(self, one: Measurement) -> str:
        """One run's moments, predicted and measured; reserved memory and the context apart."""
        says = one.predicted_moments
        rows = [
            self._compared(moment.heading, says[moment], one.moments[moment]) for moment in Moment
        ]
        rows.append(self._compared("peak allocated", one.predicted_bytes, one.allocated_bytes))
        losses = ", ".join(f"{loss:.3f}" for loss in one.losses)
        return "\n".join(
            [
                _title(one.run),
                *_table(("", "predicted", "measured", "error"), rows),
                "Not predicted, so not compared:",
                *_table(
                    (),
                    [
                        ("reserved by PyTorch's allocator at most", self._size(one.reserved_bytes)),
                        ("the CUDA context and other programs", self._size(one.outside_bytes)),
                        ("still allocated after the run", self._size(one.left_bytes)),
                    ],
                ),
                f"Loss, step by step: {losses}",
                "",
            ]
        )

    def differences(self, run: Run) -> str:
        """Where the two must part, with sizes for this run."""
        lines = [f"Known differences, {_policy(run)}:"]
        for one in known(run):
            sign = "+" if one.bytes > 0 else "−"
            size = f"{sign}{self._size(abs(one.bytes))}".rjust(12)
            lines += wrapped(one.what, _WIDTH, first=f"{size}  ")
        lines += wrapped(PASSING, _WIDTH, first=" " * 14)
        return "\n".join(lines) + "\n"

    def machine(self, found: Machine) -> str:
        """Where it runs."""
        free, total = self._size(found.free_bytes), self._size(found.memory_bytes)
        return (
            f"{found.gpu}, {free} of {total} free; PyTorch {found.torch}, "
            f"CUDA {found.cuda}, driver {found.driver}.\n"
        )

    def _size(self, size: int) -> str:
        return show_bytes(size, binary=self.binary, digits=2)

    def _compared(self, name: str, says: int, measured: int) -> tuple[str, ...]:
        return name, self._size(says), self._size(measured), error(says, measured)


def _lines(*paragraphs: str) -> str:
    """Each paragraph wrapped; what belongs to a list under its dash."""
    lines = []
    for text in paragraphs:
        dash, item = ("  - ", text[4:]) if text.startswith("  - ") else ("", text)
        lines += wrapped(item, _WIDTH, first=dash)
    return "\n".join(lines) + "\n"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _policy(run: Run) -> str:
    return f"recomputation {run.recompute}"


def _title(run: Run) -> str:
    return _policy(run).capitalize()


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Lines of aligned columns: the first to the left, the others to the right."""
    cells = [*([heads] if heads else []), *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        shown = [cell.rjust(max(width, 10)) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join(["  " + first.ljust(max(widths[0], 39)), *shown]).rstrip()
