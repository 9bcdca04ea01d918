"""Advice: what is proposed is possible, saves what it says, and is in order."""

from hypothesis import given, settings

from strategies import requests
from training_memory.estimate import Estimate, estimate
from training_memory.fit import changes
from training_memory.run import Run


def ask(**request: object) -> Estimate:
    return estimate(Run.from_json(request))


@given(requests())
@settings(max_examples=40, deadline=None)
def test_every_change_is_possible_and_saves_what_it_says(request_json):
    before = estimate(Run.from_json(request_json))
    found = changes(before)
    for change in found:
        after = ask(**{**before.run.to_json(), **change.fields})
        assert after.worst.peak_bytes == change.peak_bytes
        assert before.worst.peak_bytes - change.peak_bytes == change.saved_bytes > 0
        assert change.fits == (None if after.room_bytes is None else after.room_bytes >= 0)
    saved = [change.saved_bytes for change in found]
    assert saved == sorted(saved, reverse=True)
    assert len({tuple(sorted(change.fields.items())) for change in found}) == len(found)


def test_the_chapters_example():
    """Its states alone exceed the GPU, so recomputing everything cannot be enough; sharding is."""
    found = {change.title: change for change in changes(ask())}
    full = found["Recompute every layer"]
    assert full.saved_bytes == 199_539_351_552 - 110_690_025_216
    assert full.fits is False
    assert found["Tensor and sequence parallelism over 8 GPUs"].fits is True
    assert "ZeRO-3 over 8 replicas" in found


def test_halving_the_micro_batch_keeps_the_steps_batch():
    titles = {change.title: change for change in changes(ask(micro_batch=4, micro_batches=3))}
    assert titles["Micro-batch 2 instead of 4"].fields == {"micro_batch": 2, "micro_batches": 6}


def test_what_is_in_use_is_not_proposed_again():
    run = ask(recompute="full", data=8, zero=3, tensor=8, sequence_parallel=True, pipeline=8)
    assert [change.title for change in changes(run)] == ["Sequence length 2,048 instead of 4,096"]


def test_a_pipeline_is_proposed_with_enough_micro_batches_to_be_one():
    """With one micro-batch a pipeline's first stage would hold a share of what it really holds."""
    for change in changes(ask()):
        stages = change.fields.get("pipeline")
        if stages is not None:
            assert change.fields["micro_batches"] == stages
    assert not any("8 pipeline" in change.title and change.fits for change in changes(ask()))


def test_a_librarys_own_switches_are_tried():
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
    assert not any("ZeRO" in title or "pipeline" in title for title in titles)
