"""PyTorch with a CUDA device that holds no data: the one place where PyTorch is imported.

PyTorch carries no types for the checker in this project's environment, so what comes from it is
``Any``; the rest of the package is checked.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeAlias

from . import fake_cuda

# Models are built from configurations: nothing is to be looked up or downloaded.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
fake_cuda.load()

torch: Any = import_module("torch")
nn: Any = torch.nn
functional: Any = import_module("torch.nn.functional")
checkpoint: Any = import_module("torch.utils.checkpoint")
fake_tensor: Any = import_module("torch._subclasses.fake_tensor")
python_dispatch: Any = import_module("torch.utils._python_dispatch")
save_on_cpu: Any = torch.autograd.graph.save_on_cpu
saved_tensors_hooks: Any = torch.autograd.graph.saved_tensors_hooks

Tensor: TypeAlias = Any

# Autocast turns itself off where it believes that no GPU is there, or one without bfloat16.
torch.cuda.amp.common.amp_definitely_not_available = lambda: False
torch.cuda.is_bf16_supported = lambda *_args, **_kwargs: True
torch.cuda.get_device_capability = lambda *_args: (9, 0)

logging.getLogger("transformers").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="torch")

# On fake tensors PyTorch lets only bfloat16 through a grouped product of matrices; the kernel
# takes 32 bits too (aten/src/ATen/native/GroupedMMUtils.h), and allocates only its result.
_meta: Any = import_module("torch._meta_registrations")
_grouped_product = _meta._meta_grouped_mm_common


def _grouped(mat_a: Any, mat_b: Any, *scales: Any, offs: Any = None, **options: Any) -> Any:
    if mat_a.dtype is mat_b.dtype is torch.float32:
        return _meta._create_grouped_mm_output_tensor(mat_a, mat_b, offs, mat_a.dtype)
    return _grouped_product(mat_a, mat_b, *scales, offs=offs, **options)


_meta._meta_grouped_mm_common = _grouped

DTYPES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float64: "fp64",
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint64: "uint64",
}


def dtype_name(dtype: Any) -> str:
    """A dtype as the tables write it: "bf16"."""
    return DTYPES.get(dtype) or str(dtype).removeprefix("torch.")


class _AnyValue(python_dispatch.TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Answers 1.0 where a program asks a fake tensor for its value.

    Adafactor does, to scale its step. What it allocates does not depend on the answer.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except fake_tensor.DataDependentOutputException:
            if func is not torch.ops.aten._local_scalar_dense.default:
                raise
            return 1.0


@contextmanager
def fake_mode() -> Iterator[None]:
    """New tensors have shapes and no data."""
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True), _AnyValue():
        yield
