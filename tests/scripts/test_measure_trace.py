"""The referee itself: what it counts, against what can be counted by hand and what is recorded."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import re
from pathlib import Path

import pytest

from measure import fake_cuda, tables
from measure.case import Case

try:
    from measure import backend
except fake_cuda.UnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

from measure import losses, oplog, saved, step, workspaces
from measure.fused_linear import FusedLinearLoss, chunk_tokens
from measure.labels import shifted
from measure.modules import Modules
from measure.places import PLACES, place
from measure.storages import Category, Tracker

torch = backend.torch
pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = Case(
    model="llama-3.2-1b",
    shape=(
        ("layers", 2),
        ("hidden", 256),
        ("heads", 4),
        ("kv_heads", 2),
        ("head_dim", 64),
        ("ffn", 704),
        ("vocabulary", 1000),
    ),
    micro_batch=2,
    sequence=128,
)


def _tracker(**options):
    modules = Modules.of(())
    classify = lambda *_: Category.ACTIVATIONS  # noqa: E731
    return Tracker(device="cuda", modules=modules, classify=classify, **options)


def test_the_shim_knows_every_operation_that_would_be_decomposed():
    """Operations with a kernel on CUDA and a decomposition elsewhere, by PyTorch's own list."""
    yaml = pytest.importorskip("yaml")
    torchgen = pytest.importorskip("torchgen")
    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    functions = {
        entry["func"].split("(")[0]: entry
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))
    }

    def keys(entry):
        return {key.strip() for names in entry.get("dispatch", {}) for key in names.split(",")}

    names = set()
    for name, entry in functions.items():
        delegate = functions.get(entry.get("structured_delegate"), {})
        if "CompositeImplicitAutograd" in keys(entry) and "CUDA" in keys(entry) | keys(delegate):
            names.add(name)
    source = fake_cuda.SOURCE.read_text(encoding="utf-8")
    assert set(re.findall(r'library\.impl\("(\w+)"', source)) == names


def test_storages_are_counted_once_rounded_and_until_they_die():
    with backend.fake_mode(), _tracker() as tracker:
        tracker.begin("forward")
        x = torch.empty(100, device="cuda")  # 400 bytes
        assert tracker.total == 512
        view = x.view(10, 10)[2:].t()
        assert tracker.total == 512
        y = x + x
        del x
        assert tracker.total == 1024  # the view holds what x was
        del view
        assert tracker.total == 512
        y.add_(1)
        del y
        assert tracker.total == 0
        assert tracker.peaks["forward"].bytes == 1024
        assert torch.empty(100).numel() == 100  # another device's
        assert tracker.total == 0


def test_a_peak_is_the_first_of_its_height():
    with backend.fake_mode(), _tracker() as tracker:
        tracker.begin("forward")
        x = torch.zeros(128, device="cuda")
        del x
        y = torch.ones(128, device="cuda")
        assert tracker.peaks["forward"].operation.startswith("aten.zeros")
        tracker.begin("backward")
        assert tracker.peaks["backward"].operation == "start of backward"
        del y


@pytest.mark.parametrize("precision", ["fp32", "autocast", "bf16", "master", "master-fp32-grad"])
@pytest.mark.parametrize("recompute", ["none", "full", "selective", "matmuls"])
def test_nothing_but_what_is_persistent_outlives_a_step(precision, recompute):
    found = step.trace(SMALL.with_(precision=precision, recompute=recompute, clip=True))
    after = found.after_backward - found.persistent
    bytes_each = {"fp32": 4, "autocast": 4, "master-fp32-grad": 0}.get(precision, 2)
    assert after == pytest.approx(bytes_each * found.parameters, rel=0.002, abs=0)


def test_the_log_adds_up_to_the_trace():
    file = io.StringIO()
    found = step.trace(SMALL, log=oplog.OperationLog(file))
    file.seek(0)
    rows = list(csv.DictReader(file, delimiter="\t"))
    assert tuple(rows[0]) == oplog.COLUMNS
    total, highest = 0, 0
    for row in rows:
        total += int(row["bytes"] or 0)
        assert total == int(row["total"])
        if row["phase"] == "backward":
            highest = max(highest, total)
    assert highest == found.peaks["backward"].bytes
    born = {row["storage"] for row in rows if row["event"] == "alloc"}
    died = [row["storage"] for row in rows if row["event"] == "free"]
    assert len(died) == len(set(died))
    assert set(died) <= born
    assert {row["module"] for row in rows} >= {"model.layers.1.mlp", "model.embed_tokens"}


