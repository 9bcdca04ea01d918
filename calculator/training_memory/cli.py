"""The command line: ``training-memory estimate`` and the other commands of :data:`_HELP`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from .console import as_json, complain, refuse, terminal, write
from .errors import InputError, InputErrors

# For type checkers alone: a command imports what it needs when it runs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .estimate import Estimate
    from .flags import Parser
    from .plans import Progress
    from .readers.report import Report
    from .run import Run

_HELP = """\
usage: training-memory COMMAND ...

Where the memory of training a language model goes: every byte, when, and why.

commands:
  estimate   what one training step needs, of what, and whether it fits
  explain    the same, derived: every tensor, its formula, its numbers, its source
  fit        what to change so that it fits: single changes, the cheapest plan, fewest GPUs
  curve      the peak against sequence length, micro-batch or GPUs, and where it crosses
  oom        an out-of-memory error explained: which tensor, and what to change
  diff       two runs side by side: the totals, and where their steps part
  read       what other programs' configurations say, key by key
  models     the models known by name
  gpus       the GPUs known by name
  verify     train for a few steps on this machine's GPU, and compare (needs PyTorch)

  training-memory COMMAND --help    what each takes
  training-memory --version         which version this is

examples:
  training-memory estimate --model llama-7b --sequence 4096 --recompute full
  training-memory estimate --config config.json --data 8 --zero 3 --json
  training-memory fit --model llama-3-8b --gpus 8 --device h100-80gb
  training-memory estimate --config train.yaml --config ds_config.json --data 8
  training-memory models llama
"""

_RUN_EXAMPLES = """\
examples:
  training-memory {command} --model llama-7b --sequence 4k --micro-batch 2
  training-memory {command} --model llama-3-8b --data 64 --zero 3 --recompute selective
  training-memory {command} --model gpt2-xl --sequence 1024 --layers 96 --no-tied
  training-memory {command} --config config.json --gpu h100-80gb --units GiB
  training-memory {command} --config train.yaml --config ds_config.json --data 8
  training-memory {command} --run run.json --micro-batch 4 --json
"""

_READ_EXAMPLES = """\
formats, found by what a file says (or put before its name, as in axolotl:train.yml):
{formats}
examples:
  training-memory read train.yaml
  training-memory read config.json train.yaml ds_config.json --data 8
"""

_INTERRUPTED = 130  # as a shell tells of a program that Ctrl-C ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, or 2 with what is wrong on standard error."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _main(given)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _main(arguments: list[str]) -> int:
    command, *rest = arguments or ["--help"]
    if command in ("-h", "--help", "help"):
        return write(_HELP)
    if command in ("-V", "--version"):
        from . import __version__

        return write(f"training-memory {__version__}\n")
    if command not in _COMMANDS:
        return refuse("training-memory", [_unknown(command)])
    try:
        return _COMMANDS[command](command, rest)
    except (InputError, InputErrors) as problem:
        errors = [problem] if isinstance(problem, InputError) else problem.errors
        return refuse(f"training-memory {command}", errors)


def _doubts(report: Report | None) -> str:
    """What files left open, to stand under an answer."""
    if report is None:
        return ""
    from .render.reading import doubts

    return doubts(report, terminal())


def _unknown(command: str) -> InputError:
    names = list(_COMMANDS)
    if command.startswith("-"):
        return InputError(command, None, f"flags follow a command: {', '.join(names)}")
    return InputError.unknown_name("command", command, names)


def _run(command: str, arguments: list[str]) -> int:
    """``estimate`` and ``explain``."""
    from .flags import add_format, add_rank, run_parser

    explains = command == "explain"
    about = (
        "Derives the memory of one training step: every tensor with its formula, this run's "
        "numbers, why it is kept and where that is written; then the way to the peak."
        if explains
        else "Says how much memory one training step needs, of what it is made, when it peaks, "
        "and whether it fits the GPU."
    )
    examples = _RUN_EXAMPLES.format(command=command)
    parser = run_parser(command, description=about, epilog=examples)
    add_rank(parser)
    if not explains:
        add_format(parser)
    given, errors = parser.read(arguments)
    if given.get("help"):
        return write(parser.format_help())
    if given.get("format", "json") != "json":
        if given.get("json"):
            allowed = f"--format {given['format']} says otherwise; give one of the two"
            errors.append(InputError("--json", None, allowed))
        return _export(given, errors)
    given["json"] = given.get("json") or "format" in given
    from .request import read_request

    request = read_request(given, errors)
    answer = _answer(request.run, given.get("rank"))
    if explains:
        from .render.explain import explain as shown
        from .render.explain import explain_json
    else:
        from .render.text import text as shown
    if request.json:
        plain = explain_json(answer) if explains else answer.to_json()
        reading = {"reading": request.report.to_json()} if request.report else {}
        return write(as_json({**plain, **reading}))
    said = shown(answer, terminal(), binary=request.binary)
    return write(said + _doubts(request.report))


def _export(given: dict[str, object], errors: list[InputError]) -> int:
    """The answer in one of the formats to take away."""
    from .render.export import EXPORTS
    from .request import read_request

    export = EXPORTS.get(str(given["format"]))
    if given["format"] == "png":
        allowed = "a picture in dots is saved by the page; here svg is drawn, to be converted"
        errors.append(InputError("--format", "png", allowed))
    elif export is None:
        errors.append(InputError.unknown_name("--format", given["format"], tuple(EXPORTS)))
    request = read_request(given, errors)
    assert export is not None
    page = str(given.get("page", "")).partition("#")[0]
    answer = _answer(request.run, given.get("rank"))
    return write(export.made(answer, request.binary, page))


def _answer(run: Run, rank: object) -> Estimate:
    """The answer for the fullest kind of GPU, or for the one that was asked for."""
    from .estimate import estimate, estimate_on
    from .units import parse_count

    if rank is None:
        return estimate(run)
    try:
        return estimate_on(run, parse_count("rank", rank, least=0))
    except InputError as error:
        raise InputError("--rank", error.value, error.allowed) from None


def _read(command: str, arguments: list[str]) -> int:
    from .flags import read_parser
    from .readers.formats import FORMATS

    width = max(map(len, FORMATS)) + 2
    listed = "".join(
        f"  {form.id:{width}}{form.name}: {form.written}\n" for form in FORMATS.values()
    )
    parser = read_parser(
        command,
        description="Says what other programs' configurations mean for memory: each key, what it "
        "decides, and what bears on memory without being in the answer.",
        epilog=_READ_EXAMPLES.format(formats=listed),
    )
    given, errors = parser.read(arguments)
    if given.get("help"):
        return write(parser.format_help())
    from .render.reading import reading_json, reading_text
    from .request import read_configs

    if not given.get("config"):
        errors.append(InputError("FILE", None, "name a file to read, or - for standard input"))
    if errors:
        raise InputErrors(errors)
    resolved = read_configs(given, field="FILE")
    if given.get("json"):
        return write(as_json(reading_json(resolved)))
    return write(reading_text(resolved, given, terminal()))


def _fit(command: str, arguments: list[str]) -> int:
    from . import fit_command
    from .render.fit_text import fit_text

    parser = fit_command.parser(command)
    given, errors = parser.read(arguments)
    if given.get("help"):
        return write(parser.format_help())
    asked = fit_command.read(given, errors)
    found = fit_command.answer(asked, _tell)
    if asked.json:
        reading = {"reading": asked.report.to_json()} if asked.report else {}
        return write(as_json({**found.to_json(), **reading}))
    said = fit_text(found, terminal(), binary=asked.binary, every_line=asked.every_line)
    return write(said + _doubts(asked.report))


def _tell(progress: Progress) -> None:
    """How far a search is, where somebody watches; the next line takes its place."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        return
    said = f"{progress.tried:,}, estimated: {progress.estimated:,}"
    stream.write("\r\x1b[K" if progress.done else f"\rplans tried: {said}")
    stream.flush()


