"""What the prose can ask, and that it gets the calculator's own answer or none."""

import pytest
from jinja2 import Environment, StrictUndefined, UndefinedError

from expressions import FILTERS, FUNCTIONS
from training_memory.errors import InputError, InputErrors


@pytest.fixture(scope="module")
def render():
    environment = Environment(undefined=StrictUndefined)
    environment.filters.update(FILTERS)

    def render(text):
        return environment.from_string(text).render(FUNCTIONS)

    return render


RUN = 'estimate("llama-7b", sequence=4096, micro_batch=1, recipe="mixed-adam", recompute="none")'


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        (f"{RUN}.peak | GB", "199.5 GB"),
        (f"{RUN}.peak | GB(3)", "199.539 GB"),
        (f"{RUN}.peak | GiB", "185.8 GiB"),
        (f"{RUN}.peak", "199539351552"),
        (f"{RUN}.states | GB", "107.8 GB"),
        (f"{RUN}.totals.activations | GB", "104.2 GB"),
        (f"{RUN}.parts.logits | GB", "0.8 GB"),
        (f"{RUN}.parameters | count", "6,738,415,616"),
        (f"{RUN}.parameters | billions", "6.7"),
        (f"{RUN}.run.sequence | count", "4,096"),
        (f"{RUN}.capacity | GB(0)", "80 GB"),
        (f"{RUN}.fits", "False"),
        (f"ratio({RUN}.peak, {RUN}.capacity)", "2.5"),
        (f"percent({RUN}.states, {RUN}.peak)", "54"),
        ('estimate("llama-7b", recompute="full").peak | GB', "110.7 GB"),
        ('estimate("decoder", sequence=8, micro_batch=16).peak | bytes', "286.2 kB"),
        ('estimate("decoder", sequence=8, micro_batch=16).states | count', "86,016"),
        ('estimate("llama-7b", data=8, zero=3).run.layout.gpus', "8"),
        ('model("llama-7b").parameters.by_component.head | count', "131,072,000"),
        ('model("llama-7b", layers=1).layers', "1"),
        ('recipe("mixed-adam").bytes_per_parameter', "16"),
        ('recipe("mixed-adam").by_category.optimizer', "8"),
        ('gpu("80gb").memory_bytes | GB(0)', "80 GB"),
    ],
)
def test_an_expression_shows_the_calculators_answer(render, expression, shown):
    # Between a number and its unit stands a no-break space, so that no line ends there.
    assert render(f"{{{{ {expression} }}}}") == shown.replace(" ", "\u00a0")


def test_without_a_gpu_there_is_nothing_to_show(render):
    assert render('{{ estimate("llama-7b", gpu=None).fits }}') == "None"
    with pytest.raises(TypeError, match="None is not a whole number"):
        render('{{ estimate("llama-7b", gpu=None).room | GB }}')


@pytest.mark.parametrize(
    ("expression", "error", "says"),
    [
        ('estimate("lama-7b").peak', InputErrors, "llama-7b"),
        ('estimate("llama-7b", sequense=1).peak', InputErrors, "sequence"),
        (f"{RUN}.peek", UndefinedError, "peek"),
        (f"{RUN}.totals.adam | GB", UndefinedError, "adam"),
        ("estimated.peak", UndefinedError, "estimated"),
        ('model("gpt-2")', InputError, "gpt2"),
        ('recipe("adam")', InputError, "mixed-adam"),
        ('gpu("h100")', InputError, "allowed"),
        ('"13.5" | GB', TypeError, "not a whole number"),
        ("13.5 | GB", TypeError, "not a whole number"),
        ("True | count", TypeError, "not a whole number"),
        ("ratio(1.5, 2)", TypeError, "not a whole number"),
    ],
)
def test_what_does_not_exist_stops_the_build(render, expression, error, says):
    with pytest.raises(error, match=says):
        render(f"{{{{ {expression} }}}}")
