"""Random trees of events and random runs, for the tests that must hold for all of them."""

from hypothesis import strategies as st

from training_memory import catalog, gpus
from training_memory.categories import CATEGORIES
from training_memory.events import Counter, Event, Group, Phase, Repeat

_events = st.builds(
    Event,
    phase=st.sampled_from(list(Phase)),
    category=st.sampled_from(CATEGORIES),
    bytes=st.integers(-50, 50),
    label=st.just("event"),
    why=st.just(""),
    moment=st.sampled_from(["x", "y", "z"]),
)


def _grow(children):
    counters = st.builds(
        Counter,
        name=st.sampled_from(["layer", "forward", "backward"]),
        first=st.integers(0, 9),
        step=st.sampled_from([-1, 1]),
    )
    return st.one_of(
        st.builds(
            Group, label=st.just("group"), children=st.lists(children, max_size=4).map(tuple)
        ),
        st.builds(Repeat, count=st.integers(0, 5), child=children, counters=st.tuples(counters)),
    )


trees = st.recursive(_events, _grow, max_leaves=12)

_powers = st.sampled_from([1, 2, 4, 8])


@st.composite
def requests(draw):
    """A run's JSON that is accepted: any model, any shape of step, any layout that divides it."""
    model = catalog.models()[draw(st.sampled_from(sorted(catalog.models())))]
    longest = model.positions or 8192
    tensor = draw(_powers.filter(lambda t: model.heads % t == 0 and model.hidden % t == 0))
    sequence = draw(st.integers(1, max(1, longest // tensor))) * tensor
    if sequence > longest:
        sequence, tensor = longest, 1
    pipeline = draw(st.integers(1, min(6, model.layers)))
    parts = [v for v in (2, 3) if pipeline > 1 and model.layers % (pipeline * v) == 0]
    interleave = draw(st.sampled_from([1, *parts]))
    return {
        "model": model.id,
        "sequence": sequence,
        "micro_batch": draw(st.integers(1, 64)),
        "micro_batches": draw(st.integers(1, 12 if interleave == 1 else 3))
        * (pipeline if interleave > 1 else 1),
        "recipe": draw(st.sampled_from(["mixed-adam", "fp32-adam"])),
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
        "data": draw(st.integers(1, 100)),
        "zero": draw(st.integers(0, 3)),
        "tensor": tensor,
        "sequence_parallel": tensor > 1 and draw(st.booleans()),
        "context": draw(st.sampled_from([n for n in (1, 2, 4) if sequence % (2 * n * tensor) == 0]))
        if sequence % (2 * tensor) == 0
        else 1,
        "pipeline": pipeline,
        "schedule": draw(st.sampled_from(["1f1b", "gpipe", "zero-bubble"]))
        if interleave == 1
        else "interleaved",
        "interleave": interleave,
        "gpu": draw(st.sampled_from([None, gpus.DEFAULT])),
    }
