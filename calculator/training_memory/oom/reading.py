"""What an out-of-memory error says, whoever printed it."""

from __future__ import annotations

from enum import StrEnum

from ..records import dataclass
from .printed import Printed


class Kind(StrEnum):
    """Who ran out of what."""

    PYTORCH = "pytorch"  # its caching allocator, on CUDA, HIP or XPU
    ASYNC = "pytorch-async"  # its allocator that leaves the work to cudaMallocAsync
    MPS = "mps"  # its allocator on Apple's GPUs
    CUDA = "cuda"  # a CUDA or HIP call outside any allocator
    LIBRARY = "library"  # cuBLAS or cuDNN, for a handle or a workspace
    NCCL = "nccl"  # NCCL, for its buffers
    JAX = "jax"  # XLA on a GPU
    TPU = "tpu"  # XLA on a TPU
    SERVER = "server"  # vLLM, dividing up a GPU to serve from
    HOST = "host"  # the machine's own memory


class When(StrEnum):
    """What the job was doing, by its traceback."""

    SERVING = "serving"
    SAVING = "saving a checkpoint"
    EVALUATION = "evaluating"
    OPTIMIZER = "the optimizer's step"
    CLIPPING = "clipping the gradients"
    RECOMPUTING = "recomputing a layer in the backward pass"
    BACKWARD = "the backward pass"
    LOSS = "the loss"
    LOADING = "loading the model"
    FORWARD = "the forward pass"


#: The sizes that an error may give, in the order in which they are told.
SIZES = (
    "requested",
    "total",
    "free",
    "allocated",
    "unallocated",
    "private",
    "in_use",
    "other",
    "allowed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OomReading:
    """What one error says; None where it does not.

    ``requested`` is what was asked for, ``total`` the memory there is and ``free`` what of it
    nobody had. Of what PyTorch holds, ``allocated`` is in tensors (``private`` of it in pools of
    CUDA graphs) and ``unallocated`` is not; ``in_use`` is all that this process has, ``other`` what
    else is counted against it, ``processes`` what each process has that is named by its number, and
    ``allowed`` a limit that was set. ``largest`` are tensors that the error itself lists, as words
    and bytes. ``when`` and ``line`` are from the traceback: what the job was doing, and the
    innermost line of its code. ``errors`` says how many different errors the text holds; this is
    the first.
    """

    kind: Kind
    says: str
    requested: Printed | None = None
    total: Printed | None = None
    free: Printed | None = None
    allocated: Printed | None = None
    unallocated: Printed | None = None
    private: Printed | None = None
    in_use: Printed | None = None
    other: Printed | None = None
    allowed: Printed | None = None
    processes: tuple[tuple[int, Printed], ...] = ()
    largest: tuple[tuple[str, int], ...] = ()
    device: int | None = None
    rank: int | None = None
    when: When | None = None
    line: str = ""
    errors: int = 1

    @property
    def reserved_bytes(self) -> int | None:
        """What PyTorch's allocator holds of the GPU, in tensors and not."""
        if self.allocated is None or self.unallocated is None:
            return None
        return self.allocated.bytes + self.unallocated.bytes

    def to_json(self) -> dict[str, object]:
        """The reading as plain values."""
        sizes: dict[str, object] = {}
        for name in SIZES:
            size: Printed | None = getattr(self, name)
            sizes[name] = None if size is None else size.to_json()
        return {
            "kind": str(self.kind),
            "says": self.says,
            **sizes,
            "processes": [{"number": pid, **size.to_json()} for pid, size in self.processes],
            "largest": [{"name": name, "bytes": size} for name, size in self.largest],
            "device": self.device,
            "rank": self.rank,
            "when": None if self.when is None else str(self.when),
            "line": self.line,
            "errors": self.errors,
        }
