"""Why PyTorch found no room: pieces, another process, a limit, or truly too much."""

from __future__ import annotations

from ..units import percent
from .allocator import PIECES
from .cause import Cause, Verdict
from .cause import printed_size as _size
from .elsewhere import FIXED, jax, metal, tpu
from .reading import Kind, OomReading

#: Of a GPU's memory, one part in so many lying unused is worth a word where little was asked for.
_NOTABLE = 20
_OTHERS = (
    "End the other processes (nvidia-smi lists them by number), or choose a GPU that is free with "
    "CUDA_VISIBLE_DEVICES."
)
_LITTLE = "Fragmentation is little"
_SET_ALREADY = (
    "Where it is set already, the pieces are of other streams or pools: keep the shapes of batches "
    "alike (pad to a few lengths), or call torch.cuda.empty_cache() between phases."
)
SEGMENTS = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def verdict(reading: OomReading) -> Verdict:
    """Why the request was refused, by the error's own numbers."""
    if reading.kind in FIXED:
        return FIXED[reading.kind]
    if reading.kind is Kind.JAX:
        return jax(reading)
    if reading.kind is Kind.TPU:
        return tpu(reading)
    if reading.kind is Kind.MPS:
        return metal(reading)
    return _pytorch(_Numbers(reading))


class _Numbers:
    """A PyTorch error's numbers in bytes, and what follows from them."""

    def __init__(self, reading: OomReading) -> None:
        self.reading = reading
        self.requested = reading.requested.bytes if reading.requested else None
        self.total = reading.total.bytes if reading.total else None
        self.free = reading.free.bytes if reading.free else None
        self.unallocated = reading.unallocated.bytes if reading.unallocated else None
        self.reserved = reading.reserved_bytes
        own = self._own_process()
        #: What all other processes that are named have.
        self.others = sum(size.bytes for number, size in reading.processes if number != own)
        self.in_use = reading.in_use.bytes if reading.in_use else None
        if own is not None:
            self.in_use = next(size.bytes for number, size in reading.processes if number == own)

    def _own_process(self) -> int | None:
        """Which of the processes named is this one.

        PyTorch says "this process" where it finds its own number; in a container it has another one
        inside than outside, and then it is the one whose memory PyTorch's own fits into best.
        """
        if self.reading.in_use is not None or self.reserved is None:
            return None
        larger = [
            (size.bytes, number)
            for number, size in self.reading.processes
            if size.most >= self.reserved
        ]
        return min(larger)[1] if larger else None

    @property
    def room(self) -> int | None:
        """The most that this job's tensors could have: what PyTorch held, and what was free."""
        if self.reserved is None or self.free is None:
            return None
        allowed = self.reading.allowed
        room = self.reserved + self.free
        return min(room, allowed.bytes) if allowed else room

    @property
    def beside(self) -> int | None:
        """What this process has beside PyTorch's allocator."""
        if self.in_use is None or self.reserved is None:
            return None
        return max(self.in_use - self.reserved, 0)


def _pytorch(n: _Numbers) -> Verdict:
    requested, free, unallocated = n.requested, n.free, n.unallocated
    if requested is None or (n.total is None and free is None):
        return _too_little_said(n)
    missing = requested - (free or 0) - (unallocated or 0)
    facts = {"missing_bytes": missing, "room_bytes": n.room}
    told = tuple(_told(n))
    if n.total is not None and requested > n.total:
        said = f"One request of {_size(requested)} is larger than the whole GPU ({_size(n.total)})."
        return Verdict(cause=Cause.TOO_MUCH, sentences=(said, *told), remedies=(), **facts)
    if (limit := _limit(n)) is not None:
        return Verdict(cause=Cause.LIMIT, sentences=(*limit[0], *told), remedies=limit[1], **facts)
    if unallocated is not None and missing <= 0 and _in_pieces(n):
        return Verdict(
            cause=Cause.FRAGMENTATION,
            sentences=(*_pieces(n), *(one for one in told if not one.startswith(_LITTLE))),
            remedies=_against_pieces(n.reading),
            **facts,
        )
    if n.others and missing - n.others <= 0:
        said = (
            f"Other processes had {_size(n.others)} of this GPU. Without them the "
            f"{_size(requested)} would have found room."
        )
        return Verdict(
            cause=Cause.OTHER_PROCESSES,
            sentences=(said, *told),
            remedies=(_OTHERS,),
            missing_bytes=missing,
            room_bytes=None if n.room is None else n.room + n.others,
        )
    return Verdict(
        cause=Cause.TOO_MUCH, sentences=(*_too_much(n, missing), *told), remedies=(), **facts
    )