def test_backward_knows_its_modules():
    found = step.trace(SMALL.with_(recompute="full", micro_batches=2, loss="chunked"))
    for phase in ("forward", "backward"):
        assert place(found.modules[phase]).name in PLACES
    layer_peak = step.trace(SMALL.with_(recompute="full", loss="chunked", attention="eager"))
    assert place(layer_peak.modules["backward"]).name == "layer"


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("model.layers.11.mlp.act_fn", ("layer", 11)),
        ("transformer.h.0", ("layer", 0)),
        ("transformer.wpe", ("embedding", None)),
        ("model", ("embedding", None)),
        ("model.norm", ("final norm", None)),
        ("lm_head", ("head", None)),
        ("", ("loss", None)),
    ],
)
def test_places(module, expected):
    assert place(module) == expected


def test_an_unknown_place_is_an_error():
    with pytest.raises(ValueError, match="'vision_tower' has no place"):
        place("vision_tower")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [FusedLinearLoss, losses.ChunkedLoss], ids=["fused", "chunked"])
def test_losses_without_all_logits_are_the_same_loss(make, dtype, monkeypatch):
    monkeypatch.setattr(losses, "CHUNK_TOKENS", 32)
    torch.manual_seed(0)
    hidden = torch.randn(2, 50, 16, dtype=dtype, requires_grad=True)
    head = torch.nn.Linear(16, 64, bias=False, dtype=dtype)
    labels = torch.randint(0, 64, (2, 50))
    plain = torch.nn.functional.cross_entropy(head(hidden).float().flatten(0, 1), shifted(labels))
    expected = torch.autograd.grad(plain, (hidden, head.weight))
    loss = make()(hidden, head, labels)
    torch.testing.assert_close(loss, plain, rtol=1e-4, atol=1e-5)
    close = {} if dtype is torch.float32 else {"rtol": 0.05, "atol": 2e-3}
    torch.testing.assert_close(torch.autograd.grad(loss, (hidden, head.weight)), expected, **close)


def test_a_fused_chunk_is_as_large_as_the_input():
    # The example of Hsu et al. 2024, §3.2: 16,384 tokens, 4,096 features, 32,000 words.
    assert chunk_tokens(4 * 4096, 4096, 32_000) == 2048
    assert chunk_tokens(8, 4096, 1000) == 8


def test_flash_scratch_memory_by_hand():
    shape = {"batch": 1, "heads": 32, "sequence": 4096, "key_sequence": 4096, "width": 128}
    alone = workspaces.flash_backward_bytes(**shape, kv_heads=32, rounding=512)
    assert alone == 4 * 4096 * 4096 + 4 * 32 * 4096
    grouped = workspaces.flash_backward_bytes(**shape, kv_heads=8, rounding=512)
    assert grouped - alone == 2 * 2 * 4096 * 4096


def test_a_step_counts_the_flash_kernel_apart():
    # Elsewhere it never shows: other operations of a layer's backward pass hold more at once.
    narrow = dict(SMALL.shape) | {"layers": 1, "ffn": 8, "vocabulary": 8, "hidden": 64}
    case = SMALL.with_(implementation="torchtitan", sequence=1024, shape=tuple(narrow.items()))
    found = step.trace(case)
    backward = found.peaks["backward"].bytes
    assert backward < found.with_workspace["backward"]
    assert found.with_workspace["forward"] == found.peaks["forward"].bytes


def _same_versions(kind):
    recorded = json.loads((tables.FOLDER / "versions.json").read_text(encoding="utf-8"))[kind]
    for package in ("torch", "transformers"):
        installed = importlib.metadata.version(package)
        if installed.split("+")[0] != recorded[package].split("+")[0]:
            pytest.skip(f"recorded with {package} {recorded[package]}, installed {installed}")


@pytest.mark.parametrize("block", ["B003", "B025", "B050", "B090", "B120", "B150"])
def test_a_block_is_as_recorded(block):
    _same_versions("blocks")
    (row,) = (row for row in tables.read(tables.BLOCKS) if row["block"] == block)
    case = Case.from_row({**SMALL.to_row(), **row, "optimizer": "sgd-momentum"})
    found = [
        {
            "block": block,
            "kind": tensor.kind,
            "shape": "x".join(map(str, tensor.shape)),
            "dtype": tensor.dtype,
            "bytes": str(tensor.bytes),
            "made_by": tensor.made_by,
            "needed_by": " ".join(tensor.needed_by),
        }
        for tensor in saved.saved_tensors(case)
    ]
    assert found == [row for row in tables.read(tables.TENSORS) if row["block"] == block]


def test_steps_are_as_recorded():
    """Three of the smallest model's steps, traced again."""
    _same_versions("steps")
    peaks = {(row["step"], row["phase"]): row for row in tables.read(tables.PEAKS)}
    steps = [row for row in tables.read(tables.STEPS) if row["model"] == "gpt2"]
    for row in steps[:: len(steps) // 3 + 1]:
        found = step.trace(Case.from_row(row))
        assert found.persistent == int(row["persistent_bytes"])
        for phase, peak in found.peaks.items():
            assert peak.bytes == int(peaks[row["step"], phase]["bytes"]), (row["step"], phase)
