"""The GPUs of a run that differ from one another: which layers and parameters each kind holds."""

from __future__ import annotations

from functools import lru_cache

from .model import Model
from .parameters import ParameterTensor, Split
from .records import dataclass
from .run import Run


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One kind of GPU of a run.

    ``stage`` is its pipeline stage, from 0, and ``stands_for`` how many stages are like it or
    lighter; ``layers`` it holds start at ``first_layer`` (from 1). ``parameters`` are its share
    after tensor and pipeline splitting, ``head_parameters`` of them the output projection (or the
    tied embedding), 0 where it holds none. ``in_flight`` forward passes wait for their backward
    pass when the stage's first backward pass begins.
    """

    stage: int
    stages: int
    stands_for: int
    first_layer: int
    layers: int
    parameters: int
    head_parameters: int
    in_flight: int

    @property
    def is_last(self) -> bool:
        """Whether it holds the head and computes the loss."""
        return self.stage == self.stages - 1

    @property
    def label(self) -> str:
        """As a person would name it."""
        if self.stages == 1:
            return "every GPU"
        if self.stage == 0:
            return "first pipeline stage"
        if self.is_last:
            return "last pipeline stage"
        if self.stands_for > 1:
            last = self.stage + self.stands_for
            return f"stage {self.stage + 1}, fullest of {self.stage + 1} to {last}"
        return f"pipeline stage {self.stage + 1}"


def _tensor_share(row: ParameterTensor, model: Model, tensor: int) -> int:
    """Parameters of one row that one of ``tensor`` GPUs holds; an uneven share is padded."""
    if row.split is Split.REPLICATED or tensor == 1:
        return row.count
    if row.split is Split.VOCABULARY:
        return _ceil(row.shape[0], tensor) * (row.count // row.shape[0])
    if row.split is Split.KV:
        # With more GPUs than key-value heads, each GPU holds one head, and some hold the same.
        return _ceil(row.count, min(tensor, model.kv_heads))
    return _ceil(row.count, tensor)


@lru_cache(maxsize=256)
def _shares(model: Model, tensor: int) -> tuple[int, int, int, int]:
    """On one tensor-parallel GPU: parameters before, in and after the layers, and the head's."""
    sums = {"first": 0, "layer": 0, "last": 0}
    for row in model.tensors():
        sums[row.where] += _tensor_share(row, model, tensor)
    head = _ceil(model.vocabulary, tensor) * (model.hidden + model.head_bias)
    return sums["first"], sums["layer"], sums["last"], head


def _stage_parameters(run: Run, stage: int, first_layer: int, layers: int) -> tuple[int, int]:
    """Parameters on a stage, and the head's among them; layers' are spread evenly over layers."""
    before, in_layers, after, head = _shares(run.model, run.layout.tensor)
    end = first_layer + layers
    parameters = in_layers * end // run.model.layers - in_layers * first_layer // run.model.layers
    is_first, is_last = stage == 0, stage == run.layout.pipeline - 1
    if is_first:
        parameters += before
    if is_last:
        parameters += after
        if run.model.tied and not is_first:
            parameters += head  # The tied embedding cannot be in two places: each end has a copy.
    return parameters, head if is_last else 0


def rank_at(run: Run, stage: int) -> Rank:
    """The GPUs of one pipeline stage, from 0."""
    stages = run.layout.pipeline
    per_stage = run.layout.stage_layers(run.model.layers)
    first_layer, layers = sum(per_stage[:stage]), per_stage[stage]
    parameters, head = _stage_parameters(run, stage, first_layer, layers)
    return Rank(
        stage=stage,
        stages=stages,
        stands_for=stages - 2 if stage == 1 and stages > 2 else 1,
        first_layer=first_layer + 1,
        layers=layers,
        parameters=parameters,
        head_parameters=head,
        in_flight=min(run.micro_batches, stages - stage),
    )


def ranks(run: Run) -> tuple[Rank, ...]:
    """The kinds of GPU in a run: with a pipeline the first, the second and the last stage.

    The second stage stands for every middle one: it has at least as many layers and as many
    micro-batches in flight, so no middle stage needs more.
    """
    last = run.layout.pipeline - 1
    return tuple(rank_at(run, stage) for stage in sorted({0, min(1, last), last}))
