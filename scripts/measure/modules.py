"""Which module an operation belongs to: forward by the stack of calls, backward by the node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .backend import torch


class Span(NamedTuple):
    """One module's call: the autograd nodes made in it have numbers from first up to end."""

    first: int
    end: int
    name: str


class Node(NamedTuple):
    """What is kept of the autograd node that runs: no reference to it, or it would live longer."""

    name: str
    number: int
    parameter: str


@dataclass(slots=True)
class Modules:
    """Follows the calls of named modules by hooks."""

    stack: list[tuple[str, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    handles: list[Any] = field(default_factory=list)
    parameters: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, named: Iterable[tuple[str, Any]]) -> Modules:
        """Follow each module under its name ("" is the whole model)."""
        self = cls()
        for name, module in named:
            self._follow(name, module)
            for parameter_name, parameter in module.named_parameters(recurse=False):
                self.parameters.setdefault(id(parameter), f"{name}.{parameter_name}".lstrip("."))
        return self

    def _follow(self, name: str, module: Any) -> None:
        next_number = torch._C._autograd._get_sequence_nr

        def enter(_module: Any, _arguments: Any) -> None:
            self.stack.append((name, next_number()))

        def leave(_module: Any, _arguments: Any, _output: Any) -> None:
            _, first = self.stack.pop()
            # A module that runs again in the backward pass makes nodes that never run.
            if torch._C._current_autograd_node() is None:
                self.spans.append(Span(first, next_number(), name))

        self.handles.append(module.register_forward_pre_hook(enter))
        self.handles.append(module.register_forward_hook(leave, always_call=True))

    @property
    def current(self) -> str:
        """The innermost module being called, "" where none is."""
        return self.stack[-1][0] if self.stack else ""

    @property
    def inside(self) -> bool:
        """Whether any module is being called."""
        return bool(self.stack)

    def node(self) -> Node | None:
        """The autograd node that runs now, if one does."""
        node = torch._C._current_autograd_node()
        if node is None:
            return None
        variable = getattr(node, "variable", None)
        name = self.parameters.get(id(variable), "") if variable is not None else ""
        return Node(node.name(), node._sequence_nr(), name)

    def of_node(self, node: Node) -> str:
        """The innermost module in whose call the node was made; "" for the whole model."""
        if node.parameter:
            return node.parameter.rpartition(".")[0]
        inner: Span | None = None
        for span in self.spans:
            if span.first <= node.number < span.end and (
                inner is None or span.end - span.first < inner.end - inner.first
            ):
                inner = span
        return inner.name if inner else ""

    def remove(self) -> None:
        """Stop following."""
        for handle in self.handles:
            handle.remove()
