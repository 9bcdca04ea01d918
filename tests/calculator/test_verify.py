"""``verify`` without PyTorch: what it plans, predicts, says, writes and refuses."""

import json
import sys
from dataclasses import replace

import pytest

import training_memory.verify
from gpu_records import MACHINE, measurement
from training_memory import catalog
from training_memory.categories import Category
from training_memory.errors import InputErrors
from training_memory.estimate import estimate
from training_memory.verify.command import DOES_NOT_FIT, NO_GPU, verify
from training_memory.verify.differences import departures, known
from training_memory.verify.moments import Moment, predicted
from training_memory.verify.plan import Plan, most_layers, peak_bytes
from training_memory.verify.reading import read_record
from training_memory.verify.report import error

POLICIES = ("none", "selective", "full")
MEASURING = "training_memory.verify.measuring"


class Heard:
    """What the command said and complained of."""

    def __init__(self, *arguments):
        self.said = ""
        self.complaints: list[str] = []
        self.status = verify(arguments, say=self._say, complain=self.complaints.append)

    def _say(self, text):
        self.said += text


def refused(*arguments):
    with pytest.raises(InputErrors) as caught:
        Heard(*arguments)
    return {wrong.field: wrong for wrong in caught.value.errors}


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, MEASURING, raising=False)
    monkeypatch.delattr(training_memory.verify, "measuring", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it fails as if it were absent


class Stand:
    """Stands in for the measuring module: a GPU whose runs take a little more than predicted."""

    NoGpu = type("NoGpu", (RuntimeError,), {})
    OutOfMemory = type("OutOfMemory", (RuntimeError,), {})

    def __init__(self):
        self.free_bytes = MACHINE.free_bytes
        self.gpu = True
        self.runs_out = False
        self.ran = []

    def chosen_device(self, name):
        if not self.gpu:
            raise self.NoGpu("PyTorch finds none")
        return name

    def machine(self, device):
        assert device == "cuda"
        return replace(MACHINE, free_bytes=self.free_bytes)

    def measure(self, run, *, steps, device):
        if self.runs_out:
            raise self.OutOfMemory("CUDA out of memory")
        self.ran.append((run, steps))
        return measurement(run, more_bytes=10**7)


@pytest.fixture
def stand(monkeypatch):
    gpu = Stand()
    monkeypatch.setitem(sys.modules, MEASURING, gpu)
    monkeypatch.setattr(training_memory.verify, "measuring", gpu, raising=False)
    return gpu


class TestPlan:
    def test_the_default_is_twelve_layers_each_way(self):
        plan = Plan.of()
        assert plan.run.model.layers == 12
        assert [run.recompute for run in plan.runs] == list(POLICIES)
        assert departures(plan.run.model) == ()

    def test_it_differs_only_in_recomputation(self):
        first, *others = Plan.of().runs
        for other in others:
            assert {**other.to_json(), "recompute": "none"} == first.to_json()

    def test_a_policy_named_twice_runs_once(self):
        assert len(Plan.of(recompute=["full", "full"]).runs) == 1

    def test_any_model_of_the_catalog_can_have_one_layer(self):
        for name in catalog.models():
            plan = Plan.of(model=name, layers=1, sequence=8)
            assert plan.run.model.layers == 1, name

    def test_every_mistake_is_named_once(self):
        with pytest.raises(InputErrors) as caught:
            Plan.of(model="gpt3000", sequence=0, steps="many", recompute=["none", "ful"])
        fields = [wrong.field for wrong in caught.value.errors]
        assert sorted(fields) == ["model", "recompute", "sequence", "steps"]

    def test_no_policy_is_refused(self):
        with pytest.raises(InputErrors, match="recompute"):
            Plan.of(recompute=[])

    @pytest.mark.parametrize("model", ["llama-7b", "deepseek-v2-lite", "gpt2"])
    def test_the_most_layers_fit_and_one_more_does_not(self, model):
        run = Plan.of(model=model, sequence=512).run
        one, all_of_them = (
            peak_bytes(Plan.of(model=model, sequence=512, layers=layers).run)
            for layers in (1, run.model.layers)
        )
        room = (one + all_of_them) // 2
        layers = most_layers(run, room)
        assert 1 <= layers < run.model.layers
        assert peak_bytes(Plan.of(model=model, sequence=512, layers=layers).run) <= room
        assert peak_bytes(Plan.of(model=model, sequence=512, layers=layers + 1).run) > room
        assert most_layers(run, one - 1) == 0
        assert most_layers(run, all_of_them) == run.model.layers


class TestMoments:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_they_lie_on_the_walk(self, policy):
        (run,) = Plan.of(recompute=[policy]).runs
        worst = estimate(run).worst
        found = predicted(worst.tree)
        states = worst.states_bytes
        gradients = worst.totals[Category.GRADIENTS]
        assert list(found) == list(Moment)
        assert max(found.values()) == worst.peak_bytes
        assert found[Moment.BEFORE] == found[Moment.OPTIMIZER_END] == states - gradients
        assert found[Moment.BACKWARD_END] == found[Moment.OPTIMIZER_PEAK] == states
        kept = worst.totals[Category.ACTIVATIONS] + worst.totals[Category.LOGITS]
        assert found[Moment.FORWARD_END] == states - gradients + kept


class TestDepartures:
    @pytest.mark.parametrize("name", ["gpt2", "gpt2-xl", "gpt3-175b", "korthikanti-1t"])
    def test_a_gpt_has_none(self, name):
        assert departures(catalog.get(name)) == ()

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("llama-7b", ["RMSNorm", "rotary", "gated", "no dropout"]),
            ("llama-3-8b", ["8 key-value heads, repeated for 32"]),
            ("mixtral-8x7b", ["8 experts, 2 for each token"]),
            ("deepseek-v3", ["latent attention"]),
            ("gemma-2-2b", ["norms after attention and the feed-forward layer as well"]),
            ("olmo-2-7b", ["instead of before", "norms on queries and keys"]),
            ("decoder", ["a feed-forward layer of 32 features instead of 64"]),
            ("pythia-1.4b", ["rotary", "no dropout"]),
        ],
    )
    def test_each_is_named(self, name, words):
        said = "\n".join(departures(catalog.get(name)))
        for word in words:
            assert word in said


