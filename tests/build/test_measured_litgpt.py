"""litgpt's steps: its parameters as published, and what a layer keeps, added up by hand."""

import tomllib
from dataclasses import replace

import pytest

import measured_litgpt as litgpt
from measured import measured
from places import DOCS

ENTRIES = tomllib.loads((DOCS / "data" / "measured" / "runs.toml").read_text(encoding="utf-8"))
STEPS = [name for name, entry in ENTRIES.items() if "litgpt" in entry]
ADAPTERS = ["lora", "adapter", "adapter-v2"]

# What is predicted of them takes seconds, once for each process.
pytestmark = pytest.mark.xdist_group("measured")


@pytest.fixture
def rows():
    return {one.id: one for one in measured()}


def test_every_published_step_is_followed(rows):
    assert len(STEPS) == 29
    assert [name for name, one in rows.items() if one.row["source"].endswith("litgpt")] == STEPS
    assert all(rows[name].is_scored for name in STEPS)


@pytest.mark.parametrize("name", STEPS)
def test_a_published_step_is_met(rows, name):
    one = rows[name]
    # torch.cuda.max_memory_allocated() on an A100, printed to 10 MB; kernels hold some MB more.
    assert abs(one.apart) < 0.005 * one.bytes


@pytest.mark.parametrize(
    ("model", "adapter", "row"),
    [
        ("phi-1.5", "lora", "M0196"),
        ("stablelm-base-alpha-3b", "lora", "M0201"),
        ("llama-2-7b", "lora", "M0206"),
        ("llama-2-13b", "lora", "M0211"),
        ("stablelm-base-alpha-3b", "adapter", "M0216"),
        ("llama-2-7b", "adapter", "M0219"),
        ("stablelm-base-alpha-3b", "adapter-v2", "M0222"),
        ("llama-2-7b", "adapter-v2", "M0225"),
    ],
)
def test_adapters_have_as_many_parameters_as_published(rows, model, adapter, row):
    assert litgpt.parameters(model, adapter)[1] == int(rows[row].row["trainable_params"])


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


def _kept(shape, adapter, bits):
    """Bytes a token of what PyTorch's derivatives.yaml says a layer saves."""
    h, f, a = shape.hidden, shape.ffn, shape.heads
    # Rotated queries and keys, all three in one tensor for the values, the output, log-sum-exp.
    kept = 2 * h + 2 * h + 3 * 2 * h + 2 * h + 4 * a
    if shape.gated:
        # Each norm's input in fp32 and its inverse root; the gate, its SiLU and the other factor.
        kept += 2 * (4 * h + 4) + 3 * 2 * f
    else:
        # The residual stream, where every norm begins, each one's mean and deviation; GELU's input.
        kept += 2 * h + (1 if shape.one_norm else 2) * 2 * 4 + 2 * f
    if adapter == "lora":
        # Dropout's output and mask, the adapters' narrow part, what is put among zeros.
        kept += 2 * h + h + 2 * 2 * 8 + 2 * 2 * h
    else:
        # What the prompt's attention gave, its log-sum-exp, and its mask for 16 keys.
        kept += 2 * h + 4 * a + 2 * 16 * a
    if adapter == "adapter-v2":
        # What each product is scaled from: three, one, and those of the feed-forward layer.
        kept += 2 * (3 * h + h + (2 if shape.gated else 1) * f + h)
        # Norms are trained: what their weights scaled, in fp32.
        kept += 2 * 4 * h if shape.gated else 0
    if bits != "16":
        # Every product's input: the norms' outputs, attention's in the order of tokens, and the
        # feed-forward layer's inner one.
        kept += (1 if shape.one_norm else 2) * 2 * h + 2 * h + 2 * f
    return kept


def _weights(shape, adapter, bits):
    """The bytes of a layer's parameters, frozen and trained."""
    h, f = shape.hidden, shape.ffn
    products = [3 * h * h, h * h, *((3 if shape.gated else 2) * [h * f])]
    biases = 3 * h + h + f + h if shape.bias else 0
    norms = (1 if shape.one_norm else 2) * (1 if shape.gated else 2) * h
    rest = 2 * (biases + norms)
    if adapter == "lora":
        rest += 2 * (2 * 8 * h + 2 * 8 * h)
    else:
        rest += 2 * 10 * h + 512  # the prompt; a gate for each head, a block of the allocator
    if adapter == "adapter-v2":
        rest += 2 * 2 * (3 * h + h + (2 if shape.gated else 1) * f + h)
    if bits == "16":
        return rest + 2 * sum(products)
    # bitsandbytes: half a byte each, a scale for every 64, and a table of 16 codes each.
    packed = sum(products) // 2 + len(products) * 512
    if bits == "nf4":
        return rest + packed + 4 * sum(products) // 64
    scales = sum(products) // 64  # a byte each, one in fp32 for every 256 of them, and their mean
    of_scales = sum(-(-(4 * one // 64 // 256) // 512) * 512 for one in products)
    return rest + packed + scales + of_scales + len(products) * 512


@pytest.mark.parametrize("bits", ["16", "nf4", "nf4-dq"])
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("model", ["llama-2-7b", "stablelm-base-alpha-3b", "phi-1.5"])
@pytest.mark.parametrize("micro_batch", [1, 2])
def test_a_further_layer_adds_its_weights_and_what_it_keeps(
    monkeypatch, model, micro_batch, adapter, bits
):
    # 1,024 tokens, so that no size but that of the kernel's random state is rounded up.
    shape = litgpt.SHAPES[model]
    peaks = []
    for layers in (8, 9):
        monkeypatch.setitem(litgpt.SHAPES, model, replace(shape, layers=layers))
        peaks.append(
            litgpt.peak(
                model=model, sequence=1024, micro_batch=micro_batch, adapter=adapter, bits=bits
            )
        )
    kept = 1024 * micro_batch * _kept(shape, adapter, bits) + 2 * 512
    if adapter == "lora":
        kept += 2 * shape.hidden * 8  # where each adapted feature goes
    else:
        # The other kernel's random state, and the prompt's joint product.
        kept += 2 * 512 + 10 * 3 * shape.hidden * 2
    if adapter == "adapter-v2":
        kept += 10 * 3 * shape.hidden * 2  # and what it was scaled from
    assert peaks[1] - peaks[0] == kept + _weights(shape, adapter, bits)
