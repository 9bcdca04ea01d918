"""The forms of error that are known, each with what begins it and how its numbers are read.

Sources: PyTorch's c10/cuda/CUDACachingAllocator.cpp (and its versions since 1.13),
c10/cuda/CUDAMallocAsyncAllocator.cpp and aten/src/ATen/mps/MPSAllocator.mm; XLA's
xla/tsl/framework/bfc_allocator.cc and buffer_assignment.cc; NCCL's src/include/alloc.h; PyTorch's
c10/core/impl/alloc_cpu.cpp; vLLM's worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod

from ..records import dataclass
from .printed import SIZE, Printed, exactly, find
from .reading import Kind

#: An error's values by the names of :class:`.reading.OomReading`.
Values = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form. ``pattern`` finds where it begins, ``values`` reads what follows.

    A ``weak`` one may be a warning, or another error's echo, and counts where nothing else does.
    """

    kind: Kind
    pattern: str
    values: Callable[[str], Values]
    weak: bool = False


def _sizes(block: str, patterns: Mapping[str, str]) -> Values:
    return {name: find(pattern, block) for name, pattern in patterns.items()}


def _number(pattern: str, block: str) -> int | None:
    match = re.search(pattern, block, re.IGNORECASE)
    return int(match[1]) if match and len(match[1]) < 19 else None


_PYTORCH_ENDS = re.compile(
    r"See documentation for Memory Management|reserved in total by PyTorch\)|B cached\)"
)

#: "capacty" is PyTorch's own spelling in 2.1.
_PYTORCH = {
    "requested": r"Tried to allocate {}",
    "total": r"(?:total capac?i?ty of {})",
    "free": r"of which {} is free",
    "allocated": r"{} is allocated by PyTorch",
    "private": r"with {} allocated in private pools",
    "unallocated": r"{} is reserved by PyTorch but unallocated",
    "in_use": r"this process has {} memory in use",
    "allowed": r"{} allowed;",
}
#: The form until PyTorch 2.0: "(GPU 0; 14.76 GiB total capacity; … reserved in total by PyTorch)".
_OLDER = {
    "requested": r"Tried to allocate {}",
    "total": r"{} total capacity",
    "allocated": r"{} already allocated",
    "free": r"{} free;",
    "allowed": r"{} allowed;",
}


def _pytorch(block: str) -> Values:
    end = _PYTORCH_ENDS.search(block)
    block = block[: end.end()] if end else block[:2500]
    older = "total capacity;" in block or "already allocated" in block
    values = _sizes(block, _OLDER if older else _PYTORCH)
    if older:
        values["unallocated"] = _rest(find(r"{} reserved in total", block), values["allocated"])
        # Before 1.4 what was called cached did not include what was allocated.
        values["unallocated"] = values["unallocated"] or find(r"{} cached", block)
    values["processes"] = tuple(
        (int(match[1]), size)
        for match in re.finditer(rf"Process (\d{{1,18}}) has {SIZE} memory in use", block)
        if (size := find("{} memory in use", match[0])) is not None
    )
    values["device"] = _number(r"GPU (\d+)", block)
    return values


def _rest(reserved: Printed | None, allocated: object) -> Printed | None:
    """What is reserved and not allocated, known as well as both are."""
    if reserved is None or not isinstance(allocated, Printed):
        return None
    return Printed(
        text=f"{reserved.text} − {allocated.text}",
        bytes=max(reserved.bytes - allocated.bytes, 0),
        least=max(reserved.least - allocated.most, 0),
        most=max(reserved.most - allocated.least, 0),
    )


def _async(block: str) -> Values:
    sizes = {
        "allocated": r"Currently allocated\s*: {}",
        "requested": r"Requested\s*: {}",
        "total": r"Device limit\s*: {}",
        "free": r"Free \(according to CUDA\)\s*: {}",
        "allowed": r"PyTorch limit [^:]*: {}",
    }
    device = _number(r"Allocation on device (\d+)", block)
    values = _sizes(block, sizes) | {"device": device}
    limit = values["allowed"]
    # Without a limit of one's own this is all that a number of 64 bits holds.
    if isinstance(limit, Printed) and limit.bytes >= 2**50:
        values["allowed"] = None
    return values


def _mps(block: str) -> Values:
    sizes = {
        "allocated": r"MPS allocated: {}",
        "other": r"other allocations: {}",
        "allowed": r"max allowed: {}",
        "requested": r"Tried to allocate {}",
    }
    return _sizes(block, sizes)


_WHOLE = (
    r"trying to allocate (\d+) bytes",
    r"allocating (\d+) bytes",
    r"allocate request for [^(]{1,40}\((\d+)B\)",
    r"failed to allocate [^(]{1,40}\((\d+) bytes\)",
)
_ITEM_BYTES = {
    "pred": 1, "s8": 1, "u8": 1, "f8e4m3fn": 1, "f8e5m2": 1, "s16": 2, "u16": 2, "f16": 2,
    "bf16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16,
}  # fmt: skip
_SHAPE = re.compile(r"Shape: (\w+)\[((?:\d+,)*\d*)\]")
_MOST_LISTED = 3


def _jax(block: str) -> Values:
    requested: Printed | None = None
    for pattern in _WHOLE:
        whole = _number(pattern, block)
        if whole is not None:
            requested = exactly(whole, f"{whole:,} bytes")
            break
    requested = (
        requested
        or find(r"allocate request for {}", block)
        or find(r"trying to allocate {}", block)
        or find(r"Attempting to (?:allocate|reserve) {}", block)
    )
    return {
        "requested": requested,
        "free": find(r"There are {} free", block),
        "device": _number(r"(?:device ordinal |GPU_)(\d+)", block),
        "largest": _listed(block),
    }


