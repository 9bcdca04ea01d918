"""``verify`` with PyTorch, without a GPU: the trainer trains, and keeps what the ledger says."""

import json
import math
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from training_memory import catalog
from training_memory.blocks.paper import LAYER
from training_memory.categories import Category
from training_memory.estimate import estimate
from training_memory.model import Model
from training_memory.run import Run
from training_memory.step import values
from training_memory.verify.differences import end_bytes, norm_bytes
from training_memory.verify.moments import Moment, predicted
from training_memory.verify.plan import Plan

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
functional = torch.nn.functional


from training_memory.verify.measuring import NoGpu, chosen_device  # noqa: E402
from training_memory.verify.network import Layer, Network, attend, drop  # noqa: E402
from training_memory.verify.training import MixedAdam, Trainer, loss_of  # noqa: E402

ROOT = Path(__file__).parents[2]
POLICIES = ("none", "selective", "full")

_HEADS = {"hidden": 32, "heads": 4, "vocabulary": 50}
_GROUPED = {**_HEADS, "kv_heads": 2, "ffn": 48}
_EXPERTS = {"experts": 4, "experts_per_token": 2, "expert_ffn": 24}
_LATENT = {"q_lora_rank": 12, "kv_lora_rank": 10, "head_dim": 12, "v_head_dim": 6}

#: One small shape of each family's kind of layer.
FAMILIES = {
    "gpt2": {**_HEADS, "ffn": 128, "positions": 16},
    "pythia-1.4b": {**_HEADS, "ffn": 128},
    "llama-7b": {**_HEADS, "ffn": 48},
    "llama-3-8b": _GROUPED,
    "qwen2.5-7b": _GROUPED,
    "qwen3-8b": {**_GROUPED, "head_dim": 16},
    "gemma-2-2b": {**_GROUPED, "head_dim": 16},
    "olmo-2-7b": {**_HEADS, "ffn": 48},
    "mixtral-8x7b": {**_GROUPED, **_EXPERTS},
    "qwen1.5-moe-a2.7b": {**_HEADS, **_EXPERTS, "shared_expert_ffn": 48},
    "deepseek-v3": {
        **_HEADS,
        **_LATENT,
        **_EXPERTS,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "dense_layers": 1,
        "ffn": 48,
        "shared_expert_ffn": 24,
    },
}


def small(model: str = "gpt2", *, recompute: str = "none", layers: int = 2) -> Run:
    return Run.from_json(
        {
            "model": model,
            "shape": {"layers": layers, **FAMILIES[model]},
            "sequence": 16,
            "micro_batch": 3,
            "recompute": recompute,
            "gpu": None,
        }
    )


def unmeasured(_phase):
    return nullcontext()


def losses(run: Run, *, steps: int, dtype=torch.float32) -> list[float]:
    trainer = Trainer(run, device="cpu", dtype=dtype)
    return [float(trainer.step(unmeasured)) for _ in range(steps)]


class TestNetwork:
    @pytest.mark.parametrize("name", catalog.models())
    def test_it_has_just_the_parameters_that_the_calculator_counts(self, name):
        run = Plan.of(model=name, layers=catalog.get(name).dense_layers + 1, sequence=8).run
        with torch.device("meta"):
            network = Network(run.model, sequence=8, dropout=0.0, recompute=run.recompute)
        made = sum(parameter.numel() for parameter in network.parameters())
        assert made == run.model.parameters.total

    def test_attention_is_what_pytorch_computes(self):
        torch.manual_seed(0)
        q, k, v = torch.randn(3, 2, 4, 7, 5).unbind()  # (b, a, s, d)
        expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        def laid_out(t):
            return t.permute(2, 0, 1, 3).flatten(1, 2)

        mask = torch.full((1, 7, 7), -torch.inf).triu(1)
        found = attend(laid_out(q), laid_out(k), laid_out(v), mask, 0.0)
        torch.testing.assert_close(found, laid_out(expected))

    @pytest.mark.parametrize("name", FAMILIES)
    def test_no_token_sees_a_later_one(self, name):
        run = small(name)
        torch.manual_seed(0)
        network = Network(run.model, sequence=16, dropout=0.0, recompute=run.recompute)
        tokens = torch.randint(50, (16, 1))
        changed = tokens.clone()
        changed[9] = (tokens[9] + 1) % 50
        with torch.no_grad():
            before, after = network(tokens), network(changed)
        torch.testing.assert_close(before[:9], after[:9])
        assert not torch.equal(before[9], after[9])
        assert not torch.equal(before[10:], after[10:])

    def test_rotary_positions_matter(self):
        run = small("llama-7b", layers=1)
        torch.manual_seed(0)
        network = Network(run.model, sequence=16, dropout=0.0, recompute=run.recompute)
        tokens = torch.randint(50, (16, 1))
        shuffled = tokens.clone()
        shuffled[[0, 5]] = tokens[[5, 0]]
        assert tokens[0] != tokens[5]
        with torch.no_grad():
            assert not torch.allclose(network(tokens)[-1], network(shuffled)[-1])

    def test_dropout_drops_its_share_and_keeps_the_mean(self):
        torch.manual_seed(0)
        dropped = drop(torch.ones(100_000), 0.1)
        assert float((dropped == 0).float().mean()) == pytest.approx(0.1, abs=0.01)
        assert float(dropped.mean()) == pytest.approx(1, abs=0.01)


