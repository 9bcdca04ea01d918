"""What must be free on a GPU for a run: more than it allocates, by how much in bounds.

The least is what is allocated and the smallest CUDA context that was seen. The most is what
PyTorch's allocator reserves when the run's first steps are played through it (:mod:`.replay`), the
largest context, and what NCCL was seen to take for as many communicators. Where a run cannot be
played (the textbook's accounting has sums and no tensors; a schedule with thousands of layers in
flight), the allocator's part is the largest share that was published beside an allocated figure.
"""

from __future__ import annotations

from enum import StrEnum

from .gpus import Gpu
from .implementations import BY_STAGES, Implementation
from .layout import Exchange
from .rank import Rank
from .records import dataclass
from .run import Run
from .slices import Work, finished

#: The CUDA context, in bytes. The least: a device's use less what llm.c allocated on it, on an RTX
#: 3060 (docs/data/measured/rows.csv, M0195). The most: Hugging Face's guide "Model training
#: anatomy", a GPU's use after a first tiny tensor, 1,343 MiB.
CONTEXT = (287 * 2**20, 1343 * 2**20)
#: MiB reserved and allocated in the same run, where the share was largest: nanotron on 8 GPUs
#: (docs/data/measured/rows.csv, M0151).
PUBLISHED = (9170, 8570)
#: What a communicator took of each GPU, of two GPUs and of more: 544 and 688 MB on four A100s
#: (NVIDIA/nccl, issue 964). It takes more where there are more links and channels.
COMMUNICATOR = (544 * 2**20, 688 * 2**20)
#: What the first all-to-all among eight H100s added: 1.06 GB were 4.34 (NVIDIA/nccl, issue 1685).
ALL_TO_ALL = 3_280_000_000


class Fits(StrEnum):
    """Whether a run fits a GPU: surely, only perhaps, or not."""

    YES = "yes"
    TIGHT = "tight"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a run needs free on its fullest GPU, in bytes.

    ``allocated_bytes`` is the peak, ``reserved_bytes`` what the allocator takes for it when nothing
    stops it; ``played`` says that this was played through the allocator and not taken from a
    published share, and then ``growing_bytes`` is the same with segments that can grow
    (``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``). ``nccl_bytes`` is the most that NCCL
    takes. ``goes_through`` is whether the run's GPU is enough for the allocator if it gives back
    what it does not use (None: no GPU named, or not played).
    """

    allocated_bytes: int
    reserved_bytes: int
    growing_bytes: int | None
    played: bool
    goes_through: bool | None
    nccl_bytes: int = 0

    @property
    def least_bytes(self) -> int:
        """No run can do with less."""
        return self.allocated_bytes + CONTEXT[0]

    @property
    def most_bytes(self) -> int:
        """With as much the run has all that it asks for."""
        return self.reserved_bytes + CONTEXT[1] + self.nccl_bytes

    @property
    def most_growing_bytes(self) -> int | None:
        """The same with segments that can grow, where that is known and less."""
        if self.growing_bytes is None or self.growing_bytes >= self.reserved_bytes:
            return None
        return self.most_bytes - self.reserved_bytes + self.growing_bytes

    def fits(self, gpu: Gpu) -> Fits:
        """Whether it fits: no more than the name promises, and than the device was seen to have."""
        has = gpu.usable_bytes or gpu.memory_bytes
        if self.allocated_bytes > gpu.memory_bytes or self.least_bytes > has:
            return Fits.NO
        if self.goes_through is False:
            return Fits.NO
        return Fits.YES if self.most_bytes <= has else Fits.TIGHT

    def to_json(self) -> dict[str, object]:
        """The bounds as plain values."""
        return {
            "least_bytes": self.least_bytes,
            "most_bytes": self.most_bytes,
            "allocated_bytes": self.allocated_bytes,
            "reserved_bytes": self.reserved_bytes,
            "reserved_growing_bytes": self.growing_bytes,
            "reserved_by": "replay" if self.played else "published share",
            "context_bytes": list(CONTEXT),
            "nccl_bytes": [0, self.nccl_bytes],
        }


def need(run: Run, rank: Rank, allocated_bytes: int) -> Need:
    """What the GPU of a run that needs most needs free, its peak known."""
    return finished(needing(run, rank, allocated_bytes))


def needing(run: Run, rank: Rank, allocated_bytes: int) -> Work[Need]:
    """:func:`need`, which may be left off while steps are played."""
    if not is_played(run):
        return _by_share(run, allocated_bytes)
    # Most answers play nothing, and start sooner without what it takes.
    from .replay import replaying, replaying_growing

    reserved_bytes = (yield from replaying(run, rank)).most_reserved
    growing_bytes = (yield from replaying_growing(run, rank)).most_reserved
    return Need(
        allocated_bytes=allocated_bytes,
        reserved_bytes=max(reserved_bytes, allocated_bytes),
        growing_bytes=max(growing_bytes, allocated_bytes),
        played=True,
        goes_through=(yield from _goes_through(run, rank, allocated_bytes, reserved_bytes)),
        nccl_bytes=nccl(run),
    )


def nccl(run: Run) -> int:
    """The most that NCCL takes of a GPU: a communicator for each way to share the run."""
    layout, copies = run.layout, run.sharding.replicate
    degrees = [layout.data // copies, copies, layout.tensor, layout.context, layout.pipeline]
    if layout.expert > 1:
        degrees.append(layout.expert)
    found = sum(COMMUNICATOR[degree > 2] for degree in degrees if degree > 1)
    exchanged = layout.context > 1 and layout.context_exchange is Exchange.ULYSSES
    return found + (ALL_TO_ALL if layout.expert > 1 or exchanged else 0)


def at_a_glance(run: Run, allocated_bytes: int) -> Fits:
    """Whether a run whose peak is known fits its GPU, by the published share: for searches.

    Playing a run through the allocator takes longer than a thousand estimates.
    """
    assert run.gpu is not None
    return _by_share(run, allocated_bytes).fits(run.gpu)


def _by_share(run: Run, allocated_bytes: int) -> Need:
    reserved, allocated = PUBLISHED
    return Need(
        allocated_bytes=allocated_bytes,
        reserved_bytes=allocated_bytes * reserved // allocated,
        growing_bytes=None,
        played=False,
        goes_through=None,
        nccl_bytes=nccl(run),
    )


def is_played(run: Run) -> bool:
    """Whether the run can be played through the allocator, which takes a while."""
    if run.implementation in BY_STAGES:
        from .megatron.replay import is_short

        return is_short(run)
    played = (Implementation.HUGGINGFACE, Implementation.TORCHTITAN)
    return run.implementation in played and run.layout.tensor == run.layout.pipeline == 1


def _goes_through(
    run: Run, rank: Rank, allocated_bytes: int, reserved_bytes: int
) -> Work[bool | None]:
    """Whether the allocator finds room on the run's GPU, with the smallest context beside it."""
    if run.gpu is None:
        return None
    room = (run.gpu.usable_bytes or run.gpu.memory_bytes) - CONTEXT[0]
    if room < allocated_bytes or room >= reserved_bytes:
        return room >= reserved_bytes
    from .allocator import OutOfMemoryError
    from .replay import replaying

    try:
        yield from replaying(run, rank, room)
    except OutOfMemoryError:
        return False
    return True
