"""An error explained, by itself or by a run: cause, tensor, moment, and the smallest change."""

from __future__ import annotations

from ..errors import InputErrors
from ..estimate import Estimate, estimate
from ..fit import Change, changes_in_steps
from ..implementations import Implementation
from ..records import dataclass
from ..run import Run
from ..slices import Work, finished
from .allocator import PIECES, asked
from .cause import Cause, Verdict
from .reading import Kind, OomReading, When
from .suspects import Asks, Suspect, suspects_in_steps
from .text import read
from .verdict import verdict

#: Kinds whose number is the size of one request for a tensor.
_TENSORS = (Kind.PYTORCH, Kind.ASYNC, Kind.MPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What an error says, why there was no room, and, with a run, which tensor and what to change.

    ``step`` is the step that was searched: the run's, or for a run of the textbook's the same one
    as Hugging Face runs it (``other_step``), since an error comes from a library's code.
    ``suspects`` is empty where nothing of the step asks for so much; then ``tokens`` says how many
    tokens (b·s) the logits would have to be of, from least to most, if that can be.
    ``room_bytes`` is what the step's tensors may have where the job died, and ``change`` the
    smallest one that makes the step fit there, None where none is needed or none alone does; it is
    one of ``step``'s run where ``changes_step``, else of the run that was given.
    """

    reading: OomReading
    verdict: Verdict
    step: Estimate | None = None
    other_step: bool = False
    suspects: tuple[Suspect, ...] = ()
    tokens: tuple[str, int, int] | None = None
    room_bytes: int | None = None
    change: Change | None = None
    changes_step: bool = True

    @property
    def is_piece(self) -> bool:
        """Whether the request is a piece that the allocator takes for any small tensor."""
        requested = self.reading.requested
        return (
            self.reading.kind is Kind.PYTORCH
            and requested is not None
            and requested.bytes in PIECES
        )

    @property
    def fits(self) -> bool | None:
        """Whether the step's peak fits into the room there was; None where that is not known."""
        if self.step is None or self.room_bytes is None:
            return None
        return self.step.worst.peak_bytes <= self.room_bytes

    def to_json(self) -> dict[str, object]:
        """The explanation as plain values."""
        step = self.step
        return {
            "reading": self.reading.to_json(),
            "verdict": self.verdict.to_json(),
            "run": None if step is None else step.run.to_json(),
            "as_hugging_face": self.other_step,
            "peak_bytes": None if step is None else step.worst.peak_bytes,
            "room_bytes": self.room_bytes,
            "fits": self.fits,
            "suspects": [one.to_json() for one in self.suspects],
            "tokens": None
            if self.tokens is None
            else {"logits": self.tokens[0], "least": self.tokens[1], "most": self.tokens[2]},
            "change": None if self.change is None else self.change.to_json(),
        }


def explain(text: str, found: Estimate | None = None) -> Explanation:
    """The first out-of-memory error in ``text`` explained, by the run of ``found`` if given.

    Raises :class:`InputError` for a text without one.
    """
    return finished(explain_in_steps(text, found))


def explain_in_steps(text: str, found: Estimate | None = None) -> Work[Explanation]:
    """:func:`explain`, which may be left off between its searches and after every change tried."""
    reading = read(text)
    why = verdict(reading)
    if found is None or why.cause in (Cause.HOST, Cause.SERVER):
        return Explanation(reading=reading, verdict=why)
    yield
    step, other = _as_a_library_runs_it(found)
    yield
    listed: tuple[Suspect, ...] = ()
    in_step = reading.when not in (When.EVALUATION, When.SAVING, When.SERVING)
    if in_step:
        listed = yield from suspects_in_steps(step, reading, _asks(reading))
    room = why.room_bytes
    if room is None and reading.total is not None:
        room = reading.total.bytes
    if room is None:
        room = step.capacity_bytes
    change = yield from _smallest(step, room)
    changes_step = change is not None
    if change is None and other:
        change = yield from _smallest(found, room)
    return Explanation(
        reading=reading,
        verdict=why,
        step=step,
        other_step=other,
        suspects=listed,
        tokens=None if listed or not in_step else _tokens(step, reading),
        room_bytes=room,
        change=change,
        changes_step=changes_step,
    )


def _asks(reading: OomReading) -> Asks:
    return asked if reading.kind is Kind.PYTORCH else _as_it_is


def _as_it_is(size: int) -> int:
    return size


def _as_a_library_runs_it(found: Estimate) -> tuple[Estimate, bool]:
    """The step whose tensors an error can be about."""
    if found.run.implementation is not Implementation.PAPER:
        return found, False
    fields = {**found.run.to_json(), "implementation": str(Implementation.HUGGINGFACE)}
    try:
        return estimate(Run.from_json(fields)), True
    except InputErrors:
        # A split over GPUs, or a model that Hugging Face has not: the textbook's step is left.
        return found, False


def _tokens(step: Estimate, reading: OomReading) -> tuple[str, int, int] | None:
    """How many tokens' logits ask for what was asked, in fp32 or in 16 bits, if that is likely.

    A batch padded to another length than the run's is the usual reason why nothing matches.
    """
    requested = reading.requested
    if requested is None or reading.kind not in _TENSORS or requested.bytes in PIECES:
        return None
    run = step.run
    tokens = run.sequence * run.micro_batch
    for name, item_bytes in (("fp32", 4), ("16-bit", 2)):
        each = item_bytes * run.model.vocabulary
        # What is asked for is up to one round larger than the tensor.
        least = -(-(requested.least - (asked(each) - each)) // each)
        most = requested.most // each
        if 0 < least <= most <= 16 * tokens and not least <= tokens <= most:
            return name, least, most
    return None


def _smallest(step: Estimate, room: int | None) -> Work[Change | None]:
    """The change that makes the step fit into ``room`` and alters the run least.

    First what leaves the training as it is, then what needs no other GPUs; of equals the quickest,
    then the one that saves least.
    """
    if room is None or step.worst.peak_bytes <= room:
        return None
    tried = yield from changes_in_steps(step)
    enough = [change for change in tried if change.peak_bytes <= room]
    return min(enough, key=_alters, default=None)


def _alters(change: Change) -> tuple[bool, bool, float, int]:
    return (
        not change.same_training,
        not change.same_gpus,
        round(change.slower_percent, 3),
        change.saved_bytes,
    )
