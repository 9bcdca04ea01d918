"""What a step of a run costs: operations, bytes sent, waiting, and the least time it can take.

A model of cost for ranking plans, not a measurement. It counts matrix products and what GPUs send
one another, at the rates of :mod:`.gpus`, and nothing else, so the time is the least that a step
can take: a real one is longer. Everything is said with its source:

- operations: 6 for each parameter a token is multiplied with and 12·L·s·h for attention (Chowdhery
  et al. 2022, PaLM, arXiv:2204.02311, appendix B); a layer that is recomputed costs a third more;
- the rate reached: :data:`ACHIEVED` of the data sheet's;
- traffic: a ring sends (n - 1)/n of what is gathered or scattered and twice that of what is summed
  (NCCL tests, doc/PERFORMANCE.md);
- tensor parallelism: two sums a layer forward and two backward of a layer's input, as much if they
  are split along the tokens (Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al.
  2022, arXiv:2205.05198, section 4.2.2), while nothing else happens;
- ZeRO: gradients scattered and weights gathered, with stage 3 weights twice a pass (Rajbhandari et
  al. 2019, arXiv:1910.02054, section 7); stages 2 and 3 do so for every micro-batch. What is
  scattered goes on beside the backward pass, what stage 3 gathers beside both;
- between stages each of the GPUs that share a layer sends its part of the tokens (Narayanan et al.
  2021, arXiv:2104.04473, section 4.1);
- pipelines: one forward, one backward; p - 1 of m + p - 1 turns are waited, and fewer with several
  parts of the model on a stage (Narayanan et al. 2021, arXiv:2104.04473, section 2.2). The slowest
  stage sets the pace;
- what waits in the CPU's memory is copied there and back at the rate of the GPU's bus, and the step
  waits for it: ``save_on_cpu`` copies in the stream that computes (PyTorch,
  torch/autograd/graph.py). An optimizer on the CPU is sent the GPU's share of the gradients and
  sends back its new 16-bit weights; its own step is not timed;
- GPUs that share a sequence pass keys and values around beside their attention, and those that
  share experts wait for tokens to be sent there and back.
"""

from __future__ import annotations

from functools import lru_cache

from . import gpus
from .blocks.ledger import Recompute
from .categories import Category
from .copies import copied_bytes, least_copied_bytes, optimizer_copies
from .gathering import gathered_bytes
from .gpus import Rates
from .implementations import Implementation
from .layouts import layout_of, trained
from .model import Model
from .pipeline import Schedule
from .rank import Rank, ranks
from .records import dataclass
from .run import Run
from .sharding import ReduceDtype, Way
from .shares import share_of
from .switches import Loss

#: The share of the data sheet's rate that matrix products reach at best: 794.5 of an H100's 989 ·
#: 10^12 operations a second (stas00/ml-engineering, compute/accelerator/README.md, "MAMF").
ACHIEVED = 0.8
#: GPUs of one machine, joined by its fast links; tensor-parallel GPUs are neighbours, then come
#: replicas, then stages (Megatron-LM's order).
MACHINE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one optimizer step of a run takes.

    ``tokens`` are the global batch's on ``gpus`` GPUs. ``flops`` is the model's own arithmetic on
    all of them and ``again_flops`` what is computed a second time; ``sent_bytes`` is what the GPU
    that sends most sends, and ``copied_bytes`` what each copies to the CPU's memory and back, both
    together. Of ``turns`` that the pipeline takes, ``waited`` are waited by each
    stage. ``seconds`` is the least time of a step.
    """

    tokens: int
    gpus: int
    flops: int
    again_flops: int
    sent_bytes: int
    copied_bytes: int
    turns: int
    waited: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all GPUs together in a second, at most."""
        return self.tokens / self.seconds

    def to_json(self) -> dict[str, object]:
        """The cost as plain values; shares in percent."""
        return {
            "tokens": self.tokens,
            "flops": self.flops,
            "again_flops": self.again_flops,
            "again_percent": round(100 * self.again_flops / self.flops, 2),
            "sent_bytes": self.sent_bytes,
            "copied_bytes": self.copied_bytes,
            "bubble_percent": round(100 * self.waited / self.turns, 2),
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
        }


def global_batch(run: Run) -> int:
    """Sequences of one optimizer step, on all replicas."""
    return run.micro_batch * run.micro_batches * run.layout.data


