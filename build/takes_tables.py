"""What it takes: the smallest number of GPUs for each model of the catalog."""

from __future__ import annotations

from table import Cell, Column, Table
from training_memory import catalog, gpus
from training_memory.errors import InputErrors
from training_memory.model import Model
from training_memory.plans import fewest_gpus
from training_memory.run import Run

#: The sequence length; a model with fewer learned positions has its own.
SEQUENCE = 4096
#: The two sizes of GPU that are common in training.
GPUS = ("80gb", "h200-141gb")

_FULL: dict[str, object] = {"recipe": "mixed-adam"}
#: LoRA and QLoRA, shared out by FSDP2 where one GPU is not enough.
_ADAPTERS: dict[str, dict[str, object]] = {
    name: {"implementation": "huggingface", "adapter": name, "recipe": "autocast-adam"}
    for name in ("lora", "qlora")
}


def takes() -> Table:
    """The fewest GPUs for full training, LoRA and QLoRA, a sequence a GPU a step."""
    sizes = [gpus.get(name).memory_bytes // 10**9 for name in GPUS]
    ways = {"full": "full training", "lora": "LoRA", "qlora": "QLoRA"}
    return Table(
        columns=(
            Column(heading="Model", name="model", right=False),
            Column(heading="Parameters", name="parameters"),
            *(
                Column(heading=f"{words}, {size} GB", name=f"{way}_{size}gb_gpus")
                for way, words in ways.items()
                for size in sizes
            ),
        ),
        rows=tuple(_row(model) for model in catalog.models().values() if model.id != "decoder"),
    )


def _row(model: Model) -> tuple[Cell, ...]:
    return (
        Cell(model.id, model.name),
        Cell(model.parameters.total, f"{model.parameters.total:,}"),
        *(_fewest(_run(model, gpu, _FULL)) for gpu in GPUS),
        *(_adapted(model, gpu, how) for how in _ADAPTERS.values() for gpu in GPUS),
    )


def _run(model: Model, gpu: str, how: dict[str, object]) -> Run:
    sequence = min(SEQUENCE, model.positions or SEQUENCE)
    return Run.from_json({"model": model.id, "sequence": sequence, "gpu": gpu, **how})


def _fewest(run: Run) -> Cell:
    found = fewest_gpus(run)
    return Cell("", "none") if found is None else Cell(found, f"{found:,}")


def _adapted(model: Model, gpu: str, how: dict[str, object]) -> Cell:
    try:
        return _fewest(_run(model, gpu, how))
    except InputErrors:
        return Cell("", "–")
