"""Where training memory goes: a ledger of tensors, a tree of events, one walk.

>>> from training_memory import Run, estimate
>>> estimate(Run.from_json({"model": "llama-7b", "sequence": 4096})).worst.peak_bytes
199539351552
"""

from __future__ import annotations

from .errors import InputError, InputErrors
from .estimate import Estimate, RankEstimate, estimate
from .run import Run

__all__ = ["Estimate", "InputError", "InputErrors", "RankEstimate", "Run", "estimate"]
__version__ = "0.1.0"
