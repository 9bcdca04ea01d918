"""What must be free on a GPU, in words: for the terminal and the page alike."""

from __future__ import annotations

from ..estimate import Estimate
from ..need import CONTEXT, Fits, Need, is_played
from ..units import show_bytes

#: Lets segments grow, which leaves fewer gaps (PyTorch's notes on CUDA semantics).
_GROWING = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def helps(need: Need, *, binary: bool) -> str:
    """What helps a run that is tight, and by how much; nothing where that is not known."""
    if need.most_growing_bytes is None:
        return ""
    most = show_bytes(need.most_growing_bytes, binary=binary)
    return f"{_GROWING} brings the most down to {most}."


def bounds(need: Need, *, binary: bool) -> str:
    """From the least to the most: ``66.9 to 69.3 GB``."""
    least, most = (show_bytes(size, binary=binary) for size in (need.least_bytes, need.most_bytes))
    number, unit = least.split(" ")
    return f"{number} to {most}" if most.endswith(f" {unit}") else f"{least} to {most}"


def made_of(need: Need, *, binary: bool) -> str:
    """What the bounds are made of."""
    low, high = (show_bytes(size, binary=binary) for size in CONTEXT)
    beyond = show_bytes(need.reserved_bytes - need.allocated_bytes, binary=binary)
    how = (
        "found by playing its first steps through it"
        if need.played
        else "the largest share published beside an allocated figure"
    )
    nccl = f", NCCL (up to {show_bytes(need.nccl_bytes, binary=binary)})" if need.nccl_bytes else ""
    return (
        f"The peak, the CUDA context ({low} to {high}){nccl} and what PyTorch's allocator reserves "
        f"beyond it (up to {beyond}, {how})."
    )


def quickly(estimate: Estimate) -> bool:
    """Whether the bounds cost no more than the answer."""
    return not is_played(estimate.run)


def verdict(estimate: Estimate) -> str:
    """What the bounds say of the run's GPU where the peak alone would fit; else nothing."""
    fits, room, gpu = estimate.fits, estimate.room_bytes, estimate.run.gpu
    if gpu is None or room is None or room < 0 or fits is Fits.YES:
        return ""
    if fits is Fits.TIGHT:
        return f"it may run out: the most that it needs is more than the {gpu.name} has"
    return f"with what is beside it, it is more than the {gpu.name} has"
