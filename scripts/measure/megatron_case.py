"""What is measured of Megatron: one training step's choices, as a row of the table names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from training_memory import catalog
from training_memory.model import Model

from .rows import as_row, values_of

RECOMPUTES = ("none", "selective", "full")
LOSSES = ("full", "fused")


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronCase:
    """One step on the GPUs of one pipeline ``stage``, from 0."""

    model: str
    shape: tuple[tuple[str, int | str], ...] = ()
    micro_batch: int = 1
    micro_batches: int = 1
    sequence: int
    recompute: str = "none"
    loss: str = "full"
    dropout: bool = False
    mtp_layers: int = 0
    tensor: int = 1
    sequence_parallel: bool = False
    pipeline: int = 1
    interleave: int = 1
    stage: int = 0
    data: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1
    routing: str = "balanced"
    permutation: str = "fused"
    distributed_optimizer: bool = False

    @property
    def built(self) -> Model:
        """The catalogue's model with the case's changes."""
        return catalog.with_shape(catalog.get(self.model), dict(self.shape))

    @property
    def padded_vocabulary(self) -> int:
        """``--make-vocab-size-divisible-by``, 128, for each of the tensor-parallel GPUs."""
        multiple = 128 * self.tensor
        return -(-self.built.vocabulary // multiple) * multiple

    def to_row(self) -> dict[str, str]:
        """The case as the first columns of the table."""
        return as_row(self)

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> MegatronCase:
        """The case that a table's row names."""
        return cls(**values_of(cls, row))


def cases() -> Iterator[MegatronCase]:
    """Every step of the table."""
    yield from _dense()
    yield from _mixtures()
    yield from _gpts()
    yield from _further()
    yield from _unfused()
    yield from _sequences()


def _mixtures() -> Iterator[MegatronCase]:
    """Mixtures of experts: each way of sharing them out with each of recomputing; pipelines."""
    for recompute in RECOMPUTES:
        for expert, tensor, expert_tensor, routing in (
            (1, 1, 1, "balanced"),
            (8, 1, 1, "balanced"),
            (8, 1, 1, "worst"),
            (4, 2, 1, "balanced"),
            (4, 2, 2, "worst"),
        ):
            yield MegatronCase(
                model="mixtral-8x7b",
                shape=(("layers", 5),),
                sequence=4096,
                micro_batches=2,
                recompute=recompute,
                loss="fused" if expert == 8 else "full",
                tensor=tensor,
                sequence_parallel=tensor > 1,
                data=8 // tensor,
                expert=expert,
                expert_tensor=expert_tensor,
                routing=routing,
                distributed_optimizer=expert > 1,
            )
    for recompute in ("none", "full"):
        for stage in range(2):
            yield MegatronCase(
                model="qwen3-30b-a3b",
                shape=(("layers", 8),),
                sequence=4096,
                micro_batches=4,
                recompute=recompute,
                loss="fused",
                pipeline=2,
                stage=stage,
                data=8,
                expert=8,
                distributed_optimizer=True,
            )
    for stage in range(4):
        yield MegatronCase(
            model="mixtral-8x7b",
            shape=(("layers", 8),),
            sequence=2048,
            micro_batches=8,
            recompute="full" if stage in (1, 3) else "none",
            pipeline=4,
            stage=stage,
            data=4,
            expert=4,
            routing="worst",
            distributed_optimizer=True,
        )
    for stage in range(2):
        yield MegatronCase(
            model="mixtral-8x7b",
            shape=(("layers", 8),),
            sequence=2048,
            micro_batches=4,
            loss="fused",
            pipeline=2,
            interleave=2,
            stage=stage,
            data=4,
            expert=4,
            distributed_optimizer=True,
        )
    for recompute in RECOMPUTES:
        for stage in range(2):
            yield MegatronCase(
                model="deepseek-v3",
                shape=(("layers", 6), ("dense_layers", 1)),
                sequence=4096,
                micro_batches=4,
                recompute=recompute,
                loss="fused",
                pipeline=2,
                stage=stage,
                data=8,
                expert=8,
                distributed_optimizer=True,
            )
    for model in ("deepseek-v2", "deepseek-v2-lite"):
        yield MegatronCase(
            model=model,
            shape=(("layers", 6), ("dense_layers", 1)),
            sequence=2048,
            micro_batch=2,
            tensor=2,
            sequence_parallel=True,
            data=4,
            expert=8,
            distributed_optimizer=True,
        )
    yield MegatronCase(
        model="qwen1.5-moe-a2.7b",
        sequence=2048,
        micro_batch=2,
        tensor=2,
        sequence_parallel=True,
        data=2,
        expert=4,
        distributed_optimizer=True,
    )