class TestTraining:
    def test_the_loss_and_its_gradient_are_cross_entropys(self):
        torch.manual_seed(0)
        logits = torch.randn(5, 3, 11, requires_grad=True)
        targets = torch.randint(11, (5, 3))
        before = logits.detach().clone()
        loss = loss_of(logits, targets)
        (found,) = torch.autograd.grad(loss, logits)
        other = before.clone().requires_grad_()
        expected = functional.cross_entropy(other.flatten(0, 1), targets.flatten())
        (gradient,) = torch.autograd.grad(expected, other)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(found, gradient)
        assert torch.equal(logits, before)  # it works in place, but never on what it was given

    def test_the_optimizer_is_adam(self):
        torch.manual_seed(0)
        ours = [torch.nn.Parameter(torch.randn(7, 3)), torch.nn.Parameter(torch.randn(4))]
        theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
        mixed, adam = MixedAdam(ours), torch.optim.Adam(theirs, lr=1e-3, eps=1e-8)
        for _ in range(5):
            for mine, other in zip(ours, theirs, strict=True):
                mine.grad = torch.randn_like(mine)
                other.grad = mine.grad.clone()
            mixed.step()
            adam.step()
            assert all(weight.grad is None for weight in ours)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other)

    def test_its_states_are_those_of_the_recipe(self):
        run = small()
        trainer = Trainer(run, device="cpu", dtype=torch.bfloat16)
        optimizer = trainer.optimizer

        def size(tensors):
            return sum(tensor.numel() * tensor.itemsize for tensor in tensors)

        totals = estimate(run).worst.totals
        assert size(trainer.network.parameters()) == totals[Category.WEIGHTS]
        assert size(optimizer.masters) == totals[Category.MASTER]
        assert size(optimizer.first) + size(optimizer.second) == totals[Category.OPTIMIZER]
        loss_of(trainer.network(trainer.tokens), trainer.targets).backward()
        gradients = [parameter.grad for parameter in trainer.network.parameters()]
        assert size(gradients) == totals[Category.GRADIENTS]

    @pytest.mark.parametrize("name", FAMILIES)
    def test_gradients_reach_every_parameter(self, name):
        trainer = Trainer(small(name), device="cpu", dtype=torch.float32)
        loss_of(trainer.network(trainer.tokens), trainer.targets).backward()
        for parameter_name, parameter in trainer.network.named_parameters():
            assert parameter.grad is not None, parameter_name
            # A key's bias adds the same to every score of a query, which softmax takes away again.
            if not parameter_name.endswith("key.bias"):
                assert parameter.grad.abs().max() > 0, parameter_name

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("name", FAMILIES)
    def test_steps_lower_the_loss(self, name, dtype):
        found = losses(small(name), steps=12, dtype=dtype)
        assert found[0] == pytest.approx(math.log(50), abs=0.3)  # a guess at random
        assert found[-1] < found[0] - 0.05

    @pytest.mark.parametrize("policy", ["selective", "full"])
    @pytest.mark.parametrize("name", FAMILIES)
    def test_recomputing_changes_nothing(self, name, policy):
        # Dropout included: what is made again is dropped as it was the first time.
        assert losses(small(name, recompute=policy), steps=4) == losses(small(name), steps=4)

    def test_a_model_of_another_size_than_counted_is_refused(self, monkeypatch):
        run = small()
        wrong = small(layers=1).model.parameters
        monkeypatch.setattr(Model, "parameters", property(lambda _model: wrong))
        with pytest.raises(RuntimeError, match="parameters, counted"):
            Trainer(run, device="cpu", dtype=torch.float32)


