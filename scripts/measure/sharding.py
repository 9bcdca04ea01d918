"""FSDP2, DDP and tensor parallelism laid on a model, as accelerate and torchtitan do it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from .backend import Tensor, nn, torch
from .sharded_case import ShardedCase

fsdp: Any = import_module("torch.distributed.fsdp")
meshes: Any = import_module("torch.distributed.device_mesh")
tensors: Any = import_module("torch.distributed.tensor")
parallel: Any = import_module("torch.distributed.tensor.parallel")


class LogitsOf(nn.Module):  # type: ignore[misc, unused-ignore]
    """The plain Llama up to its logits: torchtitan computes the loss outside what it shards."""

    def __init__(self, built: Any) -> None:
        super().__init__()
        self.model, self.output = built.model, built.output

    def forward(self, input_ids: Tensor) -> Tensor:
        """All logits."""
        return self.output(self.model(input_ids))


def mesh_of(case: ShardedCase) -> Any:
    """The GPUs by what they share. To be made of real numbers, outside fake mode."""
    # PEFT looks for tensor-parallel GPUs by transformers' name of them.
    shape = {
        "replicas": case.replicas,
        "data": case.data,
        "context": case.context,
        "tp": case.tensor,
    }
    # FSDP2 shards over one dimension even where another is all there is.
    needed = ("data",) if case.sharding == "fsdp2" else ()
    shape = {name: size for name, size in shape.items() if size > 1 or name in needed}
    mesh = meshes.init_device_mesh("cuda", tuple(shape.values()), mesh_dim_names=tuple(shape))
    if case.context > 1:
        # GPUs that share a sequence hold the same weights, so they are replicas to FSDP2.
        mesh["data", "context"]._flatten("shards")
    return mesh


def split(built: Any, mesh: Any, case: ShardedCase) -> None:
    """Split each layer among tensor-parallel GPUs, as the case says; before it has adapters."""
    if case.tensor > 1 and case.step.implementation == "torchtitan":
        _split_layers(built, mesh["tp"], sequence=case.sequence_parallel)
    elif case.tensor > 1:
        _split_by_plan(built, mesh["tp"])


def laid_on(built: Any, mesh: Any, case: ShardedCase) -> Any:
    """The model, shared out as the case says; called as before."""
    plain = case.step.implementation == "torchtitan"
    model = LogitsOf(built) if plain else built
    if case.sharding == "fsdp2":
        _fully_shard(model, mesh, case, plain=plain)
    return model


# -- FSDP2 ---------------------------------------------------------------------------------------


def _fully_shard(model: Any, mesh: Any, case: ShardedCase, *, plain: bool) -> None:
    own = "shards" if case.context > 1 else "data"
    names = ("replicas", own) if case.replicas > 1 else (own,)
    common: dict[str, Any] = {"mesh": mesh[names], "mp_policy": _policy(case)}
    if case.offload_params:
        # A fake tensor cannot be pinned, which a GPU's memory has no part in.
        common["offload_policy"] = fsdp.CPUOffloadPolicy(pin_memory=False)
    if case.step.adapter != "none":
        # accelerate: 4-bit weights in whole numbers are left as they are.
        common["ignored_params"] = {
            one for one in model.parameters() if not one.dtype.is_floating_point
        }
    base = model.get_base_model() if case.step.adapter != "none" else model
    layers = list(_layers(base))
    for layer in layers:
        fsdp.fully_shard(layer, **common, reshard_after_forward=case.reshard)
    if case.wrap == "ends":
        _shard_ends(model, common, case, plain=plain)
        fsdp.fully_shard(model, **common)
    else:
        fsdp.fully_shard(model, **common, reshard_after_forward=case.reshard)
    if case.prefetch == "explicit":
        for layer, following in pairwise(layers):
            layer.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([layer])


def _shard_ends(model: Any, common: dict[str, Any], case: ShardedCase, *, plain: bool) -> None:
    if case.step.adapter != "none":
        _shard_adapted_ends(model, common, case)
        return
    base = model.model if hasattr(model, "model") else model.transformer
    if plain:
        embedding, norm, head = base.tok_embeddings, base.norm, model.output
    else:
        embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
        norm = base.norm if hasattr(base, "norm") else base.ln_f
    tail = [norm, head]
    if embedding.weight is head.weight:
        # A parameter that two modules share must belong to one group.
        tail.insert(1, embedding)
    else:
        fsdp.fully_shard(embedding, **common, reshard_after_forward=case.reshard)
    fsdp.fully_shard(tail, **common, reshard_after_forward=False)


def _shard_adapted_ends(model: Any, common: dict[str, Any], case: ShardedCase) -> None:
    """The same by accelerate's own search, which takes PEFT's model for the whole one.

    Where the model's layers are in "model", as in Llama, it finds no last norm: that is the root's.
    """
    utils = import_module("accelerate.utils.fsdp_utils")
    norm = utils._find_final_norm(model)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = embedding.weight is head.weight
    if not tied:
        fsdp.fully_shard(embedding, **common, reshard_after_forward=case.reshard)
    tail = [one for one in (norm, embedding if tied else None, head) if one is not None]
    fsdp.fully_shard(tail, **common, reshard_after_forward=False)


def _policy(case: ShardedCase) -> Any:
    if case.step.precision != "autocast":
        return fsdp.MixedPrecisionPolicy()
    reduce = {"fp32": torch.float32, "bf16": torch.bfloat16}[case.reduce_dtype]
    return fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce)


def _layers(model: Any) -> Iterator[Any]:
    base = model.model if hasattr(model, "model") else model.transformer
    yield from base.layers if hasattr(base, "layers") else base.h


# -- tensor parallelism ----------------------------------------------------------------------------


def _split_layers(built: Any, mesh: Any, *, sequence: bool) -> None:
    """torchtitan/models/llama3/infra/parallelize.py, apply_tp, with the loss in parallel too.

    Without ``sequence`` the residual stream is whole on every GPU, and so are the norms.
    """
    col, row = parallel.ColwiseParallel, parallel.RowwiseParallel
    whole, tokens = tensors.Replicate(), tensors.Shard(1)
    between = tokens if sequence else whole
    norm = parallel.SequenceParallel() if sequence else _OnEach()
    parallel.parallelize_module(
        built,
        mesh,
        {
            "model.tok_embeddings": row(input_layouts=whole, output_layouts=between),
            "output": col(
                input_layouts=between, output_layouts=tensors.Shard(-1), use_local_output=False
            ),
            "model.norm": norm,
        },
    )
    for layer in built.model.layers:
        # Each GPU has its share of the heads.
        plan = {
            "attention.wq": col(),
            "attention.wk": col(),
            "attention.wv": col(),
            "attention.wo": row(output_layouts=between),
            "feed_forward.w1": col(),
            "feed_forward.w2": row(output_layouts=between),
            "feed_forward.w3": col(),
            "attention_norm": norm,
            "ffn_norm": norm,
        }
        if sequence:
            plan |= {
                "attention": parallel.PrepareModuleInput(
                    input_layouts=(tokens, None), desired_input_layouts=(whole, None)
                ),
                "feed_forward": parallel.PrepareModuleInput(
                    input_layouts=(tokens,), desired_input_layouts=(whole,)
                ),
            }
        parallel.parallelize_module(layer, mesh, plan)


def _split_by_plan(built: Any, mesh: Any) -> None:
    """A model of transformers by the plan that comes with it (tp_plan="auto")."""
    styles: Any = import_module("transformers.distributed.tensor_parallel")
    utils: Any = import_module("transformers.distributed.parallel_utils")
    rules = built.tp_plan
    plan = {}
    for name, module in built.named_modules():
        style = rules.get(utils.replace_layer_number_by_wildcard(name))
        if style:
            plan[name] = style
            own = dict(module.named_parameters(recurse=False))
            plan |= {f"{name}.{parameter}": style for parameter in own}
    embedding, head = built.get_input_embeddings(), built.get_output_embeddings()
    tied = embedding.weight is head.weight
    if tied:
        # from_pretrained makes both, splits both, and ties them once weights are read.
        head.weight = nn.Parameter(torch.empty_like(head.weight))
    styles.apply_tensor_parallelism(built, mesh, plan)
    if tied:
        head.weight = embedding.weight
    # As from_pretrained leaves a model, by which PEFT splits its adapters.
    built._device_mesh = mesh
    built.config.distributed_config = SimpleNamespace(tp_size=mesh.size())


class _OnEach(parallel.ParallelStyle):  # type: ignore[misc, unused-ignore]
    """A module that every GPU computes whole (torchtitan's NoParallel)."""

    def _apply(self, module: Any, mesh: Any) -> Any:
        def given(_module: Any, inputs: Any, _mesh: Any) -> Any:
            return tensors.DTensor.from_local(inputs[0], mesh, [tensors.Replicate()])

        def taken(_module: Any, output: Any, _mesh: Any) -> Any:
            return output.to_local()

        return tensors.distribute_module(module, mesh, None, given, taken)


def sequence_shared(case: ShardedCase, mesh: Any, whole: list[Tensor], tables: list[Tensor]) -> Any:
    """Within, a micro-batch is this GPU's part of its sequences, and attention sees all parts.

    ``whole`` are the batch's tensors, tokens along their second dimension, and ``tables`` those of
    the model, positions along their first, which are brought back afterwards.
    """
    if case.context == 1:
        return nullcontext()
    context: Any = import_module(
        "torch.distributed.tensor.experimental._context_parallel._attention"
    )
    context.set_rotate_method(case.rotate)
    return context.context_parallel(
        mesh["context"],
        buffers=[*whole, *tables],
        buffer_seq_dims=[*(1 for _ in whole), *(0 for _ in tables)],
        no_restore_buffers=set(whole),
    )


def loss_in_parallel(case: ShardedCase) -> AbstractContextManager[Any]:
    """Each GPU computes the loss over its part of the vocabulary, as torchtitan has it."""
    if case.tensor == 1 or case.step.implementation != "torchtitan":
        return nullcontext()
    context: AbstractContextManager[Any] = parallel.loss_parallel()
    return context