def _dense() -> Iterator[MegatronCase]:
    """Dense models: each way of splitting with each of recomputing, and sizes apart."""
    for recompute in RECOMPUTES:
        for tensor, parallel in ((1, False), (2, False), (2, True), (8, True)):
            for loss in LOSSES:
                yield MegatronCase(
                    model="llama-3-8b",
                    shape=(("layers", 5),),
                    sequence=4096,
                    micro_batch=2 if tensor == 2 else 1,
                    micro_batches=1 if loss == "full" else 2,
                    recompute=recompute,
                    loss=loss,
                    tensor=tensor,
                    sequence_parallel=parallel,
                    data=8 // tensor,
                    distributed_optimizer=loss == "full",
                )
    for recompute in RECOMPUTES:
        for stage in range(4):
            yield MegatronCase(
                model="llama-7b",
                shape=(("layers", 12),),
                sequence=2048,
                micro_batches=8,
                recompute=recompute,
                pipeline=4,
                stage=stage,
                tensor=2 if recompute != "none" else 1,
                sequence_parallel=recompute == "full",
                data=2,
                distributed_optimizer=True,
            )
    for stage in range(2):
        for micro_batches in (1, 4):
            yield MegatronCase(
                model="llama-3.2-1b",
                sequence=4096,
                micro_batches=micro_batches,
                loss="fused",
                pipeline=2,
                stage=stage,
                data=2,
                distributed_optimizer=True,
            )
    for stage in range(4):
        yield MegatronCase(
            model="llama-7b",
            shape=(("layers", 16),),
            sequence=2048,
            micro_batches=8,
            pipeline=4,
            interleave=2,
            stage=stage,
        )
    for tensor in (1, 2):
        yield MegatronCase(
            model="qwen2.5-0.5b",
            sequence=2048,
            micro_batch=4,
            tensor=tensor,
            data=4,
            distributed_optimizer=True,
        )
    for tensor in (1, 2):
        yield MegatronCase(
            model="qwen3-0.6b",
            sequence=2048,
            micro_batch=2,
            loss="fused",
            tensor=tensor,
            sequence_parallel=tensor > 1,
            data=2,
            distributed_optimizer=True,
        )
    yield MegatronCase(
        model="llama-3-70b",
        shape=(("layers", 12),),
        sequence=4096,
        micro_batches=4,
        loss="fused",
        tensor=4,
        sequence_parallel=True,
        data=2,
        distributed_optimizer=True,
    )


def _gpts() -> Iterator[MegatronCase]:
    """GPTs: each way of splitting with each of recomputing; a tied head on another stage; parts."""
    for recompute in RECOMPUTES:
        for tensor in (1, 2, 8):
            yield MegatronCase(
                model="gpt3-175b",
                shape=(("layers", 2),),
                sequence=2048,
                micro_batch=1 if tensor == 8 else 2,
                micro_batches=2,
                recompute=recompute,
                loss="fused" if tensor == 8 else "full",
                dropout=tensor > 1,
                tensor=tensor,
                sequence_parallel=tensor == 8,
                data=2,
                distributed_optimizer=tensor > 1,
            )
    for recompute in RECOMPUTES:
        for stage in (0, 1, 3):
            yield MegatronCase(
                model="gpt2-xl",
                shape=(("layers", 16), ("vocabulary", 8192)),
                sequence=1024,
                micro_batch=2,
                micro_batches=8,
                recompute=recompute,
                dropout=recompute != "selective",
                tensor=5 if recompute == "full" else 1,
                sequence_parallel=False,
                pipeline=4,
                stage=stage,
                data=2,
                distributed_optimizer=True,
            )
    for stage in range(2):
        yield MegatronCase(
            model="gpt2",
            shape=(("layers", 8), ("vocabulary", 1024)),
            sequence=1024,
            micro_batch=2,
            micro_batches=4,
            recompute="full" if stage else "none",
            dropout=True,
            pipeline=2,
            interleave=2,
            stage=stage,
        )
    for shape in (
        (("kv_heads", 4), ("tied", "false")),
        (("qk_norm", "head"),),
        (("positions", 0),),
        (("qkv_bias", "false"), ("output_bias", "false"), ("mlp_bias", "false")),
    ):
        yield MegatronCase(
            model="gpt2",
            shape=(("layers", 4), ("vocabulary", 1024), *shape),
            sequence=1024,
            micro_batch=4,
            recompute="selective",
            dropout=len(shape) < 3,
            tensor=2,
            sequence_parallel=True,
        )
    yield MegatronCase(
        model="llama-3-8b",
        shape=(("layers", 4), ("vocabulary", 4096)),
        sequence=4096,
        recompute="full",
        dropout=True,
        tensor=2,
        sequence_parallel=True,
    )


