"""The mirror of autograd: lifetimes, the order of the backward pass, checkpoints, autocast."""

from __future__ import annotations

import gc

import pytest

from training_memory.autograd import operations as op
from training_memory.autograd.backward import BackwardPass
from training_memory.autograd.checkpoint import keep_every_other_product, keep_products
from training_memory.autograd.tape import Tape
from training_memory.autograd.tensors import Parameter, Tensor
from training_memory.categories import Category
from training_memory.formula import Formula, symbol
from training_memory.running import Running

S = symbol("s")
#: So many bytes has one tensor of the tests' graphs, in fp32.
SIZE = 400
VALUES = {"s": 100}


def names(tape: Tape) -> list[str]:
    """What was made, in order."""
    return [facts.name for facts in tape.facts]


def totals(tape: Tape) -> list[int]:
    """The running total after every allocation, in tensors."""
    now, found = 0, []
    for place in Running(tape.places, tuple(tape.codes)).ends():
        if place >= 0:
            now += tape.facts[place].bytes.evaluate(VALUES)
            found.append(now // SIZE)
        else:
            now -= tape.facts[~place].bytes.evaluate(VALUES)
    return found


def live(tape: Tape) -> set[str]:
    """What is held now."""
    held: dict[int, str] = {}
    for place in tape.places:
        if place < 0:
            del held[~place]
        else:
            held[place] = tape.facts[place].name
    return set(held.values())


def weight(name: str = "weight", dtype: str = "fp32") -> Parameter:
    return Parameter(name, S, dtype)


def test_a_storage_lives_as_long_as_something_holds_it():
    tape = Tape()
    x = tape.new("x", S, "fp32")
    y = x.view()
    del x
    assert live(tape) == {"x"}
    del y
    assert live(tape) == set()


def test_nothing_depends_on_the_garbage_collector():
    gc.disable()
    try:
        tape = Tape()
        x = tape.new("x", S, "fp32")
        weights = [weight("first"), weight("second")]
        made = op.silu(tape, op.linear(tape, x, weights[0], S, "a"))
        made = op.linear(tape, made, weights[1], S, "b")
        BackwardPass(tape).run(made)
        del made, x
        assert live(tape) == {"gradient of first", "gradient of second"}
    finally:
        gc.enable()


def test_an_operation_saves_what_its_gradient_needs():
    tape = Tape()
    x = op.linear(tape, tape.new("input", S, "fp32"), weight(), S, "x")
    y = op.silu(tape, x)
    assert [use.operation for use in tape.facts[x.storage.number].uses] == ["silu"]
    z = op.tanh(tape, y)
    assert not tape.facts[y.storage.number].uses
    assert [use.operation for use in tape.facts[z.storage.number].uses] == ["tanh"]


def test_what_wants_no_gradient_is_not_saved():
    tape = Tape()
    x = op.silu(tape, tape.new("input", S, "fp32"))
    assert not tape.facts[0].uses
    assert x.edge is None


def test_a_products_weight_takes_its_gradient_before_the_input_does():
    tape = Tape()
    x = op.linear(tape, tape.new("input", S, "fp32"), weight("first"), S, "x")
    BackwardPass(tape).run(op.linear(tape, x, weight("second"), S, "y"))
    order = [name for name in names(tape) if name.startswith("gradient of")]
    assert order == ["gradient of second", "gradient of y's input", "gradient of first"]


def test_with_a_bias_the_input_is_first_and_the_bias_is_summed_last():
    tape = Tape()
    x = op.linear(tape, tape.new("input", S, "fp32"), weight("first"), S, "x")
    bias = Parameter("bias", Formula({(): 1}), "fp32")
    BackwardPass(tape).run(op.linear(tape, x, weight("second"), S, "y", bias))
    assert names(tape)[-4:] == [
        "gradient of y's input",
        "gradient of second",
        "gradient summed over repeats",
        "gradient of first",
    ]


def test_gradients_that_meet_are_summed_in_new_memory():
    tape = Tape()
    x = op.linear(tape, tape.new("input", S, "fp32"), weight("first"), S, "x")
    y = op.add(tape, op.silu(tape, x), op.silu(tape, x))
    BackwardPass(tape).run(y)
    assert names(tape).count("sum of gradients") == 1


def test_a_weight_used_twice_is_accumulated_once_with_three_buffers():
    """A tied embedding: the head's gradient waits for the lookup's, and their sum is a third."""
    tape = Tape()
    tied = weight("table")
    x = op.embedding(tape, tape.new("ids", S, "int64"), tied, S, "looked up")
    y = op.linear(tape, x, tied, S, "logits")
    before = totals(tape)[-1]
    BackwardPass(tape).run(y)
    assert names(tape)[-1] == "sum of gradients"
    assert max(totals(tape)) == before + 4  # the loss's own gradient is the fourth
    assert live(tape) == {"looked up", "logits", "sum of gradients"}
    running = Running(tape.places, tuple(tape.codes))
    moved = [code for at, code in enumerate(running.codes) if running.passes_on(at)]
    assert moved == [Category.TEMPORARY.leaves, Category.GRADIENTS.comes]


def test_a_second_micro_batch_adds_in_place():
    tape = Tape()
    only = weight()
    for _ in range(2):
        x = op.linear(tape, tape.new("input", S, "fp32"), only, S, "x")
        BackwardPass(tape).run(x)
        del x
    assert live(tape) == {"gradient of weight"}
    assert names(tape).count("gradient of weight") == 2


def test_gradients_may_be_dropped_as_they_arrive():
    tape = Tape()
    x = op.linear(tape, tape.new("input", S, "fp32"), weight(), S, "x")
    BackwardPass(tape, keeps=False).run(x)
    del x
    assert live(tape) == set()


def layers(tape: Tape, x: Tensor) -> Tensor:
    """A small layer: two products with something between."""
    x = op.linear(tape, x, weight("up"), S, "up")
    x = op.silu(tape, x)
    return op.linear(tape, x, weight("down"), S, "down")


def start(tape: Tape) -> Tensor:
    return op.linear(tape, tape.new("input", S, "fp32"), weight("first"), S, "x")


def test_a_checkpoint_keeps_its_argument_alone():
    tape = Tape()
    y = tape.checkpoint(lambda x: layers(tape, x), start(tape))
    assert live(tape) == {"input", "x", "down"}
    del y
    assert live(tape) == set()


def test_a_second_run_stops_when_all_that_was_saved_is_there_again():
    tape = Tape()
    y = tape.checkpoint(lambda x: layers(tape, x), start(tape))
    before = len(tape.facts)
    BackwardPass(tape).run(y)
    again = [facts.name for facts in tape.facts[before:] if facts.category is Category.RECOMPUTED]
    # The last product saved its factors; what it comes to is not computed.
    assert again == ["up", "SiLU output"]


def test_a_checkpoint_changes_no_gradient():
    def gradients(*, checkpointed: bool) -> list[str]:
        tape = Tape()
        x = start(tape)
        y = tape.checkpoint(lambda x: layers(tape, x), x) if checkpointed else layers(tape, x)
        BackwardPass(tape).run(y)
        return [one for one in names(tape) if one.startswith("gradient of")]

    assert gradients(checkpointed=True) == gradients(checkpointed=False)


@pytest.mark.parametrize(
    ("policy", "kept"),
    [(keep_products, {"up", "down"}), (keep_every_other_product, {"up"})],
)
def test_a_policy_keeps_products(policy, kept):
    tape = Tape()
    y = tape.checkpoint(lambda x: layers(tape, x), start(tape), keeps=policy())
    assert live(tape) == {"input", "x", "down"} | kept
    before = len(tape.facts)
    BackwardPass(tape).run(y)
    again = [facts.name for facts in tape.facts[before:] if facts.category is Category.RECOMPUTED]
    assert again == ["SiLU output"]


def test_every_other_product_is_kept_and_attention():
    keeps = keep_every_other_product()
    asked = ["product", "product", "attention", "product", "product", "product"]
    assert [keeps(one) for one in asked] == [True, False, True, True, False, True]


def test_autocast_casts_a_weight_once_until_it_is_left():
    tape = Tape(autocast=True)
    only = weight("only")
    x = tape.new("input", S, "fp32")
    y = op.linear(tape, x, only, S, "a")
    z = op.linear(tape, y, only, S, "b")
    assert names(tape).count("only, 16-bit copy") == 1
    assert z.dtype == "bf16"
    tape.forget_casts()
    del x, y
    # The second product's backward pass still needs the copy.
    assert "only, 16-bit copy" in live(tape)
    BackwardPass(tape).run(z)
    del z
    assert live(tape) == {"gradient of only, cast"}


def test_the_arguments_of_a_product_are_cast_from_the_last_to_the_first():
    tape = Tape(autocast=True)
    bias = Parameter("bias", Formula({(): 1}), "fp32")
    op.linear(tape, tape.new("input", S, "fp32"), weight(), S, "x", bias)
    assert names(tape)[1:] == ["bias, 16-bit copy", "weight, 16-bit copy", "x's input", "x"]


def test_a_gradient_in_head_order_is_copied_to_be_joined():
    tape = Tape()
    x = op.heads(tape, start(tape))
    # A slice's gradient is made in the order of the dimensions, heads before tokens.
    BackwardPass(tape).run(op.silu(tape, op.part(tape, x, S / 2)))
    assert "copy in token order" in names(tape)


def test_one_head_is_never_copied():
    tape = Tape()
    x = op.heads(tape, start(tape), one=True)
    y = op.joined(tape, [x])
    assert op.by_tokens(tape, y, "copy") is y
    BackwardPass(tape).run(op.silu(tape, op.part(tape, y, S / 2)))
    assert not any("copy" in name for name in names(tape))


def test_one_sequence_is_joined_with_its_heads_without_a_copy():
    tape = Tape()
    x = tape.new("x", S, "bf16")
    assert op.joined_with_batch(tape, x, one_sequence=True) is x
    assert op.joined_with_batch(tape, x, one_sequence=False) is not x


def test_a_slice_has_a_whole_gradient():
    tape = Tape()
    x = start(tape)
    y = op.part(tape, x, S / 2)
    BackwardPass(tape).run(op.silu(tape, y))
    (gradient,) = (facts for facts in tape.facts if facts.name == "slice's gradient")
    assert gradient.numel == S


def test_what_two_dtypes_come_to_is_the_wider():
    tape = Tape()
    narrow, wide = tape.new("a", S, "bf16"), tape.new("b", S, "fp32")
    assert op.add(tape, narrow, wide).dtype == "fp32"
    assert op.multiply(tape, narrow, narrow).dtype == "bf16"


def test_a_power_holds_three_tensors_on_its_way_back():
    tape = Tape()
    x = start(tape)
    y = op.square(tape, x)
    del x
    before = totals(tape)[-1]
    BackwardPass(tape).run(y)
    assert max(totals(tape)) == before + 4  # the loss's own gradient is the fourth
