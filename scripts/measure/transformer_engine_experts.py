"""Transformer Engine's parts of a mixture of experts without its kernels.

As :mod:`.transformer_engine`, of Transformer Engine 2.11: ``pytorch/module/grouped_linear.py``,
``pytorch/permutation.py``, ``pytorch/triton/permutation.py``. And what Megatron's dispatcher reads
back from the GPU to know how many tokens come and go, which nothing here has: as many as a routing
says (:class:`Routing`).
"""
# mypy: disable-error-code=misc

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .backend import Tensor, nn, torch
from .transformer_engine import (
    _arrived,
    _gathered,
    _parameter,
    _product,
    _scattered,
)

Function: Any = torch.autograd.Function


def _numbers(*shape: int, dtype: Any = torch.int32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


# -- products ------------------------------------------------------------------------------------


class _ColumnLinear(Function):
    """Keeps its input as it was before it was gathered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, split: int) -> Tensor:
        total = _gathered(x, split) if split > 1 else x
        out = _product(total, weight.shape[0])
        ctx.save_for_backward(x, weight)
        ctx.weight, ctx.split = weight, split
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, _weight = ctx.saved_tensors
        total = _gathered(x, ctx.split) if ctx.split > 1 else x
        of_total = _product(total, x.shape[-1])
        of_x = _scattered(of_total, ctx.split) if ctx.split > 1 else of_total
        del total, of_total
        return of_x, _arrived(ctx.weight), None


class ColumnParallelLinear(nn.Module):
    """``TEColumnParallelLinear``."""

    def __init__(
        self, input_size: int, output_size: int, *, config: Any, bias: bool, **_: Any
    ) -> None:
        super().__init__()
        world = config.tensor_model_parallel_size
        self.split = world if config.sequence_parallel else 1
        self.weight = _parameter(output_size // world, input_size)
        assert not bias

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """The product of all tokens."""
        return _ColumnLinear.apply(x, self.weight, self.split), None


class _GroupedLinear(Function):
    """Keeps its input; one output for all experts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        out = _product(x, weights[0].shape[0])
        ctx.save_for_backward(x, *weights)
        ctx.weights = weights
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *_ = ctx.saved_tensors
        of_x = _product(gradient, x.shape[-1])
        return of_x, *map(_arrived, ctx.weights)


class _Grouped(nn.Module):
    def __init__(
        self, experts: int, shape: tuple[int, int], config: Any, *, shared_out: bool
    ) -> None:
        super().__init__()
        self.experts = experts
        for number in range(experts):
            weight = _parameter(*shape)
            weight.allreduce = not shared_out
            self.register_parameter(f"weight{number}", weight)

    def forward(self, x: Tensor, _counts: Any) -> tuple[Tensor, None]:
        """Each expert's product of its tokens."""
        weights = (getattr(self, f"weight{number}") for number in range(self.experts))
        return _GroupedLinear.apply(x, *weights), None


class ColumnParallelGroupedLinear(_Grouped):
    """``TEColumnParallelGroupedLinear``."""

    def __init__(
        self, experts: int, into: int, out: int, *, config: Any, pg_collection: Any, **_: Any
    ) -> None:
        shape = (out // pg_collection.expt_tp.size(), into)
        super().__init__(experts, shape, config, shared_out=config.expert_model_parallel_size > 1)


class RowParallelGroupedLinear(_Grouped):
    """``TERowParallelGroupedLinear``."""

    def __init__(
        self, experts: int, into: int, out: int, *, config: Any, pg_collection: Any, **_: Any
    ) -> None:
        shape = (out, into // pg_collection.expt_tp.size())
        super().__init__(experts, shape, config, shared_out=config.expert_model_parallel_size > 1)


def general_gemm(
    weight: Tensor, x: Tensor, dtype: Any, *, layout: str, **_: Any
) -> tuple[Tensor, ...]:
    """``te_general_gemm``: the product in any precision."""
    shape = {
        "TN": (x.shape[0], weight.shape[0]),
        "NN": (x.shape[0], weight.shape[1]),
        "NT": (x.shape[1], weight.shape[1]),
    }[layout]
    return (torch.empty(shape, dtype=dtype, device="cuda"),)


# -- permutation ---------------------------------------------------------------------------------


class _Permute(Function):
    """Keeps where each token goes to."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, probabilities: Tensor, chosen: Tensor, count: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        tokens, experts = chosen.shape
        places = _numbers(tokens, 2 * experts + 1)
        _numbers(experts, -(-tokens // 1024))
        out = torch.empty((count, x.shape[1]), dtype=x.dtype, device="cuda")
        weights = torch.empty((count,), dtype=probabilities.dtype, device="cuda")
        ctx.save_for_backward(places)
        ctx.experts = experts
        ctx.mark_non_differentiable(places)
        return out, weights, places

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, of_weights: Tensor, _: Any) -> Any:
        (places,) = ctx.saved_tensors
        tokens = places.shape[0]
        of_x = torch.empty((tokens, gradient.shape[1]), dtype=gradient.dtype, device="cuda")
        of_all = torch.empty((tokens, ctx.experts), dtype=of_weights.dtype, device="cuda")
        return of_x, of_all, None, None


def fused_permute_with_probs(
    x: Tensor, probabilities: Tensor, chosen: Tensor, num_out_tokens: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``moe_permute_with_probs``."""
    found: tuple[Tensor, Tensor, Tensor] = _Permute.apply(x, probabilities, chosen, num_out_tokens)
    return found


class _Unpermute(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, shape: Any) -> Tensor:
        out = torch.empty(tuple(shape), dtype=x.dtype, device="cuda")
        ctx.save_for_backward(places)
        ctx.count = x.shape[0]
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        shape = (ctx.count, gradient.shape[1])
        return torch.empty(shape, dtype=gradient.dtype, device="cuda"), None, None


def fused_unpermute(x: Tensor, places: Tensor, merging_probs: Any, restore_shape: Any) -> Tensor:
    """``moe_unpermute``."""
    return _Unpermute.apply(x, places, restore_shape)


class _SortChunks(Function):
    """Keeps where each token goes to."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor | None) -> Any:
        places = _numbers(x.shape[0])
        out = torch.empty_like(x)
        moved = None if weights is None else torch.empty_like(weights)
        ctx.save_for_backward(places)
        return out, moved

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, of_weights: Tensor | None) -> Any:
        of_x = torch.empty_like(gradient)
        return of_x, None if of_weights is None else torch.empty_like(of_weights)


def fused_sort_chunks_by_index(x: Tensor, *_: Any) -> Tensor:
    """``moe_sort_chunks_by_index``."""
    return _SortChunks.apply(x, None)[0]


def fused_sort_chunks_by_index_with_probs(
    x: Tensor, probs: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    """``moe_sort_chunks_by_index_with_probs``."""
    found: tuple[Tensor, Tensor] = _SortChunks.apply(x, probs)
    return found


# -- what is read back from the GPU --------------------------------------------------------------


class Known(list[int]):
    """A tensor's numbers where Megatron expects a tensor in the CPU's memory."""

    def tolist(self) -> list[int]:
        """The numbers."""
        return list(self)


class Grid(list[list[int]]):
    """The same of two dimensions."""

    @property
    def T(self) -> Grid:  # noqa: N802 - as a tensor's
        """Rows for columns."""
        return Grid([list(column) for column in zip(*self, strict=True)])

    def ravel(self) -> Known:
        """Row by row."""
        return Known([one for row in self for one in row])


class _Masked:
    """How many values the next mask lets through."""

    count = 0


masked = _Masked()


class _MaskedSelect(Function):
    """``masked_select`` as CUDA's kernels run it (aten/src/ATen/native/cuda/IndexKernel.cpp).

    The mask's places are found first. Back, zeros are filled by the running sum of the mask.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        """The values, in the order of the mask."""
        ctx.save_for_backward(x, mask)
        found = torch.empty((x.dim(), masked.count), dtype=torch.int64, device="cuda")
        out = torch.empty((masked.count,), dtype=x.dtype, device="cuda")
        del found
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Zeros but for the values."""
        x, _ = ctx.saved_tensors
        out = torch.zeros_like(x)
        torch.empty(x.shape, dtype=torch.int64, device="cuda")
        return out, None


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """``Tensor.masked_select`` of as many values as tokens were routed."""
    return _MaskedSelect.apply(x, mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How many tokens go where: evenly, or ("worst") to this GPU as many as can be.

    A token goes to ``chosen`` different experts, of which this GPU holds ``here``.
    """

    kind: str
    chosen: int
    here: int
    groups: int
    shares: int
    fused: bool

    def read_back(self, dispatcher: Any, tokens: int) -> None:
        """Exchange what Megatron copies to the CPU (``_maybe_dtoh_and_synchronize``)."""
        all_sent = tokens * self.chosen
        masked.count = all_sent
        to_one = -(-all_sent // self.groups)
        if self.kind == "worst":
            to_one = tokens * min(self.chosen, self.here)
        if dispatcher.input_splits is not None:
            rest = [0] * (self.groups - 1)
            if rest:
                each, more = divmod(all_sent - to_one, len(rest))
                rest = [each + (place < more) for place in range(len(rest))]
            dispatcher.input_splits = Known([to_one, *rest])
            dispatcher.output_splits = Known([to_one] * self.groups)
            dispatcher.output_splits_tp = Known([to_one * self.groups] * self.shares)
        if self.here > 1 and not self.fused:
            # Megatron has these on the CPU: by GPU and expert, and in which order they are taken.
            come = to_one if dispatcher.input_splits is not None else all_sent
            each, more = divmod(come, self.here)
            of_one = [each + (place < more) for place in range(self.here)]
            many = self.groups * self.shares
            dispatcher.num_global_tokens_per_local_expert = Grid([of_one] * many)
            order = [[gpu * self.here + one for one in range(self.here)] for gpu in range(many)]
            dispatcher.sort_input_by_local_experts = Grid(order).T.ravel()
            back = [[one * many + gpu for gpu in range(many)] for one in range(self.here)]
            dispatcher.restore_output_by_local_experts = Grid(back).T.ravel()