def _further() -> Iterator[MegatronCase]:
    """Steps that predict tokens further on: dense and mixtures, split in every way."""
    for recompute in RECOMPUTES:
        for tensor, parallel in ((1, False), (2, False), (2, True)):
            yield MegatronCase(
                model="llama-3-8b",
                shape=(("layers", 2), ("vocabulary", 8192)),
                sequence=2048,
                micro_batch=tensor,
                micro_batches=2,
                recompute=recompute,
                loss="full" if tensor == 1 else "fused",
                mtp_layers=1 if tensor == 1 else 2,
                tensor=tensor,
                sequence_parallel=parallel,
                data=2,
                distributed_optimizer=parallel,
            )
        for stage in range(2):
            yield MegatronCase(
                model="deepseek-v3",
                shape=(("layers", 4), ("dense_layers", 1)),
                sequence=4096,
                micro_batches=4,
                recompute=recompute,
                loss="fused",
                mtp_layers=1,
                pipeline=2,
                stage=stage,
                data=8,
                expert=8,
                distributed_optimizer=True,
            )
    yield MegatronCase(
        model="deepseek-v2-lite",
        shape=(("layers", 4), ("dense_layers", 1)),
        sequence=2048,
        micro_batch=2,
        mtp_layers=1,
        tensor=2,
        sequence_parallel=True,
        data=4,
        expert=4,
        distributed_optimizer=True,
    )
    for stage in range(2):
        yield MegatronCase(
            model="qwen3-0.6b",
            shape=(("layers", 4), ("vocabulary", 8192)),
            sequence=1024,
            micro_batch=2,
            micro_batches=4,
            mtp_layers=1,
            tensor=2,
            pipeline=2,
            interleave=2,
            stage=stage,
            data=2,
            distributed_optimizer=True,
        )


def _unfused() -> Iterator[MegatronCase]:
    """Mixtures whose tokens are put in order without fused kernels."""
    for recompute in RECOMPUTES:
        for expert, tensor, expert_tensor, routing in (
            (1, 1, 1, "balanced"),
            (8, 1, 1, "worst"),
            (4, 2, 2, "balanced"),
        ):
            yield MegatronCase(
                model="mixtral-8x7b",
                shape=(("layers", 3), ("vocabulary", 8192)),
                sequence=4096,
                micro_batches=2,
                recompute=recompute,
                loss="fused",
                tensor=tensor,
                sequence_parallel=tensor > 1,
                data=8 // tensor,
                expert=expert,
                expert_tensor=expert_tensor,
                routing=routing,
                permutation="unfused",
                distributed_optimizer=True,
            )
    for stage in range(2):
        yield MegatronCase(
            model="qwen3-30b-a3b",
            shape=(("layers", 4),),
            sequence=2048,
            micro_batches=4,
            loss="fused",
            pipeline=2,
            stage=stage,
            data=4,
            expert=4,
            permutation="unfused",
            distributed_optimizer=True,
        )


def _sequences() -> Iterator[MegatronCase]:
    """GPUs that share a sequence, in a ring; latent attention too."""
    for recompute in RECOMPUTES:
        for model, dense in (("llama-3-8b", 0), ("deepseek-v2", 1), ("deepseek-v2-lite", 1)):
            yield MegatronCase(
                model=model,
                shape=(("layers", 3), ("vocabulary", 8192), *[("dense_layers", 1)] * dense),
                sequence=8192,
                micro_batches=2,
                recompute=recompute,
                loss="fused",
                tensor=1 if model == "deepseek-v2-lite" else 2,
                sequence_parallel=model != "deepseek-v2-lite",
                data=2,
                context=4,
                expert=4 if dense else 1,
                distributed_optimizer=True,
            )
