"""PEFT's LoRA on a model of transformers, its weights in 16, 32 or bitsandbytes' 4 bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

from .backend import Tensor, nn, python_dispatch, torch
from .case import Case
from .models import default_dtype

DROPOUT = 0.05
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
STORAGES = {"bf16": torch.bfloat16, "uint8": torch.uint8}

#: The projections that each choice of targets means, by transformers' names; GPT-2 and Phi-3 fuse.
QUERY_VALUE = ("q_proj", "v_proj", "qkv_proj", "c_attn")


def quantise(
    built: Any, storage: str = "uint8", *, sharded: bool = False, replaces: bool = False
) -> None:
    """Turn every product but the head's into bitsandbytes' Linear4bit, as transformers loads one.

    nf4 with double quantisation and 16-bit arithmetic: BitsAndBytesConfig(load_in_4bit=True,
    bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=bfloat16),
    with two codes a number of ``storage``, or four in "bf16" (bnb_4bit_quant_storage). A product
    turns its bias into its own dtype for good; where weights are ``sharded``, until they go again.
    With ``replaces`` a gathered weight, which is a view, becomes a parameter in its place.
    """
    _decompose(replaces=replaces)
    bitsandbytes = import_module("bitsandbytes")
    head = built.get_output_embeddings()
    for module in list(built.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and child is not head:
                setattr(module, name, _linear_4bit(bitsandbytes, child, STORAGES[storage], sharded))
    built.is_loaded_in_4bit = True


def _linear_4bit(bitsandbytes: Any, linear: Any, storage: Any, sharded: bool) -> Any:
    # A plain parameter with what bitsandbytes looks for: its own class is no fake tensor.
    with replaced(bitsandbytes.nn.modules, "Params4bit", lambda data, **_: nn.Parameter(data)):
        made = bitsandbytes.nn.Linear4bit(
            linear.in_features,
            linear.out_features,
            bias=linear.bias is not None,
            compute_dtype=torch.bfloat16,
            device="meta",
        )
    data, state = bitsandbytes.functional.quantize_4bit(
        linear.weight.data.to(torch.bfloat16),
        compress_statistics=True,
        quant_type="nf4",
        quant_storage=storage,
    )
    weight = nn.Parameter(data, requires_grad=False)
    weight.quant_state, weight.compress_statistics, weight.quant_type = state, True, "nf4"
    made.weight, made.quant_state = weight, state
    if linear.bias is not None:
        # The first product that reads it would do this.
        bias = linear.bias.data if sharded else linear.bias.data.to(torch.bfloat16)
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made


def _decompose(*, replaces: bool) -> None:
    """Run bitsandbytes' product as a GPU does it at more than some 1,500 rows, in parts that show.

    ``_dequant_linear_fallback`` of bitsandbytes/backends/cuda/ops.py; on fake tensors it would be
    one operation, and the 16-bit copy of the weight within it would go unseen.
    """
    functions: Any = import_module("bitsandbytes.autograd._functions")
    default: Any = import_module("bitsandbytes.backends.default.ops")
    modules: Any = import_module("bitsandbytes.nn.modules")

    def state_from_module(module: Any) -> None:
        # A weight that FSDP has gathered is another parameter; its own class is no fake tensor.
        if replaces and not isinstance(module.weight, nn.Parameter):
            module.weight = nn.Parameter(module.weight, requires_grad=False)
        module.weight.quant_state = module.quant_state

    modules.fix_4bit_weight_quant_state_from_module = state_from_module

    def product(*arguments: Any, **options: Any) -> Tensor:
        mode = python_dispatch._get_current_dispatch_mode()
        selective = "Cach" in type(mode).__name__
        # A policy of what to keep sees one operation, of a name that it does not know.
        with python_dispatch._pop_mode_temporarily() if selective else nullcontext():
            return default._gemm_4bit_default_impl(*arguments, **options)

    class _Operations:
        class bitsandbytes:  # noqa: N801
            class gemm_4bit:  # noqa: N801
                default = staticmethod(product)

    class _Torch:
        ops = _Operations

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    functions.torch = _Torch()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another attribute for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def states_of(built: Any) -> list[Tensor]:
    """What 4-bit weights hold beside their numbers: scales, their own scales, and code tables."""
    found = []
    for module in built.modules():
        state = vars(module).get("quant_state")
        if state is not None:
            nested = state.state2
            found += [state.absmax, state.code, state.offset, nested.absmax, nested.code]
    return found


def apply(built: Any, case: Case, *, device: str) -> Any:
    """The model with its adapters, all else frozen; to be called in place of ``built``."""
    peft = import_module("peft")
    targets = "all-linear" if case.adapter_targets == "all-linear" else list(_targets(built))
    config = peft.LoraConfig(
        r=case.adapter_rank,
        target_modules=targets,
        lora_dropout=DROPOUT if case.adapter_dropout else 0.0,
        task_type="CAUSAL_LM",
        fan_in_fan_out=built.config.model_type == "gpt2",
    )
    # They are made where and as they belong: a module of fake tensors cannot be moved or cast.
    layers: Any = import_module("peft.tuners.tuners_utils").BaseTunerLayer
    with (
        replaced(layers, "_move_adapter_to_device_of_base_layer", lambda *_: None),
        replaced(nn.Module, "to", lambda module, *_, **__: module),
        default_dtype(DTYPES[case.adapter_dtype]),
        torch.device(device),
    ):
        return peft.get_peft_model(built, config, autocast_adapter_dtype=False)


def _targets(built: Any) -> set[str]:
    names = {name.rpartition(".")[2] for name, _ in built.named_modules()}
    return names & set(QUERY_VALUE)
