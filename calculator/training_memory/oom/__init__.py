"""An out-of-memory error explained: what it says, which tensor asked, why there was no room."""

from __future__ import annotations

from .explanation import Explanation, explain
from .reading import OomReading
from .text import read

__all__ = ["Explanation", "OomReading", "explain", "read"]
