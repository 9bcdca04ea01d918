"""An error explained in words, in parts that the terminal and the page write in their own ways."""

from __future__ import annotations

from collections.abc import Iterator

from ..oom.cause import Cause
from ..oom.explanation import Explanation
from ..oom.reading import Kind, OomReading, When
from ..oom.suspects import Suspect
from ..records import dataclass
from ..units import show_bytes
from .answer import described

#: So many suspects are told in full.
_MOST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One tensor: its name, formula and size, and sentences about it."""

    name: str
    formula: str
    size: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A heading with what stands under it: sentences, then facts, then items."""

    heading: str
    sentences: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    items: tuple[Item, ...] = ()


_HEADINGS = {
    Cause.TOO_MUCH: "Truly too much",
    Cause.FRAGMENTATION: "Fragmentation",
    Cause.OTHER_PROCESSES: "Other processes",
    Cause.LIMIT: "Not the GPU's memory, but a limit",
    Cause.OUTSIDE: "No room outside PyTorch",
    Cause.HOST: "The machine's memory, not the GPU's",
    Cause.SERVER: "Not a training step",
    Cause.UNKNOWN: "What the error does not say",
}
_WHO = {
    Kind.PYTORCH: "PyTorch's allocator",
    Kind.ASYNC: "PyTorch's allocator by cudaMallocAsync",
    Kind.MPS: "PyTorch's allocator on Metal",
    Kind.CUDA: "the GPU's driver",
    Kind.LIBRARY: "a CUDA library",
    Kind.NCCL: "NCCL",
    Kind.JAX: "XLA, for JAX",
    Kind.TPU: "XLA's compiler, for a TPU",
    Kind.SERVER: "vLLM",
    Kind.HOST: "the machine",
}
_NAMES = {
    "requested": "asked for",
    "total": "the GPU has",
    "free": "free",
    "allocated": "in tensors",
    "unallocated": "held by PyTorch, in no tensor",
    "private": "of it in pools of CUDA graphs",
    "in_use": "this process, in all",
    "other": "beside them",
    "allowed": "allowed at most",
}


def parts(found: Explanation) -> tuple[Part, ...]:
    """The whole explanation: what is said, why, which tensor, what to change."""
    return tuple(part for part in _parts(found) if part.sentences or part.facts or part.items)


def _parts(found: Explanation) -> Iterator[Part]:
    yield _said(found.reading)
    why = found.verdict
    yield Part(heading=_HEADINGS[why.cause], sentences=why.sentences)
    if found.step is not None:
        yield _tensors(found)
        yield _step(found)
    yield Part(heading="What to change", sentences=tuple(_change(found)))


def _said(reading: OomReading) -> Part:
    where = "" if reading.device is None else f", on GPU {reading.device}"
    rank = "" if reading.rank is None else f" of rank {reading.rank}"
    when = ""
    if reading.when is not None:
        when = f", in {reading.when}" if _is_place(reading.when) else f", while {reading.when}"
    sentences = [f"Said by {_WHO[reading.kind]}{where}{rank}{when}."]
    if reading.line:
        sentences.append(f"The traceback ends at: {reading.line}")
    if reading.errors > 1:
        sentences.append(
            f"The text has {reading.errors} different errors; this is the first, and the others "
            "often follow from it."
        )
    facts = [
        (name, size.text)
        for field, name in _NAMES.items()
        if (size := getattr(reading, field)) is not None
    ]
    facts += [(f"process {number:d}", size.text) for number, size in reading.processes]
    facts += [
        (f"it lists {name}", show_bytes(size, binary=True, digits=2))
        for name, size in reading.largest
    ]
    return Part(heading="What the error says", sentences=tuple(sentences), facts=tuple(facts))


def _is_place(when: When) -> bool:
    return str(when).startswith("the ")


