"""The command line: its answers, its files, its words for mistakes, and its manners in a pipe."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from strategies import requests
from training_memory import Run, __version__, catalog, cli, estimate, flags, gpus
from training_memory.cli import main
from training_memory.model import SHAPE_FIELDS, Model
from training_memory.request import read_request
from training_memory.run import DEFAULTS

ROOT = Path(__file__).parents[2]
COMMANDS = ("estimate", "explain", "fit", "oom", "diff", "read", "models", "gpus", "verify")
CONFIGS = Path(__file__).parent / "data" / "configs"
FILES = Path(__file__).parent / "data" / "files"


class Ran:
    """What one command printed and returned."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        self.status = main(arguments)
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> dict[str, Any]:
        assert (self.status, self.err) == (0, "")
        answer: dict[str, Any] = json.loads(self.out)
        return answer


@pytest.fixture
def run(capsys):
    return lambda *arguments: Ran(capsys, *arguments)


def process(
    *arguments: str, python: str = sys.executable, **options
) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own, with nothing installed."""
    environment = {"PYTHONPATH": str(ROOT / "calculator"), "PATH": os.environ["PATH"]}
    environment |= options.pop("env", {})
    given = {"capture_output": True, "cwd": "/", "timeout": 60, **options}
    command = [python, "-m", "training_memory", *arguments]
    return subprocess.run(command, env=environment, check=False, **given)


# --- answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "recompute", "peak"),
    [
        ("mixed-adam", "none", 199_539_351_552),
        ("mixed-adam", "selective", 116_108_353_536),
        ("mixed-adam", "full", 110_690_025_216),
        ("fp32-adam", "none", 186_324_664_320),
    ],
)
def test_llama_7b_needs_what_the_chapter_says(run, recipe, recompute, peak):
    asked = ["--model", "llama-7b", "--sequence", "4096", "--micro-batch", "1"]
    answer = run("estimate", *asked, "--recipe", recipe, "--recompute", recompute, "--json").json
    assert answer["peak"]["bytes"] == peak
    assert sum(answer["peak"]["parts"].values()) == peak
    assert f"{peak:,} bytes" in run("estimate", "--recipe", recipe, "--recompute", recompute).out


@pytest.mark.parametrize(
    ("rank", "stage", "where"),
    [
        ("0", 1, "first pipeline stage"),
        ("31", 1, "first pipeline stage"),
        ("32", 2, "pipeline stage 2"),
        ("64", 3, "pipeline stage 3"),
        ("127", 4, "last pipeline stage"),
    ],
)
def test_one_gpu_is_shown_by_its_number(run, rank, stage, where):
    """8 tensor-parallel GPUs lie together, then 4 replicas, then 4 stages: 32 GPUs a stage."""
    split = ["--tensor", "8", "--data", "4", "--pipeline", "4", "--micro-batches", "8"]
    asked = ["estimate", "--model", "llama-3-70b", *split, "--json"]
    found = run(*asked, "--rank", rank).json
    assert (found["rank"], found["ranks"][0]["stage"]) == (where, stage)
    assert found["peak"]["bytes"] <= run(*asked).json["peak"]["bytes"]
    assert len(found["ranks"]) == 1


def test_a_gpu_that_is_none_of_the_runs_is_refused(run):
    found = run("estimate", "--data", "4", "--rank", "4")
    assert found.status == 2
    assert "--rank: 4 cannot be used; allowed: 0 to 3" in found.err


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["--accumulate", "4"], ["--micro-batches", "4"]),
        (["--gradient-dtype", "fp32"], ["--recipe", "mixed-adam-fp32-grad"]),
        (
            ["--gradient-dtype", "bf16", "--recipe", "mixed-adam-fp32-grad"],
            ["--recipe", "mixed-adam"],
        ),
        (["--norm", "fused"], ["--norm-kernel", "fused"]),
    ],
)
def test_other_words_mean_the_same(run, words, same):
    asked = ["estimate", "--implementation", "huggingface", "--json"]
    answer = run(*asked, *words).json
    assert answer == run(*asked, *same).json
    assert answer["run"] != run(*asked).json["run"] or "--recipe" in words


def test_gradients_that_no_recipe_has_are_refused(run):
    found = run("estimate", "--recipe", "bf16-adam", "--gradient-dtype", "fp32")
    assert found.status == 2
    assert "--gradient-dtype: 'fp32' cannot be used; bf16-adam has bf16 gradients" in found.err


def test_the_decoder_needs_what_the_chapter_says(run):
    answer = run("estimate", "--model=decoder", "--sequence=8", "--micro-batch=16", "--json").json
    assert (answer["states_bytes"], answer["peak"]["bytes"]) == (86_016, 286_208)


def test_json_is_one_object_with_the_promised_keys(run):
    answer = run("estimate", "--json").json
    assert {"run", "peak", "totals", "states_bytes", "parameters", "omitted"} <= answer.keys()
    assert {"bytes", "moment", "parts"} <= answer["peak"].keys()
    named = {"weights", "gradients", "optimizer", "master", "activations", "logits"}
    assert named <= answer["totals"].keys()
    assert answer["run"] == Run.from_json({}).to_json()


@limits(max_examples=40)
@given(request=requests())
def test_every_run_can_be_asked_for_in_flags(request):
    arguments = ["estimate", "--json"]
    for field, value in request.items():
        if isinstance(value, bool):
            arguments.append(flags.flag(field if value else f"no_{field}"))
        else:
            arguments += [flags.flag(field), "none" if value is None else str(value)]
    parser = flags.run_parser("estimate", description="", epilog="")
    read, mistakes = parser.read(arguments[1:])
    assert not mistakes
    assert read_request(read).run == Run.from_json(request)


def test_a_pipelines_kinds_of_gpu_are_listed_and_the_worst_named(run):
    asked = ["--pipeline", "4", "--micro-batches", "8"]
    answer = run("estimate", *asked, "--json").json
    assert [rank["rank"] for rank in answer["ranks"]] == [
        "first pipeline stage",
        "stage 2, fullest of 2 to 3",
        "last pipeline stage",
    ]
    worst = max(answer["ranks"], key=lambda rank: rank["peak"]["bytes"])
    assert answer["rank"] == worst["rank"]
    assert answer["peak"] == worst["peak"]
    (line,) = (line for line in run("estimate", *asked).out.splitlines() if "<- most" in line)
    assert worst["rank"] in line


def test_units_change_the_words_and_not_the_bytes(run):
    in_gb, in_gib = run("estimate"), run("estimate", "--units", "GiB")
    assert "199.5 GB" in in_gb.out
    assert "GiB" not in in_gb.out
    assert "185.8 GiB" in in_gib.out
    assert "199.5" not in in_gib.out
    assert run("estimate", "--units", "GiB", "--json").json == run("estimate", "--json").json


def test_explaining_adds_the_derivation_to_the_same_estimate(run):
    asked = ["--model", "gpt2", "--sequence", "512", "--recompute", "selective"]
    plain, derived = (run(command, *asked, "--json").json for command in ("estimate", "explain"))
    assert plain == {name: derived[name] for name in plain}
    assert derived["ascent"][-1]["total_bytes"] == plain["peak"]["bytes"]
    for entry in derived["derivation"]:
        category = entry["category"]
        assert entry["total_bytes"] == plain["totals"][category]
        assert entry["peak_bytes"] == plain["peak"]["parts"][category]
        assert entry["times"] * sum(row["bytes"] for row in entry["rows"]) == entry["total_bytes"]
        assert all(row["why"] and row["where"] and row["formula"] for row in entry["rows"])


# --- shapes ----------------------------------------------------------------------------------


def test_every_field_is_a_flag_and_says_what_it_is(run):
    text = run("estimate", "--help").out
    for field in (*SHAPE_FIELDS, *(field for field in DEFAULTS if field != "shape")):
        assert f"{flags.flag(field)} " in text or f"{flags.flag(field)}," in text
    described = {*flags.SHAPE_HELP, *flags.RUN_HELP, "model", "shape"}
    assert described == {*SHAPE_FIELDS, *DEFAULTS}


@pytest.mark.parametrize("field", SHAPE_FIELDS)
def test_a_shape_flag_changes_the_shape(run, field):
    base = catalog.get("deepseek-v2-lite")
    kind = Model.__annotations__[field]
    value = getattr(base, field)
    changed = not value if kind == "bool" else value + 2 if kind == "int" else None
    if field in ("norm", "qk_norm", "activation"):
        changed = {"norm": "layernorm", "qk_norm": "none", "activation": "relu"}[field]
    if field == "norms_per_layer":
        changed = 4
    word = [flags.flag(field if changed else f"no_{field}")]
    arguments = word if kind == "bool" else [flags.flag(field), str(changed)]
    asked = ["--model", "deepseek-v2-lite", "--sequence", "1", "--json"]
    ran = run("estimate", *asked, *arguments)
    try:
        expected = catalog.with_shape(base, {field: changed})
    except ValueError:
        assert ran.status == 2
        assert flags.flag(field) in ran.err or flags.flag(f"no_{field}") in ran.err
    else:
        assert ran.json["parameters"] == expected.parameters.total
        if changed != value:
            assert ran.json["run"]["shape"][field] == changed


def test_numbers_are_taken_as_people_write_them(run):
    written = run("estimate", "--sequence", "4k", "--vocabulary", "32,000", "--json").json
    assert written == run("estimate", "--json").json


# --- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_a_config_file_is_its_model(run, path):
    asked = ["--sequence", "256", "--json"]
    from_file = run("estimate", "--config", str(path), *asked).json
    from_name = run("estimate", "--model", path.stem, *asked).json
    for same in ("parameters", "peak", "totals", "states_bytes"):
        assert from_file[same] == from_name[same]


def test_a_config_files_model_keeps_its_name_and_family_in_json(run, tmp_path):
    config = json.loads((CONFIGS / "llama-3-8b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "_name_or_path": "somebody/their-llama"}))
    asked = ["--config", str(path), "--implementation", "huggingface", "--recipe", "bf16-adam"]
    answer = run("estimate", *asked, "--json").json
    kept = {"model": "custom", "name": "somebody/their-llama", "family": "llama"}
    assert {name: answer["run"][name] for name in kept} == kept
    # The JSON is the same run, classes and all.
    (tmp_path / "run.json").write_text(json.dumps(answer["run"]))
    again = run("estimate", "--run", str(tmp_path / "run.json"), "--json").json
    assert (again["run"], again["peak"]) == (answer["run"], answer["peak"])
    assert "needs" in run("estimate", *asked, "--name", "Mine").out.partition("Mine")[2]
    refused = run("estimate", "--model", "gpt2", "--name", "Mine")
    assert "--name: 'Mine' cannot be used; a model of the catalog has its own" in refused.err


def test_training_files_are_a_run_and_say_what_is_not_in_it(run):
    files = ["--config", str(FILES / "trainer-full.yaml")]
    plain = run("estimate", *files, "--json").json
    wanted = {
        "model": "llama-3.1-8b",
        "sequence": 4096,
        "micro_batch": 2,
        "micro_batches": 16,
        "recipe": "autocast-adam",
        "recompute": "full",
        "implementation": "huggingface",
    }
    assert {name: plain["run"][name] for name in wanted} == wanted
    standings = {one["key"]: one["standing"] for one in plain["reading"]["findings"]}
    assert standings["bf16"] == "understood"
    assert standings["GPUs"] == "asked"
    said = run("estimate", *files).out
    assert "no file says how many GPUs there are: say --data (1 was taken)" in " ".join(
        said.split()
    )
    # A flag goes before a file.
    changed = run("estimate", *files, "--sequence", "1k", "--model", "llama-2-7b", "--json").json
    assert (changed["run"]["sequence"], changed["run"]["model"]) == (1024, "llama-2-7b")


def test_several_files_add_up_and_degrees_beside_them_count(run):
    files = [FILES / "trainer-deepspeed.yaml", FILES / "ds-auto.json", CONFIGS / "qwen2.5-7b.json"]
    asked = [word for path in files for word in ("--config", str(path))]
    answer = run("estimate", *asked, "--data", "8", "--json").json
    assert answer["gpus"] == 8
    assert (answer["run"]["zero"], answer["run"]["recipe"]) == (3, "mixed-adam")
    assert answer["parameters"] == catalog.get("qwen2.5-7b").parameters.total


def test_files_without_a_model_ask_for_one(run):
    ran = run("estimate", "--config", str(FILES / "ds-auto.json"))
    assert ran.status == 2
    assert "no file gives the model's shape: add its config.json" in ran.err
    both = ["--config", str(CONFIGS / "gpt2.json"), "--model", "gpt2"]
    assert "with --model or with --config, not with both" in run("estimate", *both).err


def test_a_mistake_in_a_training_file_is_named_as_it_is_written_there(run, tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text("base_model: gpt2\nsequence_len: 4096\nmicro_batch_size: none\ndatasets: []\n")
    ran = run("estimate", "--config", str(path))
    assert (ran.status, ran.out) == (2, "")
    assert f"micro_batch_size in {path}: 'none' cannot be used" in ran.err
    path.write_text("base_model: gpt2\nsequence_len: 4096\nmicro_batch_size: 1\ndatasets: []\n")
    # GPT-2 has positions for 1,024 tokens.
    assert (
        f"sequence_len in {path}: 4096 cannot be used" in run("estimate", "--config", str(path)).err
    )


def test_reading_lists_every_key_and_how_to_go_on(run, tmp_path):
    path = FILES / "axolotl-qlora.yml"
    said = run("read", str(path), "--data", "4").out
    assert "axolotl configuration" in said
    packed = "packed samples are to fused attention one full sequence, which was counted"
    assert f"sample_packing: true - {packed}" in " ".join(said.split())
    assert f"training-memory estimate --config {path} --data 4" in " ".join(said.split())
    plain = run("read", str(path), "--json").json
    assert plain["run"]["micro_batches"] == 4
    assert {one["key"] for one in plain["reading"]["findings"]} >= {"adapter", "lora_r", "bf16"}
    assert "name a file to read" in run("read").err
    assert "there is no such file" in run("read", str(tmp_path / "none.yaml")).err


def test_reading_yaml_without_its_package_says_what_to_install(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text("base_model: gpt2\n")
    hidden = tmp_path / "yaml"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError('no yaml')\n")
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT / 'calculator'}"}
    ran = process("read", str(path), env=environment)
    assert ran.returncode == 2
    assert b"pip install PyYAML" in ran.stderr


def test_a_config_file_can_be_changed_and_keeps_its_name(run, tmp_path):
    config = json.loads((CONFIGS / "gpt2.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "_name_or_path": "somebody/their-gpt"}))
    asked = ["--config", str(path), "--layers", "24", "--sequence", "512"]
    assert "somebody/their-gpt at 512 tokens" in " ".join(run("estimate", *asked).out.split())
    answer = run("estimate", *asked, "--json").json
    assert answer["run"]["model"] == "custom"
    assert answer["run"]["shape"]["layers"] == 24


def test_what_follows_from_a_changed_field_of_a_config_follows(run):
    asked = [
        "--config",
        str(CONFIGS / "gpt2.json"),
        "--hidden",
        "1536",
        "--sequence",
        "8",
        "--json",
    ]
    assert run("estimate", *asked).json["run"]["shape"]["head_dim"] == 128


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_run_file_gives_the_run_and_flags_change_it(run, tmp_path, encoding):
    path = tmp_path / "run.json"
    asked = {"model": "gpt2", "shape": {"layers": 5}, "sequence": 512, "recompute": "full"}
    path.write_text(json.dumps(asked), encoding=encoding)
    answer = run(
        "estimate", "--run", str(path), "--hidden", "600", "--sequence", "64", "--json"
    ).json
    expected = {**asked, "shape": {"layers": 5, "hidden": 600}, "sequence": 64}
    assert answer["run"] == Run.from_json(expected).to_json()


def test_another_model_leaves_a_files_changes_behind(run, tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"model": "gpt2", "shape": {"layers": 5}, "sequence": 512}')
    answer = run("estimate", "--run", str(path), "--model", "gpt2-xl", "--json").json
    assert answer["run"]["shape"] == {}
    assert answer["run"]["sequence"] == 512


def test_an_estimate_can_be_explained_later(run, tmp_path):
    path = tmp_path / "estimate.json"
    path.write_text(run("estimate", "--model", "gpt2", "--sequence", "99", "--json").out)
    assert run("explain", "--run", str(path), "--json").json["run"]["sequence"] == 99


def test_standard_input_is_a_file_as_well():
    asked = b'{"model": "gpt2", "sequence": 99}'
    ran = process("estimate", "--run", "-", "--json", input=asked)
    assert json.loads(ran.stdout)["run"]["sequence"] == 99
    config = (CONFIGS / "gpt2.json").read_bytes()
    ran = process("estimate", "--config", "-", "--sequence", "99", "--json", input=config)
    assert json.loads(ran.stdout)["parameters"] == catalog.get("gpt2").parameters.total


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file; check the path"),
        (b"", "it is empty; a JSON object is needed"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "it is not text; name a configuration file"),
        (b"{'layers': 1}", "it is not JSON: Expecting property name"),
        (b'{"sequence" 1}', "line 1, column 13"),
        (b"[1, 2]", "a JSON object is needed"),
        (b'{"sequence": NaN}', "NaN is not a number in JSON"),
        (b'{"a":' * 200_000, "it is nested too deeply"),
        (b'{"sequence": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b" " * (17 * 2**20), "larger than 16 MiB; name a configuration file, not weights"),
    ],
)
@pytest.mark.parametrize("flag", ["--run", "--config"])
def test_a_file_that_cannot_be_used_says_why(run, tmp_path, flag, content, words):
    path = tmp_path / "given.json"
    if content is not None:
        path.write_bytes(content)
    ran = run("estimate", flag, str(path), "--sequence", "none")
    assert (ran.status, ran.out) == (2, "")
    first, second = ran.err.splitlines()
    assert first.startswith(f"training-memory estimate: {flag}: ")
    assert words in first
    # What does not depend on the file is checked all the same.
    assert second.startswith("training-memory estimate: --sequence: 'none' cannot be used")


def test_a_folder_is_not_a_file(run, tmp_path):
    ran = run("estimate", "--config", str(tmp_path))
    assert ran.status == 2
    assert "it is a folder; name the file in it" in ran.err


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
def test_a_file_that_may_not_be_read_says_so(run, tmp_path):
    path = tmp_path / "secret.json"
    path.write_text("{}")
    path.chmod(0)
    assert "it cannot be read: Permission denied" in run("estimate", "--run", str(path)).err


def test_mistakes_in_files_are_named_as_they_are_written_there(run, tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"sequence": 0, "shape": {"layers": "x"}, "sequense": 1, "zero": 1.5}')
    lines = run("estimate", "--run", str(path), "--micro-batch", "0").err.splitlines()
    named = {line.removeprefix("training-memory estimate: ").split(": ")[0] for line in lines}
    fields = ("sequence", "layers", "sequense", "zero")
    assert named == {"--micro-batch", *(f"{field} in {path}" for field in fields)}

    path.write_text('{"model_type": "llama", "hidden_size": "wide"}')
    ran = run("estimate", "--config", str(path))
    assert ran.status == 2
    assert f"hidden_size in {path}: 'wide' cannot be used" in ran.err
    assert f"num_hidden_layers in {path}: needed" in ran.err


# --- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("estimate --micro-batch 0", "--micro-batch: '0' cannot be used; a whole number, 1 to"),
        ("estimate --model lama-7b", "Did you mean llama-7b?"),
        ("estimate --modle gpt2", "--modle: there is no such flag. Did you mean --model?"),
        ("estimate --seq 12", "--seq: there is no such flag. Did you mean --sequence?"),
        ("estimate --recompute ful", "allowed: none, selective, full, matmuls. Did you mean full?"),
        ("estimate --gpu h100", "Did you mean h100-80gb?"),
        (
            "estimate --units gib",
            "--units: 'gib' cannot be used; allowed: GB, GiB. Did you mean GiB?",
        ),
        ("estimate --zero 4", "--zero: '4' cannot be used; allowed: 0 (off), 1, 2, 3"),
        ("estimate --layers", "--layers: it needs a value: --layers VALUE"),
        ("estimate --tied=yes", "--tied: it takes no value"),
        ("estimate gpt2", "'gpt2' cannot be used; every value follows the flag it is for. Did you"),
        ("estimate --tensor 3", "LLaMA 7B has 32, so use a divisor of 32"),
        ("estimate --sequence-parallel", "--sequence-parallel: sequence parallelism splits"),
        ("estimate --norm-bias", "--norm-bias: false where norm is rmsnorm"),
        ("estimate --model gpt2", "--sequence: 4096 cannot be used; GPT-2 has learned positions"),
        ("estimate --model gpt2", "(it was not given, so the usual value was taken)"),
        ("estimate --model custom", "--layers: needed"),
        ("estimate --config - --run -", "standard input holds one file, and --config reads it"),
        ("explain --pipeline 33", "LLaMA 7B has 32, so use 1 to 32"),
        (
            "estimat",
            "command: 'estimat' cannot be used; allowed: estimate, explain, ",
        ),
        ("--json", "--json: flags follow a command"),
        ("models nosuch", "no name known here has that in it"),
        ("models lamma-7b", "Did you mean llama-7b?"),
        ("gpus --tied", "--tied: there is no such flag"),
    ],
)
def test_a_mistake_is_named_with_what_would_do(run, arguments, words):
    ran = run(*arguments.split())
    assert (ran.status, ran.out) == (2, "")
    assert words in ran.err
    assert all(line.startswith("training-memory") for line in ran.err.splitlines())


def test_all_mistakes_are_named_at_once(run):
    asked = "--sequence 0 --micro-batch -3 --recipe x --tensor y --layers -1 --nosuch 5 --units MB"
    ran = run("estimate", *asked.split())
    for name in ("sequence", "micro-batch", "recipe", "tensor", "layers", "nosuch", "units"):
        assert f" --{name}: " in ran.err
    assert len(ran.err.splitlines()) == 7


def test_a_long_value_is_not_said_in_full(run):
    long = "9" * 100_000
    ran = run("estimate", "--sequence", long, "--zero", long, "--layers", long, f"--{long}")
    assert len(ran.err.splitlines()) == 4
    assert ran.status == 2
    assert all(len(line) < 500 for line in ran.err.splitlines())


_words = st.one_of(
    st.sampled_from(
        [
            *(flags.flag(field) for field in (*SHAPE_FIELDS, *DEFAULTS)),
            *("--no-tied", "--json", "--config", "--run", "--units", "--help", "--", "-", "-x"),
            *(
                "",
                "0",
                "-1",
                "1",
                "32",
                "4k",
                "1e3",
                "nan",
                "-inf",
                "10" * 20,
                "²",
                "٤٠٩٦",
                "1,000",
            ),
            *(
                "llama-7b",
                "mixtral-8x7b",
                "deepseek-v3",
                "custom",
                "none",
                "full",
                "rmsnorm",
                "true",
            ),
            *("/", "/nonexistent", "\x00", "\ud800", "%s", "{layer}", "🦙"),
        ]
    ),
    st.text(max_size=8),
)


@limits(max_examples=300)
@given(
    command=st.sampled_from(["estimate", "explain", "models", "gpus"]),
    arguments=st.lists(_words, max_size=6),
)
def test_no_input_brings_a_traceback(command, arguments):
    if "-" in arguments:
        arguments = [word for word in arguments if word not in ("--config", "--run")]
    status, out, err = _captured(command, *arguments)
    assert status in (0, 2)
    assert bool(out) == (status == 0)
    assert bool(err) == (status == 2)


def _captured(*arguments: str) -> tuple[int, str, str]:
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


# --- manners ---------------------------------------------------------------------------------


def test_help_and_version(run):
    for arguments in ((), ("--help",), ("-h",)):
        ran = run(*arguments)
        assert (ran.status, ran.err) == (0, "")
        assert all(f"\n  {command} " in ran.out for command in COMMANDS)
    assert run("--version").out == f"training-memory {__version__}\n"
    for command in COMMANDS:
        ran = run(command, "--help")
        assert ran.status == 0
        assert ran.out.startswith(f"usage: training-memory {command}")
        assert max(map(len, ran.out.splitlines())) <= 100


@pytest.mark.parametrize("command", ["estimate", "explain", "fit", "oom", "diff", "read", "verify"])
def test_each_heading_in_the_help_comes_once(run, command):
    lines = run(command, "--help").out.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert len(headings) == len(set(headings))


def test_the_examples_in_the_help_work(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shutil.copy(CONFIGS / "llama-3-8b.json", tmp_path / "config.json")
    (tmp_path / "run.json").write_text('{"model": "gpt2", "sequence": 1024}')
    for name, source in (("train.yaml", "trainer-full.yaml"), ("ds_config.json", "ds-auto.json")):
        shutil.copy(FILES / source, tmp_path / name)
    texts = [
        run("--help").out,
        run("estimate", "--help").out,
        run("explain", "--help").out,
        run("fit", "--help").out,
        run("read", "--help").out,
    ]
    examples = {
        line.strip()
        for text in texts
        for line in text.partition("examples:")[2].splitlines()
        if line.strip()
    }
    assert len(examples) >= 10
    for example in examples:
        program, *arguments = example.split()
        assert program == "training-memory"
        ran = run(*arguments)
        assert (ran.status, ran.err) == (0, ""), example


def test_an_interruption_is_quiet(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_main", interrupted)
    assert main(["estimate"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_early_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = process("explain", capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_an_error_in_words():
    with Path("/dev/full").open("wb") as full:
        ran = process("estimate", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert ran.returncode == 2
    assert ran.stderr == b"training-memory: output: No space left on device.\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_closed_streams_are_no_trouble(closed):
    command = f"{sys.executable} -m training_memory estimate --sequence 512 {closed}"
    environment = {"PYTHONPATH": str(ROOT / "calculator")}
    ran = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_models_are_listed_with_their_parameters(run):
    out = run("models").out
    for model_id, model in catalog.models().items():
        (line,) = (line for line in out.splitlines() if line.split()[0] == model_id)
        assert f" {model.parameters.total:,} " in line
    assert {line.split()[0] for line in run("models", "llama", "70B").out.splitlines()[1:]} == {
        *("llama-2-70b", "llama-3-70b", "llama-3.1-70b", "llama-3.3-70b"),
    }
    listed = run("models", "--json").json["models"]
    assert [model["id"] for model in listed] == list(catalog.models())


def test_gpus_are_listed_with_their_memory(run):
    out = run("gpus").out
    assert all(gpu_id in out for gpu_id in gpus.gpus())
    (found,) = run("gpus", "h100", "--json").json["gpus"]
    assert found["memory_bytes"] == 80 * 10**9


# --- interpreters ----------------------------------------------------------------------------


def _interpreter(version: str) -> str | None:
    """A Python of that version that runs: installed by pyenv, or on the path."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [str(one) for one in pyenv.glob(f"versions/{version}.*/bin/python3")]
    for python in filter(None, (*found, shutil.which(f"python{version}"))):
        # What is on the path may be a stand-in that refuses to run in this folder, or that talks.
        asked = [python, "-c", "import sys; print(sys.executable)"]
        ran = subprocess.run(asked, capture_output=True, text=True)
        if not ran.returncode:
            return ran.stdout.strip()
    return None


