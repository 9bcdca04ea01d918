"""What PyTorch's caching allocator asks CUDA for when a tensor finds no room in what it holds.

The number in "Tried to allocate" is this, not the tensor's own size: get_allocation_size in
c10/cuda/CUDACachingAllocator.cpp, with the constants named there.
"""

from __future__ import annotations

MIB = 2**20

#: kMinBlockSize: a tensor takes a whole number of these.
BLOCK = 512
#: kSmallSize and kSmallBuffer: what is no larger than the first comes from pieces of the second.
SMALL, SMALL_PIECE = MIB, 2 * MIB
#: kMinLargeAlloc and kLargeBuffer: what is smaller than the first comes from pieces of the second.
LARGE, LARGE_PIECE = 10 * MIB, 20 * MIB
#: What any small tensor asks for.
PIECES = (SMALL_PIECE, LARGE_PIECE)
#: kRoundLarge: what is larger is taken in whole numbers of these.
ROUND = 2 * MIB


def asked(size_bytes: int) -> int:
    """The bytes asked of CUDA for a tensor of so many."""
    size = -(-size_bytes // BLOCK) * BLOCK
    if size <= SMALL:
        return SMALL_PIECE
    if size < LARGE:
        return LARGE_PIECE
    return -(-size // ROUND) * ROUND
