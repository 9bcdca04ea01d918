"""PyTorch's caching allocator, played: what it reserves of the GPU to serve what a step allocates.

c10/cuda/CUDACachingAllocator.cpp as of PyTorch 2.13, default settings. Sizes in bytes.
Requests up to 1 MiB come from segments of 2 MiB; those below 10 MiB from segments of 20 MiB; larger
ones have a segment of their own, a whole number of 2 MiB. The smallest free block that is large
enough serves a request, and what is left of it is split off, but not where that is 1 MiB or less of
a large block. A segment serves only the stream that asked for it. Segments stay when their blocks
are freed, and go back to the GPU only when it has no more to give.
"""

from __future__ import annotations

from bisect import bisect_left, insort

#: Every block is a whole number of these (kMinBlockSize).
UNIT_BYTES = 512
#: The largest request for small segments (kSmallSize), and their size (kSmallBuffer).
SMALL_BYTES = 2**20
SMALL_SEGMENT_BYTES = 2 * 2**20
#: Requests from here on have a segment of their own (kMinLargeAlloc); others share (kLargeBuffer).
LARGE_BYTES = 10 * 2**20
LARGE_SEGMENT_BYTES = 20 * 2**20
#: What a segment of its own is a whole number of (kRoundLarge).
ROUND_BYTES = 2 * 2**20


class OutOfMemoryError(Exception):
    """The GPU has no more to give, and no segment is free to be given back."""


#: Whose free blocks are looked through together: those of small segments or not, and the stream's.
_Pool = tuple[bool, int]


class Block:
    """A piece of a segment, between its neighbours in it."""

    __slots__ = ("address", "after", "before", "free", "pool", "size")

    def __init__(self, address: int, size: int, pool: _Pool) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.free = False
        self.before: Block | None = None
        self.after: Block | None = None


#: A free block in its pool, in the order in which they are looked through: by size, then address.
_Free = tuple[int, int, Block]


class Allocator:
    """The allocator of one GPU, of whose memory it may take ``capacity`` (None: all it wants)."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.allocated = 0
        self.reserved = 0
        self.most_allocated = 0
        self.most_reserved = 0
        self._pools: dict[_Pool, list[_Free]] = {}
        self._next_address = 0

    def allocate(self, size: int, stream: int = 0) -> Block:
        """A block for a request of a stream. Raises :class:`OutOfMemoryError`."""
        wanted = max(UNIT_BYTES, -(-size // UNIT_BYTES) * UNIT_BYTES)
        small = wanted <= SMALL_BYTES
        pool = (small, stream)
        free = self._pools.setdefault(pool, [])
        place = self._best(free, bisect_left(free, (wanted,)))
        block = free.pop(place)[2] if place < len(free) else self._segment(wanted, pool)
        block.free = False
        if self._splits(block.size - wanted, small=small):
            self._split(block, wanted)
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def release(self, block: Block) -> None:
        """Give a block back; free neighbours become one with it."""
        self.allocated -= block.size
        block.free = True
        pool = self._pools[block.pool]
        before, after = block.before, block.after
        if after is not None and after.free:
            self._take_out(pool, after)
            block.size += after.size
            block.after = after.after
            if block.after is not None:
                block.after.before = block
        if before is not None and before.free:
            self._take_out(pool, before)
            before.size += block.size
            before.after = block.after
            if before.after is not None:
                before.after.before = before
            block = before
        insort(pool, (block.size, block.address, block))

    def give_back(self) -> None:
        """Give every segment of which nothing is in use back to the GPU (``empty_cache``)."""
        for name, pool in self._pools.items():
            whole = [one for one in pool if one[2].before is None and one[2].after is None]
            self.reserved -= sum(size for size, _, _ in whole)
            kept = {address for _, address, _ in whole}
            self._pools[name] = [one for one in pool if one[1] not in kept]

    def _best(self, free: list[_Free], place: int) -> int:
        """Of the free blocks from ``place`` on, which are enough, the one that is taken."""
        return place

    def _splits(self, left: int, *, small: bool) -> bool:
        """Whether what is left of a block is split off (should_split)."""
        return left >= UNIT_BYTES if small else left > SMALL_BYTES

    def _segment(self, wanted: int, pool: _Pool) -> Block:
        size = SMALL_SEGMENT_BYTES if pool[0] else LARGE_SEGMENT_BYTES
        if wanted >= LARGE_BYTES:
            size = -(-wanted // ROUND_BYTES) * ROUND_BYTES
        if self.capacity is not None and self.reserved + size > self.capacity:
            self.give_back()
            if self.reserved + size > self.capacity:
                raise OutOfMemoryError
        self.reserved += size
        self.most_reserved = max(self.most_reserved, self.reserved)
        block = Block(self._next_address, size, pool)
        self._next_address += size
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.address + size, block.size - size, block.pool)
        rest.free = True
        rest.before, rest.after = block, block.after
        if rest.after is not None:
            rest.after.before = rest
        block.after = rest
        block.size = size
        insort(self._pools[block.pool], (rest.size, rest.address, rest))

    @staticmethod
    def _take_out(pool: list[_Free], block: Block) -> None:
        del pool[bisect_left(pool, (block.size, block.address))]


class GrowingAllocator(Allocator):
    """The same with ``expandable_segments:True``: one segment for each pool, which grows.

    It grows by whole pages of 2 MiB or 20 MiB, what is left of a block is always split off, and the
    block at the end, which can grow, is taken only where no other is enough. Nothing is given back.
    """

    def __init__(self) -> None:
        super().__init__()
        #: The last block of each pool's segment.
        self._ends: dict[_Pool, Block] = {}

    def _best(self, free: list[_Free], place: int) -> int:
        at_end = place < len(free) and free[place][2] is self._ends.get(free[place][2].pool)
        return place + 1 if at_end and place + 1 < len(free) else place

    def _splits(self, left: int, *, small: bool) -> bool:
        return left >= UNIT_BYTES

    def _segment(self, wanted: int, pool: _Pool) -> Block:
        page = SMALL_SEGMENT_BYTES if pool[0] else LARGE_SEGMENT_BYTES
        end = self._ends.get(pool)
        there = end.size if end is not None and end.free else 0
        more = -(-(wanted - there) // page) * page
        self.reserved += more
        self.most_reserved = max(self.most_reserved, self.reserved)
        if end is not None and end.free:
            self._take_out(self._pools[pool], end)
            end.size += more
            return end
        block = Block(end.address + end.size if end else 0, more, pool)
        block.before = end
        if end is not None:
            end.after = block
        self._ends[pool] = block
        return block

    def _split(self, block: Block, size: int) -> None:
        super()._split(block, size)
        if self._ends[block.pool] is block and block.after is not None:
            self._ends[block.pool] = block.after

    def release(self, block: Block) -> None:
        """Give a block back; free neighbours become one with it."""
        before = block.before
        super().release(block)
        merged = before if before is not None and before.free else block
        if merged.after is None:
            self._ends[merged.pool] = merged
