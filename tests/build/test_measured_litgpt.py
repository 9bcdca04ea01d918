"""litgpt's LoRA step: its parameters as published, and what a layer keeps, added up by hand."""

from dataclasses import replace

import pytest

import measured_litgpt as litgpt
from measured import measured

ROWS = {one.id: one for one in measured()}
LORA = [one for one in ROWS.values() if one.row["source"].endswith("litgpt")]
LORA = [one for one in LORA if one.row["task"] == "LoRA"]


def test_every_published_lora_step_is_followed():
    assert len(LORA) == 9
    assert all(one.is_scored for one in LORA)


@pytest.mark.parametrize("one", LORA, ids=lambda one: one.id)
def test_a_published_step_is_met(one):
    # torch.cuda.max_memory_allocated() on an A100, printed to 10 MB; kernels hold some MB more.
    assert abs(one.apart) < 0.01 * one.bytes


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("phi-1.5", "M0196"),
        ("stablelm-base-alpha-3b", "M0201"),
        ("llama-2-7b", "M0206"),
        ("llama-2-13b", "M0211"),
    ],
)
def test_adapters_have_as_many_parameters_as_published(model, row):
    assert litgpt.parameters(model)[1] == int(ROWS[row].row["trainable_params"])


@pytest.mark.parametrize(
    ("model", "count"),
    # transformers' own count of the published checkpoints.
    [
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("phi-1.5", 1_418_270_720),
    ],
)
def test_models_have_as_many_parameters_as_published(model, count):
    assert litgpt.parameters(model)[0] == count


def _kept(shape):
    """Bytes a token of what PyTorch's derivatives.yaml says a layer saves."""
    h, f, a = shape.hidden, shape.ffn, shape.heads
    # Dropout's output and mask, the adapters' narrow part, what is put among zeros.
    lora = 2 * h + h + 2 * 2 * 8 + 2 * 2 * h
    # Rotated queries and keys, all three in one tensor for the values, the output, log-sum-exp.
    attention = 2 * h + 2 * h + 3 * 2 * h + 2 * h + 4 * a
    if shape.gated:
        # Each norm's input in fp32 and its inverse root; the gate, its SiLU and the other factor.
        return lora + attention + 2 * (4 * h + 4) + 3 * 2 * f
    # The residual stream, where every norm begins, each one's mean and deviation; GELU's input.
    return lora + attention + 2 * h + (1 if shape.one_norm else 2) * 2 * 4 + 2 * f


def _weights(shape):
    """A layer's parameters, frozen and trained."""
    h, f = shape.hidden, shape.ffn
    products = 4 * h * h + (3 if shape.gated else 2) * h * f
    biases = 3 * h + h + f + h if shape.bias else 0
    norms = (1 if shape.one_norm else 2) * (1 if shape.gated else 2) * h
    return products + biases + norms + 2 * 8 * h + 2 * 8 * h


@pytest.mark.parametrize("model", ["llama-2-7b", "stablelm-base-alpha-3b", "phi-1.5"])
@pytest.mark.parametrize("micro_batch", [1, 2])
def test_a_further_layer_adds_its_weights_and_what_it_keeps(monkeypatch, model, micro_batch):
    # 1,024 tokens, so that no size but that of the kernel's random state is rounded up.
    shape = litgpt.SHAPES[model]
    peaks = []
    for layers in (8, 9):
        monkeypatch.setitem(litgpt.SHAPES, model, replace(shape, layers=layers))
        peaks.append(litgpt.peak(model=model, sequence=1024, micro_batch=micro_batch))
    places, random_state = 2 * shape.hidden * 8, 2 * 512
    kept = 1024 * micro_batch * _kept(shape) + places + random_state
    assert peaks[1] - peaks[0] == kept + 2 * _weights(shape)
