"""torchtune's steps with its loss in chunks, which is no loss of the calculator's.

torchtune 0.4: modules/transformer.py (``chunked_output``), modules/loss/ce_chunked_output_loss.py,
training/_compile.py. The logits of every chunk stay in 16 bits until its backward pass; compiled,
upcast and loss are one function. The layers are the calculator's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from litgpt_lora import copied
from training_memory.autograd import operations as op
from training_memory.autograd.backward import BackwardPass
from training_memory.autograd.tape import Tape
from training_memory.autograd.tensors import Tensor
from training_memory.blocks import compiled
from training_memory.blocks.causal_lm import CausalLM
from training_memory.blocks.sizes import ROWS
from training_memory.categories import Category
from training_memory.formula import product
from training_memory.recorded import Sized, sizes_of
from training_memory.recorded_step import held_rows, structure, values
from training_memory.recording import MOST, of_memory
from training_memory.run import Run
from training_memory.walk import walk

#: num_output_chunks of the loss.
CHUNKS = 8


class _InPlace(BackwardPass):
    """PyTorch adds to what is a sum already where it lies (input_buffer.cpp, accumulate).

    On tensors that hold no data it does not, so traces have one gradient more.
    """

    def sum_with(self, old: Tensor, gradient: Tensor) -> Tensor:
        if self.tape.facts[old.storage.number].name == _SUM:
            return old
        return self.tape.new(_SUM, old.numel, old.dtype, old.order)


_SUM = "sum of gradients"


def peak(run: Mapping[str, object]) -> int:
    """The most that a run's step allocates, with torchtune's loss in the place of its own."""
    asked = Run.from_json(run)
    tape = Tape()
    _step(tape, CausalLM(structure(asked), MOST, 1), keeps=not asked.switches.optimizer_in_backward)
    recording = of_memory(tape)
    tokens = asked.sequence * asked.micro_batch
    sized = Sized(
        recording=recording,
        sizes=sizes_of(recording, {**values(asked), "c": tokens // CHUNKS}),
        repeats={"layer": asked.model.layers},
    )
    return sum(row.bytes for row in held_rows(asked)) + walk(sized.phases()).peak


def _step(tape: Tape, model: CausalLM, *, keeps: bool) -> None:
    tape.mark("forward", "inputs")
    ids, labels = (tape.new(name, ROWS, "int64") for name in ("token ids", "labels"))
    hidden = model.stack(tape, ids)
    tape.mark("forward", "head")
    head = model.outer("embedding" if model.structure.tied else "head", "V", "h")
    parts = op.split(tape, hidden, [product(("c", "h"))] * CHUNKS)
    del hidden
    with tape.as_category(Category.LOGITS):
        # A part of each sequence does not lie together, so that the product copies it first.
        logits = [
            op.linear(tape, copied(tape, one, "chunk of the head's input"), head, _LOGITS, "logits")
            for one in parts
        ]
        del parts
        tape.mark("forward", "loss")
        losses = [_loss(tape, one, labels, model.structure.compiled) for one in logits]
    del logits
    loss = op.scale(tape, op.joined(tape, losses, "losses"), "mean loss")
    del losses
    tape.mark("backward", "loss")
    _InPlace(tape, keeps=keeps).run(loss)
    del ids, labels


_LOGITS = product(("c", "V"))


def _loss(tape: Tape, logits: Tensor, labels: Tensor, how: str) -> Tensor:
    if how == "none":
        return op.cross_entropy(tape, op.cast(tape, logits, "fp32", "logits in fp32"), labels)
    return compiled.loss(tape, logits, labels)
