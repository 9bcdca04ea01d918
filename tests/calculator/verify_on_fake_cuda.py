"""The check on tensors of the device "cuda" that hold no data: a program, for a process of its own.

Prints JSON: what one layer keeps, tensor by tensor, and what the check measures where every byte
that PyTorch holds is counted by ``scripts/measure``. The tests hold the numbers against the ledger.
"""

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from measure import fake_cuda

if why := fake_cuda.missing():
    print(why, file=sys.stderr)
    raise SystemExit(77)

from measure.backend import fake_mode, saved_tensors_hooks, torch
from measure.modules import Modules
from measure.storages import Category, Tracker
from training_memory.run import Run
from training_memory.verify import measuring
from training_memory.verify.network import Layer
from training_memory.verify.plan import Plan, dropout_of
from training_memory.verify.training import Trainer


def kept_tensors(run: Run) -> list[tuple[str, int]]:
    """(dtype, bytes) of each storage that one layer keeps, in the order in which it is kept."""
    found: dict[int, Any] = {}

    def keep(tensor):
        if tensor.device.type == "cuda":  # what checkpoints remember besides is on the CPU
            found.setdefault(id(tensor.untyped_storage()), tensor)
        return tensor

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with fake_mode(), torch.device("cuda"):
        layer = Layer(run.model, dropout_of(run.model), run.recompute, experts=False)
        x = torch.empty(run.sequence, run.micro_batch, run.model.hidden, requires_grad=True)
        mask = torch.zeros(1, run.sequence, run.sequence)
        shared = {id(tensor.untyped_storage()) for tensor in (*layer.parameters(), mask)}
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            output = layer(x, mask, None)
        del output
    torch.set_default_dtype(default)
    return [
        (str(tensor.dtype), tensor.untyped_storage().nbytes())
        for storage, tensor in found.items()
        if storage not in shared
    ]


class StandIn:
    """``torch.cuda``, as far as measuring asks it, over the tracker's count."""

    def __init__(self, tracker):
        self.tracker = tracker

    def reset_peak_memory_stats(self, _device):
        self.tracker.peaks.clear()
        self.tracker.begin("")

    def memory_allocated(self, _device):
        return self.tracker.total

    def max_memory_allocated(self, _device):
        return self.tracker.peaks[""].bytes

    max_memory_reserved = max_memory_allocated
    memory_reserved = memory_allocated

    def mem_get_info(self, _device):
        return 79 * 10**9, 80 * 10**9

    def device(self, _device):
        return nullcontext()

    def _nothing(self, *_given):
        return None

    synchronize = empty_cache = _nothing


class Unread(Trainer):
    """A trainer whose loss, which holds no number here, is not read."""

    def step(self, meter):
        super().step(meter)
        return SimpleNamespace(item=lambda: 0.0)


def measured(run: Run) -> dict[str, int]:
    """The moments of two steps, measured by the check itself."""
    tracker = Tracker(
        device="cuda",
        modules=Modules.of([]),
        classify=lambda *_: Category.ACTIVATIONS,
        rounding=1,
    )
    stand_in = StandIn(tracker)
    for name in dir(StandIn):
        if not name.startswith("_"):
            setattr(torch.cuda, name, getattr(stand_in, name))
    vars(measuring)["Trainer"] = Unread
    with fake_mode(), tracker:
        found = measuring.measure(run, steps=2, device=torch.device("cuda", 0))
    return {"left": found.left_bytes} | {
        str(moment): size for moment, size in found.moments.items()
    }


def main() -> None:
    requests = json.load(sys.stdin)
    answers = []
    for request in requests:
        (run,) = Plan.of(**request["plan"]).runs
        answers.append(kept_tensors(run) if request["ask"] == "kept" else measured(run))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
