"""A transformer small enough to read, trained in plain Python to see what the backward pass keeps.

Start with ``tape`` (what is kept), then ``operations`` (why), ``model`` (put together) and
``count`` (how much). Nothing outside the standard library is used, so that the same files run in a
browser.
"""

from __future__ import annotations

from .comparison import Cause, Comparison, Pair, compare
from .count import Count, CountRow, count_kept, count_step
from .gradients import Checked, gradient_check, gradient_checks
from .model import DECODER, Decoder, Shape
from .tape import Moment, Tape
from .training import losses, train

__all__ = [
    "DECODER",
    "Cause",
    "Checked",
    "Comparison",
    "Count",
    "CountRow",
    "Decoder",
    "Moment",
    "Pair",
    "Shape",
    "Tape",
    "compare",
    "count_kept",
    "count_step",
    "gradient_check",
    "gradient_checks",
    "losses",
    "train",
]
