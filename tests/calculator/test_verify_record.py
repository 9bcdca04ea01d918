"""A record of a GPU check: it reads back, and one that is not whole is refused by its fault."""

import json
from types import SimpleNamespace

import pytest

from gpu_records import record
from training_memory.verify.plan import peak_bytes
from training_memory.verify.reading import RecordError, read_record


def altered(change):
    """A record's JSON with one thing changed."""
    value = json.loads(json.dumps(record().to_json()))
    change(SimpleNamespace(value=value, measured=value["measurements"][0]["measured"]))
    return value


class TestRecord:
    def test_it_reads_back(self):
        made = record(model="llama-7b", layers=2, more_bytes=5)
        read = read_record(json.loads(json.dumps(made.to_json())))
        assert read == made

    def test_a_prediction_in_a_file_is_not_believed(self):
        value = altered(lambda it: it.value["measurements"][0].update(predicted={"peak_bytes": 1}))
        one = read_record(value).measurements[0]
        assert one.predicted_bytes == peak_bytes(one.run)

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (lambda it: it.value.update(format=2), "format: 2"),
            (lambda it: it.value.update(day="yesterday"), "day: 'yesterday'"),
            (lambda it: it.value.update(extra=1), "unknown: extra"),
            (lambda it: it.value.pop("training_memory"), "training_memory"),
            (lambda it: it.value.update(steps=0), "steps: 0"),
            (lambda it: it.value.update(steps=True), "steps: True"),
            (lambda it: it.value.update(measurements=[]), "measurements: []"),
            (lambda it: it.value["measurements"].append(3), "measurements[3]: 3"),
            (
                lambda it: it.value["measurements"].append(it.value["measurements"][0]),
                "each recompute may come once",
            ),
            (lambda it: it.value["machine"].update(gpu=""), "machine.gpu: ''"),
            (lambda it: it.value["machine"].update(gpu="a\nb"), "machine.gpu"),
            (lambda it: it.value["machine"].update(memory_bytes=1), "machine.free_bytes"),
            (lambda it: it.value["machine"].pop("driver"), "machine.driver"),
            (lambda it: it.value["run"].update(model="gpt9"), "run.model: 'gpt9'"),
            (lambda it: it.value["run"].update(data=2), "one GPU"),
            (lambda it: it.value["run"].update(recompute="none"), "without its recompute"),
            (lambda it: it.value.update(run=[]), "run: []"),
            (lambda it: it.value["measurements"][0].update(recompute="half"), "run.recompute"),
            (lambda it: it.value["measurements"][0].update(losses=[1.0]), "2 numbers"),
            (lambda it: it.value["measurements"][0].update(losses=[1.0, float("nan")]), "losses"),
            (lambda it: it.measured.update(max_memory_allocated=5), "highest of its moments"),
            (lambda it: it.measured.update(max_memory_reserved=5), "more than reserved memory, 5"),
            (lambda it: it.measured.update(max_memory_reserved=10**12), "more than the GPU"),
            (lambda it: it.measured.update(outside_allocator=-1), "outside_allocator: -1"),
            (lambda it: it.measured.update(left_allocated=1.5), "left_allocated: 1.5"),
            (lambda it: it.measured["moments"].pop("before"), "missing or unknown: before"),
            (
                lambda it: it.measured["moments"].update(forward_end=10**13),
                "forward_end: 10,000,000,000,000 is more than forward_peak",
            ),
            (lambda it: it.measured.update(moments=None), "moments: None"),
        ],
    )
    def test_what_is_not_whole_is_refused_by_its_place(self, change, problem):
        with pytest.raises(RecordError) as caught:
            read_record(altered(change))
        assert problem in str(caught.value)

    @pytest.mark.parametrize("value", [None, [], 7, "{}", {}])
    def test_what_is_no_record_at_all_is_refused(self, value):
        with pytest.raises(RecordError):
            read_record(value)

    def test_several_problems_come_together(self):
        def change(it):
            it.value["machine"].update(gpu="")
            it.value.update(steps=-1)

        with pytest.raises(RecordError) as caught:
            read_record(altered(change))
        assert len(caught.value.problems) >= 2