@pytest.mark.thorough
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_every_python_gives_the_same_bytes(version):
    python = _interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    asked = ["--model", "mixtral-8x7b", "--data", "8", "--zero", "2", "--pipeline", "4"]
    answer = estimate(
        Run.from_json({"model": "mixtral-8x7b", "data": 8, "zero": 2, "pipeline": 4})
    ).to_json()
    ran = process("estimate", *asked, "--json", python=python)
    assert ran.stderr == b""
    assert json.loads(ran.stdout) == answer
    texts = [
        process(command, *asked, python=each).stdout
        for command in ("estimate", "explain", "models")
        for each in (python, sys.executable)
    ]
    assert texts[::2] == texts[1::2]
    ran = process("estimate", "--layers", "--zero", python=python)
    assert ran.stderr == b"training-memory estimate: --layers: it needs a value: --layers VALUE.\n"
    assert process("estimate", "--help", python=python).returncode == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["explain", "--format", "svg"], "estimate has --format, this command does not"),
        (["explain", "--modle", "llama-7b"], "Did you mean --model?"),
        (["estimate", "--format", "svg", "--json"], "--format svg says otherwise"),
        (["read", "nosuch.yaml"], "FILE: 'nosuch.yaml' cannot be used; there is no such file"),
        (["verify", "--dry-run", "--recompute", "matmuls"], "allowed: none, selective, full."),
        (["verify", "--dry-run", "--recompute", "foo"], "allowed: none, selective, full."),
    ],
)
def test_a_mistake_is_told_in_the_commands_own_words(words, complaint, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "--norm" not in said


def test_a_files_broken_value_is_told_by_the_files_name(tmp_path, capsys):
    file = tmp_path / "train.yaml"
    file.write_text("per_device_train_batch_size: many\noutput_dir: x\n", encoding="utf-8")
    assert main(["read", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"per_device_train_batch_size in {file}" in said
    assert "--config" not in said


def test_a_models_own_file_gives_it_its_name_in_json(tmp_path, capsys):
    shape = {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8}
    config = {"model_type": "llama", "intermediate_size": 1024, "vocab_size": 1000, **shape}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config, "_name_or_path": "my/tiny"}), encoding="utf-8")
    assert main(["estimate", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["name"] == "my/tiny"
