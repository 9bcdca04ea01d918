"""PyTorch's caching allocator, played: what it reserves of the GPU to serve what a step allocates.

c10/cuda/CUDACachingAllocator.cpp as of PyTorch 2.13, one stream, default settings. Sizes in bytes.
Requests up to 1 MiB come from segments of 2 MiB; those below 10 MiB from segments of 20 MiB; larger
ones have a segment of their own, a whole number of 2 MiB. The smallest free block that is large
enough serves a request, and what is left of it is split off, but not where that is 1 MiB or less of
a large block. Segments stay when their blocks are freed, and go back to the GPU only when it has no
more to give.
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


class Block:
    """A piece of a segment, between its neighbours in it."""

    __slots__ = ("address", "after", "before", "free", "size", "small")

    def __init__(self, address: int, size: int, *, small: bool) -> None:
        self.address = address
        self.size = size
        self.small = small
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
        self._pools: dict[bool, list[_Free]] = {True: [], False: []}
        self._next_address = 0

    def allocate(self, size: int) -> Block:
        """A block for a request. Raises :class:`OutOfMemoryError`."""
        wanted = max(UNIT_BYTES, -(-size // UNIT_BYTES) * UNIT_BYTES)
        small = wanted <= SMALL_BYTES
        pool = self._pools[small]
        place = bisect_left(pool, (wanted,))
        block = pool.pop(place)[2] if place < len(pool) else self._segment(wanted, small=small)
        block.free = False
        left = block.size - wanted
        if left >= UNIT_BYTES if small else left > SMALL_BYTES:
            self._split(block, wanted)
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def release(self, block: Block) -> None:
        """Give a block back; free neighbours become one with it."""
        self.allocated -= block.size
        block.free = True
        pool = self._pools[block.small]
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
        for small, pool in self._pools.items():
            whole = [one for one in pool if one[2].before is None and one[2].after is None]
            self.reserved -= sum(size for size, _, _ in whole)
            kept = {address for _, address, _ in whole}
            self._pools[small] = [one for one in pool if one[1] not in kept]

    def _segment(self, wanted: int, *, small: bool) -> Block:
        size = SMALL_SEGMENT_BYTES if small else LARGE_SEGMENT_BYTES
        if wanted >= LARGE_BYTES:
            size = -(-wanted // ROUND_BYTES) * ROUND_BYTES
        if self.capacity is not None and self.reserved + size > self.capacity:
            self.give_back()
            if self.reserved + size > self.capacity:
                raise OutOfMemoryError
        self.reserved += size
        self.most_reserved = max(self.most_reserved, self.reserved)
        block = Block(self._next_address, size, small=small)
        self._next_address += size
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.address + size, block.size - size, small=block.small)
        rest.free = True
        rest.before, rest.after = block, block.after
        if rest.after is not None:
            rest.after.before = rest
        block.after = rest
        block.size = size
        insort(self._pools[block.small], (rest.size, rest.address, rest))

    @staticmethod
    def _take_out(pool: list[_Free], block: Block) -> None:
        del pool[bisect_left(pool, (block.size, block.address))]
