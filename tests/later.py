"""What a page asks for after its answer, slice by slice to the end, as one."""

import json
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
