"""What each of the site's tables holds: every value is asked of the calculator, or of the Decoder.

The Markdown shows rounded sizes; the CSV holds the bytes themselves.

The order and the words of the columns are the site's everywhere: see ``categories.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import accuracy_tables
import block_tables
import compiled_tables
import decoder_run
import decoder_tables
import format_tables
import glance_tables
import measured_tables
import megatron_tables
import peer_tables
import published_tables
import reserved_tables
import sharded_tables
import takes_tables
import tuning_tables
from table import Cell, Column, Table
from training_memory import catalog, recipe
from training_memory.categories import Category
from training_memory.estimate import RankEstimate, estimate
from training_memory.run import Run
from training_memory.units import gb, percent

#: The categories a results table shows; the layer being made again is part of the peak alone.
SHOWN: tuple[Category, ...] = (
    Category.WEIGHTS,
    Category.GRADIENTS,
    Category.OPTIMIZER,
    Category.MASTER,
    Category.ACTIVATIONS,
    Category.LOGITS,
)

#: What the Decoder's row shows of them.
SMALL: tuple[Category, ...] = (Category.ACTIVATIONS, Category.LOGITS)

#: The four ways to train LLaMA 7B that the site compares: recipe, recomputation, its words.
RESULTS = (
    ("mixed-adam", "none", "no recomputation"),
    ("mixed-adam", "selective", "selective recomputation"),
    ("mixed-adam", "full", "full recomputation"),
    ("fp32-adam", "none", "no recomputation"),
)

_COMPONENT_NAMES = {
    "embedding": "Token embedding",
    "positions": "Position embedding",
    "attention": "Attention",
    "mlp": "MLP",
    "router": "Router",
    "norms": "Norms",
    "head": "Output head",
}


def _worst(**run: object) -> RankEstimate:
    return estimate(Run.from_json(run)).worst


def _in_gb(size: int) -> Cell:
    return Cell(size, gb(size))


def _exact(number: int) -> Cell:
    return Cell(number, f"{number:,}")


def results() -> Table:
    """LLaMA 7B on one GPU, one sequence of 4,096 tokens: each category's largest, and the peak."""
    rows = []
    for recipe_id, recompute, words in RESULTS:
        found = _worst(
            model="llama-7b", sequence=4096, micro_batch=1, recipe=recipe_id, recompute=recompute
        )
        name = recipe.get(recipe_id).name
        rows.append(
            (
                Cell(f"{recipe_id}, {recompute}", f"{name}, {words}"),
                *(_in_gb(found.totals[category]) for category in SHOWN),
                _in_gb(found.peak_bytes),
            )
        )
    return Table(
        columns=(
            Column(heading="Recipe", name="recipe", right=False),
            *(Column(heading=one.heading, name=f"{one}_bytes") for one in SHOWN),
            Column(heading="Peak", name="peak_bytes"),
        ),
        rows=tuple(rows),
    )


def decoder() -> Table:
    """The Decoder, 16 sequences of 8 tokens, to the byte."""
    found = _worst(
        model="decoder", sequence=8, micro_batch=16, recipe="mixed-adam", recompute="none"
    )
    return Table(
        columns=(
            Column(heading="Parameters", name="parameters"),
            Column(heading="States", name="states_bytes"),
            *(Column(heading=one.heading, name=f"{one}_bytes") for one in SMALL),
            Column(heading="Peak", name="peak_bytes"),
        ),
        rows=(
            (
                _exact(found.rank.parameters),
                _exact(found.states_bytes),
                *(_exact(found.totals[one]) for one in SMALL),
                _exact(found.peak_bytes),
            ),
        ),
    )


def bytes_per_parameter() -> Table:
    """What every parameter costs with mixed-precision Adam, a row for each number kept."""
    states = recipe.get("mixed-adam").states
    total = sum(state.item_bytes for state in states)
    return Table(
        columns=(
            Column(heading="For every parameter", name="number", right=False),
            Column(heading="Format", name="format", right=False),
            Column(heading="Bytes", name="bytes"),
            Column(heading="Counted by", name="source", right=False),
        ),
        rows=(
            *(
                (
                    Cell(state.name, state.name[:1].upper() + state.name[1:]),
                    Cell(state.dtype),
                    Cell(state.item_bytes),
                    Cell(state.where),
                )
                for state in states
            ),
            (Cell("total", "**Total**"), Cell(""), Cell(total, f"**{total}**"), Cell("")),
        ),
    )


