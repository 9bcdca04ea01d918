"""Megatron-LM's arguments of mixtures of experts."""

from __future__ import annotations

import re

from ..units import parse_count
from .megatron_shape import shape, shape_flag
from .table import Taken, choice, is_on, lost, taken

_DISPATCHER = "tokens were counted as the all-to-all dispatcher moves them"


@taken("moe_shared_expert_intermediate_size", ("shape.shared_experts", "shape.shared_expert_ffn"))
def _shared_expert(name: str, value: object) -> Taken:
    width = parse_count(name, value)
    return Taken(settings={"shape.shared_experts": 1, "shape.shared_expert_ffn": width})


@taken("moe_layer_freq", ("shape.dense_layers",))
def _expert_layers(name: str, value: object) -> Taken:
    """1: every layer has experts; a pattern such as ([0]*3+[1]*58): the first have none."""
    pattern = _pattern(value)
    dense = pattern.find("1") if pattern else -1
    if dense >= 0 and "0" not in pattern[dense:]:
        return Taken(settings={"shape.dense_layers": dense} if dense else {})
    return Taken(settings={}, lost="layers with and without experts in turn are not modelled")


def _pattern(value: object) -> str:
    """Ones and zeros, one a layer; "" for what is not understood."""
    if isinstance(value, list):
        return "".join(map(str, value)) if {*value} <= {0, 1} else ""
    text_ = str(value).replace(" ", "").strip("'\"")
    if text_ == "1":
        return "1"
    whole = re.fullmatch(r"\(?([\[\]0-9,*+]+?)\)?(?:\*1)?", text_)
    found = ""
    for item in whole.group(1).split("+") if whole else ():
        part = re.fullmatch(r"\[([01,]+)\](?:\*([0-9]{1,5}))?", item)
        if not part:
            return ""
        found += part.group(1).replace(",", "") * int(part.group(2) or 1)
    return found


@taken("moe_permute_fusion", ("permutation",))
def _permutation(name: str, value: object) -> Taken:
    return Taken(settings={"permutation": "fused" if is_on(name, value) else "unfused"})


ROWS = (
    _permutation,
    shape("num_experts", "experts"),
    shape("moe_router_topk", "experts_per_token"),
    shape("moe_ffn_hidden_size", "expert_ffn"),
    _shared_expert,
    shape_flag("moe_shared_expert_gate", "shared_expert_gate"),
    _expert_layers,
    choice(
        "moe_token_dispatcher_type",
        {"alltoall": {}, "allgather": _DISPATCHER, "flex": _DISPATCHER},
    ),
    choice(
        "moe_router_dtype",
        {"fp32": {}, "fp64": "the router was counted in fp32"},
    ),
    lost(
        "moe_expert_capacity_factor",
        "experts were counted with as many tokens as choose them, none dropped or filled up",
        "moe_pad_expert_input_to_capacity",
        off=(None, False, -1, -1.0, "-1", "-1.0"),
    ),
    lost("moe_use_legacy_grouped_gemm", "grouped products of Transformer Engine were counted"),
)