def _listed(block: str) -> tuple[tuple[str, int], ...]:
    """The largest tensors of XLA's own list, by what they are computed by and their shape."""
    found = []
    for entry in re.split(r"\bBuffer \d+:|\s\d+\. Size:", block)[1:]:
        shape = _SHAPE.search(entry)
        if shape is None or shape[1] not in _ITEM_BYTES or len(shape[2]) > 120:
            continue
        sides = [int(side) for side in shape[2].split(",") if side]
        operator = re.search(r'op_name="([^"]{1,300})', entry)
        name = f"{shape[1]}[{shape[2]}]"
        if operator:
            name += f", {'/'.join(operator[1].split('[')[0].split('/')[-2:])}"
        found.append((name, prod(sides) * _ITEM_BYTES[shape[1]]))
    return tuple(sorted(found, key=lambda one: -one[1])[:_MOST_LISTED])


def _tpu(block: str) -> Values:
    return {
        "requested": find(r"Used {} of", block),
        "total": find(r"Used \S+ of {}", block),
        "largest": _listed(block),
    }


def _nccl(block: str) -> Values:
    whole = _number(r"calloc(?: async)? (\d+) bytes", block)
    return {"requested": None if whole is None else exactly(whole, f"{whole:,} bytes")}


def _host(block: str) -> Values:
    whole = _number(r"tried to allocate (\d+) bytes", block)
    requested = exactly(whole, f"{whole:,} bytes") if whole is not None else None
    return {"requested": requested or find(r"Unable to allocate {} for an array", block)}


def _server(block: str) -> Values:
    return {
        "free": _slashed(block, 1),
        "total": _slashed(block, 2),
        "requested": find(r"utilization \([\d.]+, {}\)", block)
        or find(r"\({} KV cache is needed", block),
    }


def _slashed(block: str, group: int) -> Printed | None:
    """One of "67.24/79.25 GiB"."""
    match = re.search(r"\(([\d.]+)/([\d.]+) (GiB|GB)\)", block)
    return find("{}", f"{match[group]} {match[3]}") if match else None


def _cuda(block: str) -> Values:
    whole = _number(r"failed to allocate [^(]{1,40}\((\d+) bytes\)", block)
    return {"requested": None if whole is None else exactly(whole, f"{whole:,} bytes")}


def _nothing(block: str) -> Values:
    return {}


FORMS = (
    Form(kind=Kind.PYTORCH, pattern=r"(?:CUDA|HIP|XPU) out of memory\. ?Tried", values=_pytorch),
    Form(kind=Kind.ASYNC, pattern=r"Allocation on device \S* ?would exceed", values=_async),
    Form(kind=Kind.MPS, pattern=r"MPS backend out of memory", values=_mps),
    Form(kind=Kind.TPU, pattern=r"Ran out of memory in memory space \w+", values=_tpu),
    Form(
        kind=Kind.JAX,
        pattern=r"RESOURCE_EXHAUSTED: (?!Ran out)"
        r"|Resource exhausted: (?!Ran out)(?=.{0,200}(?:memory|alloc))",
        values=_jax,
    ),
    Form(
        kind=Kind.NCCL,
        pattern=r"NCCL WARN (?:Cuda failure[^\n]{0,20}out of memory|Failed to CUDA calloc)"
        r"|ncclUnhandledCudaError(?=[\s\S]{0,400}out of memory)"
        r"|NCCL error(?=[\s\S]{0,600}Cuda failure[^\n]{0,20}out of memory)",
        values=_nccl,
    ),
    Form(
        kind=Kind.LIBRARY,
        pattern=r"(?:CUBLAS|CUDNN|CUSOLVER|HIPBLAS|rocblas)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED"
        r"|INTERNAL_ERROR_HOST_ALLOCATION_FAILED)",
        values=_nothing,
    ),
    Form(
        kind=Kind.CUDA,
        pattern=r"(?:CUDA|HIP) (?:error|runtime error)[^\n]{0,160}: ?out of memory"
        r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
        r"|Error out of memory at line|failed to allocate [^\n(]{1,30}\(\d+ bytes\) from device",
        values=_cuda,
    ),
    Form(
        kind=Kind.SERVER,
        pattern=r"No available memory for the cache blocks"
        r"|Free memory on device[^\n]{0,80}less than desired"
        r"|KV cache is needed, which is larger than"
        r"|larger than the maximum number of tokens that can be stored in KV cache",
        values=_server,
    ),
    Form(
        kind=Kind.HOST,
        pattern=r"DefaultCPUAllocator|std::bad_alloc|\bMemoryError\b"
        r"|Unable to allocate [\d.]+ \w+ for an array|Out of memory: Killed process|oom[-_ ]?kill"
        r"|OOM ?Kill(?:ed|ing)|task \d+: Out Of Memory"
        r"|Cannot allocate memory",
        values=_host,
    ),
    Form(kind=Kind.PYTORCH, pattern=r"Tried to allocate ", values=_pytorch, weak=True),
    Form(kind=Kind.PYTORCH, pattern=r"(?:CUDA|HIP|XPU) out of memory", values=_pytorch, weak=True),
    Form(kind=Kind.PYTORCH, pattern=r"OutOfMemoryError", values=_pytorch, weak=True),
    Form(kind=Kind.JAX, pattern=r"_bfc\) ran out of memory trying", values=_jax, weak=True),
    Form(
        kind=Kind.HOST,
        pattern=r"SIGKILL|exit ?code ?[:=]? *-9\b|exit(?:ed with)? (?:code|status) 137"
        r"|killed by signal: Killed|^Killed$",
        values=_host,
        weak=True,
    ),
)
