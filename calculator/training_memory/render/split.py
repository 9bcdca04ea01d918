"""How a run is split: a small picture of which part each GPU holds, and the kinds of GPU."""

from __future__ import annotations

from collections.abc import Iterator

from ..categories import Category
from ..estimate import Estimate
from ..rank import layers_by_stage
from ..run import Run
from ..units import show_bytes
from .answer import layout_words
from .svg import escape, swatch, text

# Cells that are drawn; of more, the first and the last with the number left out between them.
_REPLICAS, _STAGES, _SHARDS = 4, 8, 8
_CELL, _GAP = 26, 4
# The width of a stage's name beside its row.
_NAMES = 88


def split(estimate: Estimate, *, binary: bool = False, prefix: str = "tm") -> str:
    """The picture and, with a pipeline, a table of its stages; nothing for a single GPU."""
    run = estimate.run
    if run.layout.gpus == 1:
        return ""
    return (
        '<p class="tm-heading">What each GPU holds</p>'
        f'<figure class="tm-split"><div class="tm-gpus" role="img" '
        f'aria-label="{escape(_spoken(run))}">{_replicas(run)}</div>'
        f'<figcaption class="tm-caption">{_columns(prefix)}'
        f"<ul>{''.join(_sentences(run))}</ul></figcaption></figure>"
        f"{_kinds(estimate, binary=binary) if len(estimate.ranks) > 1 else ''}"
    )


def _columns(prefix: str) -> str:
    """What the columns in each GPU stand for."""
    named = (
        (Category.WEIGHTS, "weights"),
        (Category.GRADIENTS, "gradients"),
        (Category.OPTIMIZER, "optimizer states"),
    )
    items = "".join(f"<li>{swatch(category, prefix)} {words}</li>" for category, words in named)
    return f'<ul class="tm-columns" aria-label="The columns in each GPU">{items}</ul>'


def _kept(count: int, most: int) -> list[int | None]:
    """The indices drawn of ``count``, with None where some are left out."""
    if count <= most:
        return list(range(count))
    return [*range(most - 1), None, count - 1]


def _replicas(run: Run) -> str:
    found = ""
    for replica in _kept(run.layout.data, _REPLICAS):
        if replica is None:
            found += f'<span class="tm-more">… {run.layout.data - _REPLICAS:,} more</span>'
        else:
            found += _replica(run, replica)
    return found