@pytest.mark.parametrize("policy", ["none", "selective"])
def test_a_layer_on_the_cpu_keeps_what_the_ledger_says(policy):
    """Fake CUDA tensors say more, but this runs wherever PyTorch does."""
    run = small(recompute=policy)
    found: dict[int, int] = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        found.setdefault(storage.data_ptr(), storage.nbytes())
        return tensor

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        layer = Layer(run.model, 0.1, run.recompute, experts=False)
        x = torch.randn(run.sequence, run.micro_batch, run.model.hidden, requires_grad=True)
        mask = torch.zeros(1, run.sequence, run.sequence)
    finally:
        torch.set_default_dtype(default)
    for tensor in (*layer.parameters(), mask):
        found[tensor.untyped_storage().data_ptr()] = 0
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = layer(x, mask, None)
    ledger = LAYER.kept_bytes(run.recompute).evaluate(values(run))
    # On a CPU a layer norm in 16-bit keeps its statistics in 16-bit: half of 16·s·b.
    statistics = 8 * run.sequence * run.micro_batch
    assert output.requires_grad
    assert sum(found.values()) == ledger + statistics


def test_without_a_gpu_it_says_why():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(NoGpu, match=r"built for the CPU alone|finds none"):
        chosen_device("cuda")


#: The batches and policies under which one layer's tensors are compared.
KEPT = tuple((batch, policy) for batch in (1, 4) for policy in ("none", "selective"))


@pytest.fixture(scope="module")
def on_fake_cuda():
    asked = [
        {"ask": "kept", "plan": {"micro_batch": batch, "recompute": [policy]}}
        for batch, policy in KEPT
    ]
    asked += [{"ask": "measured", "plan": {"recompute": [policy]}} for policy in POLICIES]
    folders = os.pathsep.join(str(ROOT / name) for name in ("calculator", "scripts"))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("verify_on_fake_cuda.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": folders},
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return dict(zip([*KEPT, *POLICIES], found, strict=True))


class TestOnFakeCuda:
    """Every byte that PyTorch would hold on a GPU, against the ledger and the walk."""

    @pytest.mark.parametrize(("batch", "policy"), KEPT)
    def test_a_layer_keeps_the_ledgers_rows_and_the_norms_statistics(
        self, on_fake_cuda, batch, policy
    ):
        (run,) = Plan.of(micro_batch=batch, recompute=[policy]).runs
        kept = on_fake_cuda[batch, policy]
        ledger = {
            row.name: row.bytes.evaluate(values(run))
            for row in LAYER.rows
            if row.kept_under(run.recompute)
        }
        order = list(ledger)
        if policy == "none":
            # PyTorch keeps the second factor of "weights times values" first.
            place = order.index("attention weights after dropout")
            order[place : place + 2] = reversed(order[place : place + 2])
        sixteen_bit_and_masks = [size for dtype, size in kept if dtype != "torch.float32"]
        assert dict(zip(order, sixteen_bit_and_masks, strict=True)) == ledger
        masks = sum(dtype == "torch.bool" for dtype, _ in kept)
        assert masks == sum(name.endswith("mask") for name in ledger)
        statistics = [size for dtype, size in kept if dtype == "torch.float32"]
        assert statistics == [4 * run.sequence * batch] * 4  # two norms' means and deviations

    @pytest.mark.parametrize("policy", POLICIES)
    def test_every_moment_is_predicted_but_for_what_is_known(self, on_fake_cuda, policy):
        (run,) = Plan.of(recompute=[policy]).runs
        measured, says = on_fake_cuda[policy], predicted(estimate(run).worst.tree)
        tokens, model = run.sequence * run.micro_batch, run.model
        always = 2 * run.sequence**2 + 2 * 8 * tokens
        loss = 4
        kept = end_bytes(run) + norm_bytes(run) + always
        head = 2 * model.head_parameters
        beyond = {moment: measured[str(moment)] - size for moment, size in says.items()}
        assert beyond[Moment.BEFORE] == always
        assert beyond[Moment.FORWARD_END] == kept + loss - 2 * tokens * model.vocabulary
        assert beyond[Moment.BACKWARD_END] == always + loss
        assert beyond[Moment.OPTIMIZER_PEAK] == always + loss + 4 * model.head_parameters
        assert beyond[Moment.OPTIMIZER_END] == always + loss
        # At the highest points, besides: a few numbers for each token, held for a moment.
        a_few = range(64 * tokens)
        assert beyond[Moment.FORWARD_PEAK] - kept in a_few
        assert beyond[Moment.BACKWARD_PEAK] - (kept - head) in a_few
        assert measured["left"] == 0

    @pytest.mark.parametrize("policy", POLICIES)
    def test_the_peak_is_within_two_percent(self, on_fake_cuda, policy):
        (run,) = Plan.of(recompute=[policy]).runs
        peak = max(on_fake_cuda[policy][str(moment)] for moment in Moment)
        assert estimate(run).worst.peak_bytes == pytest.approx(peak, rel=0.02)
