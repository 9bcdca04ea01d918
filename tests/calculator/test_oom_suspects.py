"""Which tensor it was: errors as PyTorch would print them for tensors worked out here by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import requests
from training_memory import Run, estimate
from training_memory.cli import main
from training_memory.events import expand
from training_memory.oom import Explanation, explain
from training_memory.oom.allocator import asked
from training_memory.render.oom_text import oom_text
from training_memory.render.terminal import Terminal

GIB, MIB = 2**30, 2**20


def printed(size: int) -> str:
    """As format_size of c10/cuda/CUDACachingAllocator.cpp prints it."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (2**10, "KiB")):
        if size > unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"


def pieces(size: int) -> int:
    """What is asked of CUDA for a tensor of more than 10 MiB: a whole number of 2 MiB."""
    assert size >= 10 * MIB
    return -(-size // (2 * MIB)) * 2 * MIB


def error(
    requested: int,
    *,
    total: int = 80 * GIB,
    free: int = 0,
    allocated: int = 70 * GIB,
    unused: int = 0,
) -> str:
    """An error of PyTorch 2.2 or later."""
    in_use = total - free
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {printed(requested)}. "
        f"GPU 0 has a total capacity of {printed(total)} of which {printed(free)} is free. "
        f"Including non-PyTorch memory, this process has {printed(in_use)} memory in use. "
        f"Of the allocated memory {printed(allocated)} is allocated by PyTorch, "
        f"and {printed(unused)} is reserved by PyTorch but unallocated. "
        "If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


def of(text: str, **run: Any) -> Explanation:
    fields = {"implementation": "huggingface", "recipe": "bf16-adam", "recompute": "full", **run}
    return explain(text, estimate(Run.from_json(fields)))


# Vocabularies, hidden and feed-forward sizes from the models' published config.json files.
@pytest.mark.parametrize(
    ("model", "sequence", "batch", "size", "formula", "word"),
    [
        ("llama-3-8b", 8192, 1, 4 * 8192 * 128256, "4·s·b·V", "logits in fp32"),
        ("llama-3-8b", 4096, 2, 4 * 2 * 4096 * 128256, "4·s·b·V", "logits in fp32"),
        ("llama-2-7b", 4096, 4, 4 * 4 * 4096 * 32000, "4·s·b·V", "logits in fp32"),
        ("llama-3-8b", 8192, 1, 2 * 8192 * 128256, "2·s·b·V", "logits (head)"),
        ("llama-3-8b", 8192, 1, 2 * 8192 * 14336, "2·s·b·f", "(mlp)"),
        ("llama-3-8b", 8192, 1, 2 * 14336 * 4096, "2·h·f", "weight"),
    ],
)
def test_a_tensor_is_found_by_its_bytes_and_told_by_its_formula(
    model, sequence, batch, size, formula, word
):
    found = of(error(pieces(size)), model=model, sequence=sequence, micro_batch=batch)
    told = [one for one in found.suspects if one.formula == formula]
    assert told
    assert {one.bytes for one in told} == {size}
    assert any(word in one.label for one in told)
    assert formula in oom_text(found, Terminal(width=160))


def test_the_traceback_and_what_was_held_choose_among_equals():
    logits = pieces(4 * 8192 * 128256)
    run = {"model": "llama-3-8b", "sequence": 8192}
    before = (
        'Traceback (most recent call last):\n  File "loss_utils.py", line 36, in ForCausalLMLoss\n'
        "    {}\n"
    )
    for line, label in (
        ("logits = logits.float()", "the loss: logits in fp32"),
        ("return F.cross_entropy(logits, labels)", "the loss: log-probabilities"),
    ):
        found = of(before.format(line) + error(logits), **run)
        assert found.suspects[0].label.startswith(label)
        assert found.suspects[0].fits_traceback
    # Without a traceback, what was held decides: as much as the calculator says is held then.
    for one in of(error(logits), **run).suspects:
        again = of(error(logits, allocated=one.least_held_bytes), **run)
        assert again.suspects[0].label == one.label
        first = of(error(logits, allocated=one.first_held_bytes or 0), **run)
        assert first.suspects[0].label == one.label


def test_the_layer_is_the_one_at_which_so_much_is_held():
    gate = pieces(2 * 8192 * 14336)
    run = {"model": "llama-3-8b", "sequence": 8192, "recompute": "none"}
    for layer in (1, 2, 17, 31, 32):
        step = estimate(
            Run.from_json({"implementation": "huggingface", "recipe": "bf16-adam", **run})
        )
        held = 0
        for event, counters in expand(step.worst.tree):
            if (
                "forward pass" in event.label
                and "gate (mlp) is made" in event.label
                and (counters.get("layer") == layer)
            ):
                break
            held += event.bytes
        found = of(error(gate, allocated=held), **run)
        assert f"the forward pass of layer {layer}: " in found.suspects[0].label
        assert found.suspects[0].least_held_bytes == held


def test_an_optimizers_first_step_dies_over_one_of_its_states():
    text = (
        "Traceback (most recent call last):\n"
        '  File "/x/torch/optim/adamw.py", line 188, in _init_group\n'
        '    state["exp_avg_sq"] = torch.zeros_like(\n' + error(pieces(4 * 128256 * 4096))
    )
    found = of(text, model="llama-3-8b", recipe="autocast-adam")
    assert found.reading.when == "the optimizer's step"
    assert "moment of the" in found.suspects[0].label
    assert found.suspects[0].formula == "4·h·V"


def test_a_small_tensor_asks_for_a_piece_and_is_told_as_such():
    found = of(error(20 * MIB), model="llama-3-8b", sequence=4096)
    assert found.is_piece
    assert len(found.suspects) > 4
    assert all(MIB < one.bytes < 10 * MIB for one in found.suspects)
    assert "not which tensor" in oom_text(found, Terminal())


def test_a_longer_batch_than_the_runs_is_recognized():
    tokens = 11_264
    found = of(error(pieces(4 * tokens * 128256)), model="llama-3-8b", sequence=8192)
    assert not found.suspects
    assert found.tokens is not None
    assert found.tokens[0] == "fp32"
    assert found.tokens[1] <= tokens <= found.tokens[2]
    assert found.tokens[2] - found.tokens[1] < 30


def test_the_textbooks_run_is_looked_up_in_a_librarys_step():
    text = error(pieces(4 * 8192 * 128256))
    found = explain(text, estimate(Run.from_json({"model": "llama-3-8b", "sequence": 8192})))
    assert found.other_step
    assert found.suspects[0].formula == "4·s·b·V"
    split = {
        "model": "llama-3-8b",
        "sequence": 8192,
        "tensor": 2,
        "pipeline": 2,
        "micro_batches": 4,
    }
    found = explain(error(pieces(4 * 8192 * 128256 // 2)), estimate(Run.from_json(split)))
    assert not found.other_step
    assert [one.bytes for one in found.suspects] == [4 * 8192 * 128256 // 2]
    assert found.suspects[0].label == "the 32-bit copy of the logits"


# --- why, and what to change -------------------------------------------------------------------


def test_the_smallest_change_makes_the_step_fit_where_the_job_died():
    run = {"model": "llama-3-8b", "sequence": 8192, "micro_batch": 2}
    step = estimate(
        Run.from_json(
            {"implementation": "huggingface", "recipe": "bf16-adam", "recompute": "full", **run}
        )
    )
    room = step.worst.peak_bytes - 2 * GIB
    text = error(
        pieces(4 * 2 * 8192 * 128256),
        total=80 * GIB,
        free=room - 40 * GIB,
        allocated=40 * GIB,
    )
    found = of(text, **run)
    assert found.fits is False
    assert found.change is not None
    after = estimate(Run.from_json({**step.run.to_json(), **found.change.fields}))
    assert found.room_bytes is not None
    assert after.worst.peak_bytes <= found.room_bytes < step.worst.peak_bytes
    assert found.change.title in " ".join(oom_text(found, Terminal()).split())


@pytest.mark.parametrize(
    ("requested", "free", "allocated", "unused", "cause"),
    [
        (4 * GIB, 1 * GIB, 70 * GIB, 5 * GIB, "fragmentation"),
        (4 * GIB, 1 * GIB, 70 * GIB, 3 * GIB, "fragmentation"),
        (4 * GIB, 1 * GIB, 70 * GIB, 2 * GIB, "too much"),
        (4 * GIB, 9 * GIB, 60 * GIB, 0, "a limit"),
        (90 * GIB, 9 * GIB, 60 * GIB, 1 * GIB, "too much"),
        (20 * MIB, 0, 78 * GIB, 1 * GIB, "too much"),
        (20 * MIB, 0, 60 * GIB, 10 * GIB, "fragmentation"),
    ],
)
def test_the_numbers_decide_the_cause(requested, free, allocated, unused, cause):
    text = error(requested, free=free, allocated=allocated, unused=unused)
    assert explain(text).verdict.cause == cause


@given(
    requested=st.integers(1, 2**37),
    free=st.integers(0, 2**36),
    allocated=st.integers(0, 2**36),
    unused=st.integers(0, 2**36),
)
def test_what_is_missing_is_what_was_asked_less_what_there_was(requested, free, allocated, unused):
    total = free + allocated + unused + 2**29
    text = error(requested, total=total, free=free, allocated=allocated, unused=unused)
    found = explain(text).verdict
    slack = 4 * 2**30 // 200 + 4
    assert found.missing_bytes is not None
    assert abs(found.missing_bytes - (requested - free - unused)) <= slack
    if requested > free + unused + slack:
        assert found.cause == "too much"
    if found.cause == "fragmentation":
        assert requested <= free + unused + slack
        assert free <= requested + slack


# --- for any run -------------------------------------------------------------------------------


@given(requests(), st.integers(0, 10_000))
@settings(max_examples=40)
def test_every_tensor_of_a_step_is_found_by_what_it_asks_for(request_json, which):
    run = Run.from_json(request_json)
    if run.implementation == "paper":
        return
    step = estimate(run)
    seen = {event.label: event for event, _ in expand(step.worst.tree) if event.bytes > 0}
    made = [one for one in seen.values() if one.label.endswith((" is made", " is made and kept"))]
    if not made:
        return
    one = made[which % len(made)]
    found = explain(error(max(asked(one.bytes), 1)), step)
    assert any(one.bytes - 512 < suspect.bytes <= one.bytes for suspect in found.suspects)


def test_the_command_takes_a_file_or_standard_input_and_a_run(tmp_path, capsys, monkeypatch):
    log = tmp_path / "error.txt"
    log.write_text(error(pieces(4 * 8192 * 128256)), encoding="utf-8")
    flags = ["--model", "llama-3-8b", "--sequence", "8k", "--implementation", "huggingface"]
    assert main(["oom", *flags, "--recipe", "bf16-adam", str(log)]) == 0
    assert "4·s·b·V = 4 × 8,192 × 1 × 128,256" in capsys.readouterr().out
    assert main(["oom", str(log), "--json"]) == 0
    out = capsys.readouterr().out
    assert '"cause": "too much"' in out
    assert '"run": null' in out
    assert main(["oom", str(tmp_path / "none.txt")]) == 2
    assert "there is no such file" in capsys.readouterr().err
    log.write_text("all went well", encoding="utf-8")
    assert main(["oom", str(log)]) == 2
    assert "no out-of-memory error is in this text" in capsys.readouterr().err
    assert main(["oom", str(log), "--micro-bach", "2"]) == 2
    assert "there is no such flag" in capsys.readouterr().err


def test_the_smallest_change_copies_nothing_to_the_cpu_where_another_is_enough():
    """Copies take longer than recomputing; a change that costs nothing has nothing in brackets."""
    text = error(pieces(4 * 8192 * 128256), allocated=70 * GIB)
    found = of(text, model="llama-3-8b", sequence=8192, recompute="none")
    assert found.change is not None
    assert "offload" not in found.change.fields
    assert "()" not in oom_text(found, Terminal(width=200))
