"""A record of a check read back, trusting nothing: it can come from anyone.

What is returned is whole and in proportion; what is refused is named by its place in the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date

from ..errors import InputErrors
from ..records import fields
from ..run import Run
from .moments import MEASURED, Moment
from .plan import MOST_STEPS, Plan
from .record import FORMAT, Machine, Measurement, Record

_MOST_BYTES = 2**50
_MOST_TEXT = 200


class RecordError(ValueError):
    """A record that cannot be: ``problems`` has a sentence for each thing that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


def read_record(value: object) -> Record:
    """The record that ``value``, out of a JSON file, describes.

    Raises :class:`RecordError` with all its faults.
    """
    reader = _Reader()
    record = reader.record(value)
    if record is None or reader.problems:
        raise RecordError(reader.problems)
    return record


class _Reader:
    """Reads one record and collects what is wrong with it, each with the path to it."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def record(self, value: object) -> Record | None:
        keys = ("format", "day", "training_memory", "machine", "run", "steps", "measurements")
        given = self._object("the record", value, keys)
        if given.get("format") != FORMAT:
            self._wrong("format", given.get("format"), f"the number {FORMAT}")
            return None
        day = self._day(given.get("day"))
        version = self._text("training_memory", given.get("training_memory"))
        machine = self._machine(given.get("machine"))
        steps = self._count("steps", given.get("steps"), least=1, most=MOST_STEPS)
        plan_of = given.get("run")
        if not isinstance(plan_of, Mapping) or "recompute" in plan_of:
            self._wrong("run", plan_of, "a run as an object, without its recompute")
            return None
        rows = given.get("measurements")
        if not isinstance(rows, list) or not rows:
            self._wrong("measurements", rows, "a list with one or more measurements")
            return None
        found = [
            self._measurement(f"measurements[{place}]", row, plan_of, steps, machine)
            for place, row in enumerate(rows)
        ]
        measurements = tuple(one for one in found if one is not None)
        policies = [one.run.recompute for one in measurements]
        if len(set(policies)) < len(policies):
            self.problems.append("measurements: each recompute may come once")
        if self.problems or day is None:
            return None
        plan = Plan(runs=tuple(one.run for one in measurements), steps=steps)
        return Record(
            day=day, version=version, machine=machine, plan=plan, measurements=measurements
        )

    def _machine(self, value: object) -> Machine:
        sizes = ("memory_bytes", "free_bytes")
        names = [item.name for item in fields(Machine)]
        given = self._object("machine", value, names)
        read: dict[str, object] = {
            name: self._count(f"machine.{name}", given.get(name), least=1)
            if name in sizes
            else self._text(f"machine.{name}", given.get(name))
            for name in names
        }
        machine = Machine(**read)  # type: ignore[arg-type]  # each was read as its field's type
        self._at_most("machine.free_bytes", machine.free_bytes, "the GPU", machine.memory_bytes)
        return machine

    def _measurement(
        self, path: str, value: object, plan_of: Mapping[str, object], steps: int, machine: Machine
    ) -> Measurement | None:
        given = self._object(path, value, ("recompute", "predicted", "measured", "losses"))
        keys = (
            "max_memory_allocated",
            "max_memory_reserved",
            "moments",
            "outside_allocator",
            "left_allocated",
        )
        measured = self._object(f"{path}.measured", given.get("measured"), keys)
        sizes = {
            name: self._count(f"{path}.measured.{name}", measured.get(name))
            for name in keys
            if name != "moments"
        }
        moments = self._moments(f"{path}.measured.moments", measured.get("moments"))
        run = self._run(path, {**plan_of, "recompute": given.get("recompute")})
        losses = self._losses(f"{path}.losses", given.get("losses"), steps)
        if run is None or not moments:
            return None
        peak = max(moments.values())
        if peak != sizes["max_memory_allocated"]:
            self.problems.append(
                f"{path}.measured.max_memory_allocated: {sizes['max_memory_allocated']:,} is not "
                f"the highest of its moments, {peak:,}"
            )
        reserved = sizes["max_memory_reserved"]
        self._at_most(f"{path}.measured.max_memory_allocated", peak, "reserved memory", reserved)
        self._at_most(
            f"{path}.measured.max_memory_reserved", reserved, "the GPU", machine.memory_bytes
        )
        return Measurement(
            run=run,
            moments=moments,
            reserved_bytes=reserved,
            outside_bytes=sizes["outside_allocator"],
            left_bytes=sizes["left_allocated"],
            losses=losses,
        )

    def _moments(self, path: str, value: object) -> dict[Moment, int]:
        given = self._object(path, value, [str(moment) for moment in Moment])
        sizes = {
            moment: self._count(f"{path}.{moment}", given.get(moment), least=1) for moment in Moment
        }
        for peak, end in MEASURED.values():
            self._at_most(f"{path}.{end}", sizes[end], str(peak), sizes[peak])
        return sizes

    def _run(self, path: str, value: Mapping[str, object]) -> Run | None:
        try:
            run = Run.from_json(value)
        except InputErrors as errors:
            self.problems += [f"{path}, run.{error.message}" for error in errors.errors]
            return None
        # One GPU and one pass forward and backward is all that the check runs.
        if run.layout.gpus > 1 or run.micro_batches > 1:
            self.problems.append(f"{path}: the check runs on one GPU with one micro-batch")
        return run

    def _losses(self, path: str, value: object, steps: int) -> tuple[float, ...]:
        if (
            isinstance(value, list)
            and len(value) == steps
            and all(type(one) in (int, float) and math.isfinite(one) for one in value)
        ):
            return tuple(float(one) for one in value)
        self._wrong(path, value, f"{steps} numbers, one for each step")
        return ()

    def _object(self, path: str, value: object, keys: Sequence[str]) -> Mapping[str, object]:
        if not isinstance(value, Mapping):
            self._wrong(path, value, f"an object with {', '.join(keys)}")
            return {}
        wrong = sorted(str(key) for key in value.keys() ^ set(keys))
        if wrong:
            allowed = f"an object with just {', '.join(keys)}"
            self.problems.append(f"{path}: missing or unknown: {', '.join(wrong)}; {allowed}")
        return value

    def _count(self, path: str, value: object, *, least: int = 0, most: int = _MOST_BYTES) -> int:
        if type(value) is int and least <= value <= most:
            return value
        self._wrong(path, value, f"a whole number, {least:,} to {most:,}")
        return least

    def _text(self, path: str, value: object) -> str:
        if isinstance(value, str) and 0 < len(value.strip()) <= _MOST_TEXT and value.isprintable():
            return value.strip()
        self._wrong(path, value, f"text of 1 to {_MOST_TEXT} printable characters")
        return ""

    def _day(self, value: object) -> date | None:
        try:
            if isinstance(value, str):
                return date.fromisoformat(value)
        except ValueError:
            pass
        self._wrong("day", value, "a day as 2026-01-31")
        return None

    def _at_most(self, path: str, size: int, name: str, most: int) -> None:
        if size > most:
            self.problems.append(f"{path}: {size:,} is more than {name}, {most:,}")

    def _wrong(self, path: str, value: object, allowed: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        self.problems.append(f"{path}: {shown} cannot be used; allowed: {allowed}")
