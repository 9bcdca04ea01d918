"""Recipes: what each parameter costs, row by row, before a single activation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from .categories import Category
from .errors import InputError
from .formula import Formula, symbol, total
from .records import dataclass

_ZERO = "Rajbhandari et al. 2019 (ZeRO), §3.1"
_MIXED = "Micikevicius et al. 2017, §3.1"
_ADAM32 = "ZeRO's count with every number in 32-bit"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One number kept for every parameter.

    ``zero_stage`` is the first ZeRO stage that spreads it over the data-parallel GPUs.
    """

    name: str
    category: Category
    dtype: str
    item_bytes: int
    zero_stage: int
    why: str
    where: str

    def formula(self, zero: int = 0) -> Formula:
        """The bytes of N parameters' worth on one of d data-parallel GPUs at a ZeRO stage."""
        whole = symbol("N") * self.item_bytes
        return whole / symbol("d") if zero >= self.zero_stage else whole


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A numeric format and optimizer: the states they keep for each parameter.

    ``precision`` is how the model computes: "fp32", "autocast" (32-bit weights, 16-bit operations),
    "bf16" (all of it), "master" (16-bit weights with a 32-bit copy for the optimizer) or
    "master-fp32-grad" (the same with 32-bit gradients).
    """

    id: str
    name: str
    precision: str
    states: tuple[State, ...]

    @cached_property
    def by_category(self) -> dict[Category, int]:
        """Bytes per parameter of each category that has any."""
        sums: dict[Category, int] = {}
        for state in self.states:
            sums[state.category] = sums.get(state.category, 0) + state.item_bytes
        return sums

    @cached_property
    def zero_stage(self) -> dict[Category, int]:
        """The first ZeRO stage that shards each category."""
        return {state.category: state.zero_stage for state in self.states}

    def formula(self, zero: int = 0) -> Formula:
        """What N parameters' states take on one of d data-parallel GPUs at a ZeRO stage."""
        return total(state.formula(zero) for state in self.states)

    @property
    def bytes_per_parameter(self) -> int:
        """The sum of its rows."""
        return sum(state.item_bytes for state in self.states)


def _moments(where: str, dtype: str = "fp32", item_bytes: int = 4) -> tuple[State, ...]:
    return (
        State(
            name="Adam's first moment",
            category=Category.OPTIMIZER,
            dtype=dtype,
            item_bytes=item_bytes,
            zero_stage=1,
            why="The running mean of the gradient, which the update follows.",
            where=where,
        ),
        State(
            name="Adam's second moment",
            category=Category.OPTIMIZER,
            dtype=dtype,
            item_bytes=item_bytes,
            zero_stage=1,
            why="The running mean of the squared gradient, which scales the update.",
            where=where,
        ),
    )


MIXED_ADAM = Recipe(
    id="mixed-adam",
    name="mixed-precision Adam",
    precision="master",
    states=(
        State(
            name="weight, used in forward and backward",
            category=Category.WEIGHTS,
            dtype="16-bit",
            item_bytes=2,
            zero_stage=3,
            why="Every matrix multiplication reads it.",
            where=_ZERO,
        ),
        State(
            name="gradient",
            category=Category.GRADIENTS,
            dtype="16-bit",
            item_bytes=2,
            zero_stage=2,
            why="Backward writes it; the optimizer reads it at the end of the step.",
            where=_ZERO,
        ),
        State(
            name="master copy of the weight",
            category=Category.MASTER,
            dtype="fp32",
            item_bytes=4,
            zero_stage=1,
            why="A small update to a 16-bit weight is rounded away; it is added here instead.",
            where=_MIXED,
        ),
        *_moments(_ZERO),
    ),
)

FP32_ADAM = Recipe(
    id="fp32-adam",
    name="FP32 Adam",
    precision="fp32",
    states=(
        State(
            name="weight",
            category=Category.WEIGHTS,
            dtype="fp32",
            item_bytes=4,
            zero_stage=3,
            why="Every matrix multiplication reads it, and the optimizer updates it in place.",
            where=_ADAM32,
        ),
        State(
            name="gradient",
            category=Category.GRADIENTS,
            dtype="fp32",
            item_bytes=4,
            zero_stage=2,
            why="Backward writes it; the optimizer reads it at the end of the step.",
            where=_ADAM32,
        ),
        *_moments(_ADAM32),
    ),
)

AUTOCAST_ADAM = Recipe(
    id="autocast-adam",
    name="autocast Adam",
    precision="autocast",
    # Autocast casts what it multiplies; what stays is as in FP32.
    states=FP32_ADAM.states,
)

_BF16 = "every number in bfloat16, as PyTorch keeps a model cast to it"
BF16_ADAM = Recipe(
    id="bf16-adam",
    name="pure BF16 Adam",
    precision="bf16",
    states=(
        State(
            name="weight",
            category=Category.WEIGHTS,
            dtype="bf16",
            item_bytes=2,
            zero_stage=3,
            why="Every matrix multiplication reads it, and the optimizer updates it in place.",
            where=_BF16,
        ),
        State(
            name="gradient",
            category=Category.GRADIENTS,
            dtype="bf16",
            item_bytes=2,
            zero_stage=2,
            why="Backward writes it; the optimizer reads it at the end of the step.",
            where=_BF16,
        ),
        *_moments(_BF16, "bf16", 2),
    ),
)

_MAIN = "Megatron-LM's main gradients: 18 bytes a parameter (Megatron-LM, distributed optimizer)"
MIXED_ADAM_FP32_GRAD = Recipe(
    id="mixed-adam-fp32-grad",
    name="mixed-precision Adam with FP32 gradients",
    precision="master-fp32-grad",
    states=tuple(
        state
        if state.category is not Category.GRADIENTS
        else State(
            name="gradient",
            category=Category.GRADIENTS,
            dtype="fp32",
            item_bytes=4,
            zero_stage=2,
            why="Backward adds each 16-bit gradient to it as it comes, so that small ones of many "
            "micro-batches are not lost.",
            where=_MAIN,
        )
        for state in MIXED_ADAM.states
    ),
)

RECIPES: Mapping[str, Recipe] = {
    recipe.id: recipe
    for recipe in (MIXED_ADAM, FP32_ADAM, AUTOCAST_ADAM, BF16_ADAM, MIXED_ADAM_FP32_GRAD)
}


def get(recipe_id: object) -> Recipe:
    """The recipe of that id. Raises :class:`InputError` naming the nearest one."""
    if isinstance(recipe_id, str) and recipe_id in RECIPES:
        return RECIPES[recipe_id]
    raise InputError.unknown_name("recipe", recipe_id, tuple(RECIPES))


def with_gradients(recipe: Recipe, dtype: object) -> Recipe:
    """The recipe that differs in its gradients' dtype alone; itself where it has that.

    Raises :class:`InputError` where there is none.
    """
    of_dtype = {
        MIXED_ADAM.id: "bf16",
        BF16_ADAM.id: "bf16",
        MIXED_ADAM_FP32_GRAD.id: "fp32",
        FP32_ADAM.id: "fp32",
        AUTOCAST_ADAM.id: "fp32",
    }
    pair = (MIXED_ADAM, MIXED_ADAM_FP32_GRAD)
    for one in pair if recipe in pair else (recipe,):
        if of_dtype[one.id] == dtype:
            return one
    allowed = (
        f"{recipe.id} has {of_dtype[recipe.id]} gradients; of the recipes {MIXED_ADAM.id} alone "
        "goes with bf16 and fp32"
    )
    raise InputError("gradient_dtype", dtype, allowed)
