"""Transformer Engine's fused parts without its kernels: what each allocates and saves.

Transformer Engine cannot be imported without CUDA. These modules stand in for the ones that
Megatron builds its layers of; each says which tensors its PyTorch code makes, keeps and drops, and
in which order, as of Transformer Engine 2.11: ``pytorch/module/layernorm_linear.py``,
``pytorch/module/linear.py``, ``pytorch/attention/dot_product_attention/``,
``pytorch/attention/rope.py``, ``pytorch/cross_entropy.py``, ``pytorch/module/base.py``.
Everything around them is Megatron's own code.
"""
# mypy: disable-error-code=misc

from __future__ import annotations

from typing import Any

from .backend import Tensor, nn, torch

Function: Any = torch.autograd.Function

#: ``get_dummy_wgrad``: one tensor for each shape, kept from then on. Megatron's hooks want a
#: gradient to arrive although the product was added to the main gradient already.
_dummies: dict[tuple[int, ...], Tensor] = {}


def forget() -> None:
    """Drop what is kept from one model to the next."""
    _dummies.clear()


def dummies() -> list[Tensor]:
    """The stand-ins for gradients that exist now."""
    return list(_dummies.values())


def get_dummy_wgrad(shape: list[int], dtype: Any, zero: bool = False) -> Tensor:
    """A gradient that says nothing, of this shape."""
    key = tuple(shape)
    if key not in _dummies:
        _dummies[key] = torch.empty(key, dtype=dtype, device="cuda")
    return _dummies[key].detach()


def _arrived(weight: Any) -> Tensor | None:
    if not hasattr(weight, "main_grad"):
        return None
    weight.grad_added_to_main_grad = True
    return get_dummy_wgrad(list(weight.main_grad.shape), weight.dtype)


def _gathered(x: Tensor, world: int) -> Tensor:
    return torch.empty((x.shape[0] * world, *x.shape[1:]), dtype=x.dtype, device=x.device)


