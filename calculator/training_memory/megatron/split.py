"""How nanotron spreads layers over pipeline stages: by the cost of their products."""

from __future__ import annotations

from ..model import Model


def by_cost(model: Model, stages: int) -> tuple[int, ...]:
    """Layers of each stage: a stage ends with the block that brings the sum above its share.

    nanotron 0.4, src/nanotron/models/base.py, build_model; the costs of
    ``get_block_compute_costs``: a layer's products, and the head's. The last stage may be left with
    the head alone.
    """
    layer = 4 * model.heads * model.head_dim * model.hidden + 3 * model.ffn * model.hidden
    everything = model.layers * layer + model.vocabulary * model.hidden
    counts = [0] * stages
    stage = 0
    for number in range(1, model.layers + 1):
        counts[stage] += 1
        if number * layer * stages > everything * (stage + 1) and stage < stages - 1:
            stage += 1
    return tuple(counts)
