"""A recorded step: a few layers and what is around them, for every run of one structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import chain, compress, count, groupby
from operator import attrgetter, invert

from .autograd import operations as op
from .autograd.backward import BackwardPass
from .autograd.memory import NOWHERE, Facts, Memory, PartOf
from .autograd.tape import Tape
from .autograd.tensors import Tensor
from .autograd.units import Units
from .bending import Bending
from .blocks import sequence
from .blocks.causal_lm import CausalLM
from .blocks.units import units_of
from .categories import Category
from .events import Event
from .formula import Formula
from .records import dataclass, field
from .running import Running
from .slices import Work, finished
from .structure import Structure

#: Of what repeats (layers, chunks of the loss, micro-batches) so many are recorded: a first and a
#: last, since what all share comes and goes with them, and one between that is repeated. Of the
#: micro-batches, the first finds no gradients, and every other is like the second.
MOST = 3
#: Which of the recorded parts is the one to repeat, from 0.
REPEATED = 1
MOST_MICRO_BATCHES = 2


#: A note of a section: how many moves come before it, what it is, and the weight's name.
Noted = tuple[int, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the step, such as the forward pass of a layer: its moves in order.

    ``before_last`` are the same moves for all but the last of what the part stands for, where the
    last releases what all of them share (a mask, rotary tables); None where nothing is.
    """

    micro_batch: int
    phase: str
    part: PartOf
    running: Running
    before_last: Section | None = None
    #: What others listen for.
    notes: tuple[Noted, ...] = ()
    #: Its events as they were last put into words, for one micro-batch and for several.
    words: dict[bool, tuple[tuple[int, Event], ...]] = field(default_factory=dict, compare=False)
    #: Where they bend a picture, once it was drawn.
    bends: list[Bending] = field(default_factory=list, compare=False)
    #: Stretches of its moves, from one to before another, once something came between them.
    pieces: dict[tuple[int, int], Section] = field(default_factory=dict, compare=False)


