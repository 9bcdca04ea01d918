"""Whatever bytes a file holds, there is a reading or a plain word, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_memory.errors import InputError, InputErrors
from training_memory.readers.formats import FORMATS, read_files
from training_memory.readers.report import Standing
from training_memory.readers.source import decoded
from training_memory.readers.syntax import syntax_of

ENDINGS = ("json", "yaml", "toml", "sh", "py", "txt")
KEYS = sorted({key for form in FORMATS.values() for row in form.rows for key in row.keys})
#: Values that people and programs write where others are meant.
ODD: list[object] = [
    *(None, True, False, 0, -1, 1, 8, 2**70, 0.5, 1e400, float("nan"), "", " ", "auto", "none"),
    *("yes", "${X}", "$X", "${X:-4}", "$((1/0))", "four", "8 GPUs", [], {}, [1, [2]], {"a": {}}),
    *("full_shard", ["full_shard"], "bf16", "bfloat16", "3", "adamw_torch", "9" * 5000),
]


def read(name: str, text: str) -> Any:
    return read_files([(name, text)], {})


def outcome(name: str, text: Callable[[], str]) -> str:
    """What is said of a file: its format's name, or what is wrong with it."""
    try:
        return ", ".join(read(name, text()).report.files.values())
    except (InputError, InputErrors) as error:
        return str(error)