def _too_much(n: _Numbers, missing: int) -> tuple[str, ...]:
    assert n.requested is not None
    if n.requested in PIECES:
        return ("The GPU was full to the last piece, so even a small tensor found no room.",)
    if missing > 0:
        unused = " and all that PyTorch held in no tensor" if n.unallocated else ""
        others = f" The {_size(n.others)} of other processes would not have been enough either."
        return (
            (
                f"Too much was asked: with all that was free{unused} put to use, {_size(missing)} "
                f"were still missing.{others if n.others else ''}"
            ),
        )
    return ("The memory was full.",)


def _in_pieces(n: _Numbers) -> bool:
    """Whether what PyTorch held unused is worth a word: a request of one piece says little."""
    assert n.unallocated is not None
    if n.total is None or n.unallocated * _NOTABLE >= n.total:
        return n.unallocated > 0
    # So little is not why a piece found no room, nor where others had the GPU.
    return n.unallocated > 0 and n.requested not in PIECES and not n.others


def _pieces(n: _Numbers) -> tuple[str, ...]:
    assert n.requested is not None
    assert n.unallocated is not None
    held, asked = _size(n.unallocated), _size(n.requested)
    if n.unallocated >= n.requested:
        said = f"PyTorch held {held} that were in no tensor, enough for the {asked} asked for"
    else:
        said = (
            f"PyTorch held {held} that were in no tensor, and with the {_size(n.free or 0)} that "
            f"were free that is enough for the {asked} asked for"
        )
    return (f"{said}, but in pieces none of which was large enough: fragmentation.",)


def _against_pieces(reading: OomReading) -> tuple[str, ...]:
    variable = SEGMENTS
    if reading.says.startswith("HIP"):
        variable = SEGMENTS.replace("CUDA", "HIP")
    graphs = (
        " It does nothing for what CUDA graphs hold in pools of their own."
        if reading.private
        else ""
    )
    grows = (
        f"Set {variable} in the environment before the job starts: segments then grow instead of "
        f"lying in pieces (PyTorch 2.1 and later).{graphs}"
    )
    return grows, _SET_ALREADY


def _limit(n: _Numbers) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """What refused a request for which there was room, if that is what happened."""
    allowed = n.reading.allowed
    assert n.requested is not None
    if allowed is not None and n.reserved is not None:
        if n.reserved + n.requested > allowed.bytes:
            said = f"A limit of {allowed.text} was set for this process, and this would pass it."
            remedy = "Raise what torch.cuda.set_per_process_memory_fraction was given."
            return (said,), (remedy,)
        return None
    if n.free is None or n.free < n.requested:
        return None
    said = (
        f"{_size(n.free)} of the GPU were free, more than the {_size(n.requested)} asked for: it "
        "was not the GPU's memory that ran out."
    )
    remedy = (
        "Look for a limit outside PyTorch (a container's, a virtual machine's, Windows' share of "
        "GPU memory, address space for HIP), or for another process that came and went."
    )
    return (said,), (remedy,)


def _told(n: _Numbers) -> list[str]:
    """What else the numbers say."""
    told = []
    beside = n.beside
    if beside is not None and n.total and beside * _NOTABLE >= n.total:
        told.append(
            f"{_size(beside)} of this process are outside PyTorch's allocator: the CUDA context, "
            "NCCL's buffers, other libraries."
        )
    if n.total is not None and n.free is not None and n.in_use is not None:
        unnamed = n.total - n.free - n.in_use - n.others
        if unnamed * _NOTABLE >= n.total:
            told.append(
                f"{_size(unnamed)} of the GPU are nobody's that the error names: other processes, "
                "or the driver."
            )
    elif n.total is not None and n.free is not None and n.reserved is not None:
        outside = n.total - n.free - n.reserved
        if outside * _NOTABLE >= n.total:
            told.append(
                f"{_size(outside)} of the GPU are neither free nor PyTorch's: the CUDA context, "
                "and any other process on it (nvidia-smi lists them)."
            )
    if n.unallocated and n.total and n.unallocated * _NOTABLE < n.total:
        share = percent(n.unallocated, n.total, 1)
        told.append(f"{_LITTLE}: {_size(n.unallocated)} held in no tensor, {share} % of the GPU.")
    return told


def _too_little_said(n: _Numbers) -> Verdict:
    said = "The error breaks off before it says what was free and what was held"
    if n.requested is not None:
        said += f"; of the request it says {_size(n.requested)}"
    remedy = "Paste the whole line that says Tried to allocate, with what follows it."
    return Verdict(cause=Cause.UNKNOWN, sentences=(f"{said}.",), remedies=(remedy,))
