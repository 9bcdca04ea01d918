"""Memory measured at PyTorch's CUDA allocator, phase by phase, while the check's trainer runs."""

# PyTorch is an extra: where it is absent, a type checker sees its classes as Any.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import gc
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..events import Phase
from ..run import Run
from .moments import MEASURED, Moment
from .record import Machine, Measurement
from .training import Trainer

#: Weights, gradients and activations: a 16-bit format that needs no scaling of the loss.
DTYPE = torch.bfloat16


class NoGpu(RuntimeError):  # noqa: N818  # a state of the machine, not a mistake
    """Why nothing can be measured here, as the end of a sentence."""


class OutOfMemory(RuntimeError):  # noqa: N818  # as above
    """The GPU's memory ran out during a run."""


def chosen_device(name: str) -> torch.device:
    """The CUDA device of that name ("cuda", "cuda:1"). Raises :class:`NoGpu`."""
    if not torch.cuda.is_available():
        if not any((torch.version.cuda, torch.version.hip)):
            raise NoGpu(f"PyTorch {torch.__version__} is built for the CPU alone")
        raise NoGpu(
            f"PyTorch {torch.__version__} finds none; nvidia-smi shows whether the driver does, "
            "and CUDA_VISIBLE_DEVICES can hide one"
        )
    index = int(name.partition(":")[2] or 0)
    count = torch.cuda.device_count()
    if index >= count:
        raise NoGpu(f"{name} is not there; there are cuda:0 to cuda:{count - 1}")
    return torch.device("cuda", index)


def machine(device: torch.device) -> Machine:
    """What a record says of the machine."""
    free, total = torch.cuda.mem_get_info(device)
    settings = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
    return Machine(
        gpu=torch.cuda.get_device_name(device),
        memory_bytes=total,
        free_bytes=free,
        driver=_driver(),
        cuda=str(torch.version.cuda or f"HIP {torch.version.hip}"),
        torch=str(torch.__version__),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        allocator=" ".join(filter(None, (torch.cuda.get_allocator_backend(), settings))),
    )


def _driver() -> str:
    """The driver's version as nvidia-smi tells it; PyTorch does not."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown"
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (told.stdout.split() or ["unknown"])[0]


class _Gauge:
    """The most that each moment came to, over as many steps as it is shown."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.moments: dict[Moment, int] = {}
        self.reserved = 0

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Measure one phase of a step."""
        peak, end = MEASURED[phase]
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        if phase is Phase.FORWARD:
            self._raise(Moment.BEFORE, torch.cuda.memory_allocated(self.device))
        yield
        torch.cuda.synchronize(self.device)
        self._raise(peak, torch.cuda.max_memory_allocated(self.device))
        self._raise(end, torch.cuda.memory_allocated(self.device))
        self.reserved = max(self.reserved, torch.cuda.max_memory_reserved(self.device))

    def _raise(self, moment: Moment, size: int) -> None:
        self.moments[moment] = max(size, self.moments.get(moment, 0))


def measure(run: Run, *, steps: int, device: torch.device) -> Measurement:
    """Train for some steps and measure. Raises :class:`OutOfMemory`."""
    try:
        with torch.cuda.device(device):
            gauge, losses = _train(run, steps, device)
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(str(error).partition(". ")[0]) from None
    gc.collect()  # the model is gone, should it have been part of a cycle
    left = torch.cuda.memory_allocated(device)
    torch.cuda.empty_cache()  # so that the next run reserves for itself alone
    return Measurement(
        run=run,
        moments=gauge.moments,
        reserved_bytes=gauge.reserved,
        outside_bytes=_outside_allocator(device),
        left_bytes=left,
        losses=losses,
    )


def _train(run: Run, steps: int, device: torch.device) -> tuple[_Gauge, tuple[float, ...]]:
    trainer = Trainer(run, device=str(device), dtype=DTYPE)
    gauge = _Gauge(device)
    losses = [trainer.step(gauge.phase) for _ in range(steps)]
    return gauge, tuple(float(loss.item()) for loss in losses)


def _outside_allocator(device: torch.device) -> int:
    """What the device holds for the CUDA context and for other programs."""
    free, total = torch.cuda.mem_get_info(device)
    return max(0, int(total - free - torch.cuda.memory_reserved(device)))