def _tensors(found: Explanation) -> Part:
    reading, step = found.reading, found.step
    assert step is not None
    listed = found.suspects
    sentences = []
    if found.other_step:
        sentences.append(
            "The textbook's step has no tensors of a library's, so this is the same run as Hugging "
            "Face runs it."
        )
    if reading.when in (When.EVALUATION, When.SAVING, When.SERVING):
        sentences.append(
            f"The job was {reading.when}: that is outside the training step, and its tensors are "
            "not counted here."
        )
        return Part(heading="Which tensor", sentences=tuple(sentences))
    if reading.requested is None:
        sentences.append(
            "The error gives no number of bytes, so none of the step's tensors can be told from "
            "another."
        )
        return Part(heading="Which tensor", sentences=tuple(sentences))
    if found.is_piece:
        span = "up to 1 MiB" if reading.requested.bytes < 2**22 else "of 1 to 10 MiB"
        sentences.append(
            f"{reading.requested.text} is the piece that PyTorch takes for any tensor {span}: the "
            f"number says that memory was full, not which tensor. {len(listed)} kinds of tensor of "
            "this step would ask for it; the most likely ones by what was held:"
        )
    elif not listed:
        sentences += _nothing(found)
    elif len(listed) == 1:
        sentences.append(f"One tensor of the step asks for {reading.requested.text}:")
    else:
        more = f", the first {_MOST} told" if len(listed) > _MOST else ""
        sentences.append(
            f"{len(listed)} kinds of tensor of the step ask for {reading.requested.text}{more}; "
            "the likeliest first:"
        )
    items = tuple(_item(one, reading) for one in listed[:_MOST])
    return Part(heading="Which tensor", sentences=tuple(sentences), items=items)


def _nothing(found: Explanation) -> Iterator[str]:
    requested, step = found.reading.requested, found.step
    assert requested is not None
    assert step is not None
    yield (
        f"Nothing in the step of this run asks for {requested.text} ({described(step.run)}). The "
        "run that died differs from it, or the request is not the step's."
    )
    if found.tokens is not None:
        name, least, most = found.tokens
        count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        run = step.run
        yield (
            f"It would be the {name} logits of {count} tokens (b·s), where the run has "
            f"{run.sequence * run.micro_batch:,}: look whether batches are longer than you think."
        )


def _item(one: Suspect, reading: OomReading) -> Item:
    size = show_bytes(one.bytes, binary=True, digits=2)
    formula = f"{one.formula} = {one.numbers}" if one.formula else ""
    sentences = [one.why, _held(one, reading)]
    if one.fits_traceback is False:
        sentences.append("The traceback is from another part of the step.")
    if one.asked_bytes != one.bytes and reading.kind is Kind.PYTORCH:
        asks = show_bytes(one.asked_bytes, binary=True, digits=2)
        sentences.append(f"For its {one.bytes:,} bytes PyTorch asks CUDA for {asks}.")
    name = f"{one.label} ({one.where})" if one.where else one.label
    return Item(name=name, formula=formula, size=size, sentences=tuple(sentences))


def _held(one: Suspect, reading: OomReading) -> str:
    """What is held when it is made, beside what the error says."""
    least = show_bytes(one.least_held_bytes, binary=True, digits=2)
    most = show_bytes(one.most_held_bytes, binary=True, digits=2)
    said = f"When it is made, {least if least == most else f'{least} to {most}'} are held"
    if one.first_held_bytes is not None:
        first = show_bytes(one.first_held_bytes, binary=True, digits=2)
        said += f" ({first} in a job's first step, before the optimizer has made its states)"
    if reading.allocated is not None:
        said += f"; the error says {reading.allocated.text}"
    often = f" It is made {one.times:,} times a step." if one.times > 1 else ""
    return f"{said}.{often}"


def _step(found: Explanation) -> Part:
    step, room = found.step, found.room_bytes
    assert step is not None
    worst = step.worst
    peak = show_bytes(worst.peak_bytes, binary=True, digits=2)
    said = [f"The step's highest point is {peak}, {worst.peak_moment}."]
    if room is not None:
        against = show_bytes(room, binary=True, digits=2)
        if found.fits:
            said.append(
                f"That is within the {against} that its tensors could have, so by its own step the "
                "run should fit: it differs from the one that died, or what this count leaves out "
                "was in the way."
            )
        else:
            missing = show_bytes(worst.peak_bytes - room, binary=True, digits=2)
            said.append(f"Its tensors could have {against}: {missing} too little.")
    return Part(heading="Does the step fit there?", sentences=tuple(said))


def _change(found: Explanation) -> Iterator[str]:
    yield from found.verdict.remedies
    change = found.change
    if change is not None:
        left = show_bytes(change.peak_bytes, binary=True, digits=2)
        slower = round(change.slower_percent)
        paid = change.price or (f"{slower} % slower by the cost model" if slower > 0 else "")
        price = f" ({paid})" if paid else ""
        yield (
            f"The smallest change of the run that makes it fit: {change.title}{price}. "
            f"The step then needs {left}."
        )
    elif found.fits is False:
        yield "No single change of the run is enough; training-memory fit combines several."
    elif found.step is None and found.verdict.cause is Cause.TOO_MUCH:
        yield (
            "Say what you ran (--model, --sequence, --micro-batch, --recipe, --implementation) "
            "and this names the tensor and the smallest change."
        )