def leaves(above: str, values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(f"{above}{name}.", value)
        elif value is not None:
            yield f"{above}{name}"


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=400), ending=st.sampled_from(ENDINGS))
def test_any_bytes_are_read_or_refused(content, ending):
    assert outcome(f"a.{ending}", lambda: decoded("file", "a", content))


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(
        alphabet=st.sampled_from("ab:-[]{}#&*!|>'\"\\$()=\n\t ,.0~?%@`"), min_size=1, max_size=60
    ),
    ending=st.sampled_from(ENDINGS),
)
def test_any_marks_are_read_or_refused(text, ending):
    assert outcome(f"a.{ending}", lambda: text)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(
    form=st.sampled_from(sorted(FORMATS)),
    values=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(ODD), max_size=8),
)
def test_any_value_of_a_known_key_is_read_or_refused_by_name(form, values):
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *above, last = path.split(".")
        place = nested
        for name in above:
            inner = place.setdefault(name, {})
            if not isinstance(inner, dict):
                place[name] = inner = {}
            place = inner
        place[last] = deepcopy(value)  # a key below it must not be written into what others hold
    text = json.dumps(nested).replace("NaN", "1").replace("Infinity", "1e400")
    try:
        report = read(f"{form}:a.json", text).report
    except InputErrors as found:
        errors, report = found.errors, None
    else:
        errors = ()
    assert all(error.field and error.allowed for error in errors)
    if report:
        # No key is passed over in silence.
        told = {finding.key for finding in report.findings}
        for path in leaves("", nested):
            plain = FORMATS[form].plain(path)
            assert any(key == plain or plain.startswith(f"{key}.") for key in told), path


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "a: [1", "it is not YAML that can be read"),
        ("a.yaml", "a:\n\t- b", "line 2, column 1"),
        ("a.yaml", "- 1\n- 2", "it holds no keys"),
        ("a.yaml", "a: 1\n---\nb: 2", "it is not YAML that can be read"),
        ("a.yaml", "a: !!python/object:os.system x", "it is not YAML that can be read"),
        ("a.yaml", "day: 2024-99-99", "it is not YAML that can be read"),
        ("a.yaml", "{{ x }}: 1", "it is not YAML that can be read"),
        ("a.yaml", "n: 0x" + "f" * 9000, "a number of too many digits"),
        ("a.yaml", "x: " + "[" * 5000, "nested too deeply"),
        ("a.yaml", "#" * 300_000, "larger than 256 KiB"),
        ("a.toml", "[a", "it is not TOML that can be read"),
        ("a.toml", "a = 1\na = 2", "it is not TOML that can be read"),
        ("a.sh", "python x.py --name 'a", "a quote opened in line 1"),
        ("a.sh", "echo hello", "it has no arguments"),
        ("a.json", "{", "it is not JSON: Expecting property name"),
        ("a.json", '{"bf16": {"enabled": maybe}}', "line 1, column 22"),
        ("a.json", "[1]", "a JSON object is needed"),
        ("a.txt", "  \n", "it is empty"),
        ("a.json", '{"nothing": 1, "known": 2}', "none of the files that are known"),
        ("a.json", '{"sequence_length_": 1, "micro_batch_siz": 2}', "Did you mean"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(name, text, words):
    with pytest.raises(InputErrors) as caught:
        read(name, text)
    assert words in str(caught.value)
    assert "a." in str(caught.value)


def test_yaml_that_repeats_itself_without_end_is_refused():
    text = "a: &a [x,x,x,x,x,x,x,x,x]\n"
    for name, below in zip("bcdefgh", "abcdefg", strict=True):
        text += f"{name}: &{name} [{','.join([f'*{below}'] * 9)}]\n"
    text += "base_model: x\nmicro_batch_size: *h\nsequence_len: 5\n"
    with pytest.raises(InputErrors, match=r"micro_batch_size in a\.yaml: .*larger than any"):
        read("a.yaml", text)
    endless = read("a.yaml", "base_model: x\nme: &me\n  me: *me\n").report
    assert [finding.value for finding in endless.of(Standing.UNKNOWN)] == ["{1 keys}"]


def test_every_wrong_value_is_named_at_once():
    text = "base_model: 7\nsequence_len: long\nmicro_batch_size: 0\nbf16: perhaps\nfsdp: [half]\n"
    with pytest.raises(InputErrors) as caught:
        read("a.yml", text)
    fields = {error.field.removesuffix(" in a.yml") for error in caught.value.errors}
    assert fields == {"base_model", "sequence_len", "micro_batch_size", "bf16", "fsdp"}


def test_merge_keys_and_anchors_are_what_yaml_says_they_are():
    text = """
usual: &usual
  micro_batch_size: 3
<<: *usual
base_model: meta-llama/Llama-2-7b-hf
sequence_len: &long 2048
gradient_accumulation_steps: 2
"""
    resolved = read("a.yml", text)
    assert resolved.fields["micro_batch"] == 3
    assert "usual.micro_batch_size" in {finding.key for finding in resolved.report.doubts}


def test_variables_are_asked_for_or_taken_at_their_usual_value():
    text = "base_model: $MODEL\nsequence_len: ${LEN:-1024}\nmicro_batch_size: ${MBS}\n"
    resolved = read("a.yml", text)
    assert resolved.fields["sequence"] == 1024
    asked = {finding.key for finding in resolved.report.of(Standing.ASKED)}
    assert asked >= {"base_model", "micro_batch_size"}
    assert "micro_batch" not in resolved.fields


@pytest.mark.parametrize(
    ("name", "text", "syntax"),
    [
        ("run.json", "a: 1", "JSON"),
        ("-", '{"a": 1}', "JSON"),
        ("-", "// comment\n{}", "JSON"),
        ("-", "a: 1\nb: 2", "YAML"),
        ("-", "# note\n[model]\nname = 1\nflavor = 2", "TOML"),
        ("-", "#!/bin/bash\ntorchrun x.py --a 1", "shell"),
        ("-", "--num-layers 2 --hidden-size 4", "shell"),
        ("-", "datasets:\n  - path: x\n    type: y", "YAML"),
    ],
)
def test_how_a_file_is_written_is_seen_from_its_name_or_its_text(name, text, syntax):
    assert syntax_of(name, text) == syntax


def test_a_format_can_be_forced():
    text = '{"micro_batch_size": 4, "seq_length": 128}'
    assert read("megatron:a.json", text).report.files == {"a.json": FORMATS["megatron"].name}
    assert "seq_length" in {finding.key for finding in read("axolotl:a.json", text).report.doubts}