def cost(run: Run, *, at_least: bool = False) -> Cost:
    """What one optimizer step of ``run`` costs. A GPU without rates has the textbook's.

    With ``at_least`` no more than that, without a recording of what is copied to the CPU.
    """
    copied = least_copied_bytes(run) if at_least else copied_bytes(run)
    rates = rates_of(run)
    flops, again = _step_flops(run)
    times = [_time(run, rank, rates) for rank in ranks(run)]
    slices, waited = _slices(run), run.layout.pipeline - 1
    turns = run.micro_batches * slices + waited
    pass_seconds = max(time.pass_seconds for time in times) + copied / rates.host_bytes
    # Gradients go there beside the backward pass (Ren et al. 2021, arXiv:2101.06840, section 4.1).
    _, back = share = optimizer_copies(run)
    return Cost(
        tokens=global_batch(run) * run.sequence,
        gpus=run.layout.gpus,
        flops=flops,
        again_flops=again,
        sent_bytes=max(time.sent_bytes for time in times),
        copied_bytes=copied * run.micro_batches + sum(share),
        turns=turns,
        waited=waited,
        seconds=turns * pass_seconds / slices
        + max(time.after_seconds for time in times)
        + back / rates.host_bytes,
    )


def _slices(run: Run) -> int:
    """Into how many turns a micro-batch's passes on a stage are cut, and waiting with them.

    A turn for each part of an interleaved model (Narayanan et al., section 2.2.2); with ZB-H1 a
    third of 1F1B's waiting is left (Qi et al. 2023, arXiv:2401.10241, section 3).
    """
    if run.layout.schedule is Schedule.ZERO_BUBBLE:
        return 3
    return run.layout.interleave


def rates_of(run: Run) -> Rates:
    """The rates that a run's costs are worked out with: its GPU's, or else the textbook's."""
    found = (run.gpu.rates if run.gpu else None) or gpus.get(gpus.DEFAULT).rates
    assert found is not None
    return found


# --- operations -----------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _products(model: Model) -> tuple[int, int]:
    """Parameters that a token is multiplied with: in all layers together, and in the head."""
    components = model.parameters.by_component
    tables = components["embedding"] + components["positions"]
    return model.parameters.active - tables - components["head"], model.head_parameters


def _forward_flops(run: Run) -> tuple[int, int, int]:
    """A token's operations forward: the layers' products with weights, attention, the head."""
    model = run.model
    in_layers, in_head = _products(model)
    width = model.query_width + model.context_width
    return 2 * in_layers, 2 * model.layers * run.sequence * width, 2 * in_head


def _again_flops(run: Run) -> tuple[int, int]:
    """A token's operations that are done a second time: in the layers, and in the head."""
    products, attention, head = _forward_flops(run)
    in_layers = {
        Recompute.NONE: 0,
        Recompute.SELECTIVE: attention,
        Recompute.FULL: products + attention,
        Recompute.MATMULS: attention,
    }[run.recompute]
    if run.recompute is Recompute.MATMULS and run.implementation is Implementation.TORCHTITAN:
        # Torchtitan's rule keeps what attention gives and every second product.
        in_layers = products // 2
    return in_layers, head if run.switches.loss is Loss.CHUNKED else 0


def _step_flops(run: Run) -> tuple[int, int]:
    """A step's operations on all GPUs: the model's own, and those done a second time."""
    tokens = global_batch(run) * run.sequence
    products, attention, head = _forward_flops(run)
    own = _passes(run) * (products + head) + 3 * attention
    return own * tokens, tokens * sum(_again_flops(run))


def _passes(run: Run) -> int:
    """How many times its forward operations a product with a weight takes.

    Once forward and twice backward, for the gradients of its input and of its weight; a frozen
    weight has none. What adapters themselves take is not counted: a hundredth or less.
    """
    return 3 if run.tuning.trains_all else 2


# --- time -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Time:
    """One kind of GPU: a micro-batch's passes, what follows them, and what it sends in a step."""

    pass_seconds: float
    after_seconds: float
    sent_bytes: int


def _time(run: Run, rank: Rank, rates: Rates) -> _Time:
    layout, batches = run.layout, run.micro_batches
    compute = _compute_seconds(run, rank, rates)
    within = _within_a_pass(run, rank)
    data = _between_replicas(run, rank)
    sent = sum(size for size, _ in within) * batches
    fabric = _speed(rates, layout.tensor * layout.replicas)
    seconds = sum(size / _speed(rates, span) for size, span in within)
    # Two thirds of a pass are backward, and what replicas send meanwhile costs no time.
    each, beside = data.each / fabric, compute if layout.zero == 3 else compute * 2 / 3
    return _Time(
        pass_seconds=compute + seconds + max(0.0, each - beside),
        after_seconds=max(0.0, data.last / fabric - compute * 2 / 3) + data.after / fabric,
        sent_bytes=sent + data.each * batches + data.last + data.after,
    )


