"""litgpt's finetuning with adapters as its benchmark ran it: the step of the longest text.

That comes first (``get_batch`` in finetune/lora.py) and is the highest: there are no gradients yet,
and no optimizer states. What is run is in :mod:`litgpt_blocks`.
"""

from __future__ import annotations

from collections.abc import Mapping

from litgpt_blocks import Shape, Step
from training_memory.autograd.tape import Tape
from training_memory.recorded import Sized, sizes_of
from training_memory.recording import MOST, of_memory
from training_memory.walk import walk

#: lm_head_chunk_size of finetune/lora.py, tokens of each sequence.
CHUNK = 128
#: The memory-efficient kernel pads its log-sum-exps to a whole number of so many tokens.
PADDED = 32
#: lora_r of finetune/lora.py.
RANK = 8

#: lit_gpt/config.py; vocabularies are padded.
SHAPES = {
    "llama-2-7b": Shape(layers=32, hidden=4096, heads=32, ffn=11008, vocabulary=32000, gated=True),
    "llama-2-13b": Shape(layers=40, hidden=5120, heads=40, ffn=13824, vocabulary=32000, gated=True),
    "phi-1.5": Shape(
        layers=24,
        hidden=2048,
        heads=32,
        ffn=8192,
        vocabulary=51200,
        gated=False,
        parallel=True,
        one_norm=True,
        turned_in=2,
        bias=True,
        head_bias=True,
    ),
    "stablelm-base-alpha-3b": Shape(
        layers=16,
        hidden=4096,
        heads=32,
        ffn=16384,
        vocabulary=50688,
        gated=False,
        parallel=True,
        turned_in=4,
        bias=True,
    ),
}


def peak(
    *, model: str, sequence: int, micro_batch: int, adapter: str = "lora", bits: str = "16"
) -> int:
    """The most that is allocated in the step of the longest text, in bytes."""
    shape = SHAPES[model]
    values = _values(shape, sequence, micro_batch)
    step = Step(shape, MOST, adapter=adapter, bits=bits, one_sequence=micro_batch == 1)
    tape = Tape()
    step.run(tape, chunks=-(-sequence // CHUNK))
    recording = of_memory(tape)
    sized = Sized(
        recording=recording,
        sizes=sizes_of(recording, values),
        repeats={"layer": shape.layers - step.early_layers},
    )
    return sum(step.weights(values)) + walk(sized.phases()).peak


def parameters(model: str, adapter: str = "lora") -> tuple[int, int]:
    """How many parameters are frozen, and how many are trained."""
    shape = SHAPES[model]
    values = _values(shape, CHUNK, 1)
    step = Step(shape, 1, adapter=adapter, bits="16", one_sequence=True)
    step.run(Tape(), chunks=1)
    counts = {True: 0, False: 0}
    for weight, times in step.made():
        counts[weight.trainable] += times * weight.numel.evaluate(values)
    return counts[False], counts[True]


def _values(shape: Shape, sequence: int, micro_batch: int) -> Mapping[str, int]:
    last = sequence % CHUNK or CHUNK
    return {
        "s": sequence,
        "w": -(-sequence // PADDED) * PADDED,
        "b": micro_batch,
        "h": shape.hidden,
        "a": shape.heads,
        "e": shape.hidden // shape.heads,
        "f": shape.ffn,
        "V": shape.vocabulary,
        "R": RANK,
        "c": CHUNK * micro_batch,
        "r": last * micro_batch,
    }
