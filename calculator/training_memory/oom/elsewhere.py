"""Why there was no room, where it was not PyTorch's allocator on CUDA that said so."""

from __future__ import annotations

from .cause import Cause, Verdict
from .cause import printed_size as _size
from .reading import Kind, OomReading

_UNSAID = Verdict(
    cause=Cause.UNKNOWN,
    sentences=("The error breaks off before it says what was held and what was asked for.",),
    remedies=("Paste the whole message.",),
)


_NO_LIMIT = (
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts the limit, and the machine may then swap or stop; "
    "torch.mps.empty_cache() gives back what PyTorch holds in no tensor."
)


def metal(reading: OomReading) -> Verdict:
    """Of PyTorch's allocator for Apple's GPUs: what is held and asked for is beyond its limit."""
    requested, allowed = reading.requested, reading.allowed
    held, other = reading.allocated, reading.other
    if requested is None or allowed is None or held is None:
        return _UNSAID
    beside = other.bytes if other else 0
    said = (
        f"Metal may hold {_size(allowed.bytes)} on this machine. {_size(held.bytes)} in tensors, "
        f"{_size(beside)} beside them and the {_size(requested.bytes)} asked for are more."
    )
    if beside > held.bytes:
        said += " Most of it is not in tensors: what the allocator holds unused, and other use."
    return Verdict(
        cause=Cause.TOO_MUCH,
        sentences=(said,),
        remedies=(_NO_LIMIT,),
        missing_bytes=held.bytes + beside + requested.bytes - allowed.bytes,
        room_bytes=allowed.bytes - beside,
    )


_ONE_PIECE = (
    "It takes one piece for all that a compiled program needs while it runs, so this is often many "
    "tensors together, not one."
)
_PREALLOCATED = (
    "The error does not say what was free: JAX takes three quarters of a GPU as it starts, and "
    "hands out from that."
)
_FRACTION = (
    "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95 lets it take more at the start; with "
    "XLA_PYTHON_CLIENT_PREALLOCATE=false nvidia-smi shows whether another process is in the way."
)


def jax(reading: OomReading) -> Verdict:
    """Of XLA on a GPU, which says what was asked for and not what there was."""
    asked = "" if reading.requested is None else f" of {_size(reading.requested.bytes)}"
    return Verdict(
        cause=Cause.UNKNOWN,
        sentences=(f"XLA refused a request{asked}. {_ONE_PIECE}", _PREALLOCATED),
        remedies=(_FRACTION,),
    )


def tpu(reading: OomReading) -> Verdict:
    """Of XLA as it compiles for a TPU, which knows beforehand what a program needs."""
    used, total = reading.requested, reading.total
    if used is None or total is None:
        said = "The compiled program needs more memory than the TPU has."
        return Verdict(cause=Cause.TOO_MUCH, sentences=(said,), remedies=())
    missing = used.bytes - total.bytes
    said = (
        f"The compiled program needs {_size(used.bytes)} of the TPU's {_size(total.bytes)}: "
        f"{_size(missing)} too much, known before anything ran."
    )
    return Verdict(
        cause=Cause.TOO_MUCH,
        sentences=(said,),
        remedies=(),
        missing_bytes=missing,
        room_bytes=total.bytes,
    )


def _told(cause: Cause, said: str, *remedies: str) -> Verdict:
    return Verdict(cause=cause, sentences=(said,), remedies=remedies)


_LEAVE_ROOM = (
    "Leave room outside PyTorch: torch.cuda.set_per_process_memory_fraction(0.9), or anything that "
    "lowers the peak. With expandable_segments:True PyTorch holds less that it does not use."
)
#: Errors that give no numbers to judge by.
FIXED = {
    Kind.NCCL: _told(
        Cause.OUTSIDE,
        "NCCL found no room for its own buffers, which are not PyTorch's: PyTorch had taken what "
        "was left. The error does not say how much that was.",
        _LEAVE_ROOM,
        "NCCL_BUFFSIZE and NCCL_MAX_NCHANNELS make its buffers smaller; fewer process groups make "
        "them fewer.",
    ),
    Kind.LIBRARY: _told(
        Cause.OUTSIDE,
        "A library (cuBLAS, cuDNN) could not make its handle or workspace, mostly since the GPU "
        "was full. That is asked for outside PyTorch's allocator, so no number is given.",
        _LEAVE_ROOM,
        "If the GPU was not full, the same error follows an index out of range: run once with "
        "CUDA_LAUNCH_BLOCKING=1.",
    ),
    Kind.CUDA: _told(
        Cause.OUTSIDE,
        "The driver itself says that the GPU's memory is out, outside PyTorch's allocator: for a "
        "context, a kernel's own memory or another library's. No number is given, and the "
        "traceback may point to a later call.",
        _LEAVE_ROOM,
        "Before the first tensor it means that other processes have the GPU: see nvidia-smi. "
        "CUDA_LAUNCH_BLOCKING=1 makes the traceback point to the call itself.",
    ),
    Kind.HOST: _told(
        Cause.HOST,
        "The machine's own memory ran out, not a GPU's. This calculator counts a GPU's.",
        "Every process on a machine loads its own copy: load the model on one rank or straight to "
        "the GPU (low_cpu_mem_usage, a meta device), offload less to the CPU, and use fewer "
        "data-loading workers.",
    ),
    Kind.SERVER: _told(
        Cause.SERVER,
        "This is vLLM dividing up a GPU to serve from: weights first, and what remains for its "
        "cache of keys and values. No training step is in it.",
        "gpu_memory_utilization says how much of the GPU vLLM takes, max_model_len how long a text "
        "it makes room for. Where a training job shares the GPU, lower the first.",
    ),
}
