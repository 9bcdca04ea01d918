"""The GPUs of a run that differ from one another: which layers and parameters each kind holds."""

from __future__ import annotations

from functools import lru_cache

from .implementations import BY_STAGES, Implementation
from .layout import Layout
from .model import Model
from .parameters import ParameterTensor, Split
from .pipeline import Schedule, waiting
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
    pass when the stage's first backward pass begins; each goes through one of the ``parts`` of the
    model that the stage holds. ``waiting`` is :func:`.pipeline.waiting`'s. ``expert_parameters``
    are those of routed experts, which other GPUs share than share the rest.
    """

    stage: int
    stages: int
    stands_for: int
    first_layer: int
    layers: int
    parameters: int
    head_parameters: int
    in_flight: int
    waiting: tuple[tuple[int, int], ...] = ()
    parts: int = 1
    expert_parameters: int = 0

    @property
    def layers_at_once(self) -> int:
        """Layers that one forward pass goes through."""
        return self.layers // self.parts

    def first_layer_of(self, part: int) -> int:
        """The first layer, from 1, of one of its parts: they lie all stages' layers apart."""
        return self.first_layer + part * self.layers_at_once * self.stages

    def has_head(self, part: int) -> bool:
        """Whether a forward pass through this part ends with the head and the loss."""
        return self.is_last and part == self.parts - 1

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
def _shares(model: Model, tensor: int, experts_over: int) -> tuple[int, int, int, int, int]:
    """On one GPU: parameters before, in and after the layers, the head's, the routed experts'.

    ``experts_over`` GPUs share out the experts, or the numbers of each.
    """
    sums = {"first": 0, "layer": 0, "last": 0, "experts": 0}
    for row in model.tensors():
        where = "experts" if row.expert else row.where
        over = _ceil(row.count, experts_over) if row.expert else _tensor_share(row, model, tensor)
        sums[where] += over
    head = _ceil(model.vocabulary, tensor) * (model.hidden + model.head_bias)
    return sums["first"], sums["layer"], sums["last"], head, sums["experts"]


def _stage_parameters(run: Run, stage: int, first_layer: int, layers: int) -> tuple[int, int, int]:
    """Parameters on a stage, the head's and the experts' among them.

    Those of layers are spread evenly over the layers.
    """
    layout, all_layers = run.layout, run.model.layers
    before, in_layers, after, head, in_experts = _shares(
        run.model, layout.tensor, layout.expert * layout.expert_tensor
    )
    end = first_layer + layers
    parameters, experts = (
        of_all * end // all_layers - of_all * first_layer // all_layers
        for of_all in (in_layers + in_experts, in_experts)
    )
    is_first, is_last = stage == 0, stage == run.layout.pipeline - 1
    if is_first:
        parameters += before
    if is_last:
        parameters += after
        if run.model.tied and not is_first:
            parameters += head  # The tied embedding cannot be in two places: each end has a copy.
    if is_last and run.switches.mtp_layers:
        from .megatron.buffers import further_parameters

        further, of_experts = further_parameters(run)
        parameters, experts = parameters + further, experts + of_experts
    return parameters, head if is_last else 0, experts


def layers_by_stage(run: Run) -> tuple[int, ...]:
    """Layers on each pipeline stage: as they were given, or as the implementation spreads them."""
    layout = run.layout
    if run.implementation is Implementation.NANOTRON and layout.layers_per_stage is None:
        from .megatron.split import by_cost

        return by_cost(run.model, layout.pipeline)
    return layout.stage_layers(run.model.layers)


def rank_at(run: Run, stage: int, stands_for: int = 1) -> Rank:
    """The GPUs of one pipeline stage, from 0."""
    layout = run.layout
    stages = layout.pipeline
    per_stage = layers_by_stage(run)
    layers = per_stage[stage]
    # Where parts interleave, a stage's first part follows the first parts of those before it.
    first_layer = sum(per_stage[:stage]) // layout.interleave
    parameters, head, experts = _stage_parameters(run, stage, first_layer, layers)
    held = waiting(
        layout.schedule,
        stages=stages,
        stage=stage,
        micro_batches=run.micro_batches,
        parts=layout.interleave,
    )
    return Rank(
        stage=stage,
        stages=stages,
        stands_for=stands_for,
        first_layer=first_layer + 1,
        layers=layers,
        parameters=parameters,
        head_parameters=head,
        in_flight=held[0][0],
        waiting=held,
        parts=layout.interleave,
        expert_parameters=experts,
    )


def ranks(run: Run) -> tuple[Rank, ...]:
    """The kinds of GPU in a run: with a pipeline the first, the second and the last stage.

    The second stage stands for every middle one: it has at least as many layers and as many
    micro-batches in flight, so no middle stage needs more. Where each stage has its own number of
    layers, or some have layers without experts, the earliest of each kind stands for those after
    it.
    """
    layout = run.layout
    last = layout.pipeline - 1
    per_stage = layers_by_stage(run)
    dense = run.model.dense_layers if run.implementation in BY_STAGES else 0
    halved = layout.schedule is Schedule.ZERO_BUBBLE
    if (
        not halved
        and dense <= per_stage[0] // layout.interleave
        and per_stage == Layout(pipeline=layout.pipeline).stage_layers(run.model.layers)
    ):
        return tuple(
            rank_at(run, stage, stands_for=last - 1 if 0 < stage < last else 1)
            for stage in sorted({0, min(1, last), last})
        )
    kinds: dict[tuple[int, int], int] = {}
    latest: dict[tuple[int, int], int] = {}
    for stage in range(1, last):
        before = sum(per_stage[:stage]) // layout.interleave
        without = min(max(dense - before, 0), per_stage[stage])
        kinds.setdefault((per_stage[stage], without), stage)
        latest[per_stage[stage], without] = stage
    middle = {*kinds.values(), *(latest.values() if halved else ())}
    return tuple(rank_at(run, stage) for stage in sorted({0, *middle, last}))
