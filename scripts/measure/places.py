"""Where in a model a module sits: the same few names for every implementation."""

from __future__ import annotations

import re
from typing import NamedTuple

#: The names, in the order of a forward pass.
PLACES = ("embedding", "layer", "final norm", "head", "loss")

_LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.(\d+)(?:\.|$)")
_LAST_PARTS = {
    "embed_tokens": "embedding",
    "tok_embeddings": "embedding",
    "wte": "embedding",
    "wpe": "embedding",
    "drop": "embedding",
    "rotary_emb": "embedding",
    # What the base model does between its parts: positions, masks, the sum of the embeddings.
    "model": "embedding",
    "transformer": "embedding",
    "norm": "final norm",
    "ln_f": "final norm",
    "lm_head": "head",
    "output": "head",
    # What the whole model does after its head.
    "loss": "loss",
    "": "loss",
}


class Place(NamedTuple):
    """A name of PLACES, and which layer where it is one."""

    name: str
    layer: int | None = None


def place(module: str) -> Place:
    """The place of a module by its dotted name. Raises ValueError for a name it does not know."""
    if found := _LAYER.search(module):
        return Place("layer", int(found[1]))
    name = _LAST_PARTS.get(module.rpartition(".")[2])
    if name is None:
        raise ValueError(f"module {module!r} has no place")
    return Place(name)
