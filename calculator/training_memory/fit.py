"""What to change so that a run fits: each single change tried, with the bytes it saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .blocks.ledger import Recompute
from .errors import InputErrors
from .estimate import Estimate, estimate
from .implementations import Implementation
from .records import dataclass
from .run import Run
from .switches import Attention, Loss, OptimizerKernel

#: Degrees of splitting that are tried: the GPUs of one machine, by doublings.
DEGREES = (2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change to a run, tried.

    ``title`` names it in plain words and ``cost`` what it is paid with; ``fields`` are the run's
    JSON fields to set. ``peak_bytes`` is the worst GPU's peak after it, ``saved_bytes`` what that
    is less than before, and ``fits`` whether the run's GPU then holds it (None: no GPU named).
    """

    title: str
    cost: str
    fields: Mapping[str, object]
    peak_bytes: int
    saved_bytes: int
    fits: bool | None

    def to_json(self) -> dict[str, object]:
        """The change as plain values."""
        return {
            "title": self.title,
            "cost": self.cost,
            "fields": dict(self.fields),
            "peak_bytes": self.peak_bytes,
            "saved_bytes": self.saved_bytes,
            "fits": self.fits,
        }


def changes(before: Estimate) -> tuple[Change, ...]:
    """Every single change that saves anything, the largest saving first.

    Nothing is listed that :func:`estimate` refuses, such as tensor parallelism over more GPUs than
    the model has heads.
    """
    found = []
    for title, cost, fields in _candidates(before.run):
        try:
            after = estimate(Run.from_json({**before.run.to_json(), **fields}))
        except InputErrors:
            continue
        saved = before.worst.peak_bytes - after.worst.peak_bytes
        if saved > 0:
            room = after.room_bytes
            found.append(
                Change(
                    title=title,
                    cost=cost,
                    fields=fields,
                    peak_bytes=after.worst.peak_bytes,
                    saved_bytes=saved,
                    fits=None if room is None else room >= 0,
                )
            )
    return tuple(sorted(found, key=lambda change: -change.saved_bytes))


_Candidate = tuple[str, str, Mapping[str, object]]


def _candidates(run: Run) -> Iterator[_Candidate]:
    yield from _recomputation(run)
    if run.implementation is not Implementation.PAPER:
        yield from _switches(run)
    yield from _shorter(run)
    yield from _data(run)
    yield from _split(run)


def _recomputation(run: Run) -> Iterator[_Candidate]:
    if run.recompute is Recompute.NONE:
        yield (
            "Recompute the attention core",
            "a little more compute",
            {"recompute": str(Recompute.SELECTIVE)},
        )
    if run.recompute is not Recompute.FULL:
        yield (
            "Recompute every layer",
            "about one more forward pass",
            {"recompute": str(Recompute.FULL)},
        )


def _switches(run: Run) -> Iterator[_Candidate]:
    """What the libraries' own switches can save."""
    if run.recompute is Recompute.NONE:
        yield (
            "Recompute all but the products with weights",
            "a little more compute",
            {"recompute": str(Recompute.MATMULS)},
        )
    if run.switches.attention is not Attention.FLASH:
        yield "A fused attention kernel", "nothing", {"attention": str(Attention.FLASH)}
    if run.switches.optimizer_kernel is not OptimizerKernel.FUSED:
        yield "AdamW's fused kernel", "nothing", {"optimizer_kernel": str(OptimizerKernel.FUSED)}
    if run.switches.hold_logits:
        yield "Let the logits go", "no outputs to look at", {"hold_logits": False}
    if run.switches.loss is not Loss.FUSED_LINEAR:
        yield (
            "The loss fused with the head",
            "a kernel for it, such as Liger's",
            {"loss": str(Loss.FUSED_LINEAR), "hold_logits": False},
        )
    if run.switches.loss is Loss.FULL:
        yield (
            "The loss in chunks",
            "the logits are computed twice",
            {"loss": str(Loss.CHUNKED), "hold_logits": False},
        )


def _shorter(run: Run) -> Iterator[_Candidate]:
    if run.micro_batch > 1:
        half, odd = divmod(run.micro_batch, 2)
        # The batch of a step stays the same where it can: half as much at a time, twice as often.
        fields: dict[str, object] = {"micro_batch": half}
        if not odd:
            fields["micro_batches"] = run.micro_batches * 2
        yield (
            f"Micro-batch {half:,} instead of {run.micro_batch:,}",
            "more, smaller passes a step",
            fields,
        )
    if run.sequence > 1:
        half = run.sequence // 2
        yield (
            f"Sequence length {half:,} instead of {run.sequence:,}",
            "the model sees shorter texts",
            {"sequence": half},
        )


def _data(run: Run) -> Iterator[_Candidate]:
    data = run.layout.data
    if data > 1:
        for zero in range(run.layout.zero + 1, 4):
            yield f"ZeRO-{zero} over the {data:,} replicas", _ZERO_COST[zero], {"zero": zero}
        return
    for degree in DEGREES:
        for zero in (1, 2, 3):
            yield (
                f"ZeRO-{zero} over {degree} replicas",
                f"{degree} times the GPUs; {_ZERO_COST[zero]}",
                {"data": degree, "zero": zero},
            )


_ZERO_COST = {
    1: "no more traffic than plain data parallelism",
    2: "no more traffic than plain data parallelism",
    3: "half as much traffic again, since weights are gathered when needed",
}


def _split(run: Run) -> Iterator[_Candidate]:
    layout = run.layout
    for degree in DEGREES:
        if degree > layout.tensor:
            yield (
                f"Tensor parallelism over {degree} GPUs",
                "traffic in every layer: GPUs of one machine",
                {"tensor": degree},
            )
            yield (
                f"Tensor and sequence parallelism over {degree} GPUs",
                "traffic in every layer: GPUs of one machine",
                {"tensor": degree, "sequence_parallel": True},
            )
        if degree > layout.pipeline:
            # With fewer micro-batches than stages most GPUs would wait most of the time, and the
            # first would hold less than it does in any pipeline that is worth having.
            batches = max(run.micro_batches, degree)
            more = f", {batches:,} micro-batches a step" if batches != run.micro_batches else ""
            yield (
                f"{degree} pipeline stages{more}",
                "GPUs wait at the start and the end of every step",
                {"pipeline": degree, "micro_batches": batches},
            )
    if layout.tensor > 1 and not layout.sequence_parallel:
        yield (
            f"Sequence parallelism over the {layout.tensor:,} tensor-parallel GPUs",
            "no more traffic than tensor parallelism alone",
            {"sequence_parallel": True},
        )