class TestKnown:
    def test_sizes_follow_the_shape(self):
        (run,) = Plan.of(recompute=["none"]).runs
        sizes = [one.bytes for one in known(run)]
        tokens, h, vocabulary, layers = 4 * 1024, 768, 50257, 12
        assert sizes == [
            -2 * tokens * vocabulary,
            4 * vocabulary * h,
            -2 * vocabulary * h,
            2 * vocabulary * h,
            5 * tokens * h,
            2 * 1024**2 + 16 * tokens,
            (2 * layers + 1) * 8 * tokens,
        ]

    def test_full_recomputation_keeps_no_statistics_of_norms_in_layers(self):
        (run,) = Plan.of(recompute=["full"]).runs
        sizes = [one.bytes for one in known(run)]
        assert 8 * 4 * 1024 in sizes
        assert -2 * 4 * 1024 * 768 in sizes  # the layer's input, counted twice by the textbook


class TestCommand:
    def test_a_dry_run_needs_no_torch(self, no_torch):
        heard = Heard("--dry-run")
        assert heard.status == 0
        assert heard.complaints == []
        assert "GPT-2: 12 layers, 124,439,808 parameters" in heard.said
        for policy in POLICIES:
            assert f"Recomputation {policy}" in heard.said
        assert "7.36 GB" in heard.said  # what `estimate` says of the same run

    def test_without_torch_it_says_so_and_predicts(self, no_torch):
        heard = Heard("--recompute", "none")
        assert heard.status == NO_GPU == 3
        assert "PyTorch is not installed" in heard.complaints[0]
        assert "prediction alone" in heard.complaints[1]
        assert "7.36 GB" in heard.said

    def test_without_a_gpu_it_says_so_and_predicts(self, stand):
        stand.gpu = False
        heard = Heard("--recompute", "none")
        assert heard.status == NO_GPU
        assert heard.complaints[0] == "no CUDA device: PyTorch finds none"
        assert "7.36 GB" in heard.said

    def test_json_is_json_alone(self, no_torch):
        heard = Heard("--json", "--model", "llama-7b", "--layers", "4")
        answer = json.loads(heard.said)
        assert heard.status == NO_GPU
        assert answer["run"]["shape"] == {"layers": 4}
        (run, *_) = Plan.of(model="llama-7b", layers=4).runs
        assert answer["predictions"][0]["predicted"]["peak_bytes"] == peak_bytes(run)

    def test_sizes_can_be_binary(self):
        heard = Heard("--dry-run", "--units", "GiB")
        assert "6.85 GiB" in heard.said
        assert "GB" not in heard.said

    def test_it_measures_compares_and_writes_a_record_that_reads_back(self, stand, tmp_path):
        file = tmp_path / "run.json"
        heard = Heard("--output", str(file), "--steps", "2", "--recompute", "none", "full")
        assert (heard.status, heard.complaints) == (0, [])
        assert [(run.recompute, steps) for run, steps in stand.ran] == [("none", 2), ("full", 2)]
        assert "7.36 GB 7.37 GB −0.1 %" in " ".join(heard.said.split())
        assert "reserved by PyTorch's allocator" in heard.said
        assert "Known differences, recomputation full" in heard.said
        read = read_record(json.loads(file.read_text()))
        assert [one.run.recompute for one in read.measurements] == ["none", "full"]
        assert read.measurements[0].allocated_bytes == peak_bytes(stand.ran[0][0]) + 10**7

    def test_json_of_a_measurement_is_the_record(self, stand):
        heard = Heard("--json", "--steps", "2")
        assert len(read_record(json.loads(heard.said)).measurements) == 3

    def test_what_does_not_fit_is_not_run(self, stand):
        stand.free_bytes = 5 * 10**9
        heard = Heard()
        assert heard.status == DOES_NOT_FIT == 4
        assert stand.ran == []
        (complaint,) = heard.complaints
        assert "5.0 GB that are free" in complaint
        layers = most_layers(Plan.of().run, stand.free_bytes)
        assert f"--layers {layers}" in complaint
        assert "--recompute selective full" in complaint

    def test_what_never_fits_suggests_another_model(self, stand):
        stand.free_bytes = 10**8
        heard = Heard("--micro-batch", "1")
        assert heard.status == DOES_NOT_FIT
        assert "--layers" not in heard.complaints[0]
        assert "a smaller --model" in heard.complaints[0]

    def test_running_out_is_told_apart_from_not_fitting(self, stand, tmp_path):
        stand.runs_out = True
        file = tmp_path / "run.json"
        heard = Heard("--output", str(file))
        assert heard.status == DOES_NOT_FIT
        assert "ran out of memory: CUDA out of memory" in heard.complaints[0]
        assert not file.exists()

    @pytest.mark.parametrize(
        ("arguments", "field", "allowed"),
        [
            (("--device", "cpu"), "--device", "cuda:1"),
            (("--steps", "0"), "--steps", "1 to 1,000"),
            (("--layers", "no"), "--layers", "whole number"),
            (("--sequence", "2048"), "--sequence", "1 to 1,024 tokens"),
            (("--micro-batch", "-1"), "--micro-batch", "whole number"),
            (("--recompute", "half"), "--recompute", "none, selective, full"),
            (("--output", "/no/such/folder/x.json"), "--output", "folder that exists"),
            (("--units", "MB"), "--units", "GB, GiB"),
            (("--model", "gpt-2"), "--model", "names"),
            (("--modle", "gpt2"), "--modle", "no such flag"),
            (("--layers",), "--layers", "needs a value"),
        ],
    )
    def test_each_argument_is_checked(self, arguments, field, allowed):
        found = refused(*arguments)
        assert allowed in found[field].allowed

    def test_all_mistakes_come_together(self):
        assert set(refused("--steps", "x", "--device", "tpu", "--sequence", "x")) == {
            "--steps",
            "--device",
            "--sequence",
        }

    def test_help_names_the_statuses(self):
        heard = Heard("--help")
        assert heard.status == 0
        assert "3 no PyTorch or no CUDA device" in heard.said


@pytest.mark.parametrize(
    ("predicted_bytes", "measured_bytes", "shown"),
    [(110, 100, "+10.0 %"), (95, 100, "−5.0 %"), (100, 100, "±0.0 %"), (1001, 1000, "+0.1 %")],
)
def test_an_error_is_of_what_was_measured(predicted_bytes, measured_bytes, shown):
    assert error(predicted_bytes, measured_bytes) == shown
