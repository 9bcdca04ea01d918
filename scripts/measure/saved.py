"""What one layer in the middle of a stack keeps for its backward pass, tensor by tensor.

PyTorch calls a hook for each tensor that an operation saves. Walking the graph afterwards tells
which node asked for which of its slots. Tensors that share a storage are one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import step as steps
from .backend import Tensor, dtype_name, fake_mode, saved_tensors_hooks
from .case import Case
from .modules import Modules, Node
from .places import place
from .storages import Category, Live, Tracker

LAYERS, MIDDLE = 3, 1
"""How many layers are built, and which one is looked at: one with a layer before and after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    """A storage that a layer's backward pass needs.

    ``kind`` is "kept" for the layer's own, "weight copy" for what autocast makes of a weight, and
    "shared" for what is made once a step for all layers. Sizes in bytes, not rounded.
    """

    kind: str
    made_by: str
    needed_by: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    bytes: int


class _Origin(NamedTuple):
    made_by: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(slots=True)
class _Origins:
    """Where each storage was made, and as what."""

    made: dict[int, _Origin] = field(default_factory=dict)
    _operation: str = ""

    def operation(self, tracker: Tracker, name: str, inputs: Iterable[Live]) -> None:
        """Remember which operation runs."""
        self._operation = name.removeprefix("aten.")

    def allocated(self, tracker: Tracker, live: Live, tensor: Tensor) -> None:
        """Remember what it made."""
        by = f"{_within(tracker.modules.current)}:{self._operation}"
        self.made[live.number] = _Origin(
            by if self._operation else "before the step",
            tuple(tensor.shape),
            dtype_name(tensor.dtype),
        )

    def freed(self, tracker: Tracker, live: Live) -> None:
        """A storage was freed: nothing to remember."""

    def renamed(self, tracker: Tracker, live: Live) -> None:
        """A storage was renamed: nothing to remember."""

    def resized(self, tracker: Tracker, live: Live, change: int) -> None:
        """A storage changed its size: nothing to remember."""


class _Packed:
    """Stands for a saved tensor until it is asked for."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def saved_tensors(case: Case) -> list[SavedTensor]:
    """What the middle layer of three keeps, in the order in which the forward pass saves it."""
    shape = (*(pair for pair in case.shape if pair[0] != "layers"), ("layers", LAYERS))
    case = case.with_(shape=shape)
    packs: list[_Packed] = []
    asked: list[_Packed] = []

    def pack(tensor: Tensor) -> _Packed:
        packs.append(_Packed(tensor))
        return packs[-1]

    def unpack(packed: _Packed) -> Tensor:
        asked.append(packed)
        return packed.tensor

    with fake_mode():
        step = steps.Step(case)
        modules = Modules.of(step.named_modules())
        origins = _Origins()
        tracker = steps.tracker_for(step, modules, device="cuda", rounding=1, log=origins)
        with tracker:
            tracker.begin("forward")
            with saved_tensors_hooks(pack, unpack):
                loss, _ = step.forward()
        modules.remove()
        needs: dict[int, list[tuple[str, str]]] = {}
        for node in _nodes(loss):
            module = modules.of_node(Node(node.name(), node._sequence_nr(), ""))
            for slot in _slots(node):
                asked.clear()
                try:
                    getattr(node, slot)
                except RuntimeError:
                    continue
                for packed in asked:
                    needs.setdefault(id(packed), []).append(
                        (module, f"{module}:{node.name()}.{slot.removeprefix('_saved_')}")
                    )
        return _rows(packs, needs, tracker, origins)


def _rows(
    packs: list[_Packed],
    needs: dict[int, list[tuple[str, str]]],
    tracker: Tracker,
    origins: _Origins,
) -> list[SavedTensor]:
    users: dict[int, dict[str, None]] = {}
    layers: dict[int, set[int | None]] = {}
    first: dict[int, Live] = {}
    for packed in packs:
        live = tracker.holds(packed.tensor)
        if live is None or live.category in (Category.WEIGHTS, Category.INPUTS):
            continue
        if id(packed) not in needs:
            raise RuntimeError(f"no node asks for a saved tensor of {tuple(packed.tensor.shape)}")
        for module, user in needs[id(packed)]:
            layer = place(module).layer
            layers.setdefault(live.number, set()).add(layer)
            if layer == MIDDLE:
                users.setdefault(live.number, {})[user] = None
                first.setdefault(live.number, live)
    rows = []
    for number, live in first.items():
        origin = origins.made[number]
        if live.category is Category.WEIGHT_COPIES:
            kind = "weight copy"
        elif live.category is Category.BUFFERS or len(layers[number]) == LAYERS:
            kind = "shared"
        else:
            kind = "kept"
        rows.append(
            SavedTensor(
                kind=kind,
                made_by=origin.made_by,
                needed_by=tuple(_within(user) for user in users[number]),
                shape=origin.shape,
                dtype=origin.dtype,
                bytes=live.bytes,
            )
        )
    return rows


def _within(name: str) -> str:
    """A module's name inside its layer; other modules keep theirs."""
    for prefix in ("layers", "h"):
        before, found, after = name.partition(f"{prefix}.{MIDDLE}")
        if found and (not before or before.endswith(".")):
            return after.lstrip(".") if after.startswith(".") else f"layer{after}"
    return name


def _nodes(loss: Tensor) -> Iterator[Any]:
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(following for following, _ in node.next_functions)


def _slots(node: Any) -> Iterator[str]:
    yield from (name for name in dir(node) if name.startswith("_saved_"))
    if hasattr(node, "saved_tensors"):
        yield "saved_tensors"