def llama_7b_parameters() -> Table:
    """LLaMA 7B's parameters by component; the total is the sum of the rows above it."""
    counts = {
        name: count
        for name, count in catalog.get("llama-7b").parameters.by_component.items()
        if count
    }
    total = sum(counts.values())
    return Table(
        columns=(
            Column(heading="Component", name="component", right=False),
            Column(heading="Parameters", name="parameters"),
            Column(heading="Share", name="share_percent"),
        ),
        rows=(
            *(
                (
                    Cell(name, _COMPONENT_NAMES[name]),
                    _exact(count),
                    Cell(percent(count, total, 2), f"{percent(count, total, 2)} %"),
                )
                for name, count in counts.items()
            ),
            (
                Cell("total", "**Total**"),
                Cell(total, f"**{total:,}**"),
                Cell(percent(total, total, 2), f"**{percent(total, total, 2)} %**"),
            ),
        ),
    )


def decoder_kept() -> Table:
    """What the Decoder's running trainer keeps, beside the formula."""
    return decoder_tables.kept(*decoder_run.counted())


def decoder_tape() -> Table:
    """Every value that the Decoder's tape keeps of one block, by name."""
    count, _ = decoder_run.counted()
    return decoder_tables.tape(count)


def decoder_rows() -> Table:
    """The Decoder's count beside the formula's ledger, row by row."""
    _, comparison = decoder_run.counted()
    return decoder_tables.rows(comparison)


def decoder_causes() -> Table:
    """Why the two differ, and by how much each."""
    _, comparison = decoder_run.counted()
    return decoder_tables.causes(comparison)


def decoder_gradients() -> Table:
    """The Decoder's gradients against numerical derivatives."""
    return decoder_tables.gradients(decoder_run.trained().gradients)


def decoder_loss() -> Table:
    """The Decoder's loss, step by step."""
    return decoder_tables.losses(decoder_run.trained().losses)


#: Every table by the name of its files in docs/generated/.
TABLES: dict[str, Callable[[], Table]] = {
    "results": results,
    "decoder": decoder,
    "decoder-kept": decoder_kept,
    "decoder-tape": decoder_tape,
    "decoder-rows": decoder_rows,
    "decoder-causes": decoder_causes,
    "decoder-gradients": decoder_gradients,
    "decoder-loss": decoder_loss,
    "bytes-per-parameter": bytes_per_parameter,
    "llama-7b-parameters": llama_7b_parameters,
    "zero-figure-1": published_tables.zero_figure_1,
    "zero-table-1": published_tables.zero_table_1,
    "recomputation-table-2": published_tables.recomputation_table_2,
    "recomputation-models": published_tables.recomputation_models,
    "accuracy-glance": glance_tables.glance,
    "accuracy": accuracy_tables.summary,
    "accuracy-steps": accuracy_tables.steps,
    "sharded": sharded_tables.summary,
    "sharded-steps": sharded_tables.steps,
    "tuning": tuning_tables.summary,
    "tuning-steps": tuning_tables.steps,
    "megatron": megatron_tables.summary,
    "megatron-steps": megatron_tables.steps,
    "blocks": block_tables.summary,
    "blocks-all": block_tables.every,
    "blocks-tensors": block_tables.tensors,
    "compiled": compiled_tables.summary,
    "peers": peer_tables.summary,
    "peers-rows": peer_tables.rows,
    "peers-split": peer_tables.split_rows,
    "reserved": reserved_tables.shares,
    "beside": reserved_tables.beside,
    "what-it-takes": takes_tables.takes,
    "formats": format_tables.formats,
    "formats-keys": format_tables.keys,
    "formats-lost": format_tables.lost,
    "measured": measured_tables.summary,
    "measured-rows": measured_tables.rows,
}
