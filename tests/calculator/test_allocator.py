"""The allocator's rules, as c10/cuda/CUDACachingAllocator.cpp has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_memory.allocator import Allocator, GrowingAllocator, OutOfMemoryError

MIB = 2**20


@pytest.mark.parametrize(
    ("asked", "given_out", "reserved"),
    [
        (1, 512, 2 * MIB),  # kMinBlockSize, kSmallBuffer
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),  # kSmallSize itself is small
        (MIB + 1, MIB + 512, 20 * MIB),  # kLargeBuffer
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),  # kMinLargeAlloc: a segment of its own
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),  # kRoundLarge; over 1 MiB is left: split off
        (19 * MIB + 512, 20 * MIB, 20 * MIB),  # 1 MiB or less is left: not split off
    ],
)
def test_what_a_request_takes_and_what_is_reserved_for_it(asked, given_out, reserved):
    allocator = Allocator()
    block = allocator.allocate(asked)
    assert block.size == allocator.allocated == given_out
    assert allocator.reserved == reserved


def test_a_freed_segment_stays_and_is_used_again():
    allocator = Allocator()
    allocator.release(allocator.allocate(64 * MIB))
    assert allocator.reserved == 64 * MIB
    allocator.allocate(48 * MIB)
    allocator.allocate(16 * MIB)
    assert allocator.reserved == 64 * MIB
    allocator.allocate(2 * MIB)
    assert allocator.reserved == 84 * MIB


def test_the_smallest_block_that_is_enough_is_taken():
    allocator = Allocator()
    large, middle = allocator.allocate(100 * MIB), allocator.allocate(50 * MIB)
    allocator.release(large)
    allocator.release(middle)
    assert allocator.allocate(40 * MIB).address == middle.address


def test_a_gap_that_is_too_small_is_no_room():
    # Twelve of twenty MiB are free, in two places: a request for eleven takes a new segment.
    allocator = Allocator()
    first, second, third = (allocator.allocate(size * MIB) for size in (6, 8, 6))
    allocator.release(first)
    allocator.release(third)
    assert allocator.reserved == 20 * MIB
    allocator.allocate(11 * MIB)
    assert allocator.reserved == 32 * MIB
    allocator.release(second)
    allocator.allocate(20 * MIB)
    assert allocator.reserved == 32 * MIB


def test_free_segments_are_given_back_when_there_is_no_more():
    allocator = Allocator(capacity=100 * MIB)
    allocator.release(allocator.allocate(64 * MIB))
    kept = allocator.allocate(80 * MIB)
    assert allocator.reserved == 80 * MIB
    assert allocator.most_reserved == 80 * MIB
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(40 * MIB)
    assert kept.size == 80 * MIB


def test_streams_have_segments_of_their_own():
    allocator = Allocator()
    allocator.release(allocator.allocate(64 * MIB))
    allocator.allocate(64 * MIB, stream=1)
    assert allocator.reserved == 128 * MIB
    allocator.allocate(64 * MIB)
    assert allocator.reserved == 128 * MIB


def test_a_segment_that_grows_leaves_no_gap_at_its_end():
    # expandable_segments:True maps pages of 20 MiB behind what is there.
    allocator = GrowingAllocator()
    first = allocator.allocate(30 * MIB)
    assert allocator.reserved == 40 * MIB
    second = allocator.allocate(25 * MIB)  # 10 MiB of it are there already
    assert allocator.reserved == 60 * MIB
    allocator.release(first)
    assert allocator.allocate(5 * MIB).address == first.address  # not the end, which can grow
    allocator.release(second)
    allocator.allocate(60 * MIB)
    assert allocator.reserved == 80 * MIB


@pytest.mark.parametrize("kind", [Allocator, GrowingAllocator])
@given(st.lists(st.tuples(st.integers(1, 64 * MIB), st.integers(0, 50)), max_size=80))
def test_blocks_never_overlap_and_everything_comes_back(kind, requests):
    allocator = kind()
    live = []
    for size, victim in requests:
        live.append((size, allocator.allocate(size)))
        if victim < len(live):
            allocator.release(live.pop(victim)[1])
        ends: dict[object, int] = {}
        for block in sorted((one for _, one in live), key=lambda one: one.address):
            # Segments that grow have addresses of their own each.
            space = block.pool if kind is GrowingAllocator else None
            assert block.address >= ends.get(space, 0)
            ends[space] = block.address + block.size
        assert allocator.allocated == sum(block.size for _, block in live)
        assert all(0 <= block.size - size <= MIB + 511 for size, block in live)
        assert allocator.allocated <= allocator.reserved
    for _, block in live:
        allocator.release(block)
    assert allocator.allocated == 0
    if kind is Allocator:
        allocator.give_back()
        assert allocator.reserved == 0
