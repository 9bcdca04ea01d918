"""The recorded traces hold together, and hold what is known by other means."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from math import prod

import pytest

from measure import blocks, context_matrix, matrix, tables, tuned
from measure.case import Case
from measure.fsdp1_case import Fsdp1Case
from measure.fsdp1_matrix import cases as fsdp1_cases
from measure.megatron_case import MegatronCase
from measure.megatron_case import cases as megatron_cases
from measure.places import PLACES
from measure.tables import FOLDER
from training_memory import catalog

ITEM_BYTES = {"fp32": 4, "bf16": 2, "bool": 1, "uint64": 8, "int64": 8, "int32": 4, "complex64": 8}


@pytest.fixture(scope="module")
def tensors():
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in tables.read(tables.TENSORS):
        found[row["block"]].append(row)
    return found


@pytest.fixture(scope="module")
def peaks():
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for row in tables.read(tables.PEAKS):
        found[row["step"]][row["phase"]] = row
    return found


def test_versions_and_dates_are_known():
    versions = json.loads((FOLDER / "versions.json").read_text(encoding="utf-8"))
    assert set(versions) == {
        *("blocks", "steps", "sharded", "sharded-tuning", "tuning", "real", "compiled"),
        *("megatron", "zero", "fsdp1", "pipelines", "context"),
    }
    assert versions["tuning"]["peft"]
    for kind in ("megatron", "pipelines"):
        assert versions.pop(kind)["megatron-core"]
    assert versions["zero"]["deepspeed"]
    assert versions["fsdp1"]["accelerate"]
    for kind in versions.values():
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", kind["date"])
        assert all(re.match(r"\d+\.\d+", kind[name]) for name in ("python", "torch"))
        assert re.match(r"\d+\.\d+", kind["transformers"])


def test_every_block_case_was_traced():
    recorded = [
        tuple(row[name] for name in tables.BLOCK_COLUMNS[1:10]) for row in tables.read("blocks.csv")
    ]
    expected = []
    for family, size, case in blocks.block_cases():
        row = {**case.to_row(), "family": family, "size": size}
        expected.append(tuple(row[name] for name in tables.BLOCK_COLUMNS[1:10]))
    assert recorded == expected


def test_every_step_of_fine_tuning_was_traced():
    assert [Case.from_row(row) for row in tables.read(tables.TUNED)] == list(tuned.cases())


def test_every_step_of_gpus_that_share_a_sequence_was_traced():
    rows, cases = tables.read(tables.CONTEXT), context_matrix.cases()
    names = [name for name in tables.CONTEXT_COLUMNS if name in cases[0].to_row()]
    assert {"context", "rotate", "rank"} <= {*names}
    assert [[row[name] for name in names] for row in rows] == [
        [case.to_row()[name] for name in names] for case in cases
    ]


def test_every_step_of_the_first_fsdp_was_traced():
    recorded = [Fsdp1Case.from_row(row) for row in tables.read(tables.FSDP1)]
    assert recorded == list(fsdp1_cases())


def test_every_stage_of_megatrons_was_traced():
    recorded = [MegatronCase.from_row(row) for row in tables.read(tables.MEGATRON)]
    assert recorded == list(megatron_cases())


def test_a_block_is_the_sum_of_its_tensors(tensors):
    for block in tables.read(tables.BLOCKS):
        for kind in ("kept", "weight copy", "shared"):
            size = sum(int(t["bytes"]) for t in tensors[block["block"]] if t["kind"] == kind)
            assert size == int(block[f"{kind.replace(' ', '_')}_bytes"]), block["block"]


def test_a_tensor_is_as_large_as_its_shape_and_dtype(tensors):
    for rows in tensors.values():
        for row in rows:
            shape = [int(n) for n in row["shape"].split("x") if n]
            assert prod(shape) * ITEM_BYTES[row["dtype"]] == int(row["bytes"])
            assert row["needed_by"]


# A layer's bytes a token and feature, by other people's derivations and by hand: f is the
# feed-forward width, g the key heads and w all heads' width, each over what it is compared with.
def _parts(block):
    shape = dict(item.split("=") for item in block["shape"].split())
    hidden, heads = int(shape["hidden"]), int(shape["heads"])
    width = heads * int(shape.get("head_dim", hidden // heads))
    return {
        "f": int(shape.get("ffn") or shape["expert_ffn"]) / hidden,
        "g": int(shape.get("kv_heads", heads)) / heads,
        "h": hidden,
        "a": heads,
        "s": int(block["sequence"]),
        "w": width / hidden,
        "tokens": int(block["micro_batch"]) * int(block["sequence"]) * hidden,
    }


# The flash kernel also keeps its random state: three 8-byte numbers.
RANDOM_STATE = 24
CLOSED_FORMS = {
    # Korthikanti et al. 2022, §4.1: 34 + 5as/h at f = 4 (18 + 4f), and LayerNorm's 16/h.
    ("classic-gpt", "bf16", "eager"): lambda p: 18 + 4 * p["f"] + 16 / p["h"] + _scores(p, 5),
    ("classic-gpt", "bf16", "flash"): lambda p: 18 + 4 * p["f"] + 16 / p["h"] + _lse(p),
    ("classic-gpt", "autocast", "eager"): lambda p: 22 + 4 * p["f"] + 16 / p["h"] + _scores(p, 7),
    ("classic-gpt", "fp32", "eager"): lambda p: 34 + 8 * p["f"] + 16 / p["h"] + _scores(p, 9),
    ("gpt2", "bf16", "eager"): lambda p: 18 + 10 * p["f"] + 16 / p["h"] + _scores(p, 5),
    ("llama", "bf16", "eager"): lambda p: 24 + 8 * p["f"] + 8 / p["h"] + _scores(p, 6),
    ("llama", "bf16", "flash"): lambda p: 20 + 4 * p["g"] + 8 * p["f"] + 8 / p["h"] + _lse(p),
    ("llama", "autocast", "eager"): lambda p: 34 + 8 * p["f"] + 8 / p["h"] + _scores(p, 6),
    ("llama", "autocast", "flash"): lambda p: 30 + 4 * p["g"] + 8 * p["f"] + 8 / p["h"] + _lse(p),
    ("llama", "fp32", "eager"): lambda p: 40 + 16 * p["f"] + 8 / p["h"] + _scores(p, 4),
    # Two RMSNorms keep their input and one number a token; keys and values are repeated.
    ("plain-llama", "bf16", "flash"): lambda p: 16 + 8 * p["f"] + 8 / p["h"] + _lse(p),
}


def _scores(p, item_bytes):
    return item_bytes * p["a"] * p["s"] / p["h"]


def _lse(p):
    return 4 * p["a"] / p["h"]


@pytest.mark.parametrize("form", CLOSED_FORMS, ids=" ".join)
def test_blocks_equal_their_closed_forms_to_the_byte(form):
    family, precision, attention = form
    found = 0
    for block in tables.read(tables.BLOCKS):
        if (block["family"], block["precision"], block["attention"]) == form:
            parts = _parts(block)
            if block["size"] == "one each" and family == "plain-llama":
                continue  # queries, keys and values are then not copied alike
            expected = CLOSED_FORMS[form](parts) * parts["tokens"]
            expected += RANDOM_STATE if attention == "flash" and precision != "fp32" else 0
            assert int(block["kept_bytes"]) == pytest.approx(expected, abs=1e-3), block["block"]
            found += 1
    assert found >= 2


def test_weights_are_copied_by_autocast_alone():
    for block in tables.read(tables.BLOCKS):
        copies = int(block["weight_copy_bytes"])
        assert (copies > 0) == (block["precision"] == "autocast"), block["block"]


def test_every_step_of_the_matrix_was_traced():
    recorded = [Case.from_row(row) for row in tables.read(tables.STEPS)]
    assert tuple(recorded) == matrix.cases()


def test_a_peak_is_the_sum_of_its_categories(peaks):
    for phases in peaks.values():
        for row in phases.values():
            parts = [int(row[f"{category}_bytes"]) for category in tables.CATEGORIES]
            assert sum(parts) == int(row["bytes"])
            assert min(parts) >= 0


def test_a_step_peaks_where_its_highest_phase_does(peaks):
    for step in tables.read(tables.STEPS):
        phases = peaks[step["step"]]
        assert set(phases) == {"forward", "backward", "step"} | (
            {"clip"} if step["clip"] == "yes" else set()
        )
        assert max(int(row["bytes"]) for row in phases.values()) == int(step["peak_bytes"])
        assert int(phases[step["peak_phase"]]["bytes"]) == int(step["peak_bytes"])
        assert int(step["after_forward_bytes"]) <= int(phases["forward"]["bytes"])
        assert int(step["after_forward_bytes"]) <= int(phases["backward"]["bytes"])
        assert int(step["persistent_bytes"]) <= int(step["after_backward_bytes"])


def test_moments_have_the_few_names(peaks):
    named = {"clip", "step"} | {
        f"{p}: {place}" for p in ("forward", "backward") for place in PLACES
    }
    for step in tables.read(tables.STEPS):
        layers = catalog.get(step["model"]).layers
        for row in peaks[step["step"]].values():
            assert row["moment"] in named
            assert int(row["with_workspace_bytes"]) >= int(row["bytes"])
            assert row["moment"].endswith("layer") == bool(row["layer"])
            assert not row["layer"] or int(row["layer"]) < layers


def test_parameters_are_what_the_catalogue_counts():
    for step in tables.read(tables.STEPS):
        model = catalog.get(step["model"])
        assert int(step["parameters"]) == model.parameters.total, step["model"]


# Bytes a parameter between steps: weights, 32-bit copies, states, 32-bit gradient buffers.
PERSISTENT = {
    ("fp32", "adamw"): 12,
    ("autocast", "adamw"): 12,
    ("bf16", "adamw"): 6,
    ("master", "adamw"): 14,
    ("master-fp32-grad", "adamw"): 18,
    ("fp32", "sgd"): 8,
    ("autocast", "sgd"): 8,
    ("bf16", "sgd"): 4,
    ("master", "sgd"): 10,
    ("master-fp32-grad", "sgd"): 14,
    # Two 8-bit states, and a 32-bit scale for each 256 of their numbers.
    ("fp32", "8bit"): 4 + 2 + 2 * 4 / 256,
    ("autocast", "8bit"): 4 + 2 + 2 * 4 / 256,
    ("bf16", "8bit"): 2 + 2 + 2 * 4 / 256,
    ("master", "8bit"): 6 + 2 + 2 * 4 / 256,
    ("master-fp32-grad", "8bit"): 10 + 2 + 2 * 4 / 256,
}


def test_what_is_held_between_steps_is_so_many_bytes_a_parameter(peaks):
    checked = 0
    for step in tables.read(tables.STEPS):
        optimizer = step["optimizer"]
        kind = "8bit" if optimizer == "adamw-8bit" else optimizer.split("-")[0]
        each = PERSISTENT.get((step["precision"], kind))
        if each:
            held = int(step["persistent_bytes"])
            row = peaks[step["step"]]["forward"]
            held -= int(row["buffers_bytes"]) + int(row["inputs_bytes"])
            assert held == pytest.approx(each * int(step["parameters"]), rel=2e-3)
            checked += 1
    assert checked > 100


# LLaMA 7B, one sequence of 4,096 tokens: traced independently, and before, to these bytes.
LLAMA_7B = {
    ("fp32", "none"): 127_217_600_512,
    ("fp32", "full"): 108_486_364_160,
    ("autocast", "none"): 125_634_250_752,
    ("autocast", "full"): 108_159_208_448,
    ("bf16", "none"): 66_585_241_600,
    ("bf16", "full"): 54_344_174_592,
    ("master", "none"): 120_492_566_528,
    ("master", "full"): 108_251_499_520,
    ("master-fp32-grad", "none"): 147_446_228_992,
    ("master-fp32-grad", "full"): 124_074_518_528,
}


@pytest.mark.parametrize(("choice", "expected"), LLAMA_7B.items(), ids=lambda v: str(v))
def test_llama_7b_is_as_traced_before(peaks, choice, expected):
    wanted = Case(
        model="llama-7b",
        micro_batch=1,
        sequence=4096,
        precision=choice[0],
        recompute=choice[1],
        optimizer="adamw-fused",
    )
    (step,) = (row for row in tables.read(tables.STEPS) if Case.from_row(row) == wanted)
    found = max(int(peaks[step["step"]][phase]["bytes"]) for phase in ("forward", "backward"))
    # The fused optimizer counts its steps on the GPU: 512 bytes for each of the 291 tensors.
    assert found - 291 * 512 == expected


def test_fake_and_real_steps_agree():
    rows = tables.read(tables.REAL)
    assert len({row["step"] for row in rows}) >= 40
    for row in rows:
        fake, real, allocator = (int(row[f"{by}_bytes"]) for by in ("fake", "real", "allocator"))
        assert fake == real, row
        # What the allocator sees more: each checkpoint's copy of the random state, 5,056 bytes.
        assert 0 <= allocator - fake <= 0.002 * fake, row


def test_a_table_with_other_columns_is_refused(tmp_path):
    (tmp_path / tables.BLOCKS).write_text("block,family\nB001,llama\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"blocks\.csv: columns"):
        tables.read(tables.BLOCKS, tmp_path)


def test_a_table_is_read_as_it_was_written(tmp_path):
    row = dict.fromkeys(tables.REAL_COLUMNS, "1")
    tables.write(tables.REAL, [row], tmp_path)
    assert tables.read(tables.REAL, tmp_path) == [row]
    assert [path.name for path in tmp_path.iterdir()] == [tables.REAL]