#: A storage, its name and group, its bytes before they are rounded, why it is kept, and where that
#: is seen.
Told = tuple[int, str, str, Formula, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All sections of a step in order, and what is known of every storage.

    ``formulas`` are the different sizes there are, and ``formula_of`` each storage's among them.
    ``leaving`` are the storages that a part which may be repeated leaves to parts of another name:
    autocast's copies of weights, the gradients of the loss's chunks.
    """

    sections: tuple[Section, ...]
    facts: tuple[Facts, ...]
    formulas: tuple[Formula, ...]
    formula_of: tuple[int, ...]
    leaving: tuple[int, ...]
    #: What each recorded layer keeps, once it was put into words.
    told: dict[int, tuple[Told, ...]] = field(default_factory=dict, compare=False)


def recording_of(structure: Structure, repeats: Mapping[str, int]) -> Recording:
    """The recording for a run with so many of each thing that repeats ("layer", "chunk")."""
    return record(structure, min(repeats["layer"], MOST), min(repeats["chunk"], MOST))


#: Recordings that were made, the last asked for last: a search for a plan goes through a few
#: hundred structures, again and again.
_known: dict[tuple[Structure, int, int, int | None], Recording] = {}
_MOST_KNOWN = 512


def record(
    structure: Structure, layers: int, chunks: int = 1, micro_batches: int | None = None
) -> Recording:
    """Run one step of a model of so many layers, its loss in so many chunks.

    Where the run accumulates gradients, with two micro-batches unless another number is given.
    """
    return finished(recording_in_steps(structure, layers, chunks, micro_batches))


def recording_in_steps(
    structure: Structure, layers: int, chunks: int = 1, micro_batches: int | None = None
) -> Work[Recording]:
    """:func:`record`, which may be left off within the step: a deep model takes a while."""
    key = (structure, layers, chunks, micro_batches)
    found = _known.pop(key, None)
    if found is None:
        found = yield from _recorded(*key)
    _known[key] = found
    if len(_known) > _MOST_KNOWN:
        del _known[next(iter(_known))]
    return found


def _recorded(
    structure: Structure, layers: int, chunks: int, micro_batches: int | None
) -> Work[Recording]:
    tape = Tape(autocast=structure.autocast, offload=structure.offload)
    model = CausalLM(structure, layers, chunks)
    tape.units = units_of(tape, model)
    tape.notes = [] if structure.split.way == "deepspeed" else None
    tape.mark("forward", "inputs")
    ids, labels = sequence.batch(tape, structure)
    usual = structure.split.waits or (MOST_MICRO_BATCHES if structure.accumulates else 1)
    starts = []
    held: Tensor | None = None
    for turn in range(micro_batches or usual):
        tape.units.reduces = turn == (micro_batches or usual) - 1 or not structure.split.waits
        starts.append(len(tape.marks))
        tape.mark("forward", "embedding")
        held = None  # the outputs of the micro-batch before go only now
        parts = sequence.shared(tape, structure)
        held = yield from _micro_batch(tape, model, ids, labels)
        del parts
    recording = yield from _of_memory(tape, starts)
    tape.units = Units()  # which knows the tape
    del held
    return recording


def of_memory(memory: Memory, starts: Sequence[int] = (0,)) -> Recording:
    """The recording of what a memory was asked for; micro-batches begin at the marks ``starts``."""
    return finished(_of_memory(memory, starts))


def _of_memory(memory: Memory, starts: Sequence[int]) -> Work[Recording]:
    formulas, formula_of = _formulas(memory.facts)
    made = _made_by(memory.facts)
    yield
    sections = yield from _sections(memory, starts, made.get(("embedding", 0), set()))
    return Recording(
        sections=sections,
        facts=tuple(memory.facts),
        formulas=formulas,
        formula_of=formula_of,
        leaving=_leaving(sections, made),
    )


def _formulas(facts: Sequence[Facts]) -> tuple[tuple[Formula, ...], tuple[int, ...]]:
    """The different sizes, and each storage's place among them."""
    # Most storages share the very object that counts their numbers: it is multiplied but once.
    keys = [(id(one.numel), one.dtype) for one in facts]
    places: dict[Formula, int] = {}
    place_of = {
        key: places.setdefault(one.bytes, len(places))
        for key, one in dict(zip(keys, facts, strict=True)).items()
    }
    return tuple(places), tuple(map(place_of.__getitem__, keys))


def _made_by(facts: Sequence[Facts]) -> dict[PartOf, set[int]]:
    """The storages that each part makes."""
    parts = list(map(attrgetter("part"), facts))
    made: dict[PartOf, set[int]] = {}
    for part, storages in groupby(range(len(parts)), parts.__getitem__):
        made.setdefault(part, set()).update(storages)
    return made


def _leaving(sections: Sequence[Section], made: Mapping[PartOf, set[int]]) -> tuple[int, ...]:
    """What parts that may be repeated make, and parts of another name take, release or count."""
    repeated = {name: storages for (name, index), storages in made.items() if index == REPEATED}
    found = set[int]()
    for section in sections:
        for name, storages in repeated.items():
            if name != section.part[0]:
                places = section.running.places
                found.update(storages.intersection(chain(places, map(invert, places))))
    return tuple(sorted(found))


def _micro_batch(tape: Tape, model: CausalLM, ids: Tensor, labels: Tensor) -> Work[Tensor | None]:
    """Forward and backward; returns the logits, if the run holds on to them."""
    structure = model.structure
    loss, logits = yield from model.forward(tape, ids, labels)
    tape.mark("forward", "loss")
    tape.forget_casts()
    if logits is not None and tape.autocast and structure.implementation == "huggingface":
        # accelerate's convert_to_fp32 wraps the model: what it returns is in fp32 (operations.py).
        with tape.as_category(Category.LOGITS):
            logits = op.cast(tape, logits, "fp32", "logits returned in fp32")
    tape.units.close()
    if structure.accumulates and not structure.split.way.startswith("deepspeed"):  # which scales
        loss = op.scale(tape, loss, "loss over the micro-batches")
    if not structure.held_logits:
        del logits
    tape.mark("backward", "loss")
    # Gradients that live in DDP's or DeepSpeed's buckets are copied there as they arrive; FSDP2
    # reduces them first.
    way, drops = structure.split.way, structure.drops_gradients or structure.split.views
    keeps = way in ("fsdp1", "fsdp2") or not (drops or way == "deepspeed")
    yield from BackwardPass(tape, keeps=keeps).steps(loss)
    return logits if structure.held_logits else None


def _sections(memory: Memory, starts: Sequence[int], shared: Set[int]) -> Work[tuple[Section, ...]]:
    """All sections; ``shared`` are the storages that all layers share."""
    found = []
    marks = [*memory.marks, (len(memory.places), "", NOWHERE)]
    heard: dict[int, list[Noted]] = {}
    for before, mark, kind, weight in memory.notes or ():
        heard.setdefault(mark - 1, []).append((before - marks[mark - 1][0], kind, weight))
    turn = 0
    for place, (begin, phase, part) in enumerate(marks[:-1]):
        if place in starts[1:]:
            turn += 1
        end = marks[place + 1][0]
        running = Running(memory.places[begin:end], tuple(memory.codes[begin:end]))
        notes = tuple(heard.get(place, ()))
        about = turn, phase, part
        before_last = None
        if part == ("layer", REPEATED) and (left_out := _released(running, shared)):
            before_last = _section(about, *_without(left_out, running, notes))
        found.append(_section(about, running, notes, before_last))
        yield
    return tuple(found)


def _section(
    about: tuple[int, str, PartOf],
    running: Running,
    notes: tuple[Noted, ...],
    before_last: Section | None = None,
) -> Section:
    turn, phase, part = about
    return Section(
        micro_batch=turn,
        phase=phase,
        part=part,
        running=running,
        before_last=before_last,
        notes=notes,
    )


def _released(running: Running, among: Set[int]) -> list[int]:
    """Which of the moves release a storage of some."""
    leaving = map(among.__contains__, map(invert, running.places))
    return [at for at in compress(count(), leaving) if not running.passes_on(at)]


def _without(
    left_out: Sequence[int], running: Running, notes: tuple[Noted, ...]
) -> tuple[Running, tuple[Noted, ...]]:
    """Moves and notes without some of the moves."""
    kept = [at for at in range(len(running.places)) if at not in left_out]
    places, codes = ([of[at] for at in kept] for of in (running.places, running.codes))
    return Running(places, tuple(codes)), tuple(
        (at - sum(one < at for one in left_out), kind, weight) for at, kind, weight in notes
    )
