"""Optimizers by the names that trainers have for them."""

from __future__ import annotations

from collections.abc import Mapping

_ADAMW = {"optimizer": "adamw"}

#: transformers' names (``OptimizerNames``), which axolotl and LLaMA-Factory take as well.
TRANSFORMERS: Mapping[str, Mapping[str, object] | str] = {
    "adamw_torch": {**_ADAMW, "optimizer_kernel": "foreach"},
    "adamw_hf": {**_ADAMW, "optimizer_kernel": "forloop"},
    "adamw_torch_fused": {**_ADAMW, "optimizer_kernel": "fused"},
    "adamw_apex_fused": {**_ADAMW, "optimizer_kernel": "fused"},
    "adamw_bnb_8bit": {"optimizer": "adamw-8bit"},
    "adamw_8bit": {"optimizer": "adamw-8bit"},
    "paged_adamw_8bit": {"optimizer": "paged-adamw-8bit"},
    "paged_adamw_32bit": {"optimizer": "paged-adamw"},
    "paged_adamw": {"optimizer": "paged-adamw"},
    "adafactor": {"optimizer": "adafactor-hf"},
    "muon": {"optimizer": "muon"},
    "sgd": "SGD without momentum keeps no state; AdamW's two numbers a parameter were counted",
}
#: What is said of any other.
OTHER = "this optimizer is not modelled; AdamW's two numbers a parameter were counted"
#: torch.optim's and others' classes, by their last name.
CLASSES: Mapping[str, Mapping[str, object] | str] = {
    "adam": _ADAMW,
    "adamw": _ADAMW,
    "fusedadam": {**_ADAMW, "optimizer_kernel": "fused"},
    "adafactor": {"optimizer": "adafactor"},
    "muon": {"optimizer": "muon"},
    "adamw8bit": {"optimizer": "adamw-8bit"},
    "pagedadamw": {"optimizer": "paged-adamw"},
    "pagedadamw8bit": {"optimizer": "paged-adamw-8bit"},
    "sgd": TRANSFORMERS["sgd"],
}
_FUSED_ADAM = {**_ADAMW, "optimizer_kernel": "deepspeed"}
#: DeepSpeed's names (runtime/engine.py, _configure_basic_optimizer), and PyTorch's classes.
DEEPSPEED: Mapping[str, Mapping[str, object] | str] = {
    **CLASSES,
    "adam": _FUSED_ADAM,
    "adamw": _FUSED_ADAM,
    "fusedadam": _FUSED_ADAM,
    "muon": "DeepSpeed's Muon is not modelled; AdamW's two numbers a parameter were counted",
}