def _scattered(x: Tensor, world: int) -> Tensor:
    return torch.empty((x.shape[0] // world, *x.shape[1:]), dtype=x.dtype, device=x.device)


def _product(x: Tensor, width: int) -> Tensor:
    return torch.empty((*x.shape[:-1], width), dtype=x.dtype, device=x.device)


def _row_numbers(x: Tensor) -> Tensor:
    rows = x.numel() // x.shape[-1]
    return torch.empty((rows,), dtype=torch.float32, device=x.device)


class _LayerNormLinear(Function):
    """Keeps its input, the norm's output as it was before it was gathered, and the spread."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        shift: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        split: int,
    ) -> Tensor:
        """The product of the normalised input; ``split`` GPUs share the tokens."""
        normed = torch.empty_like(x)
        spread = [_row_numbers(x) for _ in range(1 if shift is None else 2)]
        total = _gathered(normed, split) if split > 1 else normed
        out = _product(total, weight.shape[0])
        ctx.save_for_backward(x, scale, shift, weight, normed, *spread)
        ctx.weight, ctx.bias, ctx.split = weight, bias, split
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gathers the norm's output again; the weight's gradient goes to its main gradient."""
        x, scale, shift, _weight, normed, *_ = ctx.saved_tensors
        total = _gathered(normed, ctx.split) if ctx.split > 1 else normed
        of_total = _product(total, x.shape[-1])
        of_normed = _scattered(of_total, ctx.split) if ctx.split > 1 else of_total
        del total, of_total
        made = torch.empty_like(of_normed)
        of_scale = torch.empty_like(scale)
        of_shift = None if shift is None else torch.empty_like(shift)
        of_bias = None if ctx.bias is None else torch.empty_like(ctx.bias)
        return made, of_scale, of_shift, _arrived(ctx.weight), of_bias, None


class _Linear(Function):
    """Keeps its input. Where the tokens are shared, its output is scattered over the GPUs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, split: int) -> Tensor:
        """The product, summed over the GPUs that share the weight's columns."""
        out = _product(x, weight.shape[0])
        ctx.save_for_backward(x, weight)
        ctx.weight, ctx.split = weight, split
        return _scattered(out, split) if split > 1 else out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gathers the gradient of the output first."""
        x, _weight = ctx.saved_tensors
        total = _gathered(gradient, ctx.split) if ctx.split > 1 else gradient
        of_x = _product(total, x.shape[-1])
        del total
        return of_x, _arrived(ctx.weight), None


def _parameter(*shape: int) -> Any:
    return nn.Parameter(torch.empty(shape, dtype=torch.bfloat16, device="cuda"))


class LayerNormColumnParallelLinear(nn.Module):
    """``TELayerNormColumnParallelLinear``."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        config: Any,
        bias: bool,
        skip_bias_add: bool,
        **_: Any,
    ) -> None:
        super().__init__()
        world = config.tensor_model_parallel_size
        self.split = world if config.sequence_parallel else 1
        self.layer_norm_weight = _parameter(input_size)
        self.layer_norm_weight.sequence_parallel = config.sequence_parallel
        has_shift = config.normalization == "LayerNorm"
        self.layer_norm_bias = _parameter(input_size) if has_shift else None
        self.weight = _parameter(output_size // world, input_size)
        self.bias = _parameter(output_size // world) if bias else None
        self.adds_bias = not skip_bias_add

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The product, and the bias for whoever adds it, unless it is added here."""
        made = _LayerNormLinear.apply(
            x,
            self.layer_norm_weight,
            self.layer_norm_bias,
            self.weight,
            self.bias if self.adds_bias else None,
            self.split,
        )
        return made, None if self.adds_bias else self.bias


class RowParallelLinear(nn.Module):
    """``TERowParallelLinear``."""

    def __init__(
        self, input_size: int, output_size: int, *, config: Any, bias: bool, **_: Any
    ) -> None:
        super().__init__()
        world = config.tensor_model_parallel_size
        self.split = world if config.sequence_parallel else 1
        self.weight = _parameter(output_size, input_size // world)
        self.bias = _parameter(output_size) if bias else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The product, and the bias for whoever adds it."""
        return _Linear.apply(x, self.weight, self.split), self.bias


class Norm(nn.Module):
    """``TENorm``: keeps its input and the spread."""

    def __new__(cls, config: Any, hidden_size: int, eps: float = 1e-5) -> Any:
        """PyTorch's norm of the same kind, which keeps the same."""
        kind = nn.RMSNorm if config.normalization == "RMSNorm" else nn.LayerNorm
        return kind(hidden_size, eps=eps, dtype=torch.bfloat16, device="cuda")


class _FusedAttention(Function):
    """cuDNN's or FlashAttention's kernel: keeps its inputs, its output, and one number a row."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What every head sees."""
        tokens, batch, heads, _ = query.shape
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        sums = torch.empty((batch, heads, tokens, 1), dtype=torch.float32, device="cuda")
        random = torch.empty((2,), dtype=torch.int64, device="cuda")
        ctx.save_for_backward(query, key, value, out, sums, random)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """The gradients of queries, keys and values, which lie as these do."""
        query, key, value = ctx.saved_tensors[:3]
        if query.untyped_storage()._cdata == key.untyped_storage()._cdata:
            joint = query.new_empty((*query.shape[:-1], 3, query.shape[-1]))
            return joint.unbind(-2)
        return tuple(torch.empty_like(one) for one in (query, key, value))


class _Ring(Function):
    """``AttnFuncWithCPAndKVP2P`` on the GPU that has the most to do, the last.

    Keys and values go round in one buffer for each of the GPUs; every round has an output of its
    own. Back, they go round once more with their gradients.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, gpus: int) -> Tensor:
        """What every head sees of all tokens."""
        tokens, batch, heads, _ = query.shape
        own = torch.cat((key.view(-1), value.view(-1)))
        others = [torch.empty_like(own) for _ in range(gpus - 1)]
        shape = (*query.shape[:-1], value.shape[-1])
        rounds = [query.new_empty(shape) for _ in range(gpus)]
        sums = [torch.empty((batch, heads, tokens), device="cuda") for _ in range(gpus)]
        total = torch.empty((batch, heads, tokens), device="cuda")
        out = query.new_empty(shape)
        del others, rounds, sums
        random = [torch.empty((2,), dtype=torch.int64, device="cuda") for _ in range(gpus)]
        ctx.save_for_backward(query, own, out, total, *random)
        ctx.shapes = key.shape, value.shape
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of queries, keys and values."""
        query, own, *_ = ctx.saved_tensors
        of_query = torch.empty_like(query)
        here, there = (own.new_empty((2, own.numel())) for _ in range(2))
        of_round = [torch.empty_like(query), torch.empty_like(own), torch.empty_like(own)]
        del here, of_round
        of_key, of_value = there[1].split([shape.numel() for shape in ctx.shapes])
        return of_query, of_key.view(ctx.shapes[0]), of_value.view(ctx.shapes[1]), None


def _laid_out(*parts: Tensor) -> tuple[Tensor, ...]:
    """``get_qkv_layout``: as they lie where all lie together head by head, or else each by itself.

    Where positions turn queries and keys, values lie apart from them and are copied.
    """
    first, width = parts[0], parts[0].shape[-1]
    together = all(
        one.untyped_storage()._cdata == first.untyped_storage()._cdata
        and (one.shape, one.stride()) == (first.shape, first.stride())
        and one.storage_offset() == place * width
        for place, one in enumerate(parts)
    )
    return parts if together else tuple(part.contiguous() for part in parts)


class DotProductAttention(nn.Module):
    """``TEDotProductAttention``."""

    def __init__(self, config: Any, **_: Any) -> None:
        super().__init__()
        self.gpus = config.context_parallel_size

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """The heads' contexts, joined."""
        parts = _laid_out(query, key, value)
        seen = _Ring.apply(*parts, self.gpus) if self.gpus > 1 else _FusedAttention.apply(*parts)
        return seen.view(*seen.shape[:2], -1)


class _SplitAlongDim(Function):
    """Views. Gradients that lie together already are seen as one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, sizes: list[int]) -> Any:
        """The parts."""
        ctx.dim, ctx.sizes, ctx.shape = dim, sizes, x.shape
        return torch.split(x, sizes, dim=dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The whole: a view, or the parts joined."""
        first, after = gradients[0], 0
        together = True
        for one, size in zip(gradients, ctx.sizes, strict=True):
            together &= (
                one.stride() == first.stride()
                and one.untyped_storage()._cdata == first.untyped_storage()._cdata
                and one.storage_offset() == after
            )
            after += size
        if together:
            strides = list(first.stride())
            return torch.as_strided(first, ctx.shape, strides), None, None
        return torch.cat(gradients, dim=ctx.dim), None, None


def split_along_dim(x: Tensor, dim: int, sizes: list[int]) -> Any:
    """``SplitAlongDim``."""
    return _SplitAlongDim.apply(x, dim, sizes)


class _BiasDropoutAdd(Function):
    """One kernel by torch.compile, which hands a mask on to its backward pass if it drops."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, residual: Tensor, drops: bool, keeps: bool
    ) -> Tensor:
        """The residual stream."""
        seed = torch.empty((1,), dtype=torch.int64, device="cuda") if drops else None
        out = torch.empty_like(residual)
        if drops and keeps:
            ctx.save_for_backward(torch.empty_like(x, dtype=torch.bool))
        del seed
        ctx.bias, ctx.drops = bias, drops
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Where nothing was dropped the gradient goes on as it is."""
        of_x = torch.empty_like(gradient) if ctx.drops else gradient
        of_bias = None if ctx.bias is None else torch.empty_like(ctx.bias)
        return of_x, of_bias, gradient, None, None


def bias_dropout_add(
    x_with_bias: tuple[Tensor, Tensor | None], residual: Tensor, prob: float
) -> Any:
    """``bias_dropout_add_fused_train``."""
    x, bias = x_with_bias
    return _BiasDropoutAdd.apply(x, bias, residual, prob > 0, torch.is_grad_enabled())


class _Rope(Function):
    """``FusedRoPEFunc``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, freqs: Tensor) -> Tensor:
        """Each pair of features turned by its position's angle."""
        ctx.save_for_backward(freqs)
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Turned back."""
        return torch.empty(gradient.shape, dtype=gradient.dtype, device=gradient.device), None


def fused_rope(x: Tensor, freqs: Tensor, **_: Any) -> Tensor:
    """``fused_apply_rotary_pos_emb``."""
    return _Rope.apply(x, freqs)


class _CrossEntropy(Function):
    """Its gradient takes the place of the logits as soon as the loss is known."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, world: int) -> Tensor:
        """Each token's loss."""
        rows = logits.shape[0] * logits.shape[1]
        loss = torch.empty((rows,), dtype=torch.float32, device="cuda")
        found = torch.empty((rows * 3,), dtype=torch.float32, device="cuda")
        every = torch.empty((rows * 3 * world,), dtype=torch.float32, device="cuda")
        del found, every
        ctx.save_for_backward(logits.detach())
        return loss.view(logits.shape[0], logits.shape[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """What was kept is the gradient."""
        return ctx.saved_tensors[0], None, None


def cross_entropy(logits: Tensor, targets: Tensor, group: Any, *_: Any) -> Tensor:
    """``parallel_cross_entropy``."""
    return _CrossEntropy.apply(logits, targets, group.size())
