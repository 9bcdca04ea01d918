"""A step's every operation, allocation and free in order, as lines of tab-separated text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from .backend import Tensor, dtype_name
from .storages import Live, Tracker

COLUMNS = (
    "line",
    "event",
    "phase",
    "operation",
    "module",
    "node",
    "again",
    "storage",
    "category",
    "shape",
    "dtype",
    "bytes",
    "total",
    "reads",
)


class OperationLog:
    """Writes a line for each thing that happens while a tracker runs."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._line = 0
        print(*COLUMNS, sep="\t", file=file)

    def operation(self, tracker: Tracker, name: str, inputs: Iterable[Live]) -> None:
        """An operation ran; what it allocated follows in "alloc" lines."""
        reads = dict.fromkeys(f"{live.number}" for live in inputs)
        node = tracker.modules.node()
        module = tracker.modules.current
        if node and not module:
            module = tracker.modules.of_node(node)
        self._write(
            "op",
            tracker,
            operation=name.removeprefix("aten."),
            module=module,
            node=f"{node.name} {node.parameter}".strip() if node else "",
            again="yes" if tracker.recomputing else "",
            reads=" ".join(reads),
        )

    def allocated(self, tracker: Tracker, live: Live, tensor: Tensor) -> None:
        """A storage was made; the shape is that of the tensor that the operation returned."""
        self._write(
            "alloc",
            tracker,
            live,
            shape="x".join(map(str, tensor.shape)) or "1",
            dtype=dtype_name(tensor.dtype),
            size=live.bytes,
        )

    def freed(self, tracker: Tracker, live: Live) -> None:
        """A storage was freed."""
        self._write("free", tracker, live, size=-live.bytes)

    def renamed(self, tracker: Tracker, live: Live) -> None:
        """A storage serves another purpose: a gradient was stored."""
        self._write("name", tracker, live)

    def resized(self, tracker: Tracker, live: Live, change: int) -> None:
        """A storage changed its size."""
        self._write("size", tracker, live, size=change)

    def _write(
        self,
        event: str,
        tracker: Tracker,
        live: Live | None = None,
        *,
        size: int = 0,
        **texts: str,
    ) -> None:
        self._line += 1
        values = {
            "line": str(self._line),
            "event": event,
            "phase": tracker.phase,
            "storage": str(live.number) if live else "",
            "category": live.category if live else "",
            "bytes": str(size) if size else "",
            "total": str(tracker.total),
            **texts,
        }
        print(*(values.get(column, "") for column in COLUMNS), sep="\t", file=self._file)