def _compute_seconds(run: Run, rank: Rank, rates: Rates) -> float:
    """A micro-batch's forward and backward pass, recomputation included."""
    products, attention, head = _forward_flops(run)
    layers, again_head = _again_flops(run)
    passes = _passes(run)
    in_layers = passes * products + 3 * attention + layers
    flops = in_layers * rank.layers // run.model.layers
    if rank.is_last:
        flops += passes * head + again_head
    tokens = run.sequence * run.micro_batch
    rate = rates.fp32_flops if run.recipe.precision == "fp32" else rates.flops
    return flops * tokens / (run.layout.tensor * run.layout.context) / (rate * ACHIEVED)


def _within_a_pass(run: Run, rank: Rank) -> list[tuple[int, int]]:
    """What a GPU sends within its replica in a micro-batch: bytes, and the GPUs of the group."""
    layout = run.layout
    item_bytes = 4 if run.recipe.precision == "fp32" else 2
    tokens = run.sequence * run.micro_batch // layout.context
    layer_input = tokens * run.model.hidden * item_bytes
    sent = []
    if layout.tensor > 1:
        sums = 6 if run.recompute is Recompute.FULL else 4
        ring = 2 * (layout.tensor - 1) * layer_input // layout.tensor
        sent.append((sums * rank.layers * ring, layout.tensor))
    if layout.pipeline > 1:
        # Each of the GPUs that share a layer sends its part, split along the tokens or not.
        boundary = layer_input // layout.tensor
        ways = 1 if rank.stage == 0 or rank.is_last else 2
        sent.append((ways * boundary * layout.interleave, layout.gpus))
    if layout.expert > 1:
        # To the experts and back, forward and backward; each GPU's own tokens stay.
        each = run.model.experts_per_token * layer_input * (layout.expert - 1) // layout.expert
        expert_layers = rank.layers * dict(run.model.layer_kinds).get("expert", 0)
        routed = 4 * each * expert_layers // run.model.layers
        sent.append((routed, layout.tensor * layout.replicas))
    return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    """Bytes between replicas: with each micro-batch, with the last alone, and after all."""

    each: int = 0
    last: int = 0
    after: int = 0


def _between_replicas(run: Run, rank: Rank) -> _Traffic:
    replicas, zero = run.layout.replicas, run.layout.zero
    if replicas == 1:
        return _Traffic()
    keys = _keys_and_values(run, rank)
    weights_item, gradients_item = _items(run)
    parameters = rank.parameters
    if not run.tuning.trains_all:
        parameters = trained(layout_of(run.model, str(run.implementation)), run.tuning).parameters
    gradients = parameters * gradients_item * (replicas - 1) // replicas
    weights = rank.parameters * weights_item * (replicas - 1) // replicas
    if zero == 3 and run.sharding.sharding is Way.FSDP1 and run.sharding.replicate == replicas:
        return _Traffic(each=keys, last=2 * gradients)  # NO_SHARD
    if zero == 3:
        gathers = 2 if run.sharding.reshard_after_forward else 1
        if not run.tuning.trains_all:
            # Frozen weights may be in 4 bits.
            whole = gathered_bytes(run.model, str(run.implementation), share_of(run), run.tuning)
            weights = whole * (replicas - 1) // replicas
        return _Traffic(each=gathers * weights + gradients + keys)
    if zero == 2:
        return _Traffic(each=gradients + keys, after=weights)
    if zero == 1:
        return _Traffic(each=keys, last=gradients, after=weights)
    return _Traffic(each=keys, last=2 * gradients)


def _keys_and_values(run: Run, rank: Rank) -> int:
    """What GPUs that share a sequence pass around in a micro-batch, beside their attention.

    Keys and values forward, and backward these and their gradients (Liu et al. 2023, Ring
    Attention, arXiv:2310.01889, section 3).
    """
    context = run.layout.context
    if context == 1:
        return 0
    item_bytes = 4 if run.recipe.precision == "fp32" else 2
    tokens = run.sequence * run.micro_batch // context
    each = 2 * run.model.kv_width * tokens * item_bytes // run.layout.tensor
    return 3 * (context - 1) * each * rank.layers


def _items(run: Run) -> tuple[int, int]:
    """The bytes of a number that replicas gather of weights and reduce of gradients."""
    states = run.recipe.by_category
    by_itself = run.implementation is Implementation.PAPER or run.layout.zero < 3
    if by_itself or run.sharding.sharding is Way.DEEPSPEED:
        return states[Category.WEIGHTS], states[Category.GRADIENTS]
    # FSDP2 gathers in the dtype to compute in and reduces in its own.
    computed = 4 if run.recipe.precision == "fp32" else 2
    return computed, 2 if run.sharding.reduce_dtype is ReduceDtype.BF16 else 4


def _speed(rates: Rates, span: int) -> int:
    """Bytes a second between GPUs of a group that spans so many."""
    return rates.link_bytes if span <= MACHINE else rates.network_bytes