def _oom(command: str, arguments: list[str]) -> int:
    from . import oom_command

    parser = oom_command.parser(command)
    given, errors = parser.read(arguments)
    if given.get("help"):
        return write(parser.format_help())
    from .render.oom_text import oom_text

    asked = oom_command.read(given, errors)
    found = oom_command.answer(asked)
    return write(as_json(found.to_json()) if asked.json else oom_text(found, terminal()))


def _curve(command: str, arguments: list[str]) -> int:
    from . import curve_command

    parser = curve_command.parser(command)
    given, errors = parser.read(arguments)
    if given.get("help"):
        return write(parser.format_help())
    asked = curve_command.read(given, errors)
    found = curve_command.answer(asked)
    if asked.format == "json":
        return write(as_json({**found.to_json(), "run": asked.run.to_json()}))
    from .render import curve_text

    if asked.format == "csv":
        return write(curve_text.curve_csv(found))
    if asked.format == "svg":
        return write(curve_text.curve_svg(found, asked.run, binary=asked.binary))
    said = curve_text.curve_text(found, asked.run, terminal(), binary=asked.binary)
    return write(said + _doubts(asked.report))


def _diff(command: str, arguments: list[str]) -> int:
    from . import diff_command

    asked = diff_command.read(command, arguments)
    if asked is None:
        return write(diff_command.parser(command).format_help())
    found = diff_command.answer(asked)
    if asked.json:
        return write(as_json(found.to_json()))
    from .render.difference_text import difference_text

    said = difference_text(found, terminal(), binary=asked.binary, events=asked.events)
    return write(said)


def _models(command: str, arguments: list[str]) -> int:
    from .render.lists import models_json, models_text, named

    parser = _list_parser(
        command, "Lists the models known by name, with their parameters and shape."
    )
    given, errors = parser.read(arguments)
    if given.get("help"):
        return write(parser.format_help())
    from .catalog import models

    chosen = named(models(), given, errors)
    plain = given.get("json")
    return write(as_json(models_json(chosen)) if plain else models_text(chosen, terminal()))


def _gpus(command: str, arguments: list[str]) -> int:
    from .render.lists import gpus_json, gpus_text, named

    parser = _list_parser(command, "Lists the GPUs known by name, with their memory.")
    given, errors = parser.read(arguments)
    if given.get("help"):
        return write(parser.format_help())
    from .gpus import gpus

    chosen = named(gpus(), given, errors)
    plain = given.get("json")
    return write(as_json(gpus_json(chosen)) if plain else gpus_text(chosen, terminal()))


def _verify(command: str, arguments: list[str]) -> int:
    from .verify.command import verify

    def told(said: str) -> int:
        return complain(f"training-memory {command}: {said}\n")

    return verify(arguments, say=write, complain=told)


def _list_parser(command: str, description: str) -> Parser:
    from .flags import list_parser

    return list_parser(command, description=description)


_COMMANDS: Mapping[str, Callable[[str, list[str]], int]] = {
    "estimate": _run,
    "explain": _run,
    "fit": _fit,
    "curve": _curve,
    "oom": _oom,
    "diff": _diff,
    "read": _read,
    "models": _models,
    "gpus": _gpus,
    "verify": _verify,
}
