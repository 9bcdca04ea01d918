"""Trace what a plain Llama's compiled layer and loss keep: ``python -m measure.compiled``.

Dynamo and AOTAutograd trace them with Inductor's decompositions, and the min-cut partitioner
that Inductor uses says what the forward graph hands to the backward one. Nothing is compiled, since
that would need a GPU.
"""
# mypy: disable-error-code=misc

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from training_memory import catalog

from . import plain_llama, recompute
from .backend import Tensor, dtype_name, fake_tensor, functional, nn, torch

partitioners: Any = import_module("torch._functorch.partitioners")
backends: Any = import_module("torch._dynamo.backends.common")
decomposition: Any = import_module("torch._inductor.decomposition")

FILE = Path(__file__).parents[2] / "docs" / "data" / "traces" / "compiled.csv"
MODEL = "llama-3-8b"
VOCABULARY = 1024
#: micro_batch, sequence, hidden, heads, kv_heads, head_dim, ffn.
SIZES = (
    (2, 384, 512, 8, 2, 64, 1376),
    (3, 320, 768, 12, 4, 64, 2112),
    (2, 448, 640, 10, 10, 64, 1760),
    (1, 1000, 512, 8, 1, 64, 1408),
    (1, 8192, 4096, 32, 8, 128, 14336),
)
#: Of each precision: what the norm is, and what is recomputed.
WAYS = (("fused", "none"), ("unfused", "none"), ("fused", "matmuls"), ("fused", "full"))
COLUMNS = (
    *("case", "what", "precision", "norm", "recompute", "micro_batch", "sequence", "shape"),
    *("kind", "dtype", "bytes"),
)


class WrittenOut(nn.Module):
    """RMSNorm as torchtitan and torchtune wrote it before PyTorch had one."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        """The norm's output."""
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normed.type_as(x) * self.weight


class _KnownError(Exception):
    """All that is wanted is known; there is no GPU to compile for."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A storage that the forward graph hands on; parameters are left out."""

    kind: str
    dtype: str
    bytes: int


def kept_by_layer(size: Sequence[int], precision: str, norm: str, again: str) -> list[Kept]:
    """What one layer keeps, in the order of the graph."""
    micro_batch, sequence, *_ = size
    model = catalog.with_shape(catalog.get(MODEL), _shape(size))
    weights = torch.bfloat16 if precision == "bf16" else torch.float32
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        torch.set_default_dtype(weights)
        with torch.device("cuda"):
            layer = plain_llama.Layer(model, "flash")
        torch.set_default_dtype(torch.float32)
        x = torch.randn(
            micro_batch, sequence, model.hidden, device="cuda", dtype=weights, requires_grad=True
        )
        rotation = plain_llama.rotations(model.head_dim, sequence).to("cuda")[None, :, None]
    if norm == "unfused":
        layer.attention_norm = WrittenOut(layer.attention_norm.weight)
        layer.ffn_norm = WrittenOut(layer.ffn_norm.weight)
    called = recompute.layer_function(again, recompute.keep_every_other_matmul)

    def run(x: Tensor, rotation: Tensor) -> Any:
        return called(layer, x, rotation) if called else layer(x, rotation)

    autocast = torch.autocast("cuda", dtype=torch.bfloat16)
    with autocast if precision == "autocast" else nullcontext():
        return _traced(run, (x, rotation), given=(tuple(x.shape),))


def kept_by_loss(size: Sequence[int], precision: str) -> list[Kept]:
    """What the loss keeps: torchtitan's, on logits in 32 bits."""
    micro_batch, sequence, *_ = size
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        logits = torch.randn(
            (micro_batch, sequence, VOCABULARY),
            device="cuda",
            dtype=torch.float32 if precision == "fp32" else torch.bfloat16,
            requires_grad=True,
        )
        labels = torch.randint(0, VOCABULARY, (micro_batch, sequence), device="cuda")

    def run(logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))

    return _traced(run, (logits, labels), given=(tuple(logits.shape), tuple(labels.shape)))


def _traced(run: Any, arguments: Sequence[Tensor], given: Sequence[tuple[int, ...]]) -> list[Kept]:
    """``given`` are the shapes of those arguments that are no parameters and no tables."""
    found: list[Any] = []
    try:
        _compile(run, found)(*arguments)
    except Exception:
        if not found:
            raise
    return list(_kept(found[0], given))


def _compile(run: Any, found: list[Any]) -> Any:
    def partition(joint: Any, inputs: Any, **options: Any) -> Any:
        forward, _ = partitioners.min_cut_rematerialization_partition(
            joint, inputs, compiler="inductor", **options
        )
        found.append(forward)
        raise _KnownError

    def unused(graph: Any, _: Any) -> Any:
        return graph.forward

    backend = backends.aot_autograd(
        fw_compiler=unused,
        bw_compiler=unused,
        partition_fn=partition,
        decompositions=decomposition.select_decomp_table(),
    )
    torch._dynamo.reset()
    # Where attention runs again its random state is asked of a GPU's own generator.
    torch.cuda.default_generators = (torch.Generator(),)
    return torch.compile(run, backend=backend, fullgraph=True)


def _kept(forward: Any, given: Sequence[tuple[int, ...]]) -> Iterator[Kept]:
    outputs = forward.graph.find_nodes(op="output")[0].args[0]
    seen: set[Any] = set()
    for node in outputs[1:]:
        root, copied = _root(node)
        value = root.meta["val"]
        if root in seen:
            continue
        seen.add(root)
        if root.op != "placeholder" or tuple(value.shape) in given:
            yield Kept("kept", dtype_name(value.dtype), _bytes(value))
        elif copied is not None:
            wide = copied.meta["val"]
            yield Kept("weight copy", dtype_name(wide.dtype), _bytes(wide))


def _bytes(value: Any) -> int:
    return int(value.numel() * value.element_size())


_VIEWS = ("view", "permute", "alias", "_conj", "unsqueeze", "expand", "transpose", "t")


def _root(node: Any) -> tuple[Any, Any]:
    """The node whose memory this one shows, and the cast of a weight on the way to it, if any."""
    copied = None
    while True:
        name = getattr(node.target, "overloadpacket", None)
        name = getattr(name, "__name__", "")
        if name in _VIEWS:
            node = node.args[0]
        elif name == "convert_element_type" and node.args[0].op == "placeholder":
            copied, node = node, node.args[0]
        else:
            return node, copied


def _shape(size: Sequence[int]) -> dict[str, int]:
    names = ("hidden", "heads", "kv_heads", "head_dim", "ffn")
    return {**dict(zip(names, size[2:], strict=True)), "layers": 3, "vocabulary": VOCABULARY}


def rows() -> Iterator[tuple[object, ...]]:
    """Every kept tensor of every layer and loss."""
    every = product(SIZES, ("fp32", "autocast", "bf16"), (*WAYS, None))
    for number, (size, precision, way) in enumerate(every, 1):
        shape = " ".join(f"{name}={value}" for name, value in _shape(size).items())
        norm, again = way or ("", "")
        found = (
            kept_by_layer(size, precision, norm, again) if way else kept_by_loss(size, precision)
        )
        for one in found:
            yield (
                *(f"C{number:03}", "layer" if way else "loss", precision, norm, again),
                *(*size[:2], shape, one.kind, one.dtype, one.bytes),
            )


def main() -> None:
    """Trace all of them and write them down."""
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows())


if __name__ == "__main__":
    main()
