"""Advice: what is proposed is possible, saves what it says, costs what it says, and is in order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings

from strategies import requests
from training_memory.cost import cost
from training_memory.estimate import Estimate, estimate
from training_memory.fit import Change, Fit, batch_for, changes, fitting, trains_the_same
from training_memory.need import Fits
from training_memory.run import Run


def ask(**request: object) -> Estimate:
    return estimate(Run.from_json(request))


@given(requests())
@settings(max_examples=40, deadline=None)
def test_every_change_is_possible_and_saves_what_it_says(request_json: dict[str, object]) -> None:
    before = estimate(Run.from_json(request_json))
    found = changes(before)
    old = cost(before.run)
    for change in found:
        after = ask(**{**before.run.to_json(), **change.fields})
        assert after.worst.peak_bytes == change.peak_bytes
        assert before.worst.peak_bytes - change.peak_bytes == change.saved_bytes > 0
        assert change.fits == (None if after.room_bytes is None else after.room_bytes >= 0)
        assert change.tight == (after.fits is Fits.TIGHT)
        assert change.cost == cost(after.run)
        each = change.cost.tokens_per_second / change.cost.gpus
        before_each = old.tokens_per_second / old.gpus
        assert abs(before_each / each - 1 - change.slower_percent / 100) < 1e-9
        assert change.same_gpus == (after.run.layout.gpus == before.run.layout.gpus)
        assert change.same_training == trains_the_same(before.run, after.run)
        assert change.title
    assert len({tuple(sorted(change.fields.items())) for change in found}) == len(found)
    assert len({change.title for change in found}) == len(found)
    _in_order(found)


def _in_order(found: tuple[Change, ...]) -> None:
    """Those that are enough first, what changes least and is quickest before the others."""
    fitting_ = [change for change in found if change.fits]
    enough = [change for change in fitting_ if not change.tight]
    assert fitting_[: len(enough)] == enough
    rest = [change for change in found if not change.fits]
    assert found == (*fitting_, *rest)
    assert [change.saved_bytes for change in rest] == sorted(
        (change.saved_bytes for change in rest), reverse=True
    )
    same = [change.same_training for change in enough]
    assert same == sorted(same, reverse=True)
    alike = [
        change.slower_percent for change in enough if change.same_training and change.same_gpus
    ]
    assert all(one <= other + 1e-3 for one, other in pairwise(alike))


def test_the_chapters_example() -> None:
    """Its states alone exceed the GPU, so recomputing everything cannot be enough; sharding is."""
    found = {change.title: change for change in changes(ask())}
    full = found["Recompute every layer"]
    assert full.saved_bytes == 199_539_351_552 - 110_690_025_216
    assert full.fits is False
    assert found["Tensor and sequence parallelism over 8 GPUs"].fits is True
    assert "ZeRO-3 over 8 replicas" in found


def test_halving_the_micro_batch_keeps_the_steps_batch() -> None:
    found = {change.title: change for change in changes(ask(micro_batch=4, micro_batches=3))}
    half = found["Micro-batch 2 instead of 4, 6 micro-batches a step"]
    assert half.fields == {"micro_batch": 2, "micro_batches": 6}
    assert half.same_training


def test_more_replicas_share_out_a_steps_sequences() -> None:
    """A step of 8 sequences stays one; what cannot be shared out grows, and that is said."""
    shared = changes(ask(micro_batches=8))
    (zero,) = [one for one in shared if one.fields.get("data") == 8 and one.fields["zero"] == 3]
    assert zero.fields["micro_batches"] == 1
    assert zero.same_training
    (grown,) = [
        one for one in changes(ask()) if one.fields.get("data") == 8 and one.fields["zero"] == 3
    ]
    assert not grown.same_training
    assert "8 sequences a step instead of 1" in grown.price


def test_what_is_in_use_is_not_proposed_again() -> None:
    degrees = {"data": 8, "zero": 3, "tensor": 8, "context": 8, "pipeline": 8}
    run = ask(recompute="full", sequence_parallel=True, **degrees)
    assert [change.title for change in changes(run)] == ["Sequence length 2,048 instead of 4,096"]


def test_a_pipeline_is_proposed_with_enough_micro_batches_to_be_one() -> None:
    """With one micro-batch a pipeline's first stage would hold a share of what it really holds."""
    for change in changes(ask()):
        stages = change.fields.get("pipeline")
        if stages is not None:
            assert change.fields["micro_batches"] == stages
    assert not any("8 pipeline" in change.title and change.fits for change in changes(ask()))


def test_a_librarys_own_switches_are_tried() -> None:
    run = ask(
        implementation="huggingface",
        model="llama-3.2-1b",
        attention="eager",
        optimizer_kernel="foreach",
        hold_logits=True,
        micro_batch=4,
    )
    titles = [change.title for change in changes(run)]
    assert "A fused attention kernel" in titles
    assert "The loss fused with the head" in titles


def test_the_whole_answer() -> None:
    before = ask(model="llama-2-70b", gpu="h100-80gb")
    *_, found = fitting(before, gpus=64, batch=64)
    assert isinstance(found, Fit)
    plans = found.found
    assert plans.plan is not None
    assert plans.fewest == 16
    # 68,976,648,192 parameters of 16 bytes do not fit into fewer 80 GB GPUs than this.
    assert plans.fewest >= 16 * 68_976_648_192 / 80e9
    longest = {**plans.plan.run.to_json(), "sequence": plans.longest}
    assert (ask(**longest).room_bytes or 0) >= 0
    plain = found.to_json()
    assert plain["fits"] == "no"
    assert plain["gpus"] == plain["global_batch"] == 64


def test_fsdp2s_shards_are_the_copies_of_16_bit_weights() -> None:
    """It keeps 32-bit shards and computes in 16 bits: the same numbers, in one."""
    run = ask(implementation="huggingface", model="llama-3-8b", micro_batches=8).run
    over_8 = [one for one in changes(estimate(run)) if one.fields.get("data") == 8]
    first, second, zero = sorted(over_8, key=lambda one: one.run.layout.zero)
    # Stages 1 and 2 are DeepSpeed's, which keeps the 16-bit weights and their copy.
    for stage, one in ((1, first), (2, second)):
        assert one.fields == {"data": 8, "zero": stage, "micro_batches": 1}
        assert one.same_training
    assert zero.fields == {"data": 8, "zero": 3, "recipe": "autocast-adam", "micro_batches": 1}
    assert zero.same_training
    assert "32-bit shards" in zero.title
    autocast = Run.from_json({**run.to_json(), "recipe": "autocast-adam"})
    assert not trains_the_same(run, autocast)


def test_a_step_of_one_sequence_is_one_a_gpu() -> None:
    assert batch_for(ask().run, 64) == 64
    assert batch_for(ask(micro_batch=2, micro_batches=8, data=4).run, 64) == 64
    assert batch_for(ask(micro_batch=2, micro_batches=8).run, 64) == 16
