"""The first steps of a run played through PyTorch's allocator, request by request.

Every layer is played, not three that stand for all: what an allocator reserves depends on the order
in which sizes come and go, and nothing of it can be multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import flat
from .allocator import Allocator, Block, GrowingAllocator
from .autograd.memory import ITEM_BYTES, Facts
from .formula import Formula
from .held import MASTER_COPIES, frozen_on, item_bytes_of
from .implementations import BY_STAGES
from .layouts import Layout, Weight, buffers_of, layout_of
from .optimizers import get, is_hidden_matrix
from .rank import Rank
from .recorded import sizes_of
from .recorded_step import optimizer_id, structure, values
from .recording import Recording, recording_in_steps
from .run import Run
from .scratch import Room
from .shares import share_of
from .slices import Work, finished
from .splitting import share_of_layout, total_bytes
from .structure import chunk_sizes, computes_in

#: The first step has no optimizer states yet, the second finds the first one's segments; what the
#: later ones ask for, the second asked for as well.
STEPS = 2
#: cuBLAS's workspace on Hopper, the larger one (getChosenWorkspaceSize in
#: aten/src/ATen/cuda/CublasHandlePool.cpp), for the thread that runs forward and the one that runs
#: backward.
WORKSPACES = (32 * 2**20,) * 2
#: DDP's buckets (bucket_cap_mb of torch/nn/parallel/distributed.py).
BUCKET_BYTES = 25 * 2**20
#: The streams in which FSDP2 asks for its memory, by the letter of its units' symbols: shards to be
#: gathered and what a gather writes have one, reduced gradients another
#: (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: foreach_all_gather, foreach_reduce).
#: FSDP1 has one more, for shards on their way to be gathered, and casts and pads gradients where it
#: reduces them (torch/distributed/fsdp/_runtime_utils.py: _init_streams).
STREAMS = {"i": 1, "o": 1, "q": 2, "z": 2, "d": 3, "m": 1, "b": 2, "g": 2, "c": 2}


def replay(run: Run, rank: Rank, capacity: int | None = None) -> Allocator:
    """The allocator after the run's first steps, with ``capacity`` bytes of the GPU for it.

    The run is as a library runs it, and ``rank`` one of its GPUs. What attention's kernels hold
    inside themselves and cuBLAS's workspaces are played as well.

    Raises :class:`.allocator.OutOfMemoryError`.
    """
    return finished(replaying(run, rank, capacity))


def replaying(run: Run, rank: Rank, capacity: int | None = None) -> Work[Allocator]:
    """:func:`replay`, which may be left off within a step."""
    return _played(run, rank, Allocator(capacity))


def replay_growing(run: Run, rank: Rank) -> Allocator:
    """The same with segments that grow."""
    return finished(replaying_growing(run, rank))


def replaying_growing(run: Run, rank: Rank) -> Work[Allocator]:
    """:func:`replay_growing`, which may be left off within a step."""
    return _played(run, rank, GrowingAllocator())


def _played(run: Run, rank: Rank, allocator: Allocator) -> Work[Allocator]:
    if run.implementation not in BY_STAGES:
        return _Player(run, allocator).played()
    from .megatron.replay import played

    for size in WORKSPACES:
        allocator.allocate(size)
    return played(run, rank, allocator, steps=STEPS)


class _Player:
    """A run and the allocator that it is played through."""

    def __init__(self, run: Run, allocator: Allocator) -> None:
        self.run = run
        self.allocator = allocator
        self.precision = run.recipe.precision
        self.share = share_of(run)
        self.whole = layout_of(run.model, str(run.implementation))
        #: The weights that are trained, as far as this GPU has them.
        if self.share.flat:
            tied = run.model.tied
            self.layout = flat.stepped(self.whole, self.share, tied=tied, tuning=run.tuning)
        else:
            self.layout = share_of_layout(self.whole, self.share, run.tuning)
        self.optimizer = get(optimizer_id(run))
        #: What stays to the end.
        self.kept: list[Block] = []

    def played(self) -> Work[Allocator]:
        self._before()
        yield
        recording, sizes = yield from self._recorded()
        for step in range(1 if self.run.sharding.first_step else STEPS):
            left = yield from self._passes(recording, sizes)
            self._update(first=step == 0)
            yield
            for block in left:
                self.allocator.release(block)
        return self.allocator

    def _keep(self, *sizes: int) -> None:
        self.kept += [self.allocator.allocate(size) for size in sizes]

    def _before(self) -> None:
        """What is there before the first step: the model, copies of its weights, workspaces."""
        tuning = self.run.tuning
        item_bytes = 4 if computes_in(self.precision) == "fp32" else 2
        if self.share.away:
            self._keep(*self._tables(), *WORKSPACES)
            return
        if not tuning.trains_all:
            item_bytes = ITEM_BYTES[tuning.adapter_dtype]
            tied = self.run.model.tied
            rows = frozen_on(self.whole, tuning, self.share, tied=tied)
            self._keep(*(size for _, size, _ in rows))
        kept = self.layout
        if self.share.flat:
            kept = flat.kept(self.whole, self.share, tied=self.run.model.tied, tuning=tuning)
        self._keep(*(one.numel * item_bytes for one in _weights(kept)))
        self._keep(*self._tables())
        for copied in (
            self.precision in MASTER_COPIES,
            self.precision == "master-fp32-grad",  # the sums of gradients
        ):
            if copied:
                self._keep(*(4 * one.numel for one in _weights(self.layout)))
        if self.share.buckets:
            size = total_bytes(self.layout, item_bytes)
            # The first step's is one; the second one's are made in the order of its gradients.
            each = size if self.run.sharding.first_step else BUCKET_BYTES
            full, rest = divmod(size, each)
            self._keep(*[each] * full, *([rest] if rest else []))
        self._keep(*WORKSPACES)

    def _tables(self) -> Iterator[int]:
        for _, size in buffers_of(self.run.model, str(self.run.implementation)):
            yield size

    def _recorded(self) -> Work[tuple[Recording, list[int]]]:
        run = self.run
        tokens = run.sequence * run.micro_batch
        chunks = len(chunk_sizes(run.model, str(run.switches.loss), tokens))
        recording = yield from recording_in_steps(
            structure(run, scratch=True), run.model.layers, chunks
        )
        return recording, sizes_of(recording, values(run))

    def _passes(self, recording: Recording, sizes: list[int]) -> Work[list[Block]]:
        """Forward and backward; returns what is left: gradients, the batch, held logits."""
        live: dict[int, Block] = {}
        allocate, release = self.allocator.allocate, self.allocator.release
        streams = [_stream(formula) for formula in recording.formulas]
        stream_of = [streams[place] for place in recording.formula_of]
        for section in recording.sections:
            for place in section.running.ends():
                if place >= 0:
                    live[place] = allocate(sizes[place], stream_of[place])
                else:
                    release(live.pop(~place))
            yield
        return list(live.values())

    def _update(self, *, first: bool) -> None:
        """The optimizer's step; the first one makes its states."""
        if self.share.away:
            return
        room = _Room(self.allocator)
        weights = list(_weights(self.layout))
        item_bytes = item_bytes_of(self.precision, self.run.tuning)
        copies = [room.take("", 4 * one.numel, "") for one in weights if self.precision == "master"]
        if first:
            for one in weights:
                self._keep(*(size for _, size in self.optimizer.states(one, item_bytes)))
        muon = self.optimizer.id == "muon"
        looped = [one for one in weights if is_hidden_matrix(one) or not muon]
        self.optimizer.update(room, looped, item_bytes)
        del copies


class _Room(Room):
    """Scratch memory that comes from an allocator."""

    def __init__(self, allocator: Allocator) -> None:
        super().__init__()
        self.allocator = allocator
        self.blocks: dict[int, Block] = {}

    def taken(self, facts: Facts) -> int:
        number = super().taken(facts)
        self.blocks[number] = self.allocator.allocate(facts.bytes.evaluate({}))
        return number

    def release(self, number: int) -> None:
        self.allocator.release(self.blocks.pop(number))


def _stream(formula: Formula) -> int:
    """The stream that asks for memory of that size; all but FSDP2's units are the first's."""
    letter, colon, _ = formula.text().partition(":")
    return STREAMS.get(letter, 0) if colon else 0


def _weights(layout: Layout) -> Iterator[Weight]:
    yield from layout.first
    for _ in range(layout.layers):
        yield from layout.layer
    yield from layout.last
