"""What a page asks for after its answer, slice by slice to the end, as one."""

import json
from collections.abc import Callable
from typing import Any

from training_memory import later_door


def ask(turn: int = 0, *, state: str, parts: list[str], prefix: str = "tm") -> dict[str, Any]:
    """One slice."""
    request = {"state": state, "parts": parts, "prefix": prefix, "turn": turn}
    told: dict[str, Any] = json.loads(later_door.answer(json.dumps(request)))
    return told


def whole(state: str, *parts: str) -> dict[str, str]:
    """The parts of a state's answer that come later, or the notes of its switches."""
    found: dict[str, str] = {}
    for turn in range(10_000):
        told = ask(turn, state=state, parts=[*parts])
        assert told["ok"]
        found |= told["html"] | told["notes"]
        if told["done"]:
            return found
    raise AssertionError("it never ends")


def answered(answer: Callable[[str], str], **request: Any) -> dict[str, Any]:
    """What a door says that answers slice by slice: its last word."""
    for turn in range(10_000):
        asked = {"prefix": "tm", **request, "turn": turn}
        told: dict[str, Any] = json.loads(answer(json.dumps(asked)))
        if told.get("done", True):
            return told
    raise AssertionError("it never ends")
