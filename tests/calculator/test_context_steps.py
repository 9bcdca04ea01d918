"""Steps of GPUs that share each sequence against PyTorch's ``context_parallel`` itself, traced."""

from __future__ import annotations

from typing import Any

import pytest

from traced import asked as traced_run
from traced import highest_of_run, rows_of
from training_memory.categories import Category
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.moves import words
from training_memory.readers.formats import read_files
from training_memory.run import Run

EXCHANGES = {"allgather": "all-gather", "alltoall": "ring"}
ROWS = rows_of("context-steps.csv")


def fullest(row: dict[str, str]) -> bool:
    """Whether it is the GPU that the calculator follows: it has others before and after it."""
    return int(row["rank"]) == min(1, int(row["context"]) - 2)


def asked(row: dict[str, str]) -> dict[str, Any]:
    """The run that a row traced."""
    return {
        **traced_run(row),
        "data": int(row["data"]) * int(row["replicas"]),
        "context": row["context"],
        "context_exchange": EXCHANGES[row["rotate"]],
        "replicate": row["replicas"],
        "reshard_after_forward": row["reshard"] == "yes",
        "fsdp_units": row["wrap"],
        "prefetch": row["prefetch"],
        "reduce_dtype": row["reduce_dtype"],
    }


def test_there_are_rows_of_every_kind():
    assert len([row for row in ROWS if fullest(row)]) >= 30
    assert {row["context"] for row in ROWS} == {"2", "4", "8"}
    for name in ("rotate", "recompute", "reshard", "wrap", "prefetch", "reduce_dtype", "clip"):
        assert len({row[name] for row in ROWS}) == 2, name
    assert {row["rank"] for row in ROWS} == {"0", "1", "2", "3"}


@pytest.mark.parametrize("row", [row for row in ROWS if fullest(row)], ids=lambda row: row["step"])
def test_every_phase_peaks_as_high_as_in_pytorch(row):
    found = highest_of_run(Run.from_json(asked(row)))
    for phase in ("forward", "backward", "clip", "step"):
        if row[f"{phase}_peak_bytes"]:
            assert found[phase].bytes == int(row[f"{phase}_peak_bytes"]), phase


@pytest.mark.parametrize(
    "row", [row for row in ROWS if not fullest(row)], ids=lambda row: row["step"]
)
def test_no_other_gpu_of_a_sequence_holds_more(row):
    found = highest_of_run(Run.from_json(asked(row)))
    for phase in ("forward", "backward"):
        assert found[phase].bytes >= int(row[f"{phase}_peak_bytes"]), phase


LONG = {"implementation": "torchtitan", "model": "llama-3-8b", "sequence": 65536, "gpu": None}


def test_gpus_that_share_a_sequence_share_the_weights_too():
    # torchtitan, distributed/parallel_dims.py: FSDP's mesh is dp_shard × cp.
    two = Run.from_json({**LONG, "data": 4, "context": 2})
    assert two.layout.zero == 3
    alone = estimate(Run.from_json({**LONG, "data": 8})).worst
    assert estimate(two).worst.states_bytes == alone.states_bytes


def test_each_gpu_has_its_share_of_the_logits():
    whole, eighth = (
        estimate(Run.from_json({**LONG, "sequence": 8192, **how})).worst.totals[Category.LOGITS]
        for how in ({"data": 8}, {"context": 8})
    )
    assert abs(whole - 8 * eighth) < 8 * 8 * 512


def test_a_change_to_it_is_called_what_it_is():
    before = Run.from_json({**LONG, "recompute": "full"})
    after = Run.from_json({**LONG, "recompute": "full", "context": 4})
    assert words(before, after) == ("Context parallelism: 4 GPUs share a sequence",)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"implementation": "huggingface", "sharding": "fsdp2"}, "context"),
        ({"sharding": "ddp"}, "sharding"),
        ({"tensor": 2}, "tensor"),
        ({"context_exchange": "ulysses"}, "context_exchange"),
        ({"recipe": "fp32-adam"}, "recipe"),
        ({"recompute": "matmuls"}, "recompute"),
        ({"attention": "eager"}, "attention"),
        ({"compile": "layers"}, "compile"),
        ({"offload": "saved"}, "offload"),
        ({"loss": "chunked"}, "loss"),
        ({"sequence": 65537}, "sequence"),
    ],
)
def test_what_is_not_followed_where_gpus_share_a_sequence_is_refused(fields, named):
    with pytest.raises(InputErrors) as caught:
        Run.from_json({**LONG, "context": 4, **fields})
    assert named in {error.field for error in caught.value.errors}


@pytest.mark.parametrize(
    ("told", "exchange"),
    [
        ("", "all-gather"),
        ('context_parallel_rotate_method = "allgather"', "all-gather"),
        ('context_parallel_rotate_method = "alltoall"', "ring"),
    ],
)
def test_torchtitans_files_say_it(told, exchange):
    # torchtitan, config/job_config.py: context_parallel_rotate_method is "allgather" by default.
    text = f"""
[model]
name = "llama3"
flavor = "8B"
[training]
seq_len = 32768
local_batch_size = 1
[activation_checkpoint]
mode = "full"
[parallelism]
data_parallel_shard_degree = 2
context_parallel_degree = 4
{told}
"""
    run = Run.from_json({**read_files([("train.toml", text)], {}).fields, "model": "llama-3-8b"})
    assert (run.layout.data, run.layout.context) == (2, 4)
    assert str(run.layout.context_exchange) == exchange
    alone = text.replace("context_parallel_degree = 4", "context_parallel_degree = 1")
    assert read_files([("train.toml", alone)], {}).fields.get("context_exchange") is None