def _replica(run: Run, replica: int) -> str:
    """One replica: a row of cells for each stage, a cell for each GPU that shares its layers."""
    layout = run.layout
    stages, shards = _kept(layout.pipeline, _STAGES), _kept(layout.tensor, _SHARDS)
    left = _NAMES if layout.pipeline > 1 else 0
    width = left + len(shards) * (_CELL + _GAP) - _GAP
    height = len(stages) * (_CELL + _GAP) - _GAP
    cells = ""
    for row, stage in enumerate(stages):
        y = row * (_CELL + _GAP)
        if left:
            name = "⋮" if stage is None else _layers(run, stage)
            cells += text(name, x="0", y=y + 17, css="tm-tick-label")
        for column, shard in enumerate(shards):
            x = left + column * (_CELL + _GAP)
            if stage is None or shard is None:
                mark = "⋮" if stage is None else "…"
                middle = str(x + _CELL // 2)
                cells += text(mark, x=middle, y=y + 17, css="tm-tick-label", anchor="middle")
            else:
                cells += _gpu(run, replica, shard, x, y)
    name = f"replica {replica + 1:,}" if layout.data > 1 else ""
    return (
        f'<span class="tm-replica"><svg width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" aria-hidden="true">{cells}</svg>'
        f"<span>{name}</span></span>"
    )


def _layers(run: Run, stage: int) -> str:
    """Which layers a stage holds."""
    per_stage = layers_by_stage(run)
    if not per_stage[stage]:
        return "no layer"
    if run.layout.interleave > 1:
        return f"{per_stage[stage]} layers, in {run.layout.interleave} parts"
    first = sum(per_stage[:stage]) + 1
    last = first + per_stage[stage] - 1
    return f"layers {first}–{last}" if last > first else f"layer {first}"


def _part(whole: int, parts: int, index: int, least: int) -> tuple[int, int]:
    """Start and size of one of ``parts`` shares of a length.

    A share too thin to be seen is drawn thicker; the first still lies at the start and the last at
    the end.
    """
    if parts == 1:
        return 0, whole
    size = max(least, whole // parts)
    return index * (whole - size) // (parts - 1), size


def _gpu(run: Run, replica: int, shard: int, x: int, y: int) -> str:
    """One GPU, with a column each for weights, gradients and the optimizer's states.

    What other GPUs hold instead of it is pale. The share it holds moves down from one replica to
    the next, and to the right from one tensor-parallel GPU to the next.
    """
    layout = run.layout
    columns = (
        (Category.WEIGHTS, layout.zero >= 3),
        (Category.GRADIENTS, layout.zero >= 2),
        (Category.OPTIMIZER, layout.zero >= 1),
    )
    inner, wide = _CELL - 4, (_CELL - 4 - 2 * 2) // 3
    found = f'<rect class="tm-gpu" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" rx="2"/>'
    for place, (category, shared) in enumerate(columns):
        parts = _shards(run) if shared else 1
        top, height = _part(inner, parts, replica % parts, least=3)
        beside, width = _part(wide, layout.tensor, shard, least=2)
        left = x + 2 + place * (wide + 2)
        if (width, height) != (wide, inner):
            found += (
                f'<rect class="tm-elsewhere tm-{category}" x="{left}" width="{wide}" '
                f'y="{y + 2}" height="{inner}"/>'
            )
        found += (
            f'<rect class="tm-{category}" x="{left + beside}" width="{width}" '
            f'y="{y + 2 + top}" height="{height}"/>'
        )
    return found


def _shards(run: Run) -> int:
    """How many replicas share the model: some of them, where it is there several times over."""
    return run.layout.data // run.sharding.replicate


def _sentences(run: Run) -> Iterator[str]:
    layout, model = run.layout, run.model
    if layout.data > 1:
        shards = _shards(run)
        share = f"each holds 1/{shards:,}"
        shared = {
            0: "each holds all of its weights, gradients, Adam state and master copy",
            1: f"{share} of the Adam state and the master copy",
            2: f"{share} of the Adam state, master copy and gradients",
            3: f"{share} of the Adam state, master copy, gradients and weights",
        }
        yield f"<li>{layout.data:,} replicas: {shared[layout.zero if shards > 1 else 0]}.</li>"
    if layout.tensor > 1:
        tokens = ", and of the tokens between them" if layout.sequence_parallel else ""
        yield (
            f"<li>A row's {layout.tensor:,} GPUs share their layers: each holds "
            f"1/{layout.tensor:,} of every matrix{tokens}.</li>"
        )
    if layout.pipeline > 1:
        counts = sorted(set(layers_by_stage(run)))
        between = " to " if len(counts) > 2 else " or "
        layers = between.join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
        yield (
            f"<li>{layout.pipeline:,} rows are pipeline stages of {layers} of the "
            f"{model.layers:,} layers, the first with the embedding, the last with the head.</li>"
        )


def _spoken(run: Run) -> str:
    return layout_words(run)


def _kinds(estimate: Estimate, *, binary: bool) -> str:
    rows = "".join(
        f'<tr class="{"tm-worst" if rank is estimate.worst else ""}">'
        f'<th scope="row">{rank.rank.label[0].upper()}{rank.rank.label[1:]}</th>'
        f'<td class="tm-number">{rank.rank.layers:,}</td>'
        f'<td class="tm-number">{rank.rank.parameters:,}</td>'
        f'<td class="tm-number">{rank.rank.in_flight:,}</td>'
        f'<td class="tm-number">{show_bytes(rank.peak_bytes, binary=binary)}</td></tr>'
        for rank in estimate.ranks
    )
    return (
        '<div class="tm-scroll" role="region" tabindex="0" aria-label="Pipeline stages">'
        '<table class="tm-kinds"><caption>The stages differ; answer and bar are the '
        "fullest's</caption>"
        '<thead><tr><th scope="col">Stage</th>'
        '<th scope="col" class="tm-number">Layers</th>'
        '<th scope="col" class="tm-number">Parameters a GPU</th>'
        '<th scope="col" class="tm-number">Micro-batches held</th>'
        '<th scope="col" class="tm-number">Peak</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
